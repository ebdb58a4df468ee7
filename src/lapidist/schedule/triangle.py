"""The tiles of a square matrix that meet one of its triangles, and their order."""

from __future__ import annotations

from math import isqrt
from typing import Any, NamedTuple

from lapidist.schedule.numbers import smaller


class Triangle(NamedTuple):
    """D is counted in squares of `down` x `across` tiles, whose sides are equally long. The functions are
    those of `cuda/share/triangle.cuh`, which draws the order.
    """

    down: int
    across: int
    upper: bool = False  # the lower triangle of the transposed matrix

    def tiles(self, tiles_m: Any, tiles_n: Any) -> Any:
        """How many there are. Numbers or arrays."""
        down, across = self.down, self.across
        if self.upper:
            tiles_m, tiles_n, down, across = tiles_n, tiles_m, across, down
        lines = -(-tiles_m // down)
        height = tiles_m - (lines - 1) * down
        return lines * (lines - 1) // 2 * down * across + height * smaller(lines * across, tiles_n)

    def place(self, index: int, tiles_m: int, tiles_n: int, panel: int) -> tuple[int, int]:
        """Row and column of the tile with number `index`, in bands of `panel` rows of tiles."""
        if self.upper:
            lower = Triangle(self.across, self.down)
            column, row = lower.place(index, tiles_n, tiles_m, panel)
            return row, column
        band = max(1, panel // self.down)
        of_square = self.down * self.across
        first = line_of_square(index // of_square) // band * band
        offset, height = index - first * (first + 1) // 2 * of_square, tiles_m - first * self.down
        height = min(height, band * self.down)
        row, column, wide = first * self.down, 0, (first + 1) * self.across
        while offset >= wide * height:
            offset, column, row = offset - wide * height, column + wide, row + self.down
            height, wide = height - self.down, self.across
        return row + offset % height, column + offset // height


def line_of_square(square: int) -> int:
    """The line of a square, if they are counted line by line."""
    return (isqrt(8 * square + 1) - 1) // 2
