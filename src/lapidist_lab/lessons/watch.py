"""What one block did, as the machine showed it: a log of executed code, with each access to memory in it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from lapidist.machine.barrier import Barrier
from lapidist.machine.instructions.copies import Transfer, box_positions, element_size, swizzled
from lapidist.machine.instructions.mbarrier import MBarrier
from lapidist.machine.instructions.warpgroup_mma import Multiplication as Wgmma
from lapidist.machine.instructions.warpgroup_mma import PendingProduct, tile_addresses
from lapidist.machine.lanes import Lanes
from lapidist.machine.memory import Address
from lapidist.machine.observer import Observer
from lapidist.machine.program import Program
from lapidist.machine.ptx.merging import merged_loads
from lapidist_lab.lessons.elements import NOWHERE, Elements

Array = np.ndarray
WATCHED = 0  # the block
LANES = 32
NO_ELEMENTS = np.zeros(0, np.int64)


@dataclass(slots=True)
class Request:
    """One request of a warp. `at`: bytes from the start of a matrix or of shared memory; `elements`: those
    that each lane moves, (32, elements)."""

    site: int
    space: str
    action: str
    size: int
    present: Array
    at: Array
    elements: Array


@dataclass(slots=True)
class Copy:
    """An order to TMA: a box of elements, and where in shared memory it starts."""

    site: int
    elements: Array
    shared: int
    nbytes: int
    loads: bool
    barriers: tuple[int, ...]


@dataclass(slots=True)
class Multiplication:
    """A wgmma of a warp, and the elements that it reads of shared memory."""

    site: int
    a: Array
    b: Array


@dataclass(slots=True)
class Signal:
    """An mbarrier's arrive, complete or seen. `phase` is the one that was under way."""

    site: int
    kind: str
    barrier: int
    phase: int


@dataclass(slots=True)
class Run:
    """A warp executed a block of code."""

    warp: int
    number: int
    happened: list[Request | Copy | Multiplication | Signal] = field(default_factory=list)


@dataclass(slots=True)
class Meeting:
    """Warps came to a barrier; `released` ones go on."""

    barrier: int
    arrived: tuple[int, ...]
    released: tuple[int, ...]


class Watcher(Observer):
    """Keeps the log of the watched block, and the origin of each element in its shared memory."""

    def __init__(self, program: Program, elements: Elements, shared_bytes: int) -> None:
        self.code, self.elements = program.kernel.instructions, elements
        self.merged = merged_loads(program.kernel, program.blocks)
        self.log: list[Run | Meeting | Signal] = []
        self.inside: dict[int, list[Request | Copy | Multiplication | Signal]] = defaultdict(list)
        self.shared_bytes = shared_bytes
        self.shadow = np.full(-(-shared_bytes // elements.itemsize) + 16, NOWHERE, np.int64)
        self.storing: list[tuple[Request, Array]] = []
        self.under_way: dict[tuple[int, int], Array] = {}  # by site and thread: what a cp.async brings
        self.last: tuple[int, int] | None = None  # warp and site of the last signal

    # -- code --

    def executed(self, number: int, lanes: Lanes) -> None:
        for warp in warps_of(lanes):
            self.log.append(Run(warp, number, self.inside.pop(warp, [])))

    # -- memory --

    def accessed(self, address: Address, offset: int, size: int, site: int, action: str) -> None:
        if address.space not in ("global", "shared"):
            return
        if site in self.merged and (address.low | self.merged[site][0]) & (self.merged[site][1] - 1) == 0:
            start, width = self.merged[site]
            if offset != start:
                return
            size = width
        mine = address.g.block == WATCHED
        addresses = np.broadcast_to(address.addresses, (address.g.n,))[mine].astype(np.int64) + offset
        threads = address.g.thread[mine]
        self.storing = []
        for warp in np.unique(threads // LANES).tolist():
            in_warp = threads // LANES == warp
            request = self.request(address, addresses[in_warp], threads[in_warp], (size, site, action))
            self.inside[warp].append(request)
            self.storing.append((request, in_warp))

    def request(
        self, address: Address, addresses: Array, threads: Array, how: tuple[int, int, str]
    ) -> Request:
        size, site, action = how
        steps = self.elements.itemsize * np.arange(max(size // self.elements.itemsize, 1))
        element_addresses = addresses[:, None] + steps
        if address.space == "global":
            elements = self.elements.of_addresses(element_addresses)
            region = address.m.globals.find(int(addresses[0]))
            addresses = addresses - (region.start if region else 0)
            if self.code[site].opcode == "cp":
                for thread, row in zip(threads.tolist(), elements, strict=True):
                    self.under_way[site, thread] = row
        else:
            elements = self.shadow[element_addresses // self.elements.itemsize]
        dense = Request(
            site, address.space, action, size, np.zeros(LANES, bool), np.zeros(LANES, np.int64), elements[:0]
        )
        dense.elements = np.full((LANES, elements.shape[1]), NOWHERE, np.int64)
        lane = threads % LANES
        dense.present[lane], dense.at[lane], dense.elements[lane] = True, addresses, elements
        return dense

    def stored(self, address: Address, offset: int, values: tuple[Array, ...], site: int) -> None:
        """Note a change of shared memory: stored values tell their elements."""
        mine = address.g.block == WATCHED
        if address.space != "shared" or not mine.any():
            return
        addresses = np.broadcast_to(address.addresses, (address.g.n,))[mine].astype(np.int64) + offset
        sources = self.origin(address.g, mine, values, site)
        steps = np.arange(sources.shape[1])
        self.shadow[addresses[:, None] // self.elements.itemsize + steps] = sources
        for request, in_warp in self.storing:
            request.elements[address.g.lane[mine][in_warp], : sources.shape[1]] = sources[in_warp]

    def origin(self, g: Lanes, mine: Array, values: tuple[Array, ...], site: int) -> Array:
        if self.code[site].opcode == "cp":
            threads = g.thread[mine].tolist()
            width = max((len(row) for (at, _), row in self.under_way.items() if at == site), default=1)
            zeros = np.full(width, NOWHERE, np.int64)  # what cp.async fills up
            rows = [self.under_way.pop((site, thread), zeros) for thread in threads]
            return np.stack([np.pad(row, (0, width - len(row)), constant_values=NOWHERE) for row in rows])
        stored = np.stack([np.broadcast_to(value, (g.n,))[mine] for value in values], axis=1)
        size = self.elements.itemsize
        if stored.itemsize < size:
            return np.full(stored.shape, NOWHERE, np.int64)
        return self.elements.of_values(np.ascontiguousarray(stored).view(f"u{size}"))

    def transferred(self, t: Transfer) -> None:
        """Note a copy. One for several blocks of a cluster lands here if this block is among them."""
        targets = [shared for shared in t.shared if self.mine(shared)]
        ours = int(t.g.block[t.lane]) == WATCHED
        warp = int(t.g.thread[t.lane]) // LANES
        self.last = (warp, t.site) if ours else None
        if t.map is None or not (targets or ours):
            return
        elements = self.box(t)
        if targets and t.to_shared:
            self.fill(targets[0], t, elements)
        if ours:
            barriers = tuple(barrier for barrier in t.barriers if self.mine(barrier))
            start = (targets or t.shared)[0]
            self.inside[warp].append(Copy(t.site, elements, start, t.nbytes, t.to_shared, barriers))

    def mine(self, position: int) -> bool:
        """Whether it is in the watched block, which is first in the machine's shared memory."""
        return position < self.shared_bytes

    def box(self, t: Transfer) -> Array:
        """The elements of a box, outermost dimension first; NOWHERE outside of the matrix."""
        tensor = t.map
        assert tensor is not None
        size = element_size(tensor.dtype)
        address = np.full((1,) * len(tensor.box), tensor.address, np.int64)
        inside = np.ones((1,) * len(tensor.box), bool)
        for axis, (corner, extent, length, stride) in enumerate(
            zip(t.corner, tensor.box, tensor.shape, (size, *tensor.strides), strict=True)
        ):
            where = (corner + np.arange(extent)).reshape((-1,) + (1,) * axis)
            address = address + where * stride
            inside = inside & (where >= 0) & (where < length)
        return np.where(inside, self.elements.of_addresses(address), NOWHERE)

    def fill(self, shared: int, t: Transfer, elements: Array) -> None:
        """Note what TMA writes, by the pieces of 16 bytes that its swizzle exchanges."""
        assert t.map is not None
        size = element_size(t.map.dtype)
        begin = shared & 1023
        pieces = shared - begin + swizzled(box_positions(t.map, size, begin), t.map.swizzle)
        per_piece = 16 // size
        self.shadow[pieces[:, None] // size + np.arange(per_piece)] = elements.reshape(-1, per_piece)

    def multiplied(self, product: PendingProduct) -> None:
        """Note a wgmma: a warp of four multiplies its 16 rows of A by all of B."""
        g, mma = product.g, product.mma
        for lane in range(0, g.n, LANES):
            if g.block[lane] == WATCHED:
                warp = int(g.thread[lane]) // LANES
                first = int(product.a[lane]), 16 * (warp % 4), 16, mma, mma.transposed_a, mma.kinds[1]
                second = int(product.b[lane]), 0, mma.n, mma, mma.transposed_b, mma.kinds[2]
                a = NO_ELEMENTS if product.a_registers else self.pieces_of(first)
                self.inside[warp].append(Multiplication(product.site, a, self.pieces_of(second)))

    def pieces_of(self, tile: tuple[int, int, int, Wgmma, bool, str]) -> Array:
        """The elements of a tile in shared memory."""
        addresses = tile_addresses(*tile)[0].reshape(-1, 1)
        size = self.elements.itemsize
        return np.unique(self.shadow[addresses // size + np.arange(16 // size)])

    # -- who meets whom --

    def barrier_passed(self, lanes: Lanes) -> None:
        warps = tuple(warps_of(lanes))
        self.log.append(Meeting(0, warps, warps))

    def barrier_arrived(self, barrier: Barrier, lanes: Lanes, relaxed: bool = False) -> None:
        if warps := tuple(warps_of(lanes)):
            self.log.append(Meeting(id(barrier), warps, ()))

    def barrier_completed(self, barrier: Barrier) -> None:
        released = {warp for _, lanes, _ in barrier.waiting for warp in warps_of(lanes)}
        self.log.append(Meeting(id(barrier), (), tuple(sorted(released))))

    def mbarrier_arrived(self, lanes: Lanes, mine: Array, barrier: MBarrier, site: int) -> None:
        self.signal(lanes, mine, "arrive", barrier, site)

    def mbarrier_passed(self, lanes: Lanes, mine: Array, barrier: MBarrier, site: int) -> None:
        self.signal(lanes, mine, "seen", barrier, site)

    def signal(self, lanes: Lanes, mine: Array, kind: str, barrier: MBarrier, site: int) -> None:
        self.last = None
        if not self.mine(barrier.address):
            return
        for warp in np.unique(lanes.thread[mine & (lanes.block == WATCHED)] // LANES).tolist():
            self.inside[warp].append(Signal(site, kind, barrier.address, barrier.phase))
            self.last = warp, site

    def mbarrier_completed(self, barrier: MBarrier) -> None:
        """Note a completion, by the last signal, which may be of a thread of another block."""
        if not self.mine(barrier.address):
            return
        done = Signal(self.last[1] if self.last else 0, "complete", barrier.address, barrier.phase - 1)
        if self.last is None:
            self.log.append(done)
        else:
            self.inside[self.last[0]].append(done)


def warps_of(lanes: Lanes) -> list[int]:
    """The warps of the watched block."""
    threads = lanes.thread[lanes.block == WATCHED] // LANES
    return np.unique(threads).tolist()
