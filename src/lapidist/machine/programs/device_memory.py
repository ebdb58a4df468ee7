"""What a program allocates by CUDA: pieces of one range of addresses, which it shares with the machine.

Pieces lie apart, and addresses are not used twice. So an access beside one, or after cudaFree, is outside all
memory."""

from __future__ import annotations

import ctypes
import os
import sys
from bisect import bisect_right, insort
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from lapidist.errors import DeviceError
from lapidist.launch import Memory

Array = np.ndarray
START = 0x2000_0000_0000  # neither heaps, libraries nor stacks of Linux lie there
ROOM = 1 << 40  # pages that nobody touches take no memory
ALIGNMENT, GAP = 256, 256
PAGE = 4096
FOLLOWED = 64 << 20  # bytes of a piece whose unwritten bits are known: they take as many bytes again
DEVICE, PINNED, MANAGED, VARIABLE = range(4)
CALLS = {DEVICE: "cudaMalloc", PINNED: "cudaMallocHost", MANAGED: "cudaMallocManaged"}
PROTECTION, SHARED, PRIVATE, REMOVE = 3, 0x4001, 0x4002, 9  # of mmap and madvise
FIXED, FIXED_UNUSED = 0x10, 0x100000


@dataclass(eq=False)
class Piece:
    """`undefined` are the bits that nobody wrote, a byte for each byte; None where that is not followed."""

    name: str
    start: int
    nbytes: int
    kind: int
    array: Array = field(repr=False)
    undefined: Array | None = field(default=None, repr=False)

    @property
    def end(self) -> int:
        return self.start + self.nbytes

    def as_memory(self) -> Memory:
        undefined = self.undefined
        if undefined is not None and not undefined.any():
            undefined = self.undefined = None
        return Memory(self.name, self.start, self.nbytes, self.array, undefined)


class DeviceMemory:
    def __init__(self) -> None:
        if sys.platform != "linux":
            rule = "CUDA programs run in the machine on Linux, which shares memory at one address"
            raise DeviceError(f"platform: {rule}; this is {sys.platform}. Check kernels by lapidist check")
        self.file = os.memfd_create("lapidist")
        os.ftruncate(self.file, ROOM)
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.libc.mmap.restype = ctypes.c_void_p
        if not self.map(ROOM, SHARED | FIXED_UNUSED):
            os.close(self.file)
            rule = f"{ROOM >> 30} GiB of addresses must be unused and allowed"
            raise DeviceError(f"memory: {rule}; mmap refused. Raise `ulimit -v`")
        self.end, self.count, self.used = START, 0, 0
        self.total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
        self.pieces: dict[int, Piece] = {}
        self.of_graphs: dict[int, Piece] = {}  # those that a graph's nodes allocate
        self.graph_peaks = [0, 0]  # most bytes of them: since the last reset, since the last trim
        self.starts: list[int] = []

    def map(self, nbytes: int, flags: int) -> bool:
        place, start = (ctypes.c_size_t(number) for number in (START, 0))
        return bool(
            self.libc.mmap(place, ctypes.c_size_t(nbytes), PROTECTION, flags, self.file, start) == START
        )

    @contextmanager
    def undone(self) -> Iterator[None]:
        """What is written meanwhile is seen by this process alone, and is gone at the end. Only pages that
        are written take memory."""
        nbytes = -(-(self.end - START + 1) // PAGE) * PAGE
        if not self.map(nbytes, PRIVATE | FIXED):
            raise DeviceError("memory: a launch's pages must be copied; mmap refused. Raise `ulimit -v`")
        try:
            yield
        finally:
            self.map(nbytes, SHARED | FIXED)

    def close(self) -> None:
        self.pieces.clear()
        self.libc.munmap(ctypes.c_size_t(START), ctypes.c_size_t(ROOM))
        os.close(self.file)

    def allocate(self, nbytes: int, kind: int, name: str = "") -> Piece | None:
        """A new piece; None where there is no room."""
        start = -(-(self.end + GAP) // ALIGNMENT) * ALIGNMENT
        if self.used + nbytes > self.total or start + nbytes > START + ROOM:
            return None
        array = np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(start))
        if not name:
            self.count += 1
            name = f"allocation {self.count}, of {CALLS[kind]}"
        piece = Piece(name, start, nbytes, kind, array)
        self.end = start + max(nbytes, 1)
        self.begin(piece)
        return piece

    def begin(self, piece: Piece) -> None:
        """The piece is there from now on, and nobody wrote into it."""
        if piece.kind == DEVICE and piece.nbytes <= FOLLOWED:
            piece.array[:] = 0xFF  # NaN, or -1: what nobody wrote is no zero on a card either
            piece.undefined = np.full(piece.nbytes, 0xFF, np.uint8)
        self.used += piece.nbytes
        self.pieces[piece.start] = piece
        insort(self.starts, piece.start)

    def reserve(self, nbytes: int) -> Piece | None:
        """A piece for a graph's nodes, which is there from when one allocates it until it is freed."""
        piece = self.allocate(nbytes, DEVICE, f"allocation {self.count + 1}, of a graph")
        if piece is not None:
            self.count += 1
            self.free(piece.start)
            self.of_graphs[piece.start] = piece
        return piece

    def revive(self, start: int) -> bool:
        """Whether a graph's piece could be allocated: there is room, and it is not there yet."""
        piece = self.of_graphs[start]
        if start in self.pieces or self.used + piece.nbytes > self.total:
            return False
        self.begin(piece)
        self.graph_peaks = [max(peak, self.graph_bytes()) for peak in self.graph_peaks]
        return True

    def graph_bytes(self) -> int:
        return sum(piece.nbytes for start, piece in self.of_graphs.items() if start in self.pieces)

    def free(self, start: int) -> bool:
        piece = self.pieces.get(start)
        if piece is None or piece.kind == VARIABLE:
            return False
        del self.pieces[start]
        self.starts.remove(start)
        self.used -= piece.nbytes
        first, behind = -(-start // PAGE) * PAGE, piece.end // PAGE * PAGE
        if first < behind:
            self.libc.madvise(*map(ctypes.c_size_t, (first, behind - first)), REMOVE)
        return True

    def is_inside(self, address: int) -> bool:
        """Whether the address belongs to the machine, not to the program's process alone."""
        return START <= address < START + ROOM

    def at(self, address: int, nbytes: int = 1) -> Piece | None:
        """The piece that has all these bytes."""
        position = bisect_right(self.starts, address) - 1
        piece = self.pieces[self.starts[position]] if position >= 0 else None
        return piece if piece is not None and address + nbytes <= piece.end else None

    def write(self, address: int, nbytes: int, source: int | None = None) -> None:
        """Note a write: of bytes that are all defined, or of those at a source that may not be."""
        piece = self.at(address, nbytes)
        if piece is None or piece.undefined is None:
            return
        bits: Array | int = 0
        origin = None if source is None else self.at(source, nbytes)
        if origin is not None and origin.undefined is not None and source is not None:
            bits = origin.undefined[source - origin.start :][:nbytes].copy()
        piece.undefined[address - piece.start :][:nbytes] = bits
