"""Memory that a kernel leaves as it found it: the next launch relies on its zeros."""

from __future__ import annotations

import numpy as np

from lapidist.machine.faults import Unreset
from lapidist.machine.memory import Region
from lapidist.machine.state import Machine

Array = np.ndarray
# Ranges by these names must be zero again if they were zero before.
SELF_RESETTING = ("workspace", "semaphore", "flag")


class SelfResetting:
    def __init__(self, m: Machine) -> None:
        self.m = m
        self.zero_before = [
            r
            for r in m.globals.regions
            if r.name.lower().startswith(SELF_RESETTING) and not region_bytes(r).any()
        ]

    def check(self) -> None:
        """At the kernel's end, report the first byte of each range that is not zero again."""
        for region in self.zero_before:
            nonzero = np.flatnonzero(region_bytes(region))
            if len(nonzero):
                first = int(nonzero[0])
                rule = f"{region.name} was zero when the kernel began and is not when it ends (byte {first})"
                last = len(self.m.program.kernel.instructions) - 1
                self.m.report(self.m.fault(Unreset, rule, last, None, 0, region.start + first))


def region_bytes(region: Region) -> Array:
    view, origin = region.view(np.dtype("u1"))
    return view[region.start - origin : region.end - origin]
