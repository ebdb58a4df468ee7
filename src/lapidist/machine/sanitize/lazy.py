"""Asynchronous work done as late as its waits allow, so that a missing wait shows.

A copy's destination is marked from issue on; it lands when its thread waits for its group, or, if an mbarrier
reports it, at a moment that the schedule draws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from lapidist.machine.faults import Race
from lapidist.machine.instructions.copies import (
    Copies,
    Transfer,
    box_positions,
    clip_box,
    element_size,
    global_side,
    swizzled,
)
from lapidist.machine.instructions.remote import RemoteStore
from lapidist.machine.lanes import Cohort, Lanes, indices
from lapidist.machine.memory import Address, Region
from lapidist.machine.sanitize.clocks import Message
from lapidist.machine.sanitize.landing import Landing, PendingCopy, keep
from lapidist.machine.sanitize.ordered import PLAIN, Scopes, warp_number
from lapidist.machine.sanitize.proxies import OVERWRITE
from lapidist.machine.sanitize.sanitizer import Sanitizer

Array = np.ndarray


@dataclass
class Queue:
    """Asynchronous work of one warp: `group` is the number of the open group of each lane."""

    group: Array
    copies: list[PendingCopy] = field(default_factory=list)
    bulk_group: Array = field(default_factory=lambda: np.zeros(0))
    bulk: list[tuple[int, int, Transfer, Message]] = field(default_factory=list)


class LazyCopies(Copies):
    def __init__(self, sanitizer: Sanitizer) -> None:
        super().__init__(sanitizer.m)
        self.s = sanitizer
        self.landing = Landing(sanitizer, self.global_bytes)
        self.queues: dict[int, Queue] = {}
        # Work that an mbarrier reports: it may happen at any moment.
        self.engine: list[Callable[[], None]] = []
        # Bulk stores whose source was read, and which still write: where it lay, and what was there.
        self.staged: dict[int, tuple[int, Array]] = {}

    def queue(self, cohort: Cohort) -> Queue:
        queue = self.queues.get(id(cohort))
        if queue is None:
            groups = np.zeros(cohort.n, np.int64), np.zeros(cohort.n, np.int64)
            queue = self.queues[id(cohort)] = Queue(groups[0], bulk_group=groups[1])
        return queue

    # -- cp.async --

    def copy(
        self, target: Address, target_offset: int, source: Address, source_offset: int, size: int, site: int
    ) -> None:
        source.find(source_offset, size, site)
        source.check_aligned(source_offset, size, site)
        self.pend(
            target,
            target_offset,
            source.addresses.astype(np.int64) + source_offset,
            size,
            np.array([size]),
            site,
        )
        self.m.observer.counted(source, source_offset, size, site, "load")

    def copy_part(
        self,
        target: Address,
        target_offset: int,
        source: tuple[Array, int],
        size: int,
        source_sizes: Array,
        site: int,
    ) -> None:
        base, source_offset = source
        lanes = target.g.where(np.broadcast_to(source_sizes, (target.g.n,)) > 0)
        if lanes is not None:
            some = (
                base
                if len(base) == 1 or lanes is target.g
                else base[np.broadcast_to(source_sizes, (target.g.n,)) > 0]
            )
            address = self.m.global_at(lanes, some, site)
            address.find(source_offset, 1, site)
            address.check_aligned(source_offset, size, site)
        self.pend(target, target_offset, base.astype(np.int64) + source_offset, size, source_sizes, site)

    def pend(
        self, target: Address, offset: int, source: Array, size: int, source_sizes: Array, site: int
    ) -> None:
        target.find(offset, size, site)
        target.check_aligned(offset, size, site)
        self.m.observer.counted(target, offset, size, site, "store")
        g = target.g
        self.s.launches.check(g, site, source, size, "load")
        positions = np.broadcast_to(target.base + offset, (g.n,))
        self.s.touch_shared(g, positions, size, site, "store")
        self.s.begin_landing(positions, size)
        index = indices(g)
        queue = self.queue(g.cohort)
        everyone = (g.n,)
        queue.copies.append(
            PendingCopy(
                g,
                index,
                queue.group[index],
                positions,
                np.broadcast_to(source, everyone),
                size,
                np.broadcast_to(source_sizes, everyone),
                np.full(g.n, site, np.int32),
            )
        )

    def commit(self, g: Lanes) -> None:
        self.queue(g.cohort).group[indices(g)] += 1

    def wait(self, g: Lanes, pending: int, site: int) -> None:
        queue = self.queue(g.cohort)
        last = np.full(g.cohort.n, -1)
        chosen = indices(g)
        # wait_all also covers copies that were never committed.
        uncommitted = "wait_all" in self.m.program.kernel.instructions[site].mods
        last[chosen] = queue.group[chosen] - (0 if uncommitted else pending + 1)
        self.finish(queue, last)

    def finish(self, queue: Queue, last: Array) -> None:
        """Land every copy whose group is at most its lane's `last`."""
        landing, unfinished = [], []
        for copy in queue.copies:
            ready = copy.group <= last[copy.index]
            if ready.any():
                landing.append(copy if ready.all() else keep(copy, ready))
            if not ready.all():
                unfinished.append(keep(copy, ~ready))
        queue.copies = unfinished
        self.landing.land(landing)

    def arrive(self, g: Lanes, address: Address, offset: int, extra: bool, site: int) -> None:
        """Let the barrier hear of these lanes when their copies have landed."""
        queue = self.queue(g.cohort)
        last = np.full(g.cohort.n, -1)
        chosen = indices(g)
        last[chosen] = queue.group[chosen]
        positions = self.m.mbarriers.positions(address, offset, site)
        if extra:
            for position in positions.tolist():
                self.m.mbarriers.find(position, address.g, site).pending += 1

        def happen() -> None:
            self.finish(queue, last)
            self.m.mbarriers.arrive(address, offset, np.array([1]), None, False, site)

        self.engine.append(happen)

    # -- stores into other blocks --

    def send(self, store: RemoteStore) -> None:
        """A store is under way until its bytes are reported; a reduction may come in between others at any
        time.
        """
        g, warp = store.address.g, warp_number(store.address.g)
        for barrier in store.barriers.tolist():
            self.s.check_initialised(g, 0, barrier, store.site)
        if store.operation:
            level = Scopes.level("cluster")
            self.s.touch_shared(g, store.positions, store.nbytes, store.site, "atomic", level)
        else:
            self.s.touch_shared(g, store.positions, store.nbytes, store.site, "store")
            self.s.begin_landing(store.positions, store.nbytes)
        message = self.s.clocks.message(warp)
        self.s.clocks.tick(warp)

        def happen() -> None:
            if not store.operation:
                self.s.end_landing(store.positions, store.nbytes)
            for barrier in store.barriers.tolist():
                self.message_of(barrier, g, store.site).join(message)
            store.land()

        self.engine.append(happen)

    # -- bulk copies --

    def issue(self, t: Transfer) -> None:
        s, warp = self.s, warp_number(t.g)
        for barrier in t.barriers:
            s.check_initialised(t.g, t.lane, barrier, t.site, proxy=True)
        if not t.from_shared:
            s.launches.check(t.g, t.site, *global_side(t), "load" if t.to_shared else "store")
        pieces = self.pieces(t)
        if t.to_shared:
            for start in t.shared:
                target = start - t.shared[0] + pieces
                s.proxies.check_shared(t.g, t.lane, target, 16, t.site, OVERWRITE)
                s.touch_shared(t.g.one(t.lane), target, 16, t.site, "store", generic=False)
                s.begin_landing(target, 16)
        else:
            self.check_source(t, pieces)
        message = s.clocks.message(warp)
        s.clocks.tick(warp)
        if t.to_shared:
            self.engine.append(lambda: self.arrive_bytes(t, pieces, message))
        else:
            queue, lane = self.queue(t.g.cohort), int(indices(t.g)[t.lane])
            queue.bulk.append((lane, int(queue.bulk_group[lane]), t, message))

    def pieces(self, t: Transfer) -> Array:
        """Positions of the 16-byte pieces in shared memory, in the first destination."""
        start = t.shared[0]
        if t.map is None:
            return start + np.arange(0, t.nbytes, 16)
        low = start & 1023
        return start - low + swizzled(box_positions(t.map, element_size(t.map.dtype), low), t.map.swizzle)

    def check_source(self, t: Transfer, pieces: Array) -> None:
        """A store reads shared memory: written, ordered, behind a proxy fence, and left alone until waited
        for.
        """
        pieces = self.inside_pieces(t, pieces)
        self.s.touch_shared(t.g.one(t.lane), pieces, 16, t.site, "load")
        self.s.check_lanes_met(t.g.one(t.lane), pieces, 16, t.site)
        self.s.proxies.check_shared(t.g, t.lane, pieces, 16, t.site)
        self.s.begin_reading(pieces, 16)

    def inside_pieces(self, t: Transfer, pieces: Array) -> Array:
        """The pieces inside the matrix; others are not read."""
        if t.map is None:
            return pieces
        size = element_size(t.map.dtype)
        box = np.zeros(t.map.box[::-1], bool)
        box[clip_box(t.map, t)[1]] = True
        return pieces[box.reshape(-1, 16 // size).any(axis=1)]

    def arrive_bytes(self, t: Transfer, pieces: Array, message: Message) -> None:
        for start in t.shared:
            self.s.end_landing(start - t.shared[0] + pieces, 16)
        for barrier in t.barriers:
            self.message_of(barrier, t.g, t.site, t.lane).join(message)
        self.touch_matrix(t, "load")
        self.land(t)

    def message_of(self, barrier: int, g: Lanes, site: int, lane: int = 0) -> Message:
        """The message of the phase under way, of a barrier that its block may not have initialised yet."""
        return self.s.arrivals[self.m.mbarriers.find(barrier, g, site, lane).address]

    def touch_matrix(self, t: Transfer, kind: str) -> None:
        """Tell the race detector about the global side."""
        level = Scopes.level("gpu") if t.operation else PLAIN
        if t.from_shared:
            return
        starts, nbytes = global_side(t)
        for region, rows in self.by_region(starts):
            positions = (rows[:, None] + np.arange(0, nbytes, self.s.grain)).reshape(-1)
            self.s.touch_global(
                t.g.one(t.lane), positions, self.s.grain, t.site, kind, level, region, generic=False
            )
            if kind == "load":
                self.s.proxies.check_global(t.g, t.lane, positions, t.site, region)

    def by_region(self, starts: Array) -> list[tuple[Region | None, Array]]:
        """The rows of a box by the region that they lie in, together where one region has them all."""
        first = self.m.globals.find(int(starts[0])) if len(starts) else None
        if first is not None and first.start <= int(starts.min()) and int(starts.max()) < first.end:
            return [(first, starts)]
        return [
            (self.m.globals.find(start), starts[row : row + 1]) for row, start in enumerate(starts.tolist())
        ]

    def commit_bulk(self, g: Lanes) -> None:
        self.queue(g.cohort).bulk_group[indices(g)] += 1

    def wait_bulk(self, g: Lanes, pending: int, reading: bool, site: int) -> None:
        queue = self.queue(g.cohort)
        lanes = set(indices(g).tolist())
        unfinished = []
        for entry in queue.bulk:
            lane, group, t, issued = entry
            if not (lane in lanes and group <= queue.bulk_group[lane] - 1 - pending):
                unfinished.append(entry)
            elif reading:
                self.read_source(t, site)
                unfinished.append(entry)
            else:
                self.land_store(t, issued, site)
        queue.bulk = unfinished

    def read_source(self, t: Transfer, site: int) -> None:
        """Read a bulk store's source. It was read until now, by the lane that waited: others must meet that
        lane before they write there. What is read lands later, as a wait with .read does not wait for it."""
        if id(t) in self.staged:
            return
        pieces = self.inside_pieces(t, self.pieces(t))
        self.s.end_reading(pieces, 16)
        self.s.touch_shared(t.g.one(t.lane), pieces, 16, site, "load")
        if len(pieces):
            start, stop = int(pieces.min()), int(pieces.max()) + 16
            self.staged[id(t)] = start, self.m.shared_bytes[start:stop].copy()
        else:
            self.staged[id(t)] = 0, self.m.shared_bytes[:0].copy()

    def land_store(self, t: Transfer, issued: Message, site: int) -> None:
        """Land a bulk store that was issued when its warp knew this."""
        self.read_source(t, site)
        self.check_own_accesses(t, issued)
        start, content = self.staged.pop(id(t))
        place = self.m.shared_bytes[start : start + len(content)]
        now = place.copy()
        place[:] = content  # what was read, while the memory may hold something new
        self.touch_matrix(t, "store")
        self.land(t)
        place[:] = now

    def check_own_accesses(self, t: Transfer, issued: Message) -> None:
        """Raise a race if the warp that issued a store has touched its target since: nothing but a wait for
        the write orders the two. Other warps are looked at where the store lands."""
        warp = warp_number(t.g)
        moment, starts_of = int(issued.vector[warp]), global_side(t)
        for region, rows in self.by_region(starts_of[0]):
            shadow = None if region is None else self.s.globals.get(region.start)
            if region is None or shadow is None:
                continue
            shadow.replay()
            octets = rows[:, None] + np.arange(0, starts_of[1], shadow.grain) - (region.start & -16)
            site = shadow.own_access(shadow.grains(octets.reshape(-1), 1), warp, moment)
            if site >= 0:
                rule = (
                    f"a race on global memory: written here by a bulk store, and touched by its own warp at"
                    f" {self.m.site(site).place} before cp.async.bulk.wait_group without .read"
                )
                self.m.report(self.m.fault(Race, rule, t.site, t.g, t.lane, int(rows[0])))
                return

    def leave(self, g: Lanes) -> None:
        """Report lanes that exit while their bulk store still reads shared memory of their block. PTX ends it
        with the block, and says nothing of who still reads it."""
        queue = self.queues.get(id(g.cohort))
        if queue is None or not queue.bulk:
            return
        lanes = set(indices(g).tolist())
        for t, issued in [(t, issued) for lane, _, t, issued in queue.bulk if lane in lanes]:
            if id(t) not in self.staged:
                rule = (
                    "a thread exits while its bulk store still reads shared memory; cp.async.bulk.wait_group"
                    " is missing"
                )
                at = t.shared[0] % self.m.shared_stride
                self.m.report(self.m.fault(Race, rule, t.site, t.g, t.lane, at, "store-at-exit"))
            self.land_store(t, issued, t.site)
        queue.bulk = [entry for entry in queue.bulk if entry[0] not in lanes]
