"""What the four warps of a warpgroup do together: wgmma."""

from __future__ import annotations

from collections import Counter

from lapidist.machine.faults import Divergence
from lapidist.machine.lanes import Lanes
from lapidist.machine.register_pool import WARPS
from lapidist.machine.sanitize.ordered import warp_number
from lapidist.machine.state import Machine


class Warpgroups:
    """Counts what each warp of the launch executed, and compares the four of a group when the kernel ends."""

    def __init__(self, m: Machine) -> None:
        self.m = m
        self.products: dict[int, Counter[int]] = {}  # by warp: executions of each wgmma

    def multiplied(self, g: Lanes, site: int) -> None:
        self.products.setdefault(warp_number(g), Counter())[site] += 1

    # -- at the end --

    def check(self) -> None:
        for warp, executed in sorted(self.products.items()):
            self.check_partners(warp, executed)

    def check_partners(self, warp: int, executed: Counter[int]) -> None:
        for other in self.group_of(warp):
            counts = self.products.get(other, Counter())
            for site, count in executed.items():
                if counts[site] != count:
                    self.report_partner(warp, other, site)
                    return

    def report_partner(self, warp: int, other: int, site: int) -> None:
        """A wgmma that one warp of the group executed more often than another."""
        count, others = (self.products.get(w, Counter())[site] for w in (warp, other))
        rule = (
            f"warp {self.name(warp)} executed this wgmma {count} times, warp {self.name(other)}"
            f" {others} times: all four warps of a warpgroup execute it"
        )
        self.m.report(self.m.fault(Divergence, rule, site, name="warpgroup"))

    def group_of(self, warp: int) -> range:
        """The four warps of a warp's group, which counts from the block's first warp."""
        warps = self.m.geometry.warps
        first = warp // warps * warps + warp % warps // WARPS * WARPS
        return range(first, first + WARPS)

    def is_gone(self, warp: int, g: Lanes) -> bool:
        """Whether a warp of the lanes' block has exited, or never was."""
        exited = self.m.exited[int(g.slot[0]), warp % self.m.geometry.warps]
        return self.is_beyond(warp, g) or bool(exited == 0xFFFFFFFF)

    def is_beyond(self, warp: int, g: Lanes) -> bool:
        """Whether a warp would be one of another block: the last group of this one is no whole one."""
        return warp // self.m.geometry.warps != int(g.block[0])

    def name(self, warp: int) -> str:
        return str(warp % self.m.geometry.warps)
