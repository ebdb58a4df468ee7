"""The state of one launch: memories, resident blocks, and what generated code calls as `m`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import numpy as np

from lapidist.launch import Launch, TensorMap
from lapidist.machine.faults import MachineFault, OutOfBounds, Site, Thread
from lapidist.machine.heap import Heap
from lapidist.machine.instructions.copies import Copies
from lapidist.machine.instructions.frames import KeptFrame
from lapidist.machine.instructions.mbarrier import MBarriers
from lapidist.machine.instructions.warpgroup_mma import Products
from lapidist.machine.lanes import GROUPS_START, SHARED_START, Geometry, Lanes
from lapidist.machine.meetings import Meetings
from lapidist.machine.memory import (
    PARAM_WINDOW,
    Address,
    GlobalMemory,
    MixedAddress,
    Region,
    block_of_bytes,
    cluster_at,
    generic_at,
    global_at,
    local_at,
    param_at,
    ranked_address,
    shared_at,
)
from lapidist.machine.observer import Observer
from lapidist.machine.pointer_reach import reach_of
from lapidist.machine.program import Program
from lapidist.machine.register_pool import RegisterPool
from lapidist.machine.rules import RULES
from lapidist.machine.tensor_map_bytes import MAP_BYTES, decoded, encoded

Array = np.ndarray
ALWAYS = np.array([True])
GRID_BARRIER = "the grid's barrier"  # no variable of a module has such a name
F = TypeVar("F", bound=MachineFault)


class Recorder(Protocol):
    def store(self, address: Address, offset: int, values: tuple[Array, ...], site: int) -> None:
        """What lanes would store."""


class Machine:
    """What generated code calls as `m`. What happens is passed to `observer`."""

    global_at, local_at, param_at, generic_at = global_at, local_at, param_at, generic_at
    shared_at, cluster_at, ranked_address = shared_at, cluster_at, ranked_address

    def __init__(
        self,
        launch: Launch,
        program: Program,
        geometry: Geometry,
        memory: GlobalMemory,
        variables: dict[str, int],
        slots: int,
        chip_sums: bool,
        seed: int | None,
    ) -> None:
        """`chip_sums` sums on tensor cores bit for bit as an H200 does. `seed` is that of a fuzzed schedule,
        which faults name; None for the plain one.
        """
        arguments = launch.arguments
        self.program, self.geometry, self.globals, self.variables = program, geometry, memory, variables
        self.slots = slots
        self.shared_stride = -(-max(geometry.shared_bytes, 1) // 1024) * 1024
        self.local_stride = -(-program.local_bytes // 16) * 16
        self.shared_bytes = block_of_bytes(self.shared_stride * slots, 0xFF)
        self.local_bytes = block_of_bytes(max(self.local_stride * slots * geometry.threads, 16))
        self.param_bytes = block_of_bytes(max(len(arguments), 16))
        self.param_bytes[: len(arguments)] = np.frombuffer(arguments, np.uint8)
        self.shared, self.local, self.param = (
            anonymous(name, data)
            for name, data in (
                ("shared", self.shared_bytes),
                ("local", self.local_bytes),
                ("param", self.param_bytes),
            )
        )
        self.limits = {"shared": geometry.shared_bytes, "local": program.local_bytes, "param": len(arguments)}
        meets = "reserved_smem_offset_1" in program.specials
        self.floors = {"shared": GROUPS_START if meets else SHARED_START, "local": 0, "param": 0}
        self.slot_block = np.full(slots, -1)
        self.exited = np.zeros((slots, geometry.warps), np.uint32)
        self.gone = [0] * slots  # threads of each block that have exited, or that its last warp lacks
        self.chip_sums, self.overlaps, self.seed = chip_sums, launch.overlaps, seed
        self.tensor_maps = dict(launch.tensor_maps)
        self.place_maps()
        self.reach = reach_of(self)
        self.heap, self.register_pool, self.meetings = Heap(memory), RegisterPool(self), Meetings(self)
        self.frames: dict[tuple[int, int], list[KeptFrame]] = {}  # by block and thread
        self.mbarriers, self.copies, self.products = MBarriers(self), Copies(self), Products(self)
        self.observer = Observer()
        self.recorder: Recorder | None = None  # holds back what is stored, where something does
        self.definedness: object | None = None  # follows undefined values, where something does
        self.judge: Callable[[MachineFault], bool] | None = None
        self.holds_back = False  # faults are caught, and counted only where a value is used
        self.gives_up: Callable[[], bool] = lambda: False  # whether a try_wait ends without its phase
        self.impatient = False  # nobody can run: waits let go once, as try_wait may
        self.polls, self.polled_at = 0, 0  # ordered loads since the last store, and where
        self.looks: set[tuple[int, ...]] = set()  # which they were
        self.writes = 0  # counts stores, and atomics that changed something
        self.steps = 0
        # Counts events that may let a waiting lane go on.
        self.events = 0

    def start_block(self, slots: Array, blocks: Array) -> None:
        """Give slots to new blocks; shared memory is full of NaN until written."""
        self.slot_block[slots] = blocks
        self.shared_bytes.reshape(self.slots, -1)[slots] = 0xFF
        self.shared_bytes.reshape(self.slots, -1)[slots, self.floors["shared"] : SHARED_START] = 0
        self.mbarriers.clear(slots)
        self.observer.block_started(slots)
        exited = np.zeros(self.geometry.warps * 32, bool)
        exited[self.geometry.threads :] = True
        self.exited[slots] = (exited.reshape(-1, 32) * (np.uint32(1) << np.arange(32, dtype=np.uint32))).sum(
            axis=1, dtype=np.uint32
        )
        for slot in slots.tolist():
            self.gone[slot] = -self.geometry.threads % 32

    def exit(self, lanes: Lanes) -> None:
        """Note that threads are gone."""
        bits = np.uint32(1) << lanes.lane.astype(np.uint32)
        np.bitwise_or.at(self.exited, (lanes.slot, lanes.thread // 32), bits)
        slots, counts = np.unique(lanes.slot, return_counts=True)
        for slot, count in zip(slots.tolist(), counts.tolist(), strict=True):
            self.gone[slot] += count

    def end(self) -> None:
        """All blocks have ended."""
        self.register_pool.check()
        self.heap.close()

    def place_maps(self) -> None:
        """Write each map where it lies: a kernel may copy it, and change it in global memory."""
        for place, tensor in list(self.tensor_maps.items()):
            content, region = np.frombuffer(encoded(tensor), np.uint8), self.globals.find(place)
            if place < len(self.param_bytes):
                self.param_bytes[place : place + MAP_BYTES] = content
            elif region is not None:
                view, origin = region.view(np.dtype("u1"))
                view[place - origin : place - origin + MAP_BYTES] = content
                del self.tensor_maps[place]

    def variable(self, name: str, offset: int) -> Array:
        return np.array([(self.variables[name] + offset) % (1 << 64)], np.uint64)

    def grid_barrier(self, shift: int) -> Array:
        """Half of the address where blocks count who came to the grid's barrier."""
        return np.array([self.variables[GRID_BARRIER] >> shift & 0xFFFFFFFF], np.uint32)

    def tensor_map(self, address: int, g: Lanes, lane: int, site: int) -> TensorMap:
        """The tensor map at an address, by its place in parameter space or its address in global memory."""
        tensor, region = self.tensor_maps.get(address - PARAM_WINDOW), self.globals.find(address)
        if tensor is None and region is not None and address + MAP_BYTES <= region.end:
            view, origin = region.view(np.dtype("u1"))
            tensor = decoded(view[address - origin : address - origin + MAP_BYTES].tobytes())
            self.observer.map_read(g, lane, address, site)
        if tensor is None:
            rule = "no tensor map of the launch lies at this address; pass one for the parameter"
            raise self.fault(OutOfBounds, rule, site, g, lane, address)
        return tensor

    def patience(self, ready: Array) -> Array:
        """Which lanes a wait lets go: those whose phase is complete, or all when waiting longer is
        pointless."""
        return ALWAYS if self.impatient or self.gives_up() else ready

    def order(self, address: Address | MixedAddress, offset: int, order: str, scope: str, site: int) -> None:
        """Note an ordered access. By such loads a kernel waits on memory: the scheduler looks whether they
        go on for ever."""
        if self.program.kernel.instructions[site].opcode == "ld":
            self.polled(address, offset, site)
        self.observer.ordered(address, offset, order, scope, site)

    def polled(self, address: Address | MixedAddress, offset: int, site: int, changes: bool = False) -> None:
        """Note a look at memory that others may change; an atomic may change it itself. A loop that walks
        through memory waits for nobody: only a second look at one place counts."""
        part = address.parts[0][1] if isinstance(address, MixedAddress) else address
        look = site, int(part.g.block[0]), int(part.g.thread[0]), part.lo + offset, part.hi
        if self.polls == 0:
            self.looks.clear()
        self.polls += look in self.looks or self.polls == 0
        self.looks.add(look)
        self.polled_at = site
        if changes:
            self.wrote()

    def wrote(self) -> None:
        """Note that memory was written to: whoever polls may go on."""
        self.polls = 0
        self.writes += 1

    # -- facts --

    def clock(self, g: Lanes, name: str) -> Array:
        """The time as the number of blocks executed; only differences and order mean anything."""
        ticks = self.steps * 32
        if name in ("clock64", "globaltimer"):
            return np.array([ticks], np.uint64)
        return np.array([ticks >> (32 if name.endswith("hi") else 0) & 0xFFFFFFFF], np.uint32)

    def exited_mask(self, g: Lanes) -> Array:
        """One mask a warp of the group: lanes that are gone (or never were)."""
        first = np.flatnonzero(np.concatenate([[True], g.row[1:] != g.row[:-1]]))
        return self.exited[g.slot[first], g.thread[first] // 32]

    def exited_rows(self, g: Lanes) -> Array:
        return (self.exited_mask(g)[:, None] >> np.arange(32, dtype=np.uint32)) & np.uint32(1) == 1

    def require_reached(
        self, region: Region, site: int, g: Lanes, position: int, address: int, access: str
    ) -> None:
        """Refuse an access to another array than those that its pointer was given for."""
        reach = self.reach.get(site)
        if reach is not None and region.start not in reach:
            near = self.globals.describe_strayed(address, region, reach)
            raise self.fault(OutOfBounds, f"{access} {near}", site, g, position, address)

    def require_alive(self, slots: Array, g: Lanes, position: int, address: int, site: int) -> None:
        """Refuse shared memory of another block whose last thread has exited."""
        gone = (self.exited[slots] == 0xFFFFFFFF).all(axis=1)
        if gone.any():
            block = self.geometry.block_index(int(self.slot_block[slots[int(np.argmax(gone))]]))
            rule = (
                f"shared memory of block {block}, which has exited; a barrier of the cluster before the exit"
                " keeps it"
            )
            raise self.fault(OutOfBounds, rule, site, g, position + int(np.argmax(gone)), address)

    def site(self, index: int) -> Site:
        return self.program.kernel.instructions[index].site

    def fault(
        self,
        kind: type[F],
        rule: str,
        site: int,
        g: Lanes | None = None,
        position: int = 0,
        address: int | None = None,
        name: str = "",
    ) -> F:
        """A fault of the lane at `position` in the group. `name`: the rule's, if not that of the kind."""
        thread = Thread()
        if g is not None:
            position = min(position, g.n - 1)
            number = int(g.thread[position])
            thread = Thread(self.geometry.block_index(int(g.block[position])), number // 32, number % 32)
        return kind(rule, self.site(site), thread, address, self.seed, name)

    def report(self, fault: MachineFault) -> None:
        """Raise a fault, unless the run may go on after it."""
        if self.judge is None and self.seed is None and RULES[fault.name][0] == "warning":
            return  # a plain run looks for what goes wrong, not for what PTX asks besides
        if self.judge is None or self.holds_back or not self.judge(fault):
            raise fault


def anonymous(name: str, data: Array) -> Region:
    """A region whose addresses count from 0: only views are taken from it."""
    region = Region(name, 0, len(data), data)
    for code in ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", "c16"]:
        kind = np.dtype(code)
        region.views[kind] = data[: len(data) // kind.itemsize * kind.itemsize].view(kind), 0
    return region
