"""Grouped products: one extent of a batch's matrices is cut into stretches, whose ends only the device knows.

The Problem is that of an even batch, which the planner weighs: each group has the rows that the caller
expects. The operands that the groups share have stride 0 along the batch. share/groups.cuh is the device
side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from lapidist.problems.scaling import Scaling

ROWS, COLS, DEPTH = "m", "n", "k"
NUMBERS = {ROWS: 1, COLS: 2, DEPTH: 3}  # in share/groups.cuh
EXCHANGED = {ROWS: COLS, COLS: ROWS, DEPTH: DEPTH}  # in D' = B' A'


class FixedCuts(NamedTuple):
    """Where the k of every tile of groups is cut, whatever their lengths are. `parts` are of whole steps, the
    first ones longer by a step. A block computes the parts of a tile one after another, and adds their sums.
    """

    parts: int
    step: int  # elements of k
    reduction: str  # of the dense product that is cut so
    from_zero: bool  # whether the first part's sums are added to zero

    def boundaries(self, k: int) -> tuple[int, ...]:
        """The elements of k at which the second part begins, the third, and so on."""
        normal, longer = divmod(-(-k // self.step), self.parts)
        return tuple(self.step * (part * normal + min(part, longer)) for part in range(1, self.parts))


class Ragged(NamedTuple):
    """`extent`: which one is cut. `groups`: how many stretches there are. `total`: elements of the extent in
    the shared operands. `most`: 0, or the distance at which stretches begin, of which each fills a part.
    `cuts`: those of k in every tile, where rows must keep their bits.
    """

    extent: str
    groups: int
    total: int
    most: int = 0
    cuts: FixedCuts | None = None

    @property
    def number(self) -> int:
        """The extent, as share/groups.cuh counts them."""
        return NUMBERS[self.extent]

    def transposed(self) -> Ragged:
        return self._replace(extent=EXCHANGED[self.extent])

    def tiles(self, lines: int) -> int:
        """The most lines of tiles that the groups can have along a ragged m or n."""
        each = -(-self.most // lines) if self.most else 0
        return self.groups * each if self.most else self.total // lines + min(self.groups, self.total)

    def members(self, scaling: Scaling) -> tuple[int, ...]:
        """groups.cuh's struct Ragged, with zero in place of the address."""
        return (0, self.groups, self.total, self.most, scaling.a.group_step, scaling.b.group_step)

    def __str__(self) -> str:
        whose = {ROWS: "rows", COLS: "columns", DEPTH: "steps of k"}[self.extent]
        return f"{self.total} {whose} in {self.groups} groups"
