"""What one block did, as the machine showed it: a log of executed code, with each access to memory in it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from lapidist.machine.barrier import Barrier
from lapidist.machine.instructions.copies import Transfer, box_positions, element_size, swizzled
from lapidist.machine.instructions.mbarrier import MBarrier
from lapidist.machine.instructions.warpgroup_mma import PendingProduct
from lapidist.machine.lanes import Lanes
from lapidist.machine.memory import Address
from lapidist.machine.observer import Observer
from lapidist.machine.program import Program
from lapidist.machine.ptx.merging import merged_loads
from lapidist_lab.lessons.elements import NOWHERE, Elements
from lapidist_lab.lessons.lane_rules import LANE_RULES
from lapidist_lab.lessons.matrix_rules import MATRIX_RULES
from lapidist_lab.lessons.origins import Access, Atom, Executed, Origins, WarpProduct, padded

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
    """An order to TMA: a box of elements, where in shared memory it starts, and how many blocks get it.
    `atom` is what its first 1024 bytes there hold."""

    site: int
    elements: Array
    shared: int
    nbytes: int
    loads: bool
    barriers: tuple[int, ...]
    blocks: int
    atom: Atom | None


@dataclass(slots=True)
class Multiplication:
    """A wgmma of a warp, and the elements that it reads of shared memory."""

    site: int
    a: Array
    b: Array
    atoms: tuple[Atom, ...] = ()

    def read(self, a: Array, b: Array, atoms: tuple[Atom, ...]) -> None:
        """Note the elements that it reads, and where the first of them lie."""
        self.a, self.b, self.atoms = a, b, atoms


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
    """Keeps the log of the watched block, and follows the elements in its registers and shared memory."""

    def __init__(self, program: Program, elements: Elements, threads: int, shared_bytes: int) -> None:
        self.code, self.elements = program.kernel.instructions, elements
        self.blocks = program.blocks
        self.merged = merged_loads(program.kernel, program.blocks)
        self.log: list[Run | Meeting | Signal] = []
        self.inside: dict[int, list[Request | Copy | Multiplication | Signal]] = defaultdict(list)
        self.shared_bytes = shared_bytes
        self.origins = Origins(program, elements, threads, shared_bytes, LANE_RULES | MATRIX_RULES)
        self.under_way = Executed()
        self.last: tuple[int, int] | None = None  # warp and site of the last signal

    # -- code --

    def executed(self, number: int, lanes: Lanes) -> None:
        """Note who ran a block of code; what its instructions moved is followed only now, in their order."""
        threads = lanes.thread[lanes.block == WATCHED]
        done, self.under_way = self.under_way, Executed()
        if not len(threads):
            return
        block = self.blocks[number]
        self.origins.execute(range(block.start, block.stop), threads, done)
        for warp in np.unique(threads // LANES).tolist():
            self.log.append(Run(warp, number, self.inside.pop(warp, [])))

    # -- memory --

    def accessed(
        self, address: Address, offset: int, size: int, site: int, action: str, values: tuple[Array, ...] = ()
    ) -> None:
        mine = address.g.block == WATCHED
        if address.space not in ("global", "shared") or not mine.any():
            return
        addresses = np.broadcast_to(address.addresses, (address.g.n,))[mine].astype(np.int64) + offset
        threads = address.g.thread[mine]
        self.under_way.accesses[site].append(Access(address.space, action, size, threads, addresses))
        if site in self.merged and (address.low | self.merged[site][0]) & (self.merged[site][1] - 1) == 0:
            start, size = self.merged[site]
            if offset != start:
                return
        region = address.m.globals.find(int(addresses[0])) if address.space == "global" else None
        start = region.start if region else 0
        for warp in np.unique(threads // LANES).tolist():
            in_warp = threads // LANES == warp
            access = Access(address.space, action, size, threads[in_warp], addresses[in_warp])
            self.request(warp, site, access, start)

    def request(self, warp: int, site: int, access: Access, start: int) -> None:
        """Note a request. Its elements are known when those of the instructions before it have moved."""
        lane = access.threads % LANES
        cells = max(access.size // self.elements.itemsize, 1)
        request = Request(
            site,
            access.space,
            access.action,
            access.size,
            np.zeros(LANES, bool),
            np.zeros(LANES, np.int64),
            np.full((LANES, cells), NOWHERE, np.int64),
        )
        request.present[lane], request.at[lane] = True, access.addresses - start
        self.inside[warp].append(request)

        def name_elements() -> None:
            request.elements[lane] = padded(self.origins.loaded(access), cells)

        self.under_way.settled[site].append(name_elements)

    def transferred(self, t: Transfer) -> None:
        """Note a copy. One for several blocks of a cluster lands here if this block is among them."""
        targets = [shared for shared in t.shared if self.mine(shared)]
        ours = int(t.g.block[t.lane]) == WATCHED
        warp = int(t.g.thread[t.lane]) // LANES
        self.last = (warp, t.site) if ours else None
        if not (targets or ours):
            return
        if t.map is None:
            elements = self.line(t)
            if targets and t.to_shared:
                self.origins.shared[targets[0] // self.elements.itemsize :][: len(elements)] = elements
        else:
            elements = self.box(t)
            if targets and t.to_shared:
                self.fill(targets[0], t, elements)
        if ours:
            barriers = tuple(barrier for barrier in t.barriers if self.mine(barrier))
            start = (targets or t.shared)[0]
            lands = targets and t.to_shared and t.map is not None
            atom = self.origins.atom(np.array(targets[:1])) if lands else None
            blocks, loads = len(t.shared), t.to_shared
            self.inside[warp].append(Copy(t.site, elements, start, t.nbytes, loads, barriers, blocks, atom))

    def line(self, t: Transfer) -> Array:
        """The elements of a copy without a map, which is a line of bytes."""
        count = t.nbytes // self.elements.itemsize
        if t.from_shared:
            return np.full(count, NOWHERE, np.int64)
        return self.elements.of_addresses(t.address + self.elements.itemsize * np.arange(count))

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
        self.origins.shared[pieces[:, None] // size + np.arange(per_piece)] = elements.reshape(-1, per_piece)

    def multiplied(self, product: PendingProduct) -> None:
        """Note a wgmma: a warp of four multiplies its 16 rows of A by all of B."""
        g, mma, site = product.g, product.mma, product.site
        for lane in range(0, g.n, LANES):
            if g.block[lane] == WATCHED:
                warp = int(g.thread[lane]) // LANES
                event = Multiplication(site, NO_ELEMENTS, NO_ELEMENTS)
                self.inside[warp].append(event)
                self.under_way.products[site].append(
                    WarpProduct(
                        mma,
                        warp,
                        int(product.a[lane]),
                        int(product.b[lane]),
                        bool(product.a_registers),
                        bool(product.c),
                        event.read,
                    )
                )

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
