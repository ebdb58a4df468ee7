"""Maps of TMA whose boxes end where a group of lines does, at a line that the host does not know.

A map says where an operand ends, not where a group in it does. So its lines are counted three times:

    dimension 1   CLIPPED_LINES lines, beyond which there is nothing: a box that starts r lines before their
                  end has r lines
    dimension 2   the same step, which moves the box to its place in the operand
    dimension 3   at place CLIPPED_SHIFT, it takes so many lines back, since addresses wrap at 2^64. Dimension
                  2 then counts no line below zero

gemm/wgmma/grouped_tiles.cuh has the coordinates of a box. One map serves all groups, of any lengths.
"""

from __future__ import annotations

from dataclasses import replace

from lapidist.launch import TensorMap

CLIPPED_LINES, CLIPPED_SHIFT = 256, 1 << 25  # as in gemm/wgmma/grouped_tiles.cuh
MOST_LINES = (1 << 31) - 1 - CLIPPED_SHIFT  # of the operand: places are counted in 32 bits


def clipped(plain: TensorMap, lines: int) -> TensorMap:
    """A map of so many lines, in place of the dimensions of `plain` behind the first."""
    step = plain.strides[0]
    shape = plain.shape[0], CLIPPED_LINES, CLIPPED_SHIFT + max(1, lines), CLIPPED_SHIFT + 1
    return replace(plain, shape=shape, strides=(step, step, (1 << 64) // CLIPPED_SHIFT - step))
