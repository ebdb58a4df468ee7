"""Where second passes store: quantised values anywhere, four bytes at once where these lie together; and what
they leave for each other where none of it is still read."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import lapidist
from lapidist import epilogues
from lapidist.dtypes import size_of
from lapidist.planning.second_passes import RESULT, VALUES, Pass, Target, lines_of, room_of, steps_of

ROWS, COLUMNS = 6, 256


def placed(first: int, row: int, col: int) -> Any:
    """An array of int8 that starts so many bytes after a multiple of 16."""
    room = np.zeros(16 + first + ROWS * row * col + COLUMNS * col, "i1")
    room = room[-room.ctypes.data % 16 + first :]
    return np.lib.stride_tricks.as_strided(room, (ROWS, COLUMNS), (row * col, col))


@pytest.mark.often(2)
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


LONG = [
    ("row_sum", (1, 3, 100)),
    ("row_max", (2, 3, 4097)),
    ("row_amax", (1, 2, 1 << 25)),
    ("column_sum", (3, 257, 40)),
    ("column_max", (1, 1 << 17, 5)),
    ("all_sum", (1, 8193, 8192)),
    ("all_sum", (7, 1 << 20, 1 << 20)),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("then", "shape"), LONG, ids=str)
def test_steps_write_where_nothing_is_still_read(then: str, shape: tuple[int, int, int], dtype: str) -> None:
    """Each reads what the one before wrote, and all fit into the room between them."""
    each = Pass(then, dtype, shape, Target(dtype, 1, 1))
    steps, lines, read = steps_of(each, "sm_90a", assembled=False), lines_of(each), range(0)
    assert (steps[0].reads, steps[-1].writes) == (VALUES, RESULT)
    for step, following in pairwise(steps):
        assert step.writes == following.reads
        lines = lines.reduced()
        written = range(step.writes, step.writes + lines.values * size_of(dtype))
        assert read.stop <= written.start or written.stop <= read.start
        assert written.stop <= room_of(each)
        read = written
    assert lines.chunks == 1


@pytest.mark.parametrize(("then", "neighbours"), [("row_sum", 1), ("column_sum", 0), ("all_sum", 0)])
def test_reduced_values_have_no_neighbours(then: str, neighbours: int) -> None:
    """A part of a row is one value; what is reduced along columns is no row."""
    lines = lines_of(Pass(then, "float32", (1, 1 << 17, 1 << 17), Target("float32", 1, 1)))
    assert lines.chunks > 1
    assert lines.reduced().neighbours == neighbours
