"""setmaxnreg: warpgroups give registers back to their block's pool, and take what others gave.

The machine does not model registers. It notes what each warp asks for, in every run, and compares when the
kernel ends: on a chip, a warpgroup waits for ever for registers that the block does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np

from lapidist.machine.faults import BarrierMisuse, Deadlock, Divergence, MachineFault
from lapidist.machine.lanes import Lanes

if TYPE_CHECKING:
    from lapidist.machine.state import Machine

WARPS = 4  # of a warpgroup
REGISTERS = 65536  # of an SM
MOST, STEP = 255, 8  # of a thread, and what the chip gives at a time
F = TypeVar("F", bound=MachineFault)
Requests = dict[int, list[tuple[int, bool, int]]]  # by warp of a block: site, whether more, registers


def counts(resizes: list[tuple[int, bool, int]]) -> list[tuple[bool, int]]:
    return [(more, count) for _, more, count in resizes]


class RegisterPool:
    def __init__(self, m: Machine) -> None:
        self.m = m
        self.blocks: dict[int, Requests] = {}

    def resized(self, g: Lanes, more: bool, count: int, site: int) -> None:
        missing = ~(g.present | self.m.exited_rows(g))
        if missing.any():
            lane = int(np.argwhere(missing)[0][1])
            rule = f"setmaxnreg without lane {lane} of the warp: all lanes execute it together"
            self.m.report(self.m.fault(Divergence, rule, site, g))
        for block, warp in sorted({*zip(g.block.tolist(), (g.thread // 32).tolist(), strict=True)}):
            self.blocks.setdefault(block, {}).setdefault(warp, []).append((site, more, count))

    def check(self) -> None:
        """At the kernel's end."""
        for _, requests in sorted(self.blocks.items()):
            if not self.check_partners(requests) or not self.check_pool(requests):
                return

    def check_partners(self, requests: Requests) -> bool:
        """Whether the four warps of each warpgroup asked for the same."""
        for warp, asked in sorted(requests.items()):
            first = warp // WARPS * WARPS
            partners = range(first, first + WARPS)
            others = [other for other in partners if counts(requests.get(other, [])) != counts(asked)]
            if others:
                rule = (
                    f"setmaxnreg by warp {warp}, and not in the same way by warp {others[0]}: all four warps"
                    " of a warpgroup execute it"
                )
                self.report(Divergence, rule, asked[0][0], "warpgroup")
                return False
            sites = {partner: [request[0] for request in requests[partner]] for partner in partners}
            strays = [partner for partner in partners if sites[partner] != sites[warp]]
            if strays:
                rule = f"setmaxnreg by warp {warp}, and at another place by warp {strays[0]} of its warpgroup"
                pairs = zip(sites[warp], sites[strays[0]], strict=True)
                self.report(
                    Divergence, rule, next(site for site, x in pairs if site != x), "setmaxnreg-places"
                )
                return True
        return True

    @property
    def at_start(self) -> int:
        """The most registers with which a thread may start."""
        geometry, kernel = self.m.geometry, self.m.program.kernel
        together = geometry.warps * 32 * max(kernel.least_blocks, 1)
        return min(kernel.most_registers or MOST, REGISTERS // together // STEP * STEP)

    def check_pool(self, requests: Requests) -> bool:
        """Whether what groups take was given back by others."""
        warps, start = self.m.geometry.warps, self.at_start
        held = dict.fromkeys(range(-(-warps // WARPS)), start)
        for group in held:
            set_before = False  # how many a warp has at first, the PTX does not say
            for site, more, count in requests.get(WARPS * group, ()):
                if set_before and (count < held[group]) == more and count != held[group]:
                    way = "inc" if more else "dec"
                    rule = f"setmaxnreg.{way} to {count} registers by warps that have {held[group]}"
                    self.report(BarrierMisuse, rule, site, "setmaxnreg")
                    return False
                held[group], set_before = count, True
        pool, taken = start * warps, sum(count * WARPS for count in held.values())
        if taken <= pool:
            return True
        site = next(site for asked in requests.values() for site, more, _ in asked if more)
        rule = (
            f"setmaxnreg.inc waits for ever: the warps take {32 * taken} registers in all, the block has"
            f" {32 * pool}; a setmaxnreg.dec is missing or too small"
        )
        self.report(Deadlock, rule, site, "setmaxnreg")
        return False

    def report(self, kind: type[F], rule: str, site: int, name: str) -> None:
        self.m.report(self.m.fault(kind, rule, site, name=name))
