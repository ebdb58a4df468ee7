"""What is written is apart from all that is read; and nothing of a caller's outlives the call."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest

import lapidist
from lapidist.errors import DTypeError, StrideError
from lapidist.verify.sum_bound import judge

PLACES = pytest.mark.parametrize("device", ["host", "machine"])


def normal(rng: np.random.Generator, *shape: int) -> Any:
    return rng.standard_normal(shape).astype(np.float32)


# ---- lists ----


@PLACES
@pytest.mark.parametrize("name", ["a", "b", "c", "out"])
def test_an_output_that_another_product_uses_is_refused(
    rng: np.random.Generator, device: str, name: str
) -> None:
    given = {name: [normal(rng, 6, 6) for _ in range(3)] for name in ("a", "b", "c", "out")}
    given[name][2] = given["out"][0]
    before = given["out"][0].copy()
    with pytest.raises(StrideError, match=rf"out: must not share memory .*out\[\d\] overlaps {name}\[\d\]"):
        lapidist.gemm(given["a"], given["b"], given["c"], beta=1.0, out=given["out"], device=device)
    assert np.array_equal(given["out"][0], before)


@pytest.mark.often(2)
@PLACES
@pytest.mark.parametrize("where", ["columns", "rows", "tiles", "every other row"])
def test_outputs_side_by_side_in_one_buffer_are_taken(
    rng: np.random.Generator, device: str, where: str
) -> None:
    board = np.zeros((12, 12), np.float32)
    views = {
        "columns": [board[:6, :6], board[:6, 6:]],
        "rows": [board[:6, :6], board[6:, :6]],
        "tiles": [board[:6, :6], board[:6, 6:], board[6:, :6], board[6:, 6:]],
        "every other row": [board[::2, :6], board[1::2, :6]],
    }[where]
    a, b = ([normal(rng, 6, 6) for _ in views] for _ in range(2))
    a[1] = a[0]  # inputs may be shared
    lapidist.gemm(a, b, out=views, device=device)
    for first, second, out in zip(a, b, views, strict=True):
        assert judge(out, first, second).ok


def test_outputs_that_share_one_element_are_refused() -> None:
    board, eye = np.zeros((6, 11), np.float32), np.eye(6, dtype=np.float32)
    with pytest.raises(StrideError, match="out: must not share memory"):
        lapidist.gemm([eye, eye], [eye, eye], out=[board[:, :6], board[:, 5:]])


@PLACES
@pytest.mark.parametrize("name", ["a", "b", "c"])
@pytest.mark.parametrize("behind", [False, True], ids=["before an output", "behind it"])
def test_an_operand_next_to_the_output_of_another_product_is_taken(
    rng: np.random.Generator, device: str, name: str, behind: bool
) -> None:
    """Not a byte lies between them."""
    given = {name: [normal(rng, 6, 6) for _ in range(2)] for name in ("a", "b", "c", "out")}
    board = normal(rng, 12, 6)
    given["out"][0], given[name][1] = (board[:6], board[6:]) if behind else (board[6:], board[:6])
    before = given[name][1].copy()
    lapidist.gemm(given["a"], given["b"], given["c"], beta=1.0, out=given["out"], device=device)
    assert np.array_equal(given[name][1], before)
    for a, b, c, out in zip(*given.values(), strict=True):
        assert judge(out, a, b, c, beta=1.0).ok


@PLACES
@pytest.mark.parametrize("rows", [slice(0, 2), slice(10, 12)], ids=["first rows", "last rows"])
@pytest.mark.parametrize("turned", [np.flipud, lambda board: np.fliplr(board.T)], ids=["rows", "columns"])
def test_outputs_that_run_backwards_are_not_read_either(device: str, rows: slice, turned: Any) -> None:
    board = np.zeros((12, 12), np.float32)
    over = board[rows].reshape(12, 2)
    a, b = [np.ones((12, 2), np.float32), over], [np.ones((2, 12), np.float32)] * 2
    out = [turned(board), turned(np.zeros((12, 12), np.float32))]
    with pytest.raises(StrideError, match=r"out\[0\] overlaps a\[1\]"):
        lapidist.gemm(a, b, out=out, device=device)
    assert not board.any()


@PLACES
def test_c_may_be_its_own_output(rng: np.random.Generator, device: str) -> None:
    a, b, out = ([normal(rng, 6, 6) for _ in range(3)] for _ in range(3))
    before = [each.copy() for each in out]
    lapidist.gemm(a, b, out, beta=1.0, out=out, device=device)
    for first, second, c, d in zip(a, b, before, out, strict=True):
        assert judge(d, first, second, c, beta=1.0).ok


@PLACES
def test_a_plan_of_lists_serves_several_threads(rng: np.random.Generator, device: str) -> None:
    plan = lapidist.plan([normal(rng, 6, 6)] * 2, [normal(rng, 6, 6)] * 2, device=device)
    wrong: list[Any] = []

    def work(seed: int) -> None:
        own = np.random.default_rng(seed)
        for _ in range(5 if device == "machine" else 50):
            a, b = ([normal(own, 6, 6) for _ in range(2)] for _ in range(2))
            out = [np.full((6, 6), np.nan, np.float32) for _ in range(2)]
            try:
                plan.execute(a, b, None, out)
                wrong.extend(x for x in zip(out, a, b, strict=True) if not judge(*x).ok)
            except Exception as error:
                wrong.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# ---- arrays beside the operands ----


@PLACES
def test_side_by_side_with_an_operand_is_apart(rng: np.random.Generator, device: str) -> None:
    buffer = normal(rng, 8, 16)
    a, out, b = buffer[:, :8], buffer[:, 8:], normal(rng, 8, 8)
    kept = a.copy()
    lapidist.matmul(a, b, out=out, device=device)
    assert np.array_equal(a, kept)
    assert judge(out, a, b).ok


@PLACES
@pytest.mark.parametrize("name", ["scale_a", "scale_b", "alpha", "beta", "gather_a", "gather_b", "scatter_d"])
def test_an_output_over_what_is_read_beside_a_and_b_is_refused(device: str, name: str) -> None:
    import ml_dtypes

    factors = name.startswith("scale")
    kind: Any = ml_dtypes.float8_e4m3fn if factors else np.float32
    a, out = np.ones((8, 8), kind), np.zeros((8, 8), np.float32)
    over = out.reshape(-1)[8:16]
    given: dict[str, Any] = {
        name: over if factors else over[:1] if name in ("alpha", "beta") else over.view(np.int32)
    }
    given |= {"c": np.zeros((8, 8), np.float32)} if name == "beta" else {}
    with pytest.raises(StrideError, match=f"out: must not overlap {name}"):
        lapidist.gemm(a, a.T, out=out, device=device, **given)
    assert not out.any()


@PLACES
def test_a_d_of_half_the_columns_does_not_begin_where_c_does(device: str) -> None:
    """A row of D would be written before all of that row of C is read."""
    a, c = np.ones((4, 4), np.float32), np.full((4, 4), 7, np.float32)
    with pytest.raises(StrideError, match="out: must not overlap c"):
        lapidist.gemm(a, a, c, beta=1.0, out=c[:, :2], epilogue=lapidist.epilogues.swiglu, device=device)
    assert (c == 7).all()


@PLACES
def test_results_of_an_epilogue_lie_apart(device: str) -> None:
    """From D, and from each other."""
    twice = lapidist.epilogue(lambda acc: (acc, acc + 1, lapidist.row_sum(acc)))
    a, d, e = (np.full((4, 4), value, np.float32) for value in (1, 7, 7))
    for out, words in (
        ((d, e, e[0]), r"out\[2\]: must not overlap out\[1\]"),
        ((d, d, e[0]), r"out\[1\]: must not overlap out:"),
    ):
        with pytest.raises(StrideError, match=words):
            lapidist.matmul(a, a, out, epilogue=twice, device=device)
    assert (d == 7).all()
    assert (e == 7).all()


@PLACES
@pytest.mark.parametrize("name", ["a", "b", "c"])
@pytest.mark.parametrize("way", ["scattered", "permuted"])
def test_a_scattered_or_permuted_output_over_an_operand_is_refused(device: str, way: str, name: str) -> None:
    given = {each: np.ones((8, 8), np.float32) for each in "abc"}
    board = np.zeros((9, 8), np.float32)
    given[name] = board[1:]
    out, more = board[:8], {"scatter_d": np.arange(8)}
    if way == "permuted":
        out, more = out.reshape(2, 4, 2, 4), {"permuted": True}
    with pytest.raises(StrideError, match=f"out: must not overlap {name}"):
        lapidist.gemm(*given.values(), beta=1.0, out=out, device=device, **more)
    assert not board.any()


# ---- nothing is kept ----


def residual_and_sums(acc: Any, scale: lapidist.Scalar, c: lapidist.Tile) -> Any:
    found = acc * scale + c
    return found, lapidist.row_sum(found)


WAYS = ("matmul", "matmul(out)", "gemm", "gemm(c, out)", "factors", "lists", "plan", "plan of lists")
WITH_EPILOGUE = ("epilogue", "epilogue of lists", "plan with an epilogue")
REFUSED = ("refused types", "refused types of lists", "refused types with an epilogue")


@PLACES
@pytest.mark.parametrize("way", [*WAYS, *WITH_EPILOGUE, *REFUSED])
def test_arrays_die_with_their_call(device: str, way: str) -> None:
    """At once: no cycle of Python's keeps them."""
    import ml_dtypes

    gate = lapidist.epilogue(residual_and_sums)

    def called() -> tuple[list[weakref.ref[Any]], Any]:
        kind: Any = ml_dtypes.float8_e4m3fn if way == "factors" else np.float32
        a, b, c, out = (
            np.ones((5, 4), kind),
            np.ones((4, 6), kind),
            np.ones((5, 6), np.float32),
            np.ones((5, 6), np.float32),
        )
        scale = np.ones(1, np.float32)
        kept: Any = None
        if way == "matmul":
            lapidist.matmul(a, b, device=device)
        elif way == "matmul(out)":
            lapidist.matmul(a, b, out=out, device=device)
        elif way == "gemm":
            lapidist.gemm(a, b, device=device)
        elif way == "gemm(c, out)":
            lapidist.gemm(a, b, c, beta=0.5, out=out, device=device)
        elif way == "factors":
            lapidist.matmul(a, b, scale_a=scale, device=device)
        elif way == "lists":
            lapidist.gemm([a], [b], out=[out], device=device)
        elif way == "plan":
            kept = lapidist.plan(a, b, c, beta=1.0, out=out, device=device)
            kept.execute(a, b, c, out)
        elif way == "epilogue":
            lapidist.gemm(a, b, out=(out, None), epilogue=gate(scale=scale, c=c), device=device)
        elif way == "epilogue of lists":
            lapidist.gemm([a], [b], out=([out], None), epilogue=gate(scale=scale, c=c), device=device)
        elif way == "plan with an epilogue":
            lapidist.plan(a, b, epilogue=gate(scale=scale, c=c), device=device).execute(a, b, None)
        elif way in REFUSED:
            texts, more = np.array([["text"] * 6] * 4), {}
            if "epilogue" in way:
                more["epilogue"] = gate(scale=scale, c=c)
            given = ([a], [texts]) if "lists" in way else (a, texts)
            with pytest.raises(DTypeError, match=r"b(\[0\])?: element type must be one of"):
                lapidist.gemm(*given, device=device, **more)
        else:
            kept = lapidist.plan([a], [b], [c], beta=1.0, out=[out], device=device)
            kept.execute([a], [b], [c], [out])
        return [weakref.ref(array) for array in (a, b, c, out, scale)], kept

    gc.disable()
    try:
        references, _plan = called()
        assert [reference() is None for reference in references] == [True] * 5
    finally:
        gc.enable()
