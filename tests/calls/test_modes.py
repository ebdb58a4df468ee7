"""Gathered, scattered and permuted products, and alpha and beta in memory: on the host and by the real
kernels in the machine.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lapidist
from in_turns import in_turns, surveyed
from lapidist.calls import bound_lists
from lapidist.problems.modes import ExtraPointers, Group, Modes, members
from lapidist.verify.sum_bound import judge

Array = np.ndarray[Any, Any]
ORDERS = ["C", "F"]


def ordered(array: Array, order: Any) -> Array:
    return np.array(array, order=order)


def half(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float16)


@pytest.mark.often(2)
@pytest.mark.parametrize(("orders", "index"), in_turns(["CC", "CF", "FC", "FF"], ["int32", "int64"]))
def test_rows_are_gathered_and_scattered(
    rng: np.random.Generator, gemm: Any, orders: str, index: Any
) -> None:
    """Repeated and out of order; rows that no index names stay as they are."""
    a, b = ordered(half(rng, 90, 40), orders[0]), ordered(half(rng, 40, 70), orders[0])
    rows, cols = rng.integers(0, 90, 33).astype(index), rng.integers(0, 70, 45).astype(index)
    to = rng.permutation(60)[:33].astype(index)
    out = ordered(half(rng, 60, 45), orders[1])
    before = out.copy()
    gemm(
        a,
        b,
        out,
        alpha=0.5,
        beta=2.0,
        out=out,
        gather_a=rows,
        gather_b=cols,
        scatter_d=to,
        check_indices=True,
    )
    assert judge(out[to], a[rows], b[:, cols], before[to], 0.5, 2.0).ok
    others = np.setdiff1d(np.arange(60), to)
    assert np.array_equal(out[others], before[others])


@pytest.mark.often(2)
@pytest.mark.parametrize(("orders", "shared"), in_turns(["CC", "FC", "CF"], [False, True]))
def test_the_same_rows_of_every_matrix_of_a_batch(
    rng: np.random.Generator, gemm: Any, shared: bool, orders: str
) -> None:
    """B may be one matrix for all: then rows are not stacked, since indices name those of one A."""
    a, b = half(rng, 3, 40, 30), half(rng, *(() if shared else (3,)), 30, 50)
    a = a if orders[0] == "C" else a.swapaxes(-1, -2).copy().swapaxes(-1, -2)
    rows, cols, to = rng.integers(0, 40, 21), rng.integers(0, 50, 17), rng.permutation(25)[:21]
    out = np.full((3, 25, 17), np.nan, np.float16)
    out = out if orders[1] == "C" else out.swapaxes(-1, -2).copy().swapaxes(-1, -2)
    gemm(a, b, out=out, gather_a=rows, gather_b=cols, scatter_d=to, check_indices=True)
    assert judge(out[:, to], a[:, rows], b[..., cols]).ok
    assert np.isnan(out[:, np.setdiff1d(np.arange(25), to)]).all()
    assert judge(gemm(a, b, gather_a=rows), a[:, rows], b).ok


def test_a_row_that_is_named_twice(rng: np.random.Generator, gemm: Any) -> None:
    """On request it is refused, on every call; else it gets elements of either result."""
    a, b, out = half(rng, 3, 24), half(rng, 24, 8), np.full((5, 8), 7, np.float16)
    to = np.array([4, 0, 2])
    gemm(a, b, out=out, scatter_d=to, check_indices=True)
    to[2] = 4
    before = out.copy()
    with pytest.raises(lapidist.ArgumentError, match=r"scatter_d: .* got row 4 twice"):
        gemm(a, b, out=out, scatter_d=to, check_indices=True)
    assert np.array_equal(out, before)
    gemm(a, b, out=out, scatter_d=to)
    first, second = (before.copy() for _ in "12")
    gemm(a[:1], b, out=first, scatter_d=to[:1])
    gemm(a[2:], b, out=second, scatter_d=to[2:])
    assert ((out[4] == first[4]) | (out[4] == second[4])).all()


def test_a_row_may_be_named_once_in_each_matrix(rng: np.random.Generator, gemm: Any) -> None:
    a, b, out = half(rng, 2, 2, 24), half(rng, 24, 8), np.zeros((2, 5, 8), np.float16)
    to = np.array([[4, 0], [4, 3]])
    gemm(a, b, out=out, scatter_d=to, check_indices=True)
    to[1, 1] = 4
    with pytest.raises(lapidist.ArgumentError, match="got row 4 twice"):
        gemm(a, b, out=out, scatter_d=to, check_indices=True)


@pytest.mark.often(2)
@pytest.mark.parametrize("orders", ["FF", *surveyed(["CC"])])
def test_what_is_gathered_from_lines_of_16_bytes_starts_anywhere(
    rng: np.random.Generator, gemm: Any, orders: str
) -> None:
    a, b = ordered(half(rng, 32, 64), orders[0]), ordered(half(rng, 64, 48), orders[1])
    rows, cols = rng.integers(0, 32, 24), rng.integers(0, 48, 40)
    out = np.zeros((64, 40), np.float16)
    to = rng.permutation(64)[:24]
    gemm(a, b, out=out, gather_a=rows, gather_b=cols, scatter_d=to)
    assert judge(out[to], a[rows], b[:, cols]).ok
    assert judge(gemm(a, b, gather_b=cols), a, b[:, cols]).ok
    assert judge(gemm(a, b, gather_a=rows), a[rows], b).ok


def test_one_row_of_many(rng: np.random.Generator, gemm: Any) -> None:
    """The stride of a single row matters when it may be any."""
    a, b = half(rng, 9, 24), half(rng, 24, 8)
    out = np.full((5, 8), np.nan, np.float16)
    gemm(a, b, out=out, gather_a=np.array([7], np.int32), scatter_d=np.array([3], np.int32))
    assert judge(out[3:4], a[7:8], b).ok
    assert np.isnan(out[[0, 1, 2, 4]]).all()


@pytest.mark.often(2)
@pytest.mark.parametrize("axes", [(0, 2, 1, 3), (2, 0, 1, 3), (3, 1, 2, 0), (0, 1, 2, 3)])
def test_outputs_are_permuted(rng: np.random.Generator, gemm: Any, axes: tuple[int, ...]) -> None:
    """A permutation is strides: rows are (6, 8), columns (5, 4) of a contiguous array in another order."""
    a, b, c = half(rng, 48, 30), half(rng, 30, 20), half(rng, 48, 20)
    shape = (6, 8, 5, 4)
    base = np.full([shape[axis] for axis in axes], np.nan, np.float16)
    out = base.transpose(np.argsort(axes))
    gemm(a, b, c, beta=1.5, out=out, permuted=True)
    assert judge(out.reshape(48, 20), a, b, c, 1.0, 1.5).ok


def test_scalars_in_memory(rng: np.random.Generator, gemm: Any) -> None:
    a, b, c = half(rng, 20, 30), half(rng, 30, 25), half(rng, 20, 25)
    alpha, beta = np.array([2.0], np.float32), np.array(-0.5, np.float32)
    assert judge(gemm(a, b, c, alpha=alpha, beta=beta), a, b, c, 2.0, -0.5).ok
    assert judge(gemm(a, b, c, alpha=alpha, beta=3.0), a, b, c, 2.0, 3.0).ok


@pytest.mark.often(2)
def test_zero_in_memory_reads_nothing(gemm: Any) -> None:
    nan, ones, zero = (
        np.full((8, 8), np.nan, np.float16),
        np.ones((8, 8), np.float16),
        np.zeros(1, np.float32),
    )
    assert (gemm(nan, nan, ones, alpha=zero, beta=3.0) == 3).all()
    assert (gemm(ones, ones, nan, alpha=1.0, beta=zero) == 8).all()


def test_a_plan_reads_indices_when_it_runs(rng: np.random.Generator) -> None:
    a, b, rows = half(rng, 30, 16), half(rng, 16, 8), np.zeros(5, np.int32)
    plan = lapidist.plan(a, b, gather_a=rows, kernel="simt", device="machine")
    for shift in (3, 20):
        rows[:] = np.arange(5) + shift
        assert judge(plan.execute(a, b), a[rows], b).ok
    assert "rows of A gathered" in str(plan)


def test_modes_with_shared_tiles(rng: np.random.Generator) -> None:
    a, b, rows = half(rng, 40, 300), half(rng, 300, 20), rng.integers(0, 40, 70).astype(np.int32)
    for reduction in ("turnstile", "separate", "cluster"):
        found = lapidist.gemm(
            a, b, gather_a=rows, kernel="simt", split_k=3, reduction=reduction, device="machine"
        )
        assert judge(found, a[rows], b).ok


# ---- lists of arrays ----


@pytest.mark.often(2)
@pytest.mark.parametrize("order", ORDERS)
def test_lists(rng: np.random.Generator, place: dict[str, Any], order: str) -> None:
    """Arrays that lie anywhere; one launch for all, shared tiles or not."""
    a, b, c = ([half(rng, *shape) for _ in range(5)] for shape in ((30, 70), (70, 20), (30, 20)))
    a = [ordered(array, order) for array in a]
    for more in ({}, {"split_k": 2}) if place["kernel"] else ({},):
        out = [ordered(np.full((30, 20), np.nan, np.float16), order) for _ in a]
        found = lapidist.gemm_lists(a, b, c, alpha=0.5, beta=2.0, out=out, **place, **more)
        assert all(one is other for one, other in zip(found, out, strict=True))
        assert all(judge(d, x, y, z, 0.5, 2.0).ok for d, x, y, z in zip(out, a, b, c, strict=True))


def test_more_arrays_than_a_launch_takes(rng: np.random.Generator) -> None:
    a, b = [half(rng, 4, 9) for _ in range(70)], [half(rng, 9, 5) for _ in range(70)]
    found = lapidist.gemm_lists(a, b, device="machine", kernel="simt")
    assert all(judge(d, x, y).ok for d, x, y in zip(found, a, b, strict=True))
    assert lapidist.gemm_lists([], []) == []


@pytest.mark.parametrize(
    ("b", "message"),
    [
        ([np.ones((9, 5), np.float32)], "b: must have as many arrays as a, 2; got 1"),
        (np.ones((2, 9, 5), np.float32), "b: must be a list of arrays, as a is; got ndarray"),
        (
            [np.ones((9, 5), np.float32), np.ones((9, 6), np.float64)],
            r"b\[1\], out\[1\]: must have the types of product 0, float32 x float32 to float32; got",
        ),
    ],
    ids=["short", "array", "two types"],
)
def test_lists_that_do_not_fit(b: Any, message: str) -> None:
    with pytest.raises(lapidist.LapidistError, match=message):
        lapidist.gemm_lists([np.ones((4, 9), np.float32)] * 2, b, device="machine")


# ---- addresses in memory ----


def pointers(arrays: list[Array], **more: Any) -> lapidist.Pointers:
    """To arrays of one shape and type."""
    steps = tuple(stride // arrays[0].itemsize for stride in arrays[0].strides)
    addresses = np.array([array.ctypes.data for array in arrays], np.int64)
    return lapidist.Pointers(addresses, arrays[0].shape, arrays[0].dtype.name, steps, **more)  # type: ignore[arg-type]


@pytest.mark.often(2)
@pytest.mark.parametrize("count", [3, 4, 9])
def test_more_addresses_than_a_launch_takes(
    rng: np.random.Generator, place: dict[str, Any], monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(bound_lists.Pointed, "at_once", 4)
    a, b = ([half(rng, *shape) for _ in range(count)] for shape in ((6, 8), (8, 5)))
    out = [np.full((6, 5), np.nan, np.float16) for _ in a]
    lapidist.gemm(pointers(a), pointers(b), out=pointers(out), **place)
    assert all(judge(d, x, y).ok for d, x, y in zip(out, a, b, strict=True))


@pytest.mark.often(2)
@pytest.mark.parametrize("order", ["F", *surveyed(["C"])])
def test_addresses(rng: np.random.Generator, place: dict[str, Any], order: str) -> None:
    """The kernel reads where the matrices are; a plan takes other addresses, and more of them."""
    a, b, c = ([half(rng, *shape) for _ in range(5)] for shape in ((30, 70), (70, 20), (30, 20)))
    for more in ({}, {"split_k": 2}) if place["kernel"] else ({},):
        out = [ordered(np.full((30, 20), np.nan, np.float16), order) for _ in a]
        given = [pointers(arrays) for arrays in (a[:3], b[:3], c[:3], out[:3])]
        form = {"alpha": 0.5, "beta": 2.0, "mode": "array", "check_indices": True, **place, **more}
        plan = lapidist.plan(*given[:3], out=given[3], **form)
        assert plan.execute(*given) is given[3]
        plan.execute(*(pointers(arrays[1:]) for arrays in (a, b, c, out)))
        assert all(judge(d, x, y, z, 0.5, 2.0).ok for d, x, y, z in zip(out, a, b, c, strict=True))


def test_addresses_of_what_is_updated_in_place(rng: np.random.Generator) -> None:
    a, b, c = ([half(rng, *shape) for _ in range(3)] for shape in ((40, 64), (64, 48), (40, 48)))
    before, out = [each.copy() for each in c], pointers(c, alignment=16)
    lapidist.gemm(pointers(a), pointers(b), out, out=out, beta=-1.0, device="machine", kernel="mma")
    assert all(judge(d, x, y, z, 1.0, -1.0).ok for d, x, y, z in zip(c, a, b, before, strict=True))


ONE = np.ones((8, 8), np.float32)
TO_ONE = np.array([ONE.ctypes.data], np.int64)


@pytest.mark.parametrize(
    ("b", "more", "message"),
    [
        ([ONE], {}, "b: must be Pointers, as a is; got list"),
        (
            lapidist.Pointers(np.repeat(TO_ONE, 2), (8, 8), "float32"),
            {},
            "b: must have as many arrays as a, 1; got 2",
        ),
        (
            lapidist.Pointers(TO_ONE.astype(np.int32), (8, 8), "float32"),
            {},
            "b: addresses must be of int64; got int32",
        ),
        (
            lapidist.Pointers(TO_ONE.reshape(1, 1), (8, 8), "float32"),
            {},
            "b: addresses must be one contiguous dimension",
        ),
        (
            lapidist.Pointers(TO_ONE + 2, (8, 8), "float32"),
            {"check_indices": True},
            "b: addresses must be .* multiples of 4; got",
        ),
        (lapidist.Pointers(TO_ONE, (7, 8), "float32"), {}, "b: must have as many rows as a has columns"),
        (
            lapidist.Pointers(TO_ONE, (8, 8), "float32"),
            {"out": None},
            "out: must be given where matrices are given by",
        ),
        (
            lapidist.Pointers(TO_ONE, (8, 8), "float32"),
            {"gather_a": TO_ONE},
            "gather_a: belongs to arrays that are passed",
        ),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",  # addresses are never the same
)
def test_addresses_that_do_not_fit(b: Any, more: dict[str, Any], message: str) -> None:
    a = lapidist.Pointers(TO_ONE, (8, 8), "float32")
    with pytest.raises(lapidist.LapidistError, match=message):
        lapidist.gemm(a, b, device="machine", **{"out": a, **more})


@pytest.mark.parametrize("wrong", [{"alignment": 3}, {"shape": (8,)}, {"strides": 8}], ids=str)
def test_pointers_that_say_nonsense(wrong: dict[str, Any]) -> None:
    with pytest.raises(lapidist.LapidistError, match=f"{next(iter(wrong))}: must be"):
        lapidist.Pointers(**{"addresses": TO_ONE, "shape": (8, 8), "dtype": "float32", **wrong})


@pytest.mark.parametrize(
    ("mode", "a", "message"),
    [
        (
            "batched",
            ONE,
            "mode: 'batched' is for stacks of matrices; got one pair of matrices. Pass those, or mode='gemm'",
        ),
        ("gemm", ONE[None], "mode: 'gemm' is for one pair of matrices; got stacks of matrices"),
        ("array", ONE, "mode: 'array' is for lists of arrays, or Pointers; got one pair of matrices"),
        ("gemm", [ONE], "mode: 'gemm' is for one pair of matrices; got lists of arrays"),
        ("grouped", ONE, "mode: must be one of gemm, batched, array, or None; got 'grouped'"),
    ],
)
def test_a_mode_is_what_is_passed(mode: str, a: Any, message: str) -> None:
    with pytest.raises(lapidist.ArgumentError, match=message):
        lapidist.gemm(a, a, mode=mode)
    for right, operand in (("gemm", ONE), ("batched", ONE[None]), ("array", [ONE])):
        assert np.array_equal(np.asarray(lapidist.gemm(operand, operand, mode=right)).reshape(8, 8), ONE * 8)


# ---- bad input ----

NINE = np.arange(9, dtype=np.int32)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"gather_a": NINE.astype(np.float32)}, "gather_a: must be of int32 or int64; got float32"),
        ({"gather_a": [1, 2]}, "gather_a: must be an array of int32 or int64; got list"),
        ({"gather_a": NINE[::2]}, "gather_a: must be one contiguous dimension, or .*; got shape .* strides"),
        (
            {"gather_b": NINE[:4:2]},
            "gather_b: must be one contiguous dimension, .* got shape .2,., strides .2,.",
        ),
        ({"gather_b": NINE[0:1][0]}, "gather_b: must be .*; got"),
        (
            {"gather_a": NINE, "gather_b": NINE.astype(np.int64)},
            "gather_b: must have the type of gather_a, int32; got int64",
        ),
        ({"gather_a": NINE + 1, "check_indices": True}, "gather_a: indices must lie between 0 and 8; got 9"),
        ({"gather_b": NINE - 1, "check_indices": True}, "gather_b: indices must lie between 0 and 8; got -1"),
        ({"scatter_d": NINE}, "out: must be given where the output is permuted or scattered; got None"),
        (
            {"scatter_d": NINE[:4], "out": np.zeros((9, 9), np.float32)},
            "scatter_d: must name a row of out for each of",
        ),
        ({"scatter_d": NINE, "out": np.zeros((9, 8), np.float32)}, "out: must have 9 columns"),
        ({"scatter_d": NINE, "out": np.zeros((2, 9, 9), np.float32)}, "out: must have 9 columns"),
        (
            {"scatter_d": NINE + 1, "out": np.zeros((9, 9), np.float32), "check_indices": True},
            "scatter_d: indices must lie between 0 and 8; got 9",
        ),
        (
            {
                "scatter_d": NINE,
                "out": np.zeros((12, 9), np.float32),
                "c": np.zeros((9, 9), np.float32),
                "beta": 1.0,
            },
            r"c: must have out's shape \(12, 9\) where rows are scattered; got \(9, 9\)",
        ),
        (
            {"permuted": True, "out": np.zeros((3, 3, 9), np.float32)},
            r"out: where permuted, must have four dimensions",
        ),
        (
            {"permuted": True, "out": np.zeros((3, 3, 2, 4), np.float32)},
            r"out: where permuted, .* the product's \(9, 9\)",
        ),
        ({"permuted": True, "scatter_d": NINE}, "permuted: an output is either permuted or scattered"),
        (
            {"alpha": np.ones(2, np.float32)},
            r"alpha: must be a number or an array of one element; got shape \(2,\)",
        ),
        ({"alpha": np.ones(1, complex)}, "alpha: must be a real number; got complex"),
        (
            {"gather_a": NINE, "kernel": "coalesced"},
            "it takes matrices as they lie; these have rows of A gathered",
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_cannot_be_routed(asked: dict[str, Any], message: str) -> None:
    a = np.ones((9, 9), np.float32)
    with pytest.raises(lapidist.LapidistError, match=message):
        lapidist.gemm(a, a, device="machine", **asked)


def test_turned_around() -> None:
    """D' = B' A': rows become columns."""
    modes = Modes(gather_a=True, scatter_rows=True, groups=(Group(2, 3, 4), Group(5, 6, 7)))
    turned = modes.transposed()
    assert (turned.gather_a, turned.gather_b, turned.scatter_rows, turned.scatter_cols) == (
        False,
        True,
        False,
        True,
    )
    assert turned.groups == (Group(5, 6, 7), Group(2, 3, 4))
    assert turned.transposed() == modes
    assert ExtraPointers(1, 2, 3, 4, 5, 6, 7, 8, 9).in_order_of(True) == (2, 1, 4, 3, 5, 6, 8, 7, 9, ())
    assert members(modes) == (0, 0, 0, 0, 0, 0, 2, 3, 5, 6, 7)
    assert ExtraPointers(1, scale_b=8).values(True) == {
        "modes": (0, 1, 0, 0, 0, 0),
        "scales": (8, 0),
        "ragged": (0,),
    }


@pytest.mark.parametrize("lists", [False, True])
def test_check_indices_is_a_flag_whatever_is_multiplied(gemm: Any, lists: bool) -> None:
    a = np.ones((4, 4), np.float16)
    with pytest.raises(lapidist.ArgumentError, match="check_indices: must be True or False; got 'no'"):
        gemm([a] if lists else a, [a] if lists else a, check_indices="no")


def test_addresses_of_a_alone_are_refused_by_name(gemm: Any) -> None:
    matrices = np.ones((2, 4, 4), np.float16)
    addresses = lapidist.Pointers(matrices.ctypes.data + 32 * np.arange(2), (4, 4), "float16")
    for b in (None, matrices):
        with pytest.raises(lapidist.ArgumentError, match="b: must be Pointers, as a is"):
            gemm(addresses, b, out=addresses)
