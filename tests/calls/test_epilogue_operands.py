"""Operands of epilogues as arguments of a call: how their shapes are read, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lapidist
from lapidist import epilogues
from lapidist.errors import ArgumentError, DTypeError, LapidistError, ShapeError, StrideError

Array = np.ndarray[Any, Any]
PLACES = pytest.mark.parametrize("device", ["host", "machine"])
A, B = np.ones((2, 4, 3), np.float32), np.ones((3, 6), np.float32)
FLAT = np.full(200, 7, np.float32)
D, OTHER = FLAT[:48].reshape(2, 4, 6), np.full(200, 7, np.float32)
TILE = OTHER[:24].reshape(4, 6)


def whole(rng: np.random.Generator, *shape: int) -> Array:
    return rng.integers(-3, 4, shape).astype(np.float32)


@lapidist.epilogue
def by_each(acc: Any, row: lapidist.Row, column: lapidist.Column, tile: lapidist.Tile) -> Any:
    return acc * row + column * tile


@lapidist.epilogue
def dropped(acc: Any, p: lapidist.Scalar, seed: lapidist.Scalar) -> Any:
    return lapidist.dropout(acc, p, seed)


@lapidist.epilogue
def half_dropped(acc: Any) -> Any:
    return lapidist.dropout(acc, 0.5, 3)


@lapidist.epilogue
def one(acc: Any, scale: lapidist.Scalar) -> Any:
    return acc * scale


def given(row: Any = OTHER[:6], column: Any = OTHER[:4], tile: Any = TILE) -> Any:
    return by_each(row=row, column=column, tile=tile)


# ---- what is refused ----

REFUSED: dict[str, tuple[Any, type[LapidistError], str]] = {
    "a row too long": (
        given(row=OTHER[:7]),
        ShapeError,
        r"row: must have a value for each column of D, shape \(6,\), or with the batch before it, \(2, 6\);"
        r" got \(7,\)\. Pass one of that shape",
    ),
    "a column too short": (
        given(column=OTHER[:3]),
        ShapeError,
        r"column: must have a value for each row of D, shape \(4,\), .* got \(3,\)",
    ),
    "a tile of another batch": (
        given(tile=OTHER[:72].reshape(3, 4, 6)),
        ShapeError,
        r"tile: must have a value for each element of D, shape \(4, 6\), .* got \(3, 4, 6\)",
    ),
    "a tile of more dimensions than the batch has": (
        given(tile=OTHER[:48].reshape(1, 2, 4, 6)),
        ShapeError,
        r"tile: .* got \(1, 2, 4, 6\)",
    ),
    "a tile of one dimension": (given(tile=OTHER[:6]), ShapeError, r"tile: .* got \(6,\)"),
    "a row of more dimensions than the batch has": (
        given(row=OTHER[:12].reshape(1, 2, 6)),
        ShapeError,
        r"row: .* got \(1, 2, 6\)",
    ),
    "a scalar of two elements": (
        one(scale=OTHER[:2]),
        ShapeError,
        r"scale: must be a number or an array of one element; got \(2,\)\. Take one",
    ),
    "a scalar beyond the floats of sums": (
        one(scale=-1e40),
        ArgumentError,
        r"scale: must fit float32, at most 3\.403e\+38 in size; got -1e\+40",
    ),
    "complex numbers": (
        given(row=np.ones(6, np.complex64)),
        DTypeError,
        r"row: must be of float.*; got complex64\. Convert it first",
    ),
    "elements that straddle": (
        given(row=np.ones(25, np.uint8)[1:].view(np.float32)),
        StrideError,
        r"row: must start on a multiple of its element's 4 bytes; it starts \d beyond one\. Pass a copy",
    ),
    "a share that leaves nothing": (
        dropped(p=1.0, seed=3),
        ArgumentError,
        r"p: must be 0 or more and below 1, a share that is dropped; got 1\.0\. Try 0\.1",
    ),
    "a share below nothing": (
        dropped(p=-0.5, seed=3),
        ArgumentError,
        r"p: must be 0 or more and below 1, a share that is dropped; got -0\.5",
    ),
    "a seed of 65 bits": (
        dropped(p=0.5, seed=2**64),
        ArgumentError,
        r"seed: must be an integer, 0 or more and below 2\^64, or an array of one; got 18446744073709551616",
    ),
    "a seed that is a fraction": (dropped(p=0.5, seed=0.5), ArgumentError, r"seed: must be an integer.*0\.5"),
    "a seed of floats": (
        dropped(p=0.5, seed=OTHER[:1]),
        DTypeError,
        r"seed: must be of int64, int32; got float32\. Convert it first",
    ),
    "seeds": (
        dropped(p=0.5, seed=np.array([1, 2])),
        ShapeError,
        r"seed: must be a number or an array of one element; got \(2,\)",
    ),
    "an operand where D is written": (given(row=FLAT[42:48]), StrideError, r"out: must not overlap row"),
}


@PLACES
@pytest.mark.parametrize("case", REFUSED)
def test_an_operand_that_does_not_fit(case: str, device: str) -> None:
    epilogue, error, words = REFUSED[case]
    with pytest.raises(error, match=words):
        lapidist.matmul(A, B, D, epilogue=epilogue, device=device)
    assert (FLAT == 7).all()


@PLACES
def test_operands_beside_d_and_bounds_that_still_fit(device: str) -> None:
    """Not a byte lies between D and the row; the seed has 64 bits."""
    flat = np.full(60, 7, np.float32)
    d, row = flat[6:54].reshape(2, 4, 6), flat[54:]
    for values in (row, flat[:6]):
        lapidist.matmul(A, B, d, epilogue=given(row=values), device=device)
        assert (d == 3 * 7 + 49).all()
        assert (values == 7).all()
    for p, seed in ((0.0, 2**64 - 1), (np.nextafter(1, 0), 0)):
        found = lapidist.matmul(A, B, epilogue=dropped(p=p, seed=seed), device=device)
        assert (found == 3).all() if p == 0 else np.isin(found, (0, np.float32(3 / (1 - p)))).all()


@PLACES
def test_scattered_rows_have_positions_without_operands(device: str) -> None:
    """Those of the rows of D. Numbers captured in the function are no operands."""
    d, expected = np.zeros((2, 9, 6), np.float32), np.zeros((2, 9, 6), np.float32)
    rows = np.array([5, 0, 7, 2], np.int32)
    lapidist.gemm(A, B, out=expected, scatter_d=rows, epilogue=dropped(p=0.5, seed=3), device=device)
    lapidist.gemm(A, B, out=d, scatter_d=rows, epilogue=half_dropped, device=device)
    np.testing.assert_array_equal(d, expected)
    assert 0 < np.count_nonzero(expected) < A[..., 0].size * 6


@PLACES
def test_sums_of_integers_are_followed_by_nothing(device: str) -> None:
    a = np.ones((4, 4), np.int8)
    with pytest.raises(DTypeError, match="epilogue: must follow sums of floats; a is int8, summed in int32"):
        lapidist.matmul(a, a, epilogue=epilogues.relu, device=device)


# ---- how shapes are read ----


@PLACES
@pytest.mark.parametrize("row", [(6,), (1, 6), (3, 6), (2, 1, 6), (2, 3, 6), (1, 3, 1, 6), (2, 3, 1, 6)])
@pytest.mark.parametrize("column", [(5,), (5, 1), (3, 5), (2, 1, 5), (2, 3, 5, 1)])
def test_operands_of_each_matrix_or_of_all(
    rng: np.random.Generator, device: str, row: tuple[int, ...], column: tuple[int, ...]
) -> None:
    a, b, tile = whole(rng, 2, 3, 5, 4), whole(rng, 4, 6), whole(rng, 3, 5, 6)
    of_row, of_column = whole(rng, *row), whole(rng, *column)
    found = lapidist.matmul(a, b, epilogue=given(of_row, of_column, tile), device=device)
    lying = of_row if len(row) == 4 else of_row[..., None, :]
    standing = of_column if column[-1] == 1 else of_column[..., None]
    np.testing.assert_array_equal(found, (a @ b) * lying + standing * tile)


@PLACES
def test_vectors_lack_a_dimension_in_their_tiles(rng: np.random.Generator, device: str) -> None:
    a, b, x, y = whole(rng, 5, 4), whole(rng, 2, 4, 6), whole(rng, 4), whole(rng, 4)
    plus = lapidist.epilogues.residual
    for left, right in ((x, b), (x, b[0]), (a, y), (np.stack([a, a]), y), (x, y)):
        product = left @ right
        tile = whole(rng, *product.shape)
        if product.ndim:
            found = lapidist.matmul(left, right, epilogue=plus(residual=tile), device=device)
            np.testing.assert_array_equal(found, product + tile)
        else:
            with pytest.raises(ShapeError, match="residual: must have a value for each element of D"):
                lapidist.matmul(left, right, epilogue=plus(residual=whole(rng, 2)), device=device)


@PLACES
def test_factors_lie_by_columns_where_they_are_a_matrix_of_their_own(device: str) -> None:
    """One that has a row for each matrix of a batch of vectors lies by rows."""
    a, x = np.ones((5, 4), np.float32), np.ones(4, np.float32)
    b = np.ones((4, 300), np.float32) * np.arange(1, 301, dtype=np.float32)
    made = epilogues.quantise_int8_groups
    most = np.array([128, 256, 300], np.float32) * 4 / 127
    _, of_matrix = lapidist.matmul(a, b, epilogue=made, device=device)
    _, of_vectors = lapidist.matmul(x, np.stack([b, 2 * b]), epilogue=made, device=device)
    assert of_matrix.flags.f_contiguous
    assert of_vectors.flags.c_contiguous
    np.testing.assert_allclose(of_matrix, np.stack([most] * 5), rtol=1e-6)
    np.testing.assert_allclose(of_vectors, np.stack([most, 2 * most]), rtol=1e-6)
