"""Where second passes store quantised values: anywhere, and four bytes at once where these lie together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lapidist
from lapidist import epilogues

ROWS, COLUMNS = 6, 256


def placed(first: int, row: int, col: int) -> Any:
    """An array of int8 that starts so many bytes after a multiple of 16."""
    room = np.zeros(16 + first + ROWS * row * col + COLUMNS * col, "i1")
    room = room[-room.ctypes.data % 16 + first :]
    return np.lib.stride_tricks.as_strided(room, (ROWS, COLUMNS), (row * col, col))


@pytest.mark.parametrize(
    ("first", "row", "col"),
    [(0, COLUMNS, 1), (1, COLUMNS, 1), (2, COLUMNS + 4, 1), (0, COLUMNS + 2, 1), (0, COLUMNS, 2)],
)
def test_quantised_values_may_start_and_lie_anywhere(
    rng: np.random.Generator, first: int, row: int, col: int
) -> None:
    """A store of four bytes elsewhere than at their multiples faults."""
    a = rng.integers(-2, 3, (ROWS, 4)).astype(np.float32)
    b = rng.integers(-2, 3, (4, COLUMNS)).astype(np.float32)
    made, d = epilogues.quantise_int8_groups, placed(first, row, col)
    expected, factors = lapidist.matmul(a, b, epilogue=made)
    found = lapidist.matmul(a, b, (d, None), epilogue=made, device="machine")
    np.testing.assert_array_equal(found[0], expected)
    np.testing.assert_array_equal(found[1], factors)
