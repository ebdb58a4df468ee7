"""What sanitize mode watches: races, uninitialised reads, missing waits and proxy fences, unreset semaphores.

It is fed by every access path through the machine's hooks. A warp is the unit: lanes of one warp are not checked
against each other.
"""

from __future__ import annotations

import numpy as np

from lapidist.errors import ArgumentError
from lapidist.machine.clocks import MOST_WARPS, Clocks, Message
from lapidist.machine.codegen import code_of
from lapidist.machine.faults import MachineFault, MissingProxyFence, Race, Uninitialised, Unreset
from lapidist.machine.lanes import Lanes
from lapidist.machine.mbarrier import MBarrier
from lapidist.machine.memory import Address, MixedAddress, Region
from lapidist.machine.ordered import PLAIN, Ordered, warp_number
from lapidist.machine.program import Program
from lapidist.machine.proxies import Proxies
from lapidist.machine.ptx import TYPE_BYTES
from lapidist.machine.scheduler import Barrier
from lapidist.machine.shadow import LANDING, WRITTEN, Shadow
from lapidist.machine.state import Machine
from lapidist.machine.suspects import Suspects

Array = np.ndarray
# Ranges by these names must be zero again if they were zero before.
SELF_RESETTING = ("workspace", "semaphore", "flag")
INIT_BYTES = 8


def smallest_access(program: Program, smallest: int) -> int:
    """Bytes of the narrowest access in the kernel: races are looked for at that grain."""
    for i in program.kernel.instructions:
        if i.opcode in ("ld", "st", "atom", "red"):
            kinds = [mod for mod in i.mods if mod in TYPE_BYTES]
            smallest = min([smallest, *(int(code_of(kind)[1:]) for kind in kinds)])
            if "f16x2" in kinds or "bf16x2" in kinds:
                smallest = min(smallest, 2)
    return smallest


class Sanitizer:
    def __init__(self, m: Machine, smallest_element: int) -> None:
        geometry = m.geometry
        self.m, self.geometry = m, geometry
        total = geometry.blocks * geometry.warps
        if total > MOST_WARPS:
            raise ArgumentError(f"sanitize: at most {MOST_WARPS} warps in a launch, got {total}; use a smaller problem")
        self.clocks = Clocks(total)
        self.grain = smallest_access(m.program, min(4, smallest_element))
        size = len(m.shared_bytes)
        self.columns = geometry.warps * geometry.cluster_size
        self.shared = Shadow(size, self.grain, self.columns)
        self.readers_under_way = 0
        self.local_valid = np.zeros(len(m.local_bytes), bool)
        self.globals: dict[int, Shadow] = {}
        self.arrivals: dict[int, Message] = {}  # per mbarrier, of the phase under way
        self.completed: dict[int, Message] = {}
        self.speakers: dict[tuple[int, int], Array] = {}  # lanes that arrived in that phase, by mbarrier and warp
        self.made: dict[int, tuple[int, int]] = {}  # mbarrier: (warp, moment) of its init
        self.block_messages: dict[int, Message] = {}  # per barrier object
        self.ordered = Ordered(m, self.clocks)
        self.suspects = Suspects(m.program)
        self.proxies = Proxies(m, self.clocks, self.shared, self.globals)
        self.zero_before = [
            r for r in m.globals.regions if r.name.lower().startswith(SELF_RESETTING) and not region_bytes(r).any()
        ]
        self.hook()

    def hook(self) -> None:
        """Take the machine's hooks; the counter's stay in front."""
        m, count = self.m, self.m.observe

        def observe(address: Address, offset: int, size: int, site: int, what: str) -> None:
            count(address, offset, size, site, what)
            self.observe(address, offset, size, site, what)

        m.observe, m.order, m.fence = observe, self.order, self.fence
        m.stored, m.warp_barrier = self.check_lanes_agree, self.warp_meets
        m.barrier_made, m.barrier_signal = self.barrier_made, self.barrier_signal
        m.barrier_phase, m.barrier_seen, m.block_started = self.barrier_phase, self.barrier_seen, self.block_started

    # -- who --

    def column(self, warp: int) -> int:
        return warp % self.columns

    def known_columns(self, warp: int) -> Array:
        """The warps of this warp's cluster."""
        first = warp // self.columns * self.columns
        return np.arange(first, first + self.columns)

    def name(self, warp: int) -> str:
        return f"warp {warp % self.geometry.warps} of block {self.geometry.block_index(warp // self.geometry.warps)}"

    # -- accesses --

    def block_started(self, slots: Array) -> None:
        for slot in slots.tolist():
            start, stop = slot * self.m.shared_stride, (slot + 1) * self.m.shared_stride
            self.shared.reset(start, stop)
            places = slice(
                slot * self.geometry.threads * self.m.local_stride, (slot + 1) * self.geometry.threads * self.m.local_stride
            )
            self.local_valid[places] = False
            for table in (self.arrivals, self.completed, self.made):
                for position in [p for p in table if start <= p < stop]:
                    del table[position]  # type: ignore[attr-defined]

    def observe(self, address: Address, offset: int, size: int, site: int, what: str) -> None:
        level = self.ordered.level_of(site)
        if address.space == "shared" and what == "load" and self.suspects.ahead_of_use(site):
            self.load_ahead(address.g, address.base + offset, size, site, level)
        elif address.space == "shared":
            self.touch_shared(address.g, address.base + offset, size, site, what, level)
        elif address.space == "local":
            self.touch_local(address, offset, size, site, what)
        elif address.space == "global":
            own = address.own.astype(np.int64) + offset
            self.touch_global(address.g, own, size, site, what, level, self.m.globals.find(int(own[0])))

    def touch_shared(
        self, g: Lanes, positions: Array, size: int, site: int, what: str, level: int = PLAIN, generic: bool = True
    ) -> None:
        at = self.shared.grains(positions, size)
        state = self.shared.state[at]
        if what != "store" and not (state == WRITTEN).all():
            self.report_unwritten(g, positions, state, size, site)
        if what != "load":
            self.check_busy(g, positions, at, state, size, site)
            self.shared.state[at] = WRITTEN
        self.race(self.shared, g, positions, at, size, site, what, level, generic)

    def load_ahead(self, g: Lanes, positions: Array, size: int, site: int, level: int) -> None:
        """A load whose value is used later, or never: what is wrong with it is held back until then."""
        fault = None
        try:
            self.touch_shared(g, positions, size, site, "load", level)
        except MachineFault as found:
            fault = found
        self.suspects.add(g, site, self.shared.grains(positions, size), fault)

    def lane_of(self, found: Array, size: int) -> int:
        """Which lane the first marked grain belongs to."""
        return int(np.argmax(found)) // max(size // self.grain, 1)

    def report_unwritten(self, g: Lanes, positions: Array, state: Array, size: int, site: int) -> None:
        lane = self.lane_of(state != WRITTEN, size)
        under_way = state[int(np.argmax(state != WRITTEN))] == LANDING
        rule = (
            "a read of shared memory whose asynchronous copy was not waited for"
            if under_way
            else "a read of shared memory that no one wrote"
        )
        raise self.m.fault(Uninitialised, rule, site, g, lane, int(positions[lane]) % self.m.shared_stride)

    def check_busy(self, g: Lanes, positions: Array, at: Array, state: Array, size: int, site: int) -> None:
        """Nobody may write where asynchronous work still writes or reads."""
        busy, rule = state == LANDING, "a write where an asynchronous copy is still to land"
        if not busy.any() and self.readers_under_way:
            busy, rule = (
                self.shared.reading[at] > 0,
                "a write into the source of an asynchronous operation that was not waited for",
            )
        if busy.any():
            lane = self.lane_of(busy, size)
            raise self.m.fault(Race, rule, site, g, lane, int(positions[lane]) % self.m.shared_stride)

    # -- asynchronous work marks its place --

    def begin_landing(self, positions: Array, size: int) -> None:
        self.shared.state[self.shared.grains(positions, size)] = LANDING

    def end_landing(self, positions: Array, size: int) -> None:
        self.shared.state[self.shared.grains(positions, size)] = WRITTEN

    def begin_reading(self, positions: Array, size: int) -> None:
        self.readers_under_way += 1
        np.add.at(self.shared.reading, self.shared.grains(positions, size), 1)

    def end_reading(self, positions: Array, size: int) -> None:
        self.readers_under_way -= 1
        np.add.at(self.shared.reading, self.shared.grains(positions, size), -1)

    def check_lanes_agree(self, address: Address, offset: int, values: tuple[Array, ...], site: int) -> None:
        """Lanes of one instruction that write different values to one place: which one stays is not defined."""
        if all(len(value) == 1 for value in values):
            return
        places, first, which = np.unique(address.base, return_index=True, return_inverse=True)
        if len(places) == address.g.n:
            return
        for value in values:
            bits = np.broadcast_to(value, (address.g.n,)).view(f"u{value.dtype.itemsize}") if value.dtype.kind != "c" else value
            unequal = bits != bits[first][which if len(address.base) > 1 else np.zeros(address.g.n, np.int64)]
            if unequal.any():
                lane = int(np.argmax(unequal))
                rule = "lanes of one instruction write different values to one place"
                raise self.m.fault(Race, rule, site, address.g, lane, int(address.own[min(lane, len(address.own) - 1)]) + offset)

    def touch_local(self, address: Address, offset: int, size: int, site: int, what: str) -> None:
        octets = ((address.base + offset)[:, None] + np.arange(size)).reshape(-1)
        if what == "store":
            self.local_valid[octets] = True
        elif not self.local_valid[octets].all():
            lane = int(np.argmin(self.local_valid[octets])) // size
            raise self.m.fault(
                Uninitialised, "a read of local memory that this thread never wrote", site, address.g, lane, offset
            )

    def touch_global(
        self, g: Lanes, own: Array, size: int, site: int, what: str, level: int, region: Region | None, generic: bool = True
    ) -> None:
        if region is None:
            return
        inside = (own >= region.start) & (own + size <= region.end)
        shadow = self.globals.get(region.start)
        if shadow is None:
            shadow = self.globals[region.start] = Shadow(region.end - (region.start & -16), self.grain)
        positions = own[inside] - (region.start & -16)
        self.race(shadow, g, positions, shadow.grains(positions, size), size, site, what, level, generic)

    def race(
        self, shadow: Shadow, g: Lanes, positions: Array, at: Array, size: int, site: int, what: str, level: int, generic: bool
    ) -> None:
        warp = warp_number(g)
        known, now = self.clocks.known[warp], self.clocks.now(warp)
        self.clocks.touch(warp, g.lane)
        found = shadow.racing_write(at, warp, known, level, self.ordered.scopes)
        if found >= 0:
            other, where = int(shadow.writer[at[found]]), int(shadow.write_site[at[found]])
            done = "read" if what == "load" else "written"
            self.report(
                g,
                positions,
                found,
                size,
                shadow,
                site,
                f"{done} here, and written by {self.name(other)} at PTX line {self.m.site(where).line}",
            )
        lanes = shadow.lanes_of(g, positions, size) if shadow is self.shared and generic else None
        if lanes is not None:
            self.race_of_lanes(g, positions, at, size, site, what, lanes)
        if what != "load" and not (level and what == "atomic"):
            columns = self.known_columns(warp) if shadow.readers else None
            found, reader = shadow.racing_read(at, self.column(warp), warp, known, columns)
            if found >= 0:
                where = self.m.site(int(shadow.read_site[at[found]])).line
                story = f"written here, and read by {self.name(reader)} at PTX line {where}"
                self.report(g, positions, found, size, shadow, site, story, reader, int(at[found]))
        if level and what != "store":
            shadow.note_seen(at, warp, now, level, self.ordered.scopes)
        if what != "load":
            shadow.note_write(at, warp, now, site, level, generic, lanes)
        elif not level:
            shadow.note_read(at, self.column(warp), warp, now, site, lanes)

    def race_of_lanes(self, g: Lanes, positions: Array, at: Array, size: int, site: int, what: str, lanes: Array) -> None:
        """Lanes of one warp are ordered where the warp meets: at bar.warp.sync, shuffles, votes and barriers."""
        warp, shadow = warp_number(g), self.shared
        met = int(self.clocks.met[warp])
        if what == "load":
            found = shadow.racing_lane(at, warp, lanes, met)
            who, where, done = shadow.lane, shadow.write_site, "read here, and written"
        else:
            found = shadow.racing_read_lane(at, self.column(warp), warp, lanes, met)
            who, where, done = shadow.read_lane, shadow.read_site, "written here, and read"
        if found >= 0:
            grain = int(at[found])
            story = f"{done} by lane {who[grain]} of this warp at PTX line {self.m.site(int(where[grain])).line}"
            self.report(g, positions, found, size, shadow, site, story, warp if what != "load" else -1, grain)

    def check_lanes_met(self, g: Lanes, positions: Array, size: int, site: int) -> None:
        """One lane makes the engine read what others of its warp wrote: they must have met since."""
        at = self.shared.grains(positions, size)
        self.race_of_lanes(g, positions, at, size, site, "load", np.full(len(at), g.lane[0]))

    def report(
        self,
        g: Lanes,
        positions: Array,
        found: int,
        size: int,
        shadow: Shadow,
        site: int,
        story: str,
        reader: int = -1,
        grain: int = 0,
    ) -> None:
        """Raise the race; one with a read whose value is still unused waits for that use."""
        lane = found // max(size // shadow.grain, 1)
        address = int(positions[lane])
        if shadow is self.shared:
            address %= self.m.shared_stride
        space = "shared" if shadow is self.shared else "global"
        fault = self.m.fault(Race, f"a race on {space} memory: {story}; nothing orders the two", site, g, lane, address)
        if shadow is not self.shared or not self.suspects.blame(reader, grain, fault):
            raise fault

    # -- fences and ordered accesses --

    def order(self, address: Address | MixedAddress, offset: int, kind: str, scope: str, site: int) -> None:
        self.m.poll(site)
        g = address.g if isinstance(address, Address) else address.parts[0][1].g
        self.ordered.order(warp_number(g), address, offset, kind, scope, site)

    def fence(self, g: Lanes, kind: str, site: int) -> None:
        self.ordered.fence(warp_number(g), kind)

    def warp_meets(self, g: Lanes, members: Array, site: int) -> None:
        self.clocks.meet(warp_number(g))

    # -- barriers of blocks and clusters --

    def barrier_arrival(self, barrier: Barrier, lanes: Lanes) -> None:
        warp = warp_number(lanes)
        self.block_messages.setdefault(id(barrier), self.clocks.empty()).join(self.clocks.message(warp))
        self.clocks.tick(warp)

    def barrier_complete(self, barrier: Barrier) -> None:
        message = self.block_messages.pop(id(barrier))
        for cohort, _, _ in barrier.waiting:
            self.clocks.receive(warp_number(cohort.all), message)
            self.clocks.meet(warp_number(cohort.all))

    # -- mbarriers --

    def barrier_made(self, g: Lanes, positions: Array, site: int) -> None:
        warp = warp_number(g)
        for position in positions.tolist():
            self.made[position] = warp, self.clocks.now(warp)
            for table in (self.arrivals, self.completed):
                table[position] = self.clocks.empty()

    def check_made(self, g: Lanes, lane: int, position: int, site: int, proxy: bool = False) -> None:
        """An mbarrier is used only after its init is ordered before; by the copy engine only behind a fence."""
        if position not in self.made:
            return
        warp, moment = self.made[position]
        mine = warp_number(g)
        if warp != mine and self.clocks.known[mine, warp] < moment:
            rule = f"an mbarrier is used, and initialised by {self.name(warp)}; nothing orders the two"
            raise self.m.fault(Race, rule, site, g, lane, position % self.m.shared_stride)
        if proxy and self.clocks.proxied[mine, warp] < moment:
            rule = "the copy engine uses an mbarrier whose init has no fence.mbarrier_init or fence.proxy.async behind it"
            raise self.m.fault(MissingProxyFence, rule, site, g, lane, position % self.m.shared_stride)

    def barrier_signal(self, g: Lanes, mine: Array, barrier: MBarrier, site: int) -> None:
        warp = warp_number(g)
        self.check_made(g, int(np.argmax(mine)), barrier.address, site)
        # Lanes that parted arrive one after another: the last ones speak for all that have.
        spoke = self.speakers.setdefault((barrier.address, warp), np.zeros(32, bool))
        spoke[g.lane[mine]] = True
        self.arrivals[barrier.address].join(self.clocks.message_of(warp, np.flatnonzero(spoke)))
        self.clocks.tick(warp)

    def barrier_phase(self, barrier: MBarrier) -> None:
        """What arrivals of the phase brought is now for those who wait."""
        self.completed[barrier.address].join(self.arrivals[barrier.address])
        self.arrivals[barrier.address] = self.clocks.empty()
        self.speakers = {key: spoke for key, spoke in self.speakers.items() if key[0] != barrier.address}

    def barrier_seen(self, g: Lanes, mine: Array, barrier: MBarrier, site: int) -> None:
        self.check_made(g, int(np.argmax(mine)), barrier.address, site)
        self.clocks.receive(warp_number(g), self.completed[barrier.address])

    # -- the end --

    def finish(self) -> None:
        for region in self.zero_before:
            left = np.flatnonzero(region_bytes(region))
            if len(left):
                rule = f"{region.name} was zero when the kernel began and is not when it ends (byte {left[0]})"
                raise self.m.fault(
                    Unreset, rule, len(self.m.program.kernel.instructions) - 1, None, 0, region.start + int(left[0])
                )


def region_bytes(region: Region) -> Array:
    view, origin = region.view(np.dtype("u1"))
    return view[region.start - origin : region.end - origin]
