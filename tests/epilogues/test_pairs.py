"""Functions of neighbouring columns in pairs: on the host by NumPy, and in every family in the machine,
sanitized, with the same bits where all values are whole numbers."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import lapidist
from fused_cases import judge_finished, watch
from in_turns import sampled
from lapidist import epilogues
from lapidist.dtypes import numpy_dtype
from lapidist.epilogues.tracing import Epilogue
from lapidist.errors import ArgumentError, LapidistError, RefusalError, ShapeError, StrideError
from lapidist.kernels.wgmma.configs import tile

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def sanitized(monkeypatch: pytest.MonkeyPatch) -> None:
    watch(monkeypatch)


@lapidist.epilogue
def narrowing(
    acc: lapidist.Pair, row: lapidist.Row, column: lapidist.Column, tile: lapidist.Tile, one: lapidist.Scalar
) -> Any:
    gate, up = acc
    wide = lapidist.Output(lapidist.Pair(gate, up), "float32")
    return gate * row + up * column + tile, lapidist.Pair(up, gate + one), gate > up, wide


@lapidist.epilogue
def keeping(
    acc: lapidist.Pair, row: lapidist.Row, column: lapidist.Column, tile: lapidist.Tile, one: lapidist.Scalar
) -> Any:
    first, second = acc
    return lapidist.Pair(first * row + tile, second * one - column), lapidist.Output(first > 0, "bool")


def whole(rng: np.random.Generator, shape: tuple[int, ...], dtype: str = "float32") -> Array:
    return rng.integers(-2, 3, shape).astype(numpy_dtype(dtype))


def operands(rng: np.random.Generator, m: int, pairs: int) -> dict[str, Any]:
    values = {"row": (pairs,), "column": (m,), "tile": (m, pairs)}
    return {**{name: whole(rng, shape) for name, shape in values.items()}, "one": 2.0}


def same(found: Any, expected: Any) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one.astype(np.float64), other.astype(np.float64))


# ---- on the host ----


def silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def test_gated_activations_make_one_column_of_two(rng: np.random.Generator) -> None:
    a, b = rng.standard_normal((2, 4, 3)), rng.standard_normal((3, 10))
    gate, up = (a @ b)[..., 0::2], (a @ b)[..., 1::2]
    found = lapidist.matmul(a, b, epilogue=epilogues.swiglu)
    assert found.shape == (2, 4, 5)
    np.testing.assert_allclose(found, silu(gate) * up, rtol=1e-12)
    gelu = lapidist.matmul(a, b[:, 0::2], epilogue=epilogues.gelu)
    np.testing.assert_allclose(lapidist.matmul(a, b, epilogue=epilogues.geglu), gelu * up, rtol=1e-12)
    np.testing.assert_allclose(lapidist.matmul(a[0, 0], b, epilogue=epilogues.swiglu), found[0, 0])


def test_rotary_turns_pairs(rng: np.random.Generator) -> None:
    a, b, angle = rng.standard_normal((4, 3)), rng.standard_normal((3, 10)), rng.standard_normal((4, 5))
    turned = epilogues.rotary(cosine=np.cos(angle), sine=np.sin(angle))
    as_complex = (a @ b).view(complex) * np.exp(1j * angle)
    np.testing.assert_allclose(lapidist.matmul(a, b, epilogue=turned), as_complex.view(float), rtol=1e-12)


def test_results_have_columns_or_pairs(rng: np.random.Generator) -> None:
    a, b, values = whole(rng, (4, 3)), whole(rng, (3, 6)), operands(rng, 4, 3)
    (gate, up), tall = ((a @ b)[:, start::2] for start in range(2)), values["column"][:, None]
    d, swapped, larger, kept = lapidist.matmul(a, b, epilogue=narrowing(**values))
    np.testing.assert_array_equal(d, gate * values["row"] + up * tall + values["tile"])
    np.testing.assert_array_equal(swapped, np.stack([up, gate + 2], -1).reshape(4, 6))
    np.testing.assert_array_equal(larger, gate > up)
    np.testing.assert_array_equal(kept, a @ b)


@pytest.mark.parametrize("device", [None, "machine"])
def test_nothing_at_all(device: str | None) -> None:
    plus = lapidist.epilogue(sum_and_one)
    for m, k, n in ((3, 0, 4), (0, 2, 4), (3, 2, 0)):
        d = lapidist.matmul(np.ones((m, k)), np.ones((k, n)), epilogue=plus, device=device)
        np.testing.assert_array_equal(d, np.full((m, n // 2), 1 + 2 * k))
        d = lapidist.matmul(np.ones((2, m, k)), np.ones((k, n)), epilogue=swapped, device=device)
        np.testing.assert_array_equal(d, np.full((2, m, n), k))


@lapidist.epilogue
def swapped(acc: lapidist.Pair) -> Any:
    return lapidist.Pair(acc.second, acc.first)


def sum_and_one(acc: lapidist.Pair) -> Any:
    return acc.first + acc.second + 1


def test_they_print_and_are_called_by_others() -> None:
    def half(acc: lapidist.Pair) -> Any:
        return epilogues.swiglu(acc) * 0.5

    assert str(lapidist.epilogue(half)) == "((acc[0] * sigmoid(acc[0])) * acc[1]) * 0.5"
    assert (
        str(keeping) == "Pair(acc[0] * row + tile, (acc[1] * one) - column), where(0 < acc[0], 1, 0) as bool"
    )


# ---- in the machine ----


def check(
    rng: np.random.Generator,
    function: Epilogue,
    kernel: str,
    dtype: str,
    extents: tuple[int, int, int],
    *,
    batch: tuple[int, ...] = (),
    with_c: bool = False,
    **more: Any,
) -> None:
    """Results start anywhere, by rows and by columns, with steps between neighbours."""
    m, n, k = extents
    a, b = whole(rng, (*batch, m, k), dtype), whole(rng, (*batch, k, n), dtype)
    c, beta = (whole(rng, (*batch, m, n), dtype), 2.0) if with_c else (None, 0.0)
    given = function(**operands(rng, m, n // 2))
    names = {each: more[each] for each in ("precision", "acc_dtype") if each in more}
    expected = lapidist.gemm(a, b, c, beta=beta, epilogue=given, **names)
    out = tuple(placed(number, each) for number, each in enumerate(expected))
    found = lapidist.gemm(
        a, b, c, beta=beta, out=out, epilogue=given, kernel=kernel, device="machine", **more
    )
    same(found, expected)


def placed(number: int, like: Array) -> Array:
    """An array of that shape and type."""
    *batch, m, n = like.shape
    if number == 1:
        return np.zeros((*batch, m, n + 3), like.dtype)[..., 1 : n + 1]
    if number == 2:
        return np.zeros((*batch, n, m), like.dtype).swapaxes(-1, -2)
    return np.zeros((*batch, m, n * 2), like.dtype)[..., ::2] if number == 3 else np.zeros_like(like)


BF16 = partial(tile, "bfloat16")
KERNELS: list[tuple[str, str, tuple[int, int, int], dict[str, Any]]] = [
    ("simt", "float32", (70, 50, 33), {}),
    ("simt", "float32", (72, 56, 64), {"with_c": True}),
    ("simt", "float64", (20, 30, 17), {"batch": (2, 3)}),
    ("simt", "float16", (70, 50, 0), {}),
    ("simt", "float32", (70, 50, 100), {"split_k": 3, "reduction": "separate"}),
    ("simt", "float32", (70, 50, 100), {"schedule": "stream_k", "avail_sms": 3}),
    ("mma", "float16", (70, 50, 33), {}),
    ("mma", "bfloat16", (72, 56, 64), {"with_c": True}),
    ("mma", "float64", (40, 50, 33), {"batch": (2,)}),
    ("mma", "bfloat16", (70, 50, 0), {}),
    ("mma", "float16", (70, 50, 200), {"split_k": 3, "reduction": "cluster"}),
    ("sgemm", "float32", (75, 130, 37), {}),
    ("sgemm", "float32", (80, 136, 32), {"with_c": True, "batch": (2,)}),
    ("sgemm", "float32", (75, 140, 64), {"split_k": 2, "reduction": "separate"}),
    ("wgmma", "bfloat16", (136, 72, 96), {"config": BF16(64, 32, 3)}),
    ("wgmma", "bfloat16", (75, 130, 37), {"config": BF16(64, 64, 3), "with_c": True}),
    ("wgmma", "bfloat16", (264, 208, 64), {"config": BF16(128, 64, 3, (2, 1), ping_pong=True)}),
    ("wgmma", "bfloat16", (72, 40, 0), {"config": BF16(64, 32, 3)}),
    ("wgmma", "bfloat16", (72, 40, 64), {"config": BF16(64, 48, 3), "batch": (2, 2)}),
    ("wgmma", "bfloat16", (200, 62, 97), {"config": BF16(64, 32, 3, skewed=True)}),
    ("wgmma", "bfloat16", (72, 64, 640), {"config": BF16(64, 32, 3), "split_k": 3, "reduction": "cluster"}),
    ("wgmma", "bfloat16", (72, 62, 384), {"config": BF16(64, 32, 3), "split_k": 3, "reduction": "turnstile"}),
    (
        "wgmma",
        "bfloat16",
        (136, 64, 384),
        {"config": BF16(64, 32, 3), "schedule": "stream_k", "avail_sms": 3},
    ),
]


@pytest.mark.parametrize(("kernel", "dtype", "extents", "more"), sampled(KERNELS, share=2))
def test_of_whole_numbers(
    rng: np.random.Generator, kernel: str, dtype: str, extents: Any, more: dict[str, Any]
) -> None:
    alone = {} if "split_k" in more or "schedule" in more or kernel != "wgmma" else {"split_k": 1}
    check(rng, narrowing, kernel, dtype, extents, **alone, **more)


@pytest.mark.often(1)
@pytest.mark.parametrize(("kernel", "dtype", "extents", "more"), KERNELS[::5], ids=str)
def test_of_as_many_columns(
    rng: np.random.Generator, kernel: str, dtype: str, extents: Any, more: dict[str, Any]
) -> None:
    check(rng, keeping, kernel, dtype, extents, **more)


@pytest.mark.often(1)
@pytest.mark.parametrize("kernel", ["simt", "mma", "wgmma"])
def test_swiglu_is_within_the_bound(rng: np.random.Generator, kernel: str) -> None:
    dtype = numpy_dtype("float32" if kernel == "simt" else "bfloat16")
    a, b = rng.standard_normal((70, 96)).astype(dtype), rng.standard_normal((96, 72)).astype(dtype)
    for function in (epilogues.swiglu, epilogues.geglu):
        d = lapidist.gemm(a, b, alpha=0.3, epilogue=function, kernel=kernel, device="machine")
        assert judge_finished(d, function, {}, a, b, alpha=0.3).ok


@pytest.mark.often(2)
@pytest.mark.parametrize("kernel", ["simt", "mma", "sgemm"])
def test_gathered_rows(rng: np.random.Generator, kernel: str) -> None:
    dtype = "float16" if kernel == "mma" else "float32"
    a, b, rows = whole(rng, (50, 20), dtype), whole(rng, (20, 24), dtype), rng.integers(0, 50, 40)
    given = narrowing(**operands(rng, 40, 12))
    found = lapidist.gemm(a, b, gather_a=rows, epilogue=given, kernel=kernel, device="machine")
    same(found, lapidist.gemm(a, b, gather_a=rows, epilogue=given))


def test_d_lies_as_it_likes(rng: np.random.Generator) -> None:
    a, b = whole(rng, (40, 20)), whole(rng, (20, 24))
    given = keeping(**operands(rng, 40, 12))
    expected, _ = lapidist.gemm(a, b, epilogue=given)
    for d in (np.zeros((24, 40), "f4").T, np.zeros((80, 72), "f4")[::2, ::3]):
        for kernel in ("simt", "sgemm"):
            d[...] = 0
            found, _ = lapidist.gemm(a, b, out=(d, None), epilogue=given, kernel=kernel, device="machine")
            assert found is d
            np.testing.assert_array_equal(d, expected)


def test_the_plan_says_which_tiles_cannot(rng: np.random.Generator) -> None:
    a, b = whole(rng, (128, 256), "bfloat16"), whole(rng, (256, 512), "bfloat16")
    planned = lapidist.plan(a, b, epilogue=epilogues.swiglu, device="machine")
    assert "a thread has rows of D side by side" in str(planned)
    exchanged = BF16(64, 48, 3, exchanged=True)
    with pytest.raises(RefusalError, match="takes neighbouring columns in pairs; with A and B exchanged"):
        lapidist.gemm(a, b, epilogue=epilogues.swiglu, kernel="wgmma", config=exchanged, device="machine")


# ---- what is refused ----

A, B, D = np.ones((4, 3), np.float32), np.ones((3, 6), np.float32), np.full((4, 3), 7.0, np.float32)
C, TO = np.ones((4, 6), np.float32), np.arange(4)
WRONG: list[tuple[dict[str, Any], type[LapidistError], str]] = [
    ({"b": B[:, :5]}, ShapeError, "swiglu takes columns in pairs, so their number must be even; b has 5"),
    ({"b": B[:, :1]}, ShapeError, "must be even; b has 1"),
    ({"out": np.empty((4, 6), "f4")}, ShapeError, r"out: must have shape \(4, 3\)"),
    ({"out": D, "scatter_d": TO}, ArgumentError, "neither scattered nor permuted"),
    ({"out": D.reshape(2, 2, 3, 1), "permuted": True}, ArgumentError, "neither scattered nor permuted"),
    ({"c": C, "beta": 1.0, "out": C[:, :3]}, StrideError, "out: must not overlap c"),
]


@pytest.mark.parametrize("where", [{}, {"device": "machine"}], ids=str)
@pytest.mark.parametrize(("more", "error", "words"), WRONG)
def test_what_does_not_fit(more: dict[str, Any], error: Any, words: str, where: dict[str, Any]) -> None:
    given = {"b": B, "out": D, **more}
    with pytest.raises(error, match=words):
        lapidist.gemm(A, epilogue=epilogues.swiglu, **given, **where)
    np.testing.assert_array_equal(D, 7.0)


def test_operands_are_of_pairs() -> None:
    given = narrowing(**{**operands(np.random.default_rng(0), 4, 3), "row": np.ones(6)})
    with pytest.raises(ShapeError, match=r"row: must have a value for each pair of columns, shape \(3,\)"):
        lapidist.matmul(A, B, epilogue=given)


def test_pairs_are_of_functions_that_take_them() -> None:
    with pytest.raises(ArgumentError, match="must take pairs to return them"):
        lapidist.epilogue(lambda acc: lapidist.Pair(acc, acc))
    for both in (
        lambda acc: acc + acc,
        lambda acc: acc * 2,
        lambda acc: 2 * acc,
        lambda acc: 1 + acc,
        lambda acc: acc - acc,
        lambda acc: 1 / acc,
        lambda acc: -acc,
        lambda acc: acc == 0,
        lambda acc: acc == acc,
        lambda acc: lapidist.where(acc < 1, 1, 0),
        lambda acc: lapidist.relu(acc),
        lambda acc: lapidist.maximum(acc, 0),
    ):
        both.__annotations__["acc"] = lapidist.Pair
        with pytest.raises(ArgumentError, match=r"one column at a time; .*test_pairs.py:\d"):
            lapidist.epilogue(both)
