"""What sanitize mode watches: races, uninitialised reads, missing waits and proxy fences, unreset semaphores.

The machine calls it at every access, barrier and fence, as it calls any observer.
"""

from __future__ import annotations

import numpy as np

from lapidist.machine.barrier import Barrier
from lapidist.machine.faults import MachineFault, MissingProxyFence, Race, Uninitialised
from lapidist.machine.instructions.mbarrier import MBarrier
from lapidist.machine.instructions.warpgroup_mma import PendingProduct
from lapidist.machine.lanes import SHARED_START, Lanes, indices
from lapidist.machine.memory import Address, MixedAddress, Region
from lapidist.machine.observer import Observer
from lapidist.machine.sanitize.clocks import CLUSTER, SHARED, Clocks, Message
from lapidist.machine.sanitize.definedness import Definedness
from lapidist.machine.sanitize.equal_stores import Storing, Values
from lapidist.machine.sanitize.lost_updates import LostUpdates
from lapidist.machine.sanitize.map_fences import MapFences
from lapidist.machine.sanitize.only_read import OnlyRead, only_read_of
from lapidist.machine.sanitize.ordered import PLAIN, Ordered, warp_number
from lapidist.machine.sanitize.own_memory import OwnMemory
from lapidist.machine.sanitize.proxies import Proxies
from lapidist.machine.sanitize.races import Access, Races
from lapidist.machine.sanitize.sanitized_launch import LaunchOrder
from lapidist.machine.sanitize.self_resetting import SelfResetting
from lapidist.machine.sanitize.shadow import LANDING, WRITTEN, Shadow, shadow_of
from lapidist.machine.sanitize.suspects import Reading, Suspects, mask_of
from lapidist.machine.sanitize.unused_reads import UnusedReads
from lapidist.machine.sanitize.warpgroups import Warpgroups
from lapidist.machine.sanitize.written_ranges import WrittenRanges
from lapidist.machine.state import Machine
from lapidist.machine.tensor_map_bytes import MAP_BYTES

Array = np.ndarray


class Sanitizer(Observer):
    def __init__(self, m: Machine, grain: int, counter: Observer) -> None:
        geometry = m.geometry
        self.m, self.geometry, self.counter = m, geometry, counter
        total = geometry.blocks * geometry.warps
        products = any(i.opcode == "wgmma" for i in m.program.kernel.instructions)
        self.clocks = Clocks(total, products)
        self.grain = grain
        size = len(m.shared_bytes)
        columns = geometry.warps * geometry.cluster_size
        readers, clusters = columns * (2 if products else 1), m.slots // geometry.cluster_size
        self.shared = Shadow(size, self.grain, self.clocks.agents, readers, clusters)
        self.readers_under_way = 0
        self.globals: dict[int, Shadow] = {}
        self.only_read: dict[int, OnlyRead] = {}
        self.arrivals: dict[int, Message] = {}  # per mbarrier, of the phase under way
        self.completed: dict[int, Message] = {}
        # Lanes that arrived in that phase, by mbarrier and warp.
        self.speakers: dict[tuple[int, int], Array] = {}
        self.inits: dict[int, tuple[int, int]] = {}  # mbarrier: (warp, moment) of its init
        self.block_messages: dict[int, Message] = {}  # per barrier object
        self.orders = Ordered(m, self.clocks)
        self.suspects = Suspects(m.program, self.shared, m.report)
        self.ranges = WrittenRanges(m)
        self.unused = UnusedReads(m, self.clocks, self.ranges.loads)
        self.races = Races(m, self.clocks, self.shared, self.orders.scopes, self.suspects, self.unused)
        self.proxies = Proxies(m, self.clocks, self.shared, self.globals)
        self.maps = MapFences(m, self.clocks)
        self.warpgroups = Warpgroups(m)
        self.definedness = m.definedness = Definedness(m, self.unused)
        self.shuffled_from_nobody = self.definedness.shuffled_from_nobody  # type: ignore[method-assign]
        self.executed = self.definedness.executed  # type: ignore[method-assign]
        self.counted, self.transferred = counter.counted, counter.transferred  # type: ignore[method-assign]
        self.own = OwnMemory(m, self.shared, self.definedness)
        self.updates = LostUpdates(m, self.clocks)
        self.launches = LaunchOrder(m, self.clocks)
        self.launch_waited, self.launch_triggered = self.launches.wait, self.launches.trigger  # type: ignore[method-assign]
        self.reset = SelfResetting(m)

    # -- accesses --

    def block_started(self, slots: Array) -> None:
        for slot in slots.tolist():
            start, stop = slot * self.m.shared_stride, (slot + 1) * self.m.shared_stride
            self.shared.reset(start, stop)
            zeros = np.arange(start + self.m.floors["shared"], start + SHARED_START)
            self.shared.state[self.shared.grains(zeros, 1)] = WRITTEN
            self.own.forget(slot)
            for table in (self.arrivals, self.completed, self.inits):
                for position in [p for p in table if start <= p < stop]:
                    del table[position]  # type: ignore[attr-defined]

    def accessed(
        self, address: Address, offset: int, size: int, site: int, kind: str, values: Values = ()
    ) -> None:
        self.counter.accessed(address, offset, size, site, kind)
        self.races.storing = Storing(address, offset, values) if values else None
        level = self.orders.level_of(site)
        if address.space == "shared" and kind == "load" and self.suspects.ahead_of_use(site):
            self.load_ahead(address.g, address.base + offset, size, site, level)
        elif address.space == "shared":
            if site in self.updates.sites:
                self.updates.check(address.g, address.base + offset, size, site, self.shared)
            self.touch_shared(address.g, address.base + offset, size, site, kind, level)
        elif address.space == "local":
            self.own.touch_local(address, offset, size, site, kind)
        elif address.space == "global":
            g, ends = address.g, (address.lo + offset, address.hi + offset)
            plain = kind == "load" and not level
            if plain and self.is_logged(g, address.addresses, offset, ends, size, site, g.lane):
                return
            addresses = address.addresses.astype(np.int64) + offset
            self.launches.check(address.g, site, addresses, size, kind)
            region = self.m.globals.find(int(addresses[0]))
            self.touch_global(address.g, addresses, size, site, kind, level, region)
            self.own.touch_global(address, offset, size, site, kind)

    def is_logged(
        self,
        g: Lanes,
        addresses: Array,
        offset: int,
        ends: tuple[int, int],
        size: int,
        site: Array | int,
        lanes: Array,
    ) -> bool:
        """Whether a plain load can be noted later, or never: nobody has written there in this launch."""
        region = self.m.globals.find(ends[0])
        if region is None or ends[1] + size > region.end or self.m.overlaps:
            return False
        if self.m.heap.space is not None or region.undefined is not None:
            return False
        followed = isinstance(site, int) and site in self.unused.sites
        if followed and not self.ranges.are_only_read(region.start):
            return False
        warp, shadow = g.cohort.first_warp, self.reads_of(region)
        if shadow is not None and shadow.ever_written:
            return False
        self.clocks.touch(warp, g.lane)
        if shadow is not None:
            at = shadow.grains(addresses.astype(np.int64) + (offset - (region.start & -16)), size)
            shadow.log_read(at, warp, self.clocks.now(warp), site, lanes)
        return True

    def reads_of(self, region: Region) -> Shadow | OnlyRead | None:
        """Where plain reads of a range are noted, if anybody asks who read it."""
        if not self.ranges.are_only_read(region.start):
            return shadow_of(self.globals, region, self.grain, self.clocks)
        if not self.ranges.keeps_reads:
            return None
        return only_read_of(self.only_read, region, self.grain, len(self.m.program.kernel.instructions))

    def touch_shared(
        self,
        g: Lanes,
        positions: Array,
        size: int,
        site: int,
        kind: str,
        level: int = PLAIN,
        generic: bool = True,
    ) -> None:
        at = self.shared.grains(positions, size)
        state = self.shared.state[at]
        if kind != "store" and not (state == WRITTEN).all():
            self.read_unwritten(g, positions, state, size, site)
        if kind != "load":
            self.check_busy(g, positions, at, state, size, site)
            self.shared.mark(at, WRITTEN)
        self.races.look(Access(self.shared, g, positions, size, site, kind, level, generic), at)

    def load_ahead(self, g: Lanes, positions: Array, size: int, site: int, level: int) -> None:
        """Note a load whose value is used later, or never. Its faults are held back until then."""
        warp, grains = warp_number(g), self.shared.grains(positions, size).reshape(len(positions), -1)
        column, moment = self.races.column(warp), self.clocks.now(warp)
        before = self.shared.read[grains, column]
        faults = self.held_back(g, positions, size, site, level)
        if faults and g.n > 1:
            rows = np.broadcast_to(positions, (g.n,))
            faults = {}
            for lane in range(g.n):
                faults |= self.held_back(g.one(lane), rows[lane : lane + 1], size, site, level)
        self.suspects.add(g, Reading(g.lane, grains, column, moment, before, faults, mask_of(g), site))

    def held_back(
        self, g: Lanes, positions: Array, size: int, site: int, level: int
    ) -> dict[int, MachineFault]:
        self.m.holds_back = True
        try:
            self.touch_shared(g, positions, size, site, "load", level)
        except MachineFault as fault:
            return {int(g.lane[0]): fault}
        finally:
            self.m.holds_back = False
        return {}

    def lane_of(self, marked: Array, size: int) -> int:
        """Which lane the first marked grain belongs to."""
        return int(np.argmax(marked)) // max(size // self.grain, 1)

    def read_unwritten(self, g: Lanes, positions: Array, state: Array, size: int, site: int) -> None:
        """A copy under way must have landed. What nobody wrote is followed to where it matters."""
        if (state == LANDING).any():
            self.report_landing(g, positions, state, size, site)
        else:
            self.own.read(self.own.shared, g, positions, size, site)

    def report_landing(self, g: Lanes, positions: Array, state: Array, size: int, site: int) -> None:
        lane = self.lane_of(state == LANDING, size)
        rule = "a read of shared memory whose asynchronous copy was not waited for"
        place = int(positions[lane]) % self.m.shared_stride
        self.m.report(self.m.fault(Uninitialised, rule, site, g, lane, place))

    def check_busy(self, g: Lanes, positions: Array, at: Array, state: Array, size: int, site: int) -> None:
        """Raise a race where a write meets asynchronous work that still writes or reads."""
        busy, rule = state == LANDING, "a write where an asynchronous copy is still to land"
        if not busy.any() and self.readers_under_way:
            busy, rule = (
                self.shared.reading[at] > 0,
                "a write into the source of an asynchronous operation that was not waited for",
            )
        if busy.any():
            lane = self.lane_of(busy, size)
            self.m.report(
                self.m.fault(Race, rule, site, g, lane, int(positions[lane]) % self.m.shared_stride)
            )

    # -- asynchronous work marks its place --

    def begin_landing(self, positions: Array, size: int) -> None:
        self.shared.mark(self.shared.grains(positions, size), LANDING)

    def end_landing(self, positions: Array, size: int) -> None:
        self.shared.mark(self.shared.grains(positions, size), WRITTEN)

    def begin_reading(self, positions: Array, size: int) -> None:
        self.readers_under_way += 1
        # Once a grain, however many of its pieces lie there.
        self.shared.reading[self.shared.grains(positions, size)] += 1

    def end_reading(self, positions: Array, size: int) -> None:
        self.readers_under_way -= 1
        self.shared.reading[self.shared.grains(positions, size)] -= 1

    def stored(self, address: Address, offset: int, values: tuple[Array, ...], site: int) -> None:
        self.own.stored(address, offset, site)
        self.races.check_equal(address, offset, values, site)

    def local_moved(self, target: int, source: int, size: int) -> None:
        self.own.local.move(target, source, size)

    def touch_global(
        self,
        g: Lanes,
        addresses: Array,
        size: int,
        site: int,
        kind: str,
        level: int,
        region: Region | None,
        generic: bool = True,
    ) -> None:
        if region is None:
            return
        inside = (addresses >= region.start) & (addresses + size <= region.end)
        if not generic and kind != "load":
            self.own.landed(region, addresses[inside], size)
        shadow = shadow_of(self.globals, region, self.grain, self.clocks)
        shadow.replay()
        if kind != "load":
            self.ranges.meet_store(region.start)
        positions = addresses[inside] - (region.start & -16)
        if site in self.updates.sites and inside.all() and kind == "store":
            self.updates.check(g, positions, size, site, shadow)
        if not inside.all() and len(addresses) == g.n:
            g = Lanes(g.cohort, indices(g)[inside])
        access = Access(shadow, g, positions, size, site, kind, level, generic)
        at = shadow.grains(positions, size)
        if kind == "load" and not level and generic and site in self.unused.sites:
            self.definedness.on = True
            self.unused.load(self.races, access, at)
        else:
            self.races.look(access, at)

    def products_read(self, g: Lanes, positions: Array, size: int, site: int) -> bool:
        """Whether all that a wgmma reads was written."""
        at = self.shared.grains(positions, size)
        state = self.shared.state[at]
        if (state == LANDING).any():
            self.report_landing(g, positions, state, size, site)
        self.races.look_at_products(Access(self.shared, g, positions, size, site, "load"), at)
        return bool((state == WRITTEN).all())

    def check_lanes_met(self, g: Lanes, positions: Array, size: int, site: int) -> None:
        """Raise a race if one lane makes the engine read what others of its warp wrote since they last
        met."""
        at = self.shared.grains(positions, size)
        self.races.check_lanes(
            Access(self.shared, g, positions, size, site, "load"), at, np.full(len(at), g.lane[0])
        )

    # -- fences and ordered accesses --

    def ordered(self, address: Address | MixedAddress, offset: int, kind: str, scope: str, site: int) -> None:
        g = address.g if isinstance(address, Address) else address.parts[0][1].g
        self.orders.order(warp_number(g), address, offset, kind, scope, site)

    def fenced(self, g: Lanes, kind: str, site: int) -> None:
        self.orders.fence(warp_number(g), kind)

    def map_released(self, g: Lanes) -> None:
        self.maps.release(g)

    def map_acquired(self, g: Lanes, addresses: Array) -> None:
        self.maps.acquire(g, addresses)

    def map_read(self, g: Lanes, lane: int, address: int, site: int) -> None:
        region, reader = self.m.globals.find(address), g.one(lane)
        self.touch_global(reader, np.array([address]), MAP_BYTES, site, "load", PLAIN, region, generic=False)
        if region is not None and self.globals[region.start].ever_written:
            self.maps.check(g, lane, address, site, region, self.globals[region.start])

    def multiplied(self, product: PendingProduct) -> None:
        self.counter.multiplied(product)
        self.warpgroups.multiplied(product.g, product.site)

    def warp_met(self, g: Lanes, mask: Array) -> None:
        self.clocks.meet_named(warp_number(g), mask)

    # -- barriers of blocks and clusters --

    def barrier_arrived(self, barrier: Barrier, lanes: Lanes, relaxed: bool = False) -> None:
        warp = warp_number(lanes)
        # relaxed at a barrier of the cluster: it publishes what a fence of that scope did
        message = self.clocks.fenced_at(warp, CLUSTER) if relaxed else self.clocks.row(warp)
        held = self.block_messages.get(id(barrier)) or self.clocks.empty()
        held.join(message)
        self.block_messages[id(barrier)] = held
        self.clocks.tick(warp)

    def barrier_completed(self, barrier: Barrier) -> None:
        message = self.block_messages.pop(id(barrier))
        for cohort, _, _ in barrier.waiting:
            self.clocks.receive(warp_number(cohort.all), message)
            self.clocks.meet(warp_number(cohort.all))

    # -- mbarriers --

    def mbarrier_initialised(self, g: Lanes, positions: Array, site: int) -> None:
        warp = warp_number(g)
        for position in positions.tolist():
            self.inits[position] = warp, self.clocks.now(warp)
            for table in (self.arrivals, self.completed):
                table[position] = self.clocks.empty()

    def check_initialised(self, g: Lanes, lane: int, position: int, site: int, proxy: bool = False) -> None:
        """Raise a fault unless an mbarrier's init is ordered before its use; TMA needs a fence as well."""
        if position not in self.inits:
            return
        warp, moment = self.inits[position]
        mine, place = warp_number(g), position % self.m.shared_stride
        if warp != mine and self.clocks.row(mine).vector[warp] < moment:
            rule = f"an mbarrier is used, and initialised by {self.races.name(warp)}; nothing orders the two"
            self.m.report(self.m.fault(Race, rule, site, g, lane, place))
        if proxy and self.clocks.row(mine).proxied[SHARED, warp] < moment:
            rule = "TMA uses an mbarrier whose init has no fence.mbarrier_init or fence.proxy.async behind it"
            name = "mbarrier-init-fence"
            self.m.report(self.m.fault(MissingProxyFence, rule, site, g, lane, place, name))

    def mbarrier_arrived(self, g: Lanes, mine: Array, barrier: MBarrier, site: int) -> None:
        warp = warp_number(g)
        self.check_initialised(g, int(np.argmax(mine)), barrier.address, site)
        # Lanes that parted arrive one after another: the last ones speak for all that have.
        spoke = self.speakers.setdefault((barrier.address, warp), np.zeros(32, bool))
        spoke[g.lane[mine]] = True
        self.arrivals[barrier.address].join(self.clocks.message_of(warp, np.flatnonzero(spoke)))
        self.clocks.tick(warp)

    def mbarrier_completed(self, barrier: MBarrier) -> None:
        """Hand what arrivals of the phase brought to those who wait."""
        self.completed[barrier.address].join(self.arrivals[barrier.address])
        self.arrivals[barrier.address] = self.clocks.empty()
        self.speakers = {key: spoke for key, spoke in self.speakers.items() if key[0] != barrier.address}

    def mbarrier_passed(self, g: Lanes, mine: Array, barrier: MBarrier, site: int) -> None:
        self.check_initialised(g, int(np.argmax(mine)), barrier.address, site)
        self.clocks.receive(warp_number(g), self.completed[barrier.address])

    # -- the end --

    def finish(self) -> None:
        self.warpgroups.check()
        self.reset.check()
