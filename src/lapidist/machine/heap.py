"""What `malloc` and `new` give a kernel: each piece is a range of its own, so that an access beside it or
after `free` is found."""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from lapidist.launch import Memory
from lapidist.machine.memory import GlobalMemory, Region, block_of_bytes

HEAP_BYTES = 8 << 20  # that live at a time, as CUDA's default
ROOM = 1 << 30  # addresses are not given twice; memory that nobody touches takes none
ALIGNMENT, GAP = 16, 16
PIECE_NAME = "a piece that malloc gave"


class Heap:
    def __init__(self, memory: GlobalMemory) -> None:
        self.memory = memory
        self.space: np.ndarray | None = None
        self.end, self.live = 0, sum(piece.end - piece.start for piece in self.pieces())
        self.survivors: tuple[Memory, ...] = ()  # what nobody freed, once the launch has ended

    def pieces(self) -> list[Region]:
        return [region for region in self.memory.regions if region.name == PIECE_NAME]

    def close(self) -> None:
        """The launch has ended: what is left counts as written, and is there for the launches behind."""
        survivors = []
        for piece in self.pieces():
            owner, nbytes = piece.owner, piece.end - piece.start
            assert isinstance(owner, np.ndarray)
            part = owner[piece.start - owner.ctypes.data :][:nbytes]
            survivors.append(Memory(PIECE_NAME, piece.start, nbytes, part, np.zeros(nbytes, np.uint8)))
        self.survivors = tuple(survivors)

    def give(self, nbytes: int) -> int:
        """The address of a new piece, full of ones as nobody wrote it; 0 where the heap is full."""
        if self.space is None:
            self.space = block_of_bytes(ROOM)
        start = self.end + GAP
        if nbytes == 0 or self.live + nbytes > HEAP_BYTES or start + nbytes > ROOM:
            return 0
        self.end = -(-(start + nbytes) // ALIGNMENT) * ALIGNMENT
        self.live += nbytes
        self.space[start : start + nbytes] = 0xFF
        address = int(self.space.ctypes.data) + start
        place = bisect_left(self.memory.starts, address)
        self.memory.starts.insert(place, address)
        self.memory.regions.insert(place, Region(PIECE_NAME, address, nbytes, self.space))
        return address

    def take_back(self, address: int) -> bool:
        """End a piece; False if none begins at the address. A null pointer is none, and no fault."""
        if address == 0:
            return True
        place = bisect_left(self.memory.starts, address)
        regions = self.memory.regions
        if place == len(regions) or regions[place].start != address or regions[place].name != PIECE_NAME:
            return False
        self.live -= regions[place].end - address
        del regions[place], self.memory.starts[place]
        return True
