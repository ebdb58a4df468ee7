"""Sums in memory that are made by a load, an operation and a store, where an atomic is needed.

Ordered or not, another thread may write between the two accesses, and one of the sums is lost.
ptx/sums_in_place.py says which stores these are."""

from __future__ import annotations

import numpy as np

from lapidist.machine.faults import Race
from lapidist.machine.lanes import Lanes
from lapidist.machine.sanitize.clocks import Clocks
from lapidist.machine.sanitize.ordered import warp_number
from lapidist.machine.sanitize.shadow import Shadow
from lapidist.machine.state import Machine

Array = np.ndarray


class LostUpdates:
    def __init__(self, m: Machine, clocks: Clocks) -> None:
        self.m, self.clocks, self.sites = m, clocks, m.program.update_sites

    def check(self, g: Lanes, positions: Array, size: int, site: int, shadow: Shadow) -> None:
        """Report a sum that lanes of this instruction, or another warp without an order, make as well."""
        if g.n > 1 and len(np.unique(positions)) < g.n:
            lane = int(np.argmax(positions[1:] == positions[:-1])) if len(positions) > 1 else 0
            self.report(g, lane, site, "several lanes do so at once")
        at = shadow.grains(positions, size)
        writer, vector = shadow.writer[at], self.clocks.row(warp_number(g)).vector
        late = (writer != warp_number(g)) & (shadow.written[at] > vector[writer])
        if late.any():
            index = int(np.argmax(late))
            place = self.m.site(int(shadow.write_site[at[index]])).place
            story = f"{place} writes there, and nothing orders the two"
            self.report(g, index // max(size // shadow.grain, 1), site, story)

    def report(self, g: Lanes, lane: int, site: int, story: str) -> None:
        rule = f"an update of memory by load and store, which others may write between: {story}"
        self.m.report(self.m.fault(Race, rule, site, g, lane, name="lost-update"))
