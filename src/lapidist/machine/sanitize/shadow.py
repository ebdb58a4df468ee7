"""Who touched each piece of memory last, and when: the material of race reports."""

from __future__ import annotations

import numpy as np

from lapidist.machine.lanes import Lanes
from lapidist.machine.memory import Region
from lapidist.machine.sanitize.clocks import Clocks
from lapidist.machine.sanitize.ordered import Scopes

Array = np.ndarray
MOST_LOGGED, REPLAYED = 1 << 21, 1 << 15  # grains that wait, and that are noted at once
LAST_NOTED, BOTH_NOTED = 1, 2  # whether the last reader of a grain is noted, and the last other one
Logged = tuple[Array, int, int, Array | int, Array]
# Of a word about a reading: the warp is above, then the lane, and below the site.
NO_LANE, LANE_BYTE, LANE_SHIFT, WARP_SHIFT, SITE = -1, 3, 24, 32, (1 << 24) - 1
WARP, NOBODY = 32, 255 << LANE_SHIFT
UNWRITTEN, WRITTEN, LANDING, PARTIAL = 0, 1, 2, 3  # PARTIAL: some of the bits written are undefined


class Shadow:
    """Last write and reads of each grain (1, 2 or 4 bytes: the smallest access of the kernel).

    With `readers` > 0 every reader has a column of its own (shared memory, where a block's warps are few);
    otherwise the last two different readers are kept."""

    def __init__(self, nbytes: int, grain: int, agents: int, readers: int = 0, owners: int = 1) -> None:
        count = self.count = -(-nbytes // grain)
        self.grain, self.readers = grain, readers
        self.ever_written = False
        # The last moment at which each agent wrote or read anything here: mostly that alone says that there
        # is no race.
        self.last_write, self.last_read = np.zeros(agents, np.int32), np.zeros(agents, np.int32)
        # Zeros take no memory until something is noted there. Moments begin with 1: at 0 nobody did anything.
        self.writer, self.written = np.zeros(count, np.int32), np.zeros(count, np.int32)
        self.write_site = np.zeros(count, np.int32)
        self.level = np.zeros(count, np.int8)  # the scope of an ordered write; 0 for a plain one
        self.generic = np.zeros(count, bool)
        # The lane of the last write and read, -1 where it was no single one; and whose lane read, and where:
        # one word a grain, as most notes are of reads.
        self.lane, self.last_reading = np.zeros(count, np.int8), np.zeros(count, np.int64)
        self.read_lane = self.last_reading.view(np.int8)[LANE_BYTE::8]
        self.read_warp = self.last_reading.view(np.int32)[1::2]
        # The last reading by a thread other than that of the last one, and when it was.
        self.other_reading, self.other_read = np.zeros(count, np.int64), np.zeros(count, np.int32)
        # Column after column: mostly one reader notes many grains.
        self.moments_of = np.zeros((readers or 2, count), np.int32)
        self.read = self.moments_of.T
        self.reader = np.zeros((count, 2), np.int32) if not readers else None
        # Per grain, who saw its last write with an ordered access, and when; and which write that was.
        self.ordered_reads: dict[int, tuple[int, int, dict[int, int]]] = {}
        # Reads of memory that nobody has written yet: when, by whom, where. They are noted together.
        self.log: list[Logged] = []
        self.logged = 0
        self.newest_place = np.empty(0 if readers else count, np.int32)
        self.status = np.zeros(0 if readers else count, np.uint8)
        # What the bytes hold, and how many asynchronous operations still read them.
        self.state = np.zeros(count if readers else 0, np.uint8)
        self.reading = np.zeros(count if readers else 0, np.int16)
        # How often each owner's part was written to: of shared memory a cluster has one.
        self.changes, self.owned = [0] * owners, -(-count // owners)
        # How often anything was written to here, and which of these writes was the last to each grain.
        self.marks, self.marked = 0, np.zeros(count if readers else 0, np.int32)
        self.place = np.zeros(count if readers else 0, np.int32)  # in a list; zeros between uses

    def read_site(self, part: slice) -> Array:
        """Where each grain of a part was read last."""
        return self.last_reading[part] & SITE

    def mark(self, at: Array, state: int) -> None:
        """Note that grains of one owner are written to, or that a copy is to write there."""
        self.state[at] = state
        self.marks += 1
        self.marked[at] = self.marks
        if at.size:
            self.changes[int(at.flat[0]) // self.owned] += 1

    def reset(self, start: int, stop: int) -> None:
        """Forget a byte range, which a new block owns."""
        part = slice(start // self.grain, -(-stop // self.grain))
        self.written[part] = 0
        self.read[part] = 0
        self.state[part] = UNWRITTEN
        self.reading[part] = 0

    def grains(self, positions: Array, size: int) -> Array:
        """Grain numbers that accesses of `size` bytes at these byte positions touch."""
        return grains_of(positions, size, self.grain)

    def racing_write(
        self, at: Array, warp: int, near: slice, clocks: Clocks, level: int, scopes: Scopes
    ) -> int:
        """Index into `at` of a write that the warp is not ordered after, or -1. `near` are the warps that may
        have written.

        Ordered accesses whose scopes hold both do not race each other. Nor is a write in a race with what
        comes after someone's ordered read of it."""
        vector = clocks.row(warp).vector
        if not (self.last_write[near] > vector[near]).any():
            return -1
        writer = self.writer[at]
        racing = (writer != warp) & (self.written[at] > vector[writer])
        if level and racing.any():
            racing &= ~scopes.share(np.minimum(self.level[at], level), warp, writer)
        for index in np.flatnonzero(racing).tolist():
            grain = int(at[index])
            if not (
                self.after_ordered_read(grain, warp, vector)
                or clocks.knows(warp, int(writer[index]), int(self.lane[grain]), int(self.written[grain]))
            ):
                return index
        return -1

    def racing_lane(self, at: Array, warp: int, lanes: Array, clocks: Clocks) -> int:
        """Index into `at` of what another lane of the warp wrote since the two last met, or -1."""
        if self.last_write[warp] <= clocks.met[warp]:
            return -1
        other = self.lane[at]
        racing = (self.writer[at] == warp) & (other >= 0) & (other != lanes)
        racing &= clocks.unordered(warp, lanes, other, self.written[at])
        return int(np.argmax(racing)) if racing.any() else -1

    def racing_read_lane(
        self, at: Array, column: int, warp: int, lanes: Array, clocks: Clocks
    ) -> tuple[int, int, int]:
        """(index into `at`, lane, site) of what another lane of the warp read since the two last met, or
        (-1, -1, -1)."""
        if self.last_read[warp] <= clocks.met[warp]:
            return -1, -1, -1
        for readings, moments in (
            (self.last_reading[at], self.read[at, column]),
            (self.other_reading[at], self.other_read[at]),
        ):
            threads = readings >> LANE_SHIFT
            other = threads & 255
            racing = (threads >> 8 == warp) & (other < WARP) & (other != lanes) & (moments > 0)
            if racing.any():
                racing &= clocks.unordered(warp, lanes, other % WARP, moments)
                index = int(np.argmax(racing))
                if racing[index]:
                    return index, int(other[index]), int(readings[index]) & SITE
        return -1, -1, -1

    def own_access(self, at: Array, warp: int, moment: int) -> int:
        """Where a warp itself read or wrote one of these grains after a moment, other than by TMA; or -1."""
        wrote = (self.writer[at] == warp) & (self.written[at] > moment) & self.generic[at]
        if wrote.any():
            return int(self.write_site[at[np.argmax(wrote)]])
        assert self.reader is not None
        read = ((self.reader[at] == warp) & (self.read[at] > moment)).any(axis=1)
        read &= (self.read_warp[at] == warp) & (self.read_lane[at] >= 0)
        return self.site_of_read(int(at[np.argmax(read)])) if read.any() else -1

    def site_of_read(self, grain: int) -> int:
        return int(self.last_reading[grain]) & SITE

    def lanes_of(self, g: Lanes, positions: Array, size: int) -> Array | None:
        """The lane of each grain, where every lane has a position of its own."""
        grains = max(size // self.grain, 1) * len(positions)
        return np.repeat(g.lane, grains // g.n) if g.n in (1, len(positions)) else None

    def after_ordered_read(self, grain: int, warp: int, vector: Array) -> bool:
        """Whether the warp is ordered after some ordered read of the last write."""
        writer, written, readers = self.ordered_reads.get(grain, (-1, -1, {}))
        same = writer == self.writer[grain] and written == self.written[grain]
        return same and any(warp == reader or vector[reader] >= moment for reader, moment in readers.items())

    def note_ordered_read(self, at: Array, warp: int, now: int, level: int, scopes: Scopes) -> None:
        """Note an ordered read: the ordered writes that it reads come before all that comes after it."""
        writer = self.writer[at]
        mutual = scopes.share(np.minimum(self.level[at], level), warp, writer)
        for grain in np.unique(at[mutual & (self.written[at] > 0) & (writer != warp)]).tolist():
            write = int(self.writer[grain]), int(self.written[grain])
            entry = self.ordered_reads.get(grain)
            readers = entry[2] if entry and entry[:2] == write else {}
            self.ordered_reads[grain] = *write, {**readers, warp: readers.get(warp, now)}

    def racing_read(
        self, at: Array, warp_columns: list[int], warp: int, clocks: Clocks, agents: Array | None
    ) -> tuple[int, int]:
        """(index into `at`, reader) of a read that the warp is not ordered after, or (-1, -1). With a
        column for each reader, `warp_columns` are the warp's and `agents` the readers of all."""
        vector = clocks.row(warp).vector
        near = slice(None) if agents is None else agents
        if not (self.last_read[near] > vector[near]).any():
            return -1, -1
        read = self.read[at]
        if agents is not None:
            reader = np.broadcast_to(agents, read.shape)
            racing = read > vector[agents]
            racing[:, warp_columns] = False
        else:
            assert self.reader is not None
            reader = self.reader[at]
            racing = (reader != warp) & (read > vector[reader])
        if not racing.any():
            return -1, -1
        for index, place in np.argwhere(racing).tolist():
            who, grain = int(reader[index, place]), int(at[index])
            lane = int(self.read_lane[grain]) if self.read_warp[grain] == who else -1
            if not clocks.knows(warp, who, lane, int(read[index, place])):
                return index, who
        return -1, -1

    def note_write(
        self,
        at: Array,
        warp: int,
        now: int,
        site: Array | int,
        level: int,
        generic: bool,
        lanes: Array | None,
    ) -> None:
        self.ever_written = True
        self.last_write[warp] = now
        self.writer[at], self.written[at], self.write_site[at] = warp, now, site
        self.level[at], self.generic[at] = level, generic
        self.lane[at] = -1 if lanes is None else lanes

    def log_read(self, at: Array, warp: int, now: int, site: Array | int, lanes: Array) -> None:
        """Note a read later: of most ranges nobody ever asks who read them."""
        self.last_read[warp] = now
        self.log.append((at, warp, now, site, lanes))
        self.logged += len(at)
        if self.logged >= MOST_LOGGED:
            self.replay()

    def replay(self) -> None:
        """Note the logged reads as if one after the other: of each grain the last, and the last by another
        reader. The newest come first, so of most others nothing is left to note."""
        if not self.log:
            return
        noted, stop = list[Array](), len(self.log)
        counts = [len(entry[0]) for entry in self.log]
        while stop:
            start, size = stop, 0
            while start and size < REPLAYED:
                start -= 1
                size += counts[start]
            noted += self.note_before(self.log[start:stop], counts[start:stop])
            stop = start
        self.log.clear()
        self.logged = 0
        for grains in noted:
            self.status[grains] = 0

    def note_before(self, log: list[Logged], counts: list[int]) -> list[Array]:
        """Note reads that came before those that `status` knows of. Returns the grains of which it knows
        more."""
        at = np.concatenate([entry[0] for entry in log])
        status = self.status[at]
        unknown = np.flatnonzero(status < BOTH_NOTED)
        if not len(unknown):
            return []
        entry = np.searchsorted(np.cumsum(counts), unknown, side="right")
        _, agents, moments, sites, rows = zip(*log, strict=True)
        agent, moment = (np.array(part, np.int32)[entry] for part in (agents, moments))
        at, new = at[unknown], status[unknown] == 0
        old = ~new
        self.note_second(at[old], agent[old], moment[old])
        if not new.any():
            return []
        at, agent, moment, place = at[new], agent[new], moment[new], unknown[new]
        last = np.flatnonzero(self.last_of(at) == np.arange(len(at)))
        grains, place = at[last], place[last]
        self.note_first(grains, agent[last], moment[last])
        self.note_second(at, agent, moment)
        site, lane = (
            np.concatenate([of_each(*one) for one in zip(part, counts, strict=True)])[place]
            for part in (sites, rows)
        )
        self.last_reading[grains] = reading(site, lane) | agent[last].astype(np.int64) << WARP_SHIFT
        return [grains]

    def note_first(self, at: Array, agent: Array, moment: Array) -> None:
        """Note the last readers of some grains; who was known until now is then the other one."""
        assert self.reader is not None
        reader, moments = self.reader[at, 0], self.read[at, 0]
        moved = reader != agent
        self.reader[at[moved], 1], self.read[at[moved], 1] = reader[moved], moments[moved]
        self.reader[at, 0], self.read[at, 0] = agent, moment
        self.status[at] = LAST_NOTED

    def note_second(self, at: Array, agent: Array, moment: Array) -> None:
        """Note the last that another than the last reader did."""
        assert self.reader is not None
        other = np.flatnonzero(agent != self.reader[at, 0])
        if len(other):
            other = other[self.last_of(at[other]) == np.arange(len(other))]
            self.reader[at[other], 1], self.read[at[other], 1] = agent[other], moment[other]
            self.status[at[other]] = BOTH_NOTED

    def last_of(self, at: Array) -> Array:
        """For each of these grains, where it stands last: of equal ones NumPy keeps what is assigned last."""
        self.newest_place[at] = np.arange(len(at), dtype=np.int32)
        return self.newest_place[at]

    def note_read(
        self, at: Array, column: int, agent: int, now: int, site: Array | int, lanes: Array | None
    ) -> None:
        self.note_readings(at, column, agent, now, reading(site, NO_LANE if lanes is None else lanes))

    def note_readings(self, at: Array, column: int, agent: int, now: int, readings: Array) -> None:
        """Note reads of one agent, of which each has a word with its site and lane."""
        self.last_read[agent] = now
        self.note_threads(at, column if self.readers else 0, now, readings | (agent << WARP_SHIFT))
        if self.reader is None:
            self.moments_of[column][at] = now
            return
        other = self.reader[at, 0] != agent
        moved = at[other]
        self.reader[moved, 1], self.read[moved, 1] = self.reader[moved, 0], self.read[moved, 0]
        self.reader[at, 0], self.read[at, 0] = agent, now

    def note_threads(self, at: Array, column: int, now: int, readings: Array) -> None:
        """Note of each grain the last reading, and one by another thread. Lanes of one instruction may read
        the same grain."""
        before = self.last_reading[at]
        self.last_reading[at] = readings
        other = (before ^ readings) >> LANE_SHIFT != 0
        if other.any():
            some = at[other]
            self.other_reading[some], self.other_read[some] = before[other], self.read[some, column]
        lost = (self.last_reading[at] ^ readings) >> LANE_SHIFT != 0
        if lost.any():
            some = at[lost]
            self.other_reading[some] = np.broadcast_to(readings, lost.shape)[lost]
            self.other_read[some] = now

    def forget_read(self, at: Array, column: int, moment: int, site: int, before: Array) -> None:
        """Take back the reads of a load. What was read there before is what `other_read` knows of."""
        gone = (self.read[at, column] == moment) & (self.last_reading[at] & SITE == site)
        last, before = at[gone], before[gone]
        self.read[last, column] = before
        known = self.other_read[last] == before
        self.last_reading[last] = np.where(known, self.other_reading[last], NOBODY)
        gone = (self.other_read[at] == moment) & (self.other_reading[at] & SITE == site)
        self.other_reading[at[gone]] = NOBODY

    def note_earlier_read(self, at: Array, agent: int, moment: int, site: int, lanes: Array) -> None:
        """Note a read of global memory at an earlier moment, where the agent has not read since."""
        assert self.reader is not None
        last = int(self.last_read[agent])
        new = ~((self.reader[at] == agent) & (self.read[at] >= moment)).any(axis=1)
        self.note_read(at[new], 0, agent, moment, site, lanes[new])
        self.last_read[agent] = max(last, moment)


def grains_of(positions: Array, size: int, grain: int) -> Array:
    first = positions // grain
    if size <= grain:
        return first
    return (first[:, None] + np.arange(size // grain)).reshape(-1)


def reading(site: Array | int, lane: Array | int) -> Array:
    """A word about a reading, without its warp."""
    return np.asarray(lane, np.int64) % 256 << 8 * LANE_BYTE | site


def of_each(values: Array | int, n: int) -> Array:
    """One value for each of n grains, of some for as many grains each; of others the first counts."""
    if isinstance(values, int):
        return np.full(n, values)
    if len(values) == n:
        return values
    return np.repeat(values, n // len(values)) if n % len(values) == 0 else np.repeat(values[:1], n)


def shadow_of(shadows: dict[int, Shadow], region: Region, grain: int, clocks: Clocks) -> Shadow:
    """The shadow of a range of global memory."""
    if region.start not in shadows:
        shadows[region.start] = Shadow(region.end - (region.start & -16), grain, clocks.agents)
    return shadows[region.start]
