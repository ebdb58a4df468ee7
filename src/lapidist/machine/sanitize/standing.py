"""Which warps stand at each block of code. To ask all of them at each block cost a third of a schedule."""

from __future__ import annotations

from lapidist.machine.lanes import Cohort


class Standing:
    """`came` are the warps that came to a block, by their numbers. Some have left it since."""

    def __init__(self) -> None:
        self.came: dict[int, dict[int, Cohort]] = {}

    def come(self, cohort: Cohort, number: int) -> None:
        """Note that lanes of a warp came to a block."""
        warps = self.came.get(number)
        if warps is None:
            warps = self.came[number] = {}
        warps[cohort.first_warp] = cohort

    def at(self, number: int) -> list[Cohort]:
        """Warps of which lanes stand at a block."""
        warps = self.came.get(number)
        if not warps:
            return []
        for warp in [warp for warp, one in warps.items() if number not in one.groups]:
            del warps[warp]
        return list(warps.values())

    def forget(self, warp: int) -> None:
        """A warp has ended."""
        for warps in self.came.values():
            warps.pop(warp, None)
