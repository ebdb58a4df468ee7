"""Memory of which nothing is written at first: shared, local, what `malloc` gives, and what a program's
cudaMalloc gave.

The caller's arrays count as written."""

from __future__ import annotations

import numpy as np

from lapidist.machine.heap import PIECE_NAME
from lapidist.machine.lanes import Lanes, indices
from lapidist.machine.memory import Address, Region
from lapidist.machine.sanitize.definedness import Definedness
from lapidist.machine.sanitize.shadow import Shadow
from lapidist.machine.sanitize.undefined_memory import UndefinedMemory, UndefinedShared
from lapidist.machine.state import Machine

Array = np.ndarray


class OwnMemory:
    def __init__(self, m: Machine, shadow: Shadow, definedness: Definedness) -> None:
        self.m, self.definedness = m, definedness
        self.shared = UndefinedShared(shadow, len(m.shared_bytes))
        self.local = UndefinedMemory(len(m.local_bytes), "local memory that this thread never wrote")
        self.pieces: dict[int, UndefinedMemory] = {}  # of the heap and of cudaMalloc, by where they start

    def forget(self, slot: int) -> None:
        """A new block takes a slot."""
        self.shared.forget(slot * self.m.shared_stride, (slot + 1) * self.m.shared_stride)
        nbytes = self.m.geometry.threads * self.m.local_stride
        self.local.forget(slot * nbytes, (slot + 1) * nbytes)

    def touch_local(self, address: Address, offset: int, size: int, site: int, kind: str) -> None:
        self.touch(self.local, address.g, address.base + offset, size, site, kind)

    def touch_global(self, address: Address, offset: int, size: int, site: int, kind: str) -> None:
        if self.m.heap.space is None and not self.m.globals.has_undefined:
            return
        for memory, g, positions in self.parts(address, offset):
            if memory is not None:
                self.touch(memory, g, positions, size, site, kind)

    def touch(
        self, memory: UndefinedMemory, g: Lanes, positions: Array, size: int, site: int, kind: str
    ) -> None:
        if kind != "store":
            self.read(memory, g, positions, size, site)
        if kind != "load":
            memory.write(positions, size)

    def read(self, memory: UndefinedMemory, g: Lanes, positions: Array, size: int, site: int) -> None:
        octets = memory.read(positions, size)
        if octets.any():
            origin = memory.origin(positions, size, site)
            stride = {id(self.shared): self.m.shared_stride, id(self.local): self.m.local_stride}
            self.definedness.read(g, site, octets, origin, positions % stride.get(id(memory), 1 << 62))

    def landed(self, region: Region, addresses: Array, size: int) -> None:
        """TMA wrote there."""
        if region.undefined is not None:
            region.undefined[(addresses - region.start)[:, None] + np.arange(size)] = 0

    def stored(self, address: Address, offset: int, site: int) -> None:
        """A store whose bytes may be undefined. What outlives the launch may hold none."""
        if self.definedness.storing is not None:
            for memory, g, positions in self.parts(address, offset):
                outlives = memory is not None and memory.outlives
                self.definedness.stored(g, site, None if outlives else memory, positions)

    def parts(self, address: Address, offset: int) -> list[tuple[UndefinedMemory | None, Lanes, Array]]:
        """What holds the undefined bits at an address, for which lanes, and where in it; none for arrays of
        the caller."""
        g, positions = address.g, address.base.astype(np.int64) + offset
        if address.space in ("shared", "local"):
            return [(self.shared if address.space == "shared" else self.local, g, positions)]
        if len(positions) != g.n:
            region = self.m.globals.find(int(positions[0]))
            return [] if region is None else [(self.piece(region), g, positions - region.start)]
        return [
            (self.piece(region), Lanes(g.cohort, indices(g)[rows]), positions[rows] - region.start)
            for region, rows in address.by_region(offset)
        ]

    def piece(self, region: Region) -> UndefinedMemory | None:
        if region.name != PIECE_NAME and region.undefined is None:
            return None
        if region.start not in self.pieces:
            story = "memory of malloc's that no one wrote"
            if region.undefined is not None:
                story = f"memory that no one wrote ({region.name})"
            self.pieces[region.start] = UndefinedMemory(region.end - region.start, story, region.undefined)
        return self.pieces[region.start]
