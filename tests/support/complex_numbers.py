"""Complex matrices of small whole numbers, whose products are exact."""

from __future__ import annotations

from typing import Any

import numpy as np

import lapidist
from lapidist import Column, Row, Scalar, Tile

PLACES = "host", "machine"
Numbers = np.ndarray[Any, Any]


def whole(*shape: int, dtype: Any = np.complex64, seed: int = 0) -> Numbers:
    """Small whole numbers, whose products and sums are exact."""
    rng = np.random.default_rng((seed, *shape))
    return (rng.integers(-4, 5, shape) + 1j * rng.integers(-4, 5, shape)).astype(dtype)


def same(result: Any, right: Any, dtype: Any = np.complex64) -> None:
    assert result.dtype == dtype
    assert np.array_equal(result, right), (result, right)


@lapidist.epilogue
def mixed(acc: Any, row: Row, column: Column, tile: Tile, by_row: Row, by_column: Column) -> Any:
    return (2 * acc + row - column) * by_row / by_column - tile


@lapidist.epilogue
def scaled(acc: Any, scale: Scalar, shift: Scalar) -> Any:
    return scale * -acc + shift
