"""What the four warps of a warpgroup do together: wgmma, and setmaxnreg with its pool of registers."""

from __future__ import annotations

from collections import Counter

from lapidist.machine.faults import BarrierMisuse, Deadlock, Divergence
from lapidist.machine.lanes import Lanes
from lapidist.machine.sanitize.ordered import warp_number
from lapidist.machine.state import Machine

WARPS = 4
REGISTERS = 65536  # of an SM
MOST, STEP = 255, 8  # of a thread, and what the chip gives at a time


class Warpgroups:
    """Counts what each warp of the launch executed, and compares the four of a group when the kernel ends."""

    def __init__(self, m: Machine) -> None:
        self.m = m
        self.products: dict[int, Counter[int]] = {}  # by warp: executions of each wgmma
        self.budgets: dict[int, list[tuple[int, bool, int]]] = {}  # by warp: site, whether more, registers

    def multiplied(self, g: Lanes, site: int) -> None:
        self.products.setdefault(warp_number(g), Counter())[site] += 1

    def resized(self, g: Lanes, more: bool, count: int, site: int) -> None:
        self.budgets.setdefault(warp_number(g), []).append((site, more, count))

    # -- at the end --

    def check(self) -> None:
        for warp, executed in sorted(self.products.items()):
            self.check_partners(warp, executed)
        for warp, budget in sorted(self.budgets.items()):
            others = [other for other in self.group_of(warp) if self.budgets.get(other) != budget]
            if others:
                rule = (
                    f"setmaxnreg by warp {self.name(warp)}, and not in the same way by warp"
                    f" {self.name(others[0])}: all four warps of a warpgroup execute it"
                )
                self.report(Divergence, rule, budget[0][0], "warpgroup")
                return
        for block in sorted({warp // self.m.geometry.warps for warp in self.budgets}):
            self.check_pool(block)

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
        self.report(Divergence, rule, site, "warpgroup")

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

    def check_pool(self, block: int) -> None:
        """What groups take must have been given back by others: the chip waits for it."""
        warps, kernel = self.m.geometry.warps, self.m.program.kernel
        first = block * warps
        start = min(kernel.most_registers or MOST, REGISTERS // (warps * 32) // STEP * STEP)
        held = dict.fromkeys(range(-(-warps // WARPS)), start)
        for group in held:
            set_before = False  # how many a warp has at first, the PTX does not say
            for site, more, count in self.budgets.get(first + WARPS * group, ()):
                if set_before and (count < held[group]) == more and count != held[group]:
                    way = "inc" if more else "dec"
                    rule = f"setmaxnreg.{way} to {count} registers by warps that have {held[group]}"
                    self.report(BarrierMisuse, rule, site, "setmaxnreg")
                    return
                held[group], set_before = count, True
        pool, taken = start * warps, sum(count * WARPS for count in held.values())
        if taken > pool:
            resized = [self.budgets.get(warp, []) for warp in range(first, first + warps)]
            site = next(site for budget in resized for site, more, _ in budget if more)
            rule = (
                f"setmaxnreg.inc waits for ever: the warps take {32 * taken} registers in all, the block has"
                f" {32 * pool}; a setmaxnreg.dec is missing or too small"
            )
            self.report(Deadlock, rule, site, "setmaxnreg")

    def report(
        self, kind: type[Divergence | BarrierMisuse | Deadlock], rule: str, site: int, name: str
    ) -> None:
        self.m.report(self.m.fault(kind, rule, site, name=name))
