"""Maps of TMA whose boxes end where a group of lines does, at a line that the host does not know.

A map says where an operand ends, not where a group in it does. So its lines are counted three times:

    dimension 1   CLIPPED_LINES lines, beyond which there is nothing: a box that starts r lines before their
                  end has r lines
    dimension 2   the same step, which moves the box to its place in the operand
    dimension 3   at place CLIPPED_SHIFT, it takes so many lines back, since addresses wrap at 2^64. Dimension
                  2 then counts no line below zero

share/clipped_lines.cuh has the coordinates of a box. One map serves all groups, of any lengths.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lapidist.launch import TensorMap
from lapidist.problems.problem import Problem
from lapidist.problems.ragged import COLS, DEPTH, ROWS, Ragged

CLIPPED_LINES, CLIPPED_SHIFT = 256, 1 << 25  # as in share/clipped_lines.cuh
MOST_LINES = (1 << 31) - 1 - CLIPPED_SHIFT  # of the operand: places are counted in 32 bits
# which maps have lines that groups cut, by the extent that is cut
CUT = {ROWS: ("a_map", "d_map"), COLS: ("b_map", "d_map"), DEPTH: ("a_map", "b_map")}


def clipped(plain: TensorMap, lines: int) -> TensorMap:
    """A map of so many lines, in place of the dimensions of `plain` behind the first."""
    step = plain.strides[0]
    shape = plain.shape[0], CLIPPED_LINES, CLIPPED_SHIFT + max(1, lines), CLIPPED_SHIFT + 1
    return replace(plain, shape=shape, strides=(step, step, (1 << 64) // CLIPPED_SHIFT - step))


def cut_by_groups(maps: Mapping[str, TensorMap], ragged: Ragged | None) -> dict[str, TensorMap]:
    cut = () if ragged is None else CUT[ragged.extent]
    total = 0 if ragged is None else ragged.total
    return {name: clipped(plain, total) if name in cut else plain for name, plain in maps.items()}


def refuse_many_lines(ragged: Ragged) -> str | None:
    if ragged.total > MOST_LINES:
        return f"places of lines are counted in 32 bits, up to {MOST_LINES}; there are {ragged.total}"
    return None


def refuse_cut_lines(problem: Problem, ragged: Ragged, mn_major: tuple[bool, bool]) -> str | None:
    """Groups must not cut the direction in which elements are adjacent. `mn_major`: whether that of A is m,
    and that of B n.
    """
    cuts = problem.modes.cuts
    for name, cut, across in (("A", not cuts(COLS), mn_major[0]), ("B", not cuts(ROWS), mn_major[1])):
        if cut and across != cuts(DEPTH):
            return f"TMA cuts {name} between its lines; {ragged} cut them, as they lie"
    return None
