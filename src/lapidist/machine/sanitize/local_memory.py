"""Which bytes of each thread's local memory were written."""

from __future__ import annotations

import numpy as np

from lapidist.machine.faults import Uninitialised
from lapidist.machine.memory import Address
from lapidist.machine.state import Machine


class LocalMemory:
    def __init__(self, m: Machine) -> None:
        self.m = m
        self.valid = np.zeros(len(m.local_bytes), bool)

    def clear(self, slot: int) -> None:
        """A new block takes a slot: its threads wrote nothing yet."""
        nbytes = self.m.geometry.threads * self.m.local_stride
        self.valid[slot * nbytes : (slot + 1) * nbytes] = False

    def touch(self, address: Address, offset: int, size: int, site: int, kind: str) -> None:
        octets = ((address.base + offset)[:, None] + np.arange(size)).reshape(-1)
        if kind == "store":
            self.valid[octets] = True
        elif not self.valid[octets].all():
            lane = int(np.argmin(self.valid[octets])) // size
            rule = "a read of local memory that this thread never wrote"
            self.m.report(self.m.fault(Uninitialised, rule, site, address.g, lane, offset))

    def move(self, target: int, source: int, size: int) -> None:
        """A call copied bytes: what was not written before is not written there."""
        self.valid[target : target + size] = self.valid[source : source + size]
