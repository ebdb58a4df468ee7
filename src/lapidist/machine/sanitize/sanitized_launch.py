"""Launches that overlap: blocks may start while the launch before still runs, and ask to wait for its end.

Whatever touches global memory must then come behind `griddepcontrol.wait`: the warp's own, or one that it is
ordered after. Prefetches touch nothing."""

from __future__ import annotations

import numpy as np

from lapidist.machine.faults import Race
from lapidist.machine.lanes import Lanes
from lapidist.machine.sanitize.clocks import Clocks
from lapidist.machine.sanitize.ordered import warp_number
from lapidist.machine.state import Machine

NEVER = np.iinfo(np.int32).max


class LaunchOrder:
    def __init__(self, m: Machine, clocks: Clocks) -> None:
        self.m, self.clocks = m, clocks
        self.waited = np.full(clocks.warps, NEVER, np.int32)  # the moment of each warp's first wait

    def wait(self, g: Lanes) -> None:
        warp = warp_number(g)
        if self.waited[warp] == NEVER:
            self.waited[warp] = self.clocks.now(warp)
            self.clocks.tick(warp)

    def check(self, g: Lanes, site: int) -> None:
        """Raise a race if a warp touches global memory before the launch before it has ended."""
        if (
            self.m.overlaps
            and not (self.clocks.vectors[warp_number(g), : self.clocks.warps] >= self.waited).any()
        ):
            rule = "global memory is touched before griddepcontrol.wait: the launch before may still be at it"
            self.m.report(self.m.fault(Race, rule, site, g))
