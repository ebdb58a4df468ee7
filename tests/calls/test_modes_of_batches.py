"""Batches whose matrices have indices of their own, permuted outputs in batches, workspaces of array
batches.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lapidist
from in_turns import in_turns
from lapidist.verify.sum_bound import judge

Array = np.ndarray[Any, Any]


def half(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float16)


def turned(array: Array) -> Array:
    """Column-major."""
    return array.swapaxes(-1, -2).copy().swapaxes(-1, -2)


def rows_of(matrices: Array, index: Array) -> Array:
    """Each matrix's own rows."""
    return np.stack([matrix[own] for matrix, own in zip(matrices, index, strict=True)])


@pytest.mark.often(2)
@pytest.mark.parametrize(
    ("orders", "batch", "index"), in_turns(["CC", "CF", "FC"], [3, 1], ["int32", "int64"])
)
def test_each_matrix_has_its_own_indices(
    rng: np.random.Generator, gemm: Any, batch: int, orders: str, index: Any
) -> None:
    """Repeated and out of order; rows that none of a matrix's indices names stay as they are."""
    a, b, out = half(rng, batch, 40, 30), half(rng, batch, 30, 50), half(rng, batch, 25, 17)
    a, out = (array if order == "C" else turned(array) for array, order in zip((a, out), orders, strict=True))
    rows, cols = (
        rng.integers(0, 40, (batch, 21)).astype(index),
        rng.integers(0, 50, (batch, 17)).astype(index),
    )
    to = np.stack([rng.permutation(25)[:21] for _ in range(batch)]).astype(index)
    before = out.copy()
    gemm(a, b, out, beta=-1.0, out=out, gather_a=rows, gather_b=cols, scatter_d=to, check_indices=True)
    columns = np.stack([matrix[:, own] for matrix, own in zip(b, cols, strict=True)])
    assert judge(rows_of(out, to), rows_of(a, rows), columns, rows_of(before, to), 1.0, -1.0).ok
    for i in range(batch):
        others = np.setdiff1d(np.arange(25), to[i])
        assert np.array_equal(out[i, others], before[i, others])


@pytest.mark.often(2)
def test_one_array_by_the_indices_of_many(rng: np.random.Generator, gemm: Any) -> None:
    """Tokens that lie once, for each expert those that it takes; what all share stays one array of
    indices.
    """
    tokens, experts = half(rng, 40, 30), half(rng, 4, 30, 20)
    rows, cols = rng.integers(0, 40, (4, 9)), rng.permutation(20)[:11]
    found = gemm(tokens, experts, gather_a=rows, gather_b=cols)
    assert judge(found, tokens[rows], experts[..., cols]).ok


@pytest.mark.often(2)
def test_shared_b_with_columns_of_each_is_not_stacked(rng: np.random.Generator, gemm: Any) -> None:
    a, b, cols = half(rng, 3, 16, 24), half(rng, 24, 40), rng.integers(0, 40, (3, 8))
    found = gemm(a, b, gather_b=cols)
    assert judge(found, a, np.stack([b[:, own] for own in cols])).ok


@pytest.mark.often(2)
@pytest.mark.parametrize("alike", [False, True])
def test_two_dimensions_of_matrices(rng: np.random.Generator, gemm: Any, alike: bool) -> None:
    """That fold into one, and that do not."""
    a, b = half(rng, 2, 3, 12, 20), half(rng, *((2, 3) if alike else (3,)), 20, 16)
    rows = rng.integers(0, 12, (2, 3, 10))
    assert judge(gemm(a, b, gather_a=rows), np.take_along_axis(a, rows[..., None], axis=-2), b).ok


def test_no_matrices(gemm: Any) -> None:
    a, b = np.ones((0, 5, 4), np.float16), np.ones((4, 6), np.float16)
    assert gemm(a, b, gather_a=np.ones((0, 7), np.int32), check_indices=True).shape == (0, 7, 6)
    assert gemm(np.ones((2, 5, 4), np.float16), b, gather_a=np.ones((2, 0), np.int32)).shape == (2, 0, 6)


def test_no_indices_at_all_may_lie_anyhow(gemm: Any) -> None:
    """torch steps over an empty dimension as if it had one element."""
    none = np.ndarray((2, 0, 16), np.int32, np.zeros(32, np.int32), 0, (64, 64, 4))
    a, b = np.ones((2, 1, 5, 4), np.float16), np.ones((0, 4, 6), np.float16)
    assert gemm(a, b, gather_b=none).shape == (2, 0, 5, 16)


@pytest.mark.often(2)
@pytest.mark.parametrize(
    "more", [{"split_k": 3}, {"schedule": "stream_k"}, {"split_k": 2, "reduction": "cluster"}], ids=str
)
@pytest.mark.parametrize("kernel", ["simt", "mma"])
def test_own_indices_with_shared_tiles(rng: np.random.Generator, kernel: str, more: dict[str, Any]) -> None:
    a, b = half(rng, 3, 40, 300), half(rng, 300, 24)
    rows, to = rng.integers(0, 40, (3, 33)), np.stack([rng.permutation(33) for _ in range(3)])
    out = np.full((3, 33, 24), np.nan, np.float16)
    lapidist.gemm(a, b, out=out, gather_a=rows, scatter_d=to, kernel=kernel, device="machine", **more)
    assert judge(rows_of(out, to), rows_of(a, rows), b).ok


@pytest.mark.often(2)
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("axes", [(0, 1, 3, 2, 4), (1, 0, 2, 3, 4), (4, 2, 3, 1, 0)])
def test_permuted_outputs_in_batches(
    rng: np.random.Generator, gemm: Any, axes: tuple[int, ...], shared: bool
) -> None:
    """A contiguous array whose dimensions, the batch among them, lie in another order. Rows in groups are not
    stacked.
    """
    a, b, c = half(rng, 3, 48, 30), half(rng, *(() if shared else (3,)), 30, 20), half(rng, 3, 48, 20)
    shape = (3, 6, 8, 5, 4)
    out = np.full([shape[axis] for axis in axes], np.nan, np.float16).transpose(np.argsort(axes))
    gemm(a, b, c, beta=1.5, out=out, permuted=True)
    assert judge(out.reshape(3, 48, 20), a, b, c, 1.0, 1.5).ok


@pytest.mark.often(2)
def test_permuted_and_gathered_in_batches(rng: np.random.Generator, gemm: Any) -> None:
    a, b, rows = half(rng, 2, 20, 16), half(rng, 2, 16, 12), rng.integers(0, 20, (2, 24))
    out = np.full((2, 4, 3, 6, 4), np.nan, np.float16).transpose(0, 3, 4, 2, 1)
    gemm(a, b, out=out, gather_a=rows, permuted=True)
    assert judge(out.reshape(2, 24, 12), rows_of(a, rows), b).ok


NINE = np.arange(9, dtype=np.int32)
TWICE = np.stack([NINE, NINE])


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            {"gather_a": np.stack([NINE] * 3)},
            r"gather_a: must be one dimension for all .* dimensions \(2,\) .* got shape \(3, 9\)",
        ),
        (
            {"gather_a": TWICE[None]},
            r"gather_a: must be one dimension for all matrices, .* got shape \(1, 2, 9\)",
        ),
        (
            {"gather_a": np.asfortranarray(TWICE)},
            "gather_a: must be one contiguous dimension, or a row .* strides .* Copy it",
        ),
        ({"gather_a": TWICE + 1, "check_indices": True}, "gather_a: indices must lie between 0 and 8; got 9"),
        (
            {"scatter_d": TWICE[:, :4].copy(), "out": np.zeros((2, 9, 9), np.float32)},
            "scatter_d: must name a row of out for each of the 9",
        ),
        (
            {"permuted": True, "out": np.zeros((3, 3, 3, 3, 3), np.float32)},
            r"out: where permuted, .* of the batch, \(2,\); got",
        ),
        (
            {"permuted": True, "out": np.zeros((2, 3, 3, 9), np.float32)},
            r"out: where permuted, .* of the batch, \(2,\); got",
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_does_not_fit_a_batch(asked: dict[str, Any], message: str) -> None:
    a, out = np.ones((2, 9, 9), np.float32), asked.get("out")
    with pytest.raises(lapidist.LapidistError, match=message):
        lapidist.gemm(a, a, device="machine", **asked)
    assert out is None or not out.any()


def test_own_indices_are_for_one_launch() -> None:
    a, b = np.ones((2, 2, 2, 4, 4), np.float32).transpose(2, 1, 0, 3, 4), np.ones((4, 4), np.float32)
    rows = np.zeros((2, 2, 2, 4), np.int32)
    with pytest.raises(
        lapidist.ArgumentError,
        match=r"gather_a, .*: indices of each matrix are for a batch .* got \(2, 2, 2\)",
    ):
        lapidist.gemm(a, b, gather_a=rows, device="machine")
    assert (lapidist.gemm(a, b, gather_a=rows) == 4).all()  # NumPy takes any


def test_array_batches_take_a_workspace(rng: np.random.Generator) -> None:
    a, b = [half(rng, 30, 200) for _ in range(66)], [half(rng, 200, 20) for _ in range(66)]
    asked: dict[str, Any] = {"kernel": "simt", "split_k": 3, "mode": "array", "device": "machine"}
    plan = lapidist.plan(a, b, **asked)
    own = np.zeros(plan.workspace_bytes // 4 + 64, np.int32)
    own = own[-own.ctypes.data % 256 // 4 :]  # starts where workspaces must
    assert plan.workspace_bytes > 0
    assert all(
        judge(d, x, y).ok for d, x, y in zip(lapidist.gemm(a, b, workspace=own, **asked), a, b, strict=True)
    )
    with pytest.raises(
        lapidist.ArgumentError, match=r"workspace: must hold the plan's \d+ bytes; got 16. Pass a larger one"
    ):
        lapidist.plan(a, b, workspace=np.zeros(4, np.int32), **asked)


@pytest.mark.often(2)
@pytest.mark.parametrize(
    ("dtype", "extents"), in_turns(["float64", "float16", "int8"], [(5, 16, 1), (1, 16, 7), (17, 1, 1)])
)
def test_matrices_that_interleave_start_anywhere(
    rng: np.random.Generator, dtype: str, extents: tuple[int, int, int]
) -> None:
    """The batch is what touches in memory, so no matrix but the first starts on 16 bytes."""
    rows, k, cols = extents
    a, b = (rng.integers(-4, 5, shape).astype(dtype) for shape in ((rows, k, 4), (k, cols, 4)))
    first, second = a.transpose(2, 0, 1), b.transpose(2, 0, 1)
    for x, y in ((first, second), (first.copy(), second), (first, second.copy())):
        assert judge(lapidist.matmul(x, y, device="machine"), x, y, exact=True).ok


def test_gathered_rows_that_touch_start_anywhere(rng: np.random.Generator) -> None:
    a, b = rng.standard_normal((1, 8)).astype(np.float16).T, rng.standard_normal((1, 145)).astype(np.float16)
    rows = np.array([3, 5], np.int32)
    assert judge(lapidist.gemm(a, b, gather_a=rows, device="machine"), a[rows], b).ok


@pytest.mark.often(2)
@pytest.mark.parametrize("n", [9, 10, 43])
def test_new_outputs_of_gathered_rows_start_anywhere(rng: np.random.Generator, n: int) -> None:
    """Rows of a narrower type than the operands' start on fewer bytes than those."""
    a, b = (
        rng.standard_normal((3, 4, 18)).astype(np.float32),
        rng.standard_normal((3, 18, n)).astype(np.float32),
    )
    rows = rng.integers(0, 4, (3, 1)).astype(np.int32)
    for more in ({}, {"precision": "tf32"}):
        d = lapidist.gemm(a, b, gather_a=rows, out_dtype="bfloat16", device="machine", **more)
        assert judge(d, rows_of(a, rows), b, **more).ok
