"""Lists of products with an epilogue: each is what a product of its own is. Where one of them is refused,
nothing is launched or written."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import lapidist
from lapidist import epilogues
from lapidist.backends.machine_backend import MachineBackend
from lapidist.calls import followed_lists
from lapidist.calls.repeat import ARRAY_PATHS
from lapidist.calls.repeat.shape import AT_OPERANDS
from lapidist.dtypes import numpy_dtype
from lapidist.errors import ArgumentError, LapidistError, ShapeError, StrideError

Array = np.ndarray[Any, Any]
COUNT = 3
PLACES = pytest.mark.parametrize("device", [None, "machine"])
products = partial(lapidist.gemm, device="machine")


@lapidist.epilogue
def one_result(acc: Any, row: lapidist.Row, scale: lapidist.Scalar) -> Any:
    return lapidist.relu(acc * scale + row)


@lapidist.epilogue
def several(acc: Any, column: lapidist.Column, tile: lapidist.Tile) -> Any:
    x = acc + column
    return x * tile, lapidist.Output(x > 0, "bool"), lapidist.row_sum(x), lapidist.amax(x)


def normal(rng: np.random.Generator, *shape: int, dtype: str = "float32") -> Array:
    return rng.standard_normal(shape).astype(numpy_dtype(dtype))


def lists(rng: np.random.Generator, m: int = 12, n: int = 10, k: int = 9, dtype: str = "float32") -> Any:
    return tuple([normal(rng, *shape, dtype=dtype) for _ in range(COUNT)] for shape in ((m, k), (k, n)))


def same(found: Any, expected: Any) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        np.testing.assert_array_equal(one.astype(np.float64), other.astype(np.float64))


@pytest.mark.often(2)
@PLACES
@pytest.mark.parametrize("each", [False, True], ids=["for all", "for each"])
def test_operands_for_all_or_for_each(rng: np.random.Generator, device: str | None, each: bool) -> None:
    a, b = lists(rng)
    rows = [normal(rng, 10) for _ in range(COUNT)]
    scales = [0.5, np.array([2.0], "float32"), 3]
    given = {"row": rows if each else rows[0], "scale": tuple(scales) if each else 0.5}
    found = lapidist.gemm(a, b, epilogue=one_result(**given), device=device)
    assert isinstance(found, list)
    own = [(rows[i], scales[i]) if each else (rows[0], 0.5) for i in range(COUNT)]
    expected = [
        lapidist.gemm(x, y, epilogue=one_result(row=row, scale=scale), device=device)
        for x, y, (row, scale) in zip(a, b, own, strict=True)
    ]
    same(found, expected)


@PLACES
def test_several_results_in_new_arrays_and_in_those_given(
    rng: np.random.Generator, device: str | None
) -> None:
    a, b = lists(rng)
    column, tiles = normal(rng, 12), [normal(rng, 12, 10) for _ in range(COUNT)]
    c = [normal(rng, 12, 10) for _ in range(COUNT)]
    more: dict[str, Any] = {"alpha": 0.5, "beta": 2.0, "device": device}
    expected = [
        lapidist.gemm(x, y, z, epilogue=several(column=column, tile=tile), **more)
        for x, y, z, tile in zip(a, b, c, tiles, strict=True)
    ]
    followed_by = several(column=column, tile=tiles)
    found = lapidist.gemm(a, b, c, epilogue=followed_by, **more)
    assert isinstance(found, tuple)
    for place, of_place in enumerate(found):
        same(of_place, [each[place] for each in expected])
    sums = [np.full(12, np.nan, np.float32) for _ in range(COUNT)]
    found = lapidist.gemm(a, b, c, out=(c, None, sums, None), epilogue=followed_by, **more)
    assert all(one is other for one, other in zip(found[0], c, strict=True))
    assert all(one is other for one, other in zip(found[2], sums, strict=True))
    for place, of_place in enumerate(found):
        same(of_place, [each[place] for each in expected])


@pytest.mark.often(2)
@PLACES
@pytest.mark.parametrize("epilogue", [epilogues.swiglu, epilogues.quantise_e4m3_groups], ids=str)
def test_pairs_and_quantised_results(rng: np.random.Generator, device: str | None, epilogue: Any) -> None:
    a, b = lists(rng, dtype="float16")
    found = lapidist.gemm(a, b, epilogue=epilogue, device=device)
    expected = [lapidist.gemm(x, y, epilogue=epilogue, device=device) for x, y in zip(a, b, strict=True)]
    if epilogue is epilogues.swiglu:
        same(found, expected)
    else:
        for place, of_place in enumerate(found):
            same(of_place, [each[place] for each in expected])


@pytest.mark.parametrize("more", [{"split_k": 2}, {"schedule": "stream_k"}], ids=str)
def test_shared_tiles_meet_it_once(rng: np.random.Generator, more: dict[str, Any]) -> None:
    whole = partial(rng.integers, -2, 3)
    a = [whole((12, 70)).astype(np.float16) for _ in range(COUNT)]
    b = [whole((70, 10)).astype(np.float16) for _ in range(COUNT)]
    rows = [whole(10).astype(np.float32) for _ in range(COUNT)]
    found = products(a, b, epilogue=one_result(row=rows, scale=2.0), kernel="simt", **more)
    for d, x, y, row in zip(found, a, b, rows, strict=True):
        np.testing.assert_array_equal(d, np.maximum(2 * (x.astype("f4") @ y.astype("f4")) + row, 0))


def test_nothing_to_sum_and_nothing_to_multiply(rng: np.random.Generator) -> None:
    a, b = lists(rng, k=0)
    rows = [normal(rng, 10) for _ in range(COUNT)]
    found = products(a, b, epilogue=one_result(row=rows, scale=1.0))
    same(found, [np.broadcast_to(np.maximum(row, 0), (12, 10)) for row in rows])
    assert lapidist.gemm([], [], epilogue=one_result(row=rows[0], scale=1.0)) == []
    tile = normal(rng, 12, 10)
    assert lapidist.gemm([], [], epilogue=several(column=rows[0], tile=tile)) == ([], [], [], [])


# ---- plans ----


@PLACES
def test_plans(rng: np.random.Generator, device: str | None) -> None:
    a, b = lists(rng)
    tiles = [normal(rng, 12, 10) for _ in range(COUNT)]
    followed_by = several(column=normal(rng, 12), tile=tiles)
    plan = lapidist.plan(a, b, epilogue=followed_by, device=device)
    assert isinstance(plan, lapidist.ArrayGemm)
    assert "3 products of lists, one after another" in str(plan)
    others = lists(rng)
    for x, y in ((a, b), others):
        out = tuple([np.full_like(r, 0) for r in each] for each in plan.execute(x, y))
        given = plan.execute(x, y, out=out)
        expected = lapidist.gemm(x, y, epilogue=followed_by, device=device)
        for one, two, three in zip(given, out, expected, strict=True):
            assert all(r is s for r, s in zip(one, two, strict=True))
            same(one, three)
    out[0][1], before = out[0][0], out[0][0].copy()
    with pytest.raises(StrideError, match="out: must not share memory with another product"):
        plan.execute(a, b, out=out)
    same(out[0][:1], [before])
    with pytest.raises(ShapeError, match="a: must have as many arrays as were planned, 3; got 2"):
        plan.execute(a[:2], b[:2])
    with pytest.raises(ArgumentError, match="must have the geometry that was planned"):
        plan.execute([*a[:2], a[2][:, :8]], [*b[:2], b[2][:8]])


def test_a_plan_of_one_product(rng: np.random.Generator) -> None:
    a, b = (each[:1] for each in lists(rng))
    plan = lapidist.plan(a, b, epilogue=one_result(row=normal(rng, 10), scale=2.0))
    assert "1 products of lists" in str(plan)
    same(plan.execute(a, b), lapidist.gemm(a, b, epilogue=plan._operation.epilogue))


def test_a_plan_of_no_products_is_refused() -> None:
    for more in ({}, {"epilogue": epilogues.swiglu}):
        with pytest.raises(ShapeError, match="a, b: must hold an array each to plan for; got empty lists"):
            lapidist.plan([], [], **more)  # type: ignore[arg-type]


def test_one_workspace_serves_products_that_lie_alike(rng: np.random.Generator) -> None:
    a, b = ([rng.integers(-2, 3, shape).astype("f4") for _ in "123"] for shape in ((12, 70), (70, 10)))
    rows = [np.arange(10, dtype="f4") for _ in a]
    room = np.zeros(2**16 + 256, np.uint8)
    room = room[-room.ctypes.data % 256 :][: 2**16]
    given: dict[str, Any] = {"kernel": "simt", "split_k": 2, "workspace": room}
    found = products(a, b, epilogue=one_result(row=rows, scale=1.0), **given)
    same(found, [np.maximum(x @ y + row, 0) for x, y, row in zip(a, b, rows, strict=True)])
    out = [np.full((12, 10), 7, "f4"), *(room.view("f4")[i * 120 :][:120].reshape(12, 10) for i in (0, 1))]
    with pytest.raises(StrideError, match="out: must not overlap workspace"):
        products(a, b, out=out, epilogue=one_result(row=rows, scale=1.0), **given)
    assert np.all(out[0] == 7)
    rows[1] = np.arange(20, dtype="f4")[::2]
    with pytest.raises(ArgumentError, match="workspace: serves lists with an epilogue whose products all"):
        products(a, b, epilogue=one_result(row=rows, scale=1.0), **given)


# ---- what is refused ----

ROW, EYE, STACK = np.zeros(4, "f4"), np.eye(4, dtype="f4"), np.ones((2, 4, 4), "f4")
WRONG: dict[str, tuple[dict[str, Any], type[LapidistError], str]] = {
    "too few": ({"row": [ROW] * 2}, ShapeError, r"row: must be one operand .* for each, 3; got a list of 2"),
    "a stack": ({"row": np.zeros((3, 4), "f4")}, ShapeError, r"row: must have a value for each column"),
    "the last one": (
        {"row": [ROW, ROW, ROW[:2]]},
        ShapeError,
        r"row\[2\]: must have a value for each column",
    ),
    "a number": ({"scale": [1.0, 2.0, "3"]}, LapidistError, r"scale\[2\]: must be a real number"),
    "a row for other shapes": (
        {"b": [EYE, EYE[:, :2], EYE], "out": None},
        ShapeError,
        r"row, product 1: must have a value for each column",
    ),
    "other types": (
        {"a": [EYE, EYE, EYE.astype("f8")], "b": [EYE, EYE, EYE.astype("f8")], "out": None},
        LapidistError,
        r"a\[2\], b\[2\], out\[2\]: must have the types of product 0, float32 x float32 to",
    ),
    "batches": (
        {"a": [STACK] * 3, "b": [STACK] * 3, "out": None},
        ShapeError,
        r"a\[0\], b\[0\]: lists are of matrices; got batches",
    ),
    "one output": ({"out": EYE}, ArgumentError, r"out: must be a list of arrays, as a is; got ndarray"),
    "routes": ({"gather_a": np.arange(4)}, ArgumentError, r"gather_a: belongs to arrays that are passed"),
}


@PLACES
@pytest.mark.parametrize("case", WRONG)
def test_wrong_lists_launch_nothing(monkeypatch: pytest.MonkeyPatch, device: str | None, case: str) -> None:
    changed, error, message = WRONG[case]
    monkeypatch.setattr(MachineBackend, "multiply", None)
    given = {"a": [EYE] * 3, "b": [EYE] * 3, "row": ROW, "scale": 1.0, **changed}
    followed_by = one_result(row=given.pop("row"), scale=given.pop("scale"))
    outputs = [np.full((4, 4), 7, "f4") for _ in range(3)]
    out = given.pop("out", outputs)
    with pytest.raises(error, match=message):
        lapidist.gemm(**given, out=out, epilogue=followed_by, device=device)
    assert all(np.all(each == 7) for each in outputs)


@PLACES
@pytest.mark.parametrize("met", ["row", "D", "mask", "a"])
def test_results_that_another_product_uses_are_refused(
    rng: np.random.Generator, device: str | None, met: str
) -> None:
    a, b = lists(rng, 12, 12, 12)
    d, column, tiles = ([normal(rng, 12, 12) for _ in range(COUNT)] for _ in range(3))
    mask = [np.zeros((12, 12), np.bool_) for _ in range(COUNT)]
    if met == "row":
        tiles[2] = d[0]
    elif met == "a":
        a[0] = d[1]
    elif met == "D":
        d[2] = d[1]
    else:
        mask[1] = mask[0]
    before = [each.copy() for each in d]
    followed_by = several(column=[each[0] for each in column], tile=tiles)
    with pytest.raises(StrideError, match="out: must not share memory with another product of the lists"):
        lapidist.gemm(a, b, out=(d, mask, None, None), epilogue=followed_by, device=device)
    same(d, before)


def test_results_side_by_side_in_one_buffer_are_taken(rng: np.random.Generator) -> None:
    """Matrices with gaps, in which another result of the same product lies; the next product's lie behind."""
    a, b = lists(rng)
    board = np.zeros((COUNT, 12, 20), np.float32)
    three = lapidist.epilogue(lambda acc: (acc, acc + 1, -acc))
    out = (None, [each[:, ::2] for each in board], [each[:, 1::2] for each in board])
    d, *_ = lapidist.gemm(a, b, out=out, epilogue=three)
    same(out[1], [each + 1 for each in d])
    same(out[2], [-each for each in d])
    with pytest.raises(StrideError, match="out: must not share memory with another product"):
        lapidist.gemm(a, b, out=(None, out[1], [*out[2][:2], board[0, :, 1::2]]), epilogue=three)


def test_several_results_ask_for_a_tuple_of_lists(rng: np.random.Generator) -> None:
    a, b = lists(rng)
    followed_by = several(column=normal(rng, 12), tile=normal(rng, 12, 10))
    out = [np.zeros((12, 10), "f4") for _ in range(COUNT)]
    for given, message in (
        (out, r"out: must be a tuple of 4 lists of arrays, .* several returns; got list"),
        ((out, out), r"out: must be a tuple of 4 lists .* got 2 of them"),
        ((out, None, None, out[0]), r"out\[3\]: must be a list of arrays"),
        ((out, None, out[:2], None), r"out\[2\]: must have as many arrays as a, 3; got 2"),
    ):
        with pytest.raises(LapidistError, match=message):
            lapidist.gemm(a, b, out=given, epilogue=followed_by)


def test_pointers_have_no_epilogue() -> None:
    a = lapidist.Pointers(np.array([EYE.ctypes.data]), (4, 4), "float32")
    with pytest.raises(ArgumentError, match=r"epilogue: follows products of arrays, .* got Pointers"):
        lapidist.gemm(a, a, out=a, epilogue=one_result(row=ROW, scale=1.0))


# ---- the short way ----


@pytest.mark.parametrize("taken", [1, COUNT])
def test_the_short_way_serves_all_or_none(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator, taken: int
) -> None:
    """Where a product is not like the one before, all go the long way."""
    a, b = lists(rng)
    rows, seen = [normal(rng, 10) for _ in range(COUNT)], []

    def again(*given: Any) -> Any:
        seen.append(given[4][AT_OPERANDS])
        return len(seen) if len(seen) <= taken else None

    monkeypatch.setattr(followed_lists, "key_with_arrays", lambda call: "known")
    monkeypatch.setitem(ARRAY_PATHS, "known", again)  # type: ignore[arg-type]
    found = lapidist.gemm(a, b, epilogue=one_result(row=rows, scale=1.0))
    assert all(one is other for one, other in zip(seen, rows, strict=False))
    if taken == COUNT:
        assert found == [1, 2, 3]
        return
    own = [one_result(row=row, scale=1.0) for row in rows]
    same(found, [lapidist.gemm(x, y, epilogue=e, device="host") for x, y, e in zip(a, b, own, strict=True)])


def test_outputs_that_are_given_go_the_long_way(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    """There what was written before a refusal would be seen."""
    monkeypatch.setattr(followed_lists, "repeated_unchecked", None)
    a, b = lists(rng)
    out = [np.zeros((12, 10), "f4") for _ in range(COUNT)]
    lapidist.gemm(a, b, out=out, epilogue=one_result(row=normal(rng, 10), scale=1.0))
    assert all(each.any() for each in out)
