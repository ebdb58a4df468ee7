"""Vector clocks: what each warp knows about the others, joined wherever the kernel synchronises.

Entry v of a warp's vector is the last moment of v that the warp is ordered after. v is a warp. Behind all
warps come their tensor cores, whose reads are no lane's. Each warp has four clocks. `vector` holds what it
knows. `fenced` is what it knew at its last memory fence of each scope, which relaxed stores publish.
`proxied` is what it knew at a proxy fence of each kind of memory: generic writes there that TMA and tensor
cores may read. `heard` is what relaxed loads saw before, its own and those of warps that it comes after. Only
warps that run have clocks: what is left of others is what those know of them.

Lanes of a warp share an entry, until some speak for themselves alone. Then `lanes` has what is known of
each, and the entry the least of that."""

from __future__ import annotations

import numpy as np

from lapidist.machine.instructions.warp import ALL, BIT

Array = np.ndarray
LEVELS = 3  # block, cluster, GPU
ROWS = 1 + LEVELS + 2 + 1  # of a message: `vector`, `fenced`, `proxied` and `heard`
CLUSTER = 1
SHARED, GLOBAL = 0, 1  # kinds of memory: a proxy fence that names one orders nothing in the other


class Message:
    """What a warp leaves at a barrier or in memory for those who come after it. It knows nothing of agents
    before `start`, nor of `stop` and those behind: mostly a block's warps know of each other alone."""

    __slots__ = ("fenced", "heard", "lanes", "moments", "proxied", "start", "stop", "vector")

    def __init__(self, moments: Array, lanes: dict[int, Array], start: int, stop: int) -> None:
        self.moments, self.lanes = moments, lanes  # joined as one array
        self.start, self.stop = start, stop
        self.vector, self.fenced = moments[0], moments[1 : 1 + LEVELS]
        self.proxied, self.heard = moments[1 + LEVELS : -1], moments[-1]

    def join(self, other: Message) -> None:
        """Take in what another message knows, in place."""
        vector, lanes = self.vector, self.lanes
        if not (lanes or other.lanes):
            self.join_moments(other)
            return
        single = {
            warp: np.maximum(lanes.get(warp, vector[warp]), other.lanes.get(warp, other.vector[warp]))
            for warp in lanes.keys() | other.lanes.keys()
        }
        self.join_moments(other)
        lanes.clear()
        for warp, moments in single.items():
            vector[warp] = moments.min()
            if vector[warp] < moments.max():
                lanes[warp] = moments

    def join_moments(self, other: Message) -> None:
        mine = self.moments[:, other.start : other.stop]
        np.maximum(mine, other.moments[:, other.start : other.stop], out=mine)
        self.extend(other.start, other.stop)

    def extend(self, start: int, stop: int) -> None:
        """Note that something is known of these agents."""
        if self.start == self.stop:
            self.start, self.stop = start, stop
        elif start < stop:
            self.start, self.stop = min(self.start, start), max(self.stop, stop)

    def copy(self, lanes: dict[int, Array]) -> Message:
        """What it knows of warps, with this about their lanes."""
        moments, part = np.zeros(self.moments.shape, np.int32), slice(self.start, self.stop)
        moments[:, part] = self.moments[:, part]
        return Message(moments, lanes, self.start, self.stop)


class Packed:
    """A message at rest, which never changes: several places may hold one. Of all warps it has only those of
    which it knows something, as mostly these are few."""

    __slots__ = ("columns", "lanes", "moments")

    def __init__(self, message: Message) -> None:
        self.columns = np.flatnonzero(message.moments.any(axis=0))
        self.moments, self.lanes = message.moments[:, self.columns], dict(message.lanes)

    @property
    def is_empty(self) -> bool:
        return not len(self.columns) and not self.lanes

    def message(self, agents: int) -> Message:
        moments = np.zeros((ROWS, agents), np.int32)
        moments[:, self.columns] = self.moments
        ends = (int(self.columns[0]), int(self.columns[-1]) + 1) if len(self.columns) else (0, 0)
        return Message(moments, dict(self.lanes), *ends)

    def joined(self, other: Packed, agents: int) -> Packed:
        """What both know."""
        if other is self or other.is_empty or self.is_empty:
            return self if other.is_empty else other
        message = self.message(agents)
        message.join(other.message(agents))
        return Packed(message)


class Clocks:
    def __init__(self, warps: int, products: bool) -> None:
        """`products`: warps have tensor cores that read for themselves."""
        self.warps, self.agents = warps, 2 * warps if products else warps
        self.rows: dict[int, Message] = {}
        # What relaxed loads saw at each scope; a fence of that scope turns it into knowledge.
        self.observed: dict[int, Array] = {}
        # When each lane last touched memory, and when its warp last met.
        self.touched = np.zeros((warps, 32), np.int32)
        self.met = np.zeros(warps, np.int32)
        # Of a warp of which some lanes met since: for each lane, the last moment of each that it comes after.
        self.parts: dict[int, Array] = {}
        self.products = np.zeros(warps, np.int32)  # the last moment of each tensor core that is over

    def row(self, warp: int) -> Message:
        """What a warp knows, as a message that shares its memory."""
        row = self.rows.get(warp)
        if row is None:
            row = self.rows[warp] = self.empty()
            row.vector[warp] = 1
            row.extend(warp, warp + 1)
        return row

    def forget(self, warp: int) -> None:
        """The warp has ended, and nothing of it is under way."""
        self.rows.pop(warp, None)
        self.observed.pop(warp, None)
        self.parts.pop(warp, None)

    def now(self, warp: int) -> int:
        return int(self.row(warp).vector[warp])

    def tick(self, warp: int) -> None:
        self.row(warp).vector[warp] += 1

    def empty(self) -> Message:
        return Message(np.zeros((ROWS, self.agents), np.int32), {}, 0, 0)

    def message(self, warp: int) -> Message:
        row = self.row(warp)
        return row.copy(dict(row.lanes))

    def fenced_at(self, warp: int, level: int) -> Message:
        """What a warp knew at its last fence of a scope, as the message of all its lanes."""
        message = self.row(warp).copy({})
        message.vector[:] = message.fenced[level]
        return message

    def touch(self, warp: int, lanes: Array) -> None:
        if len(lanes) == 32:
            self.touched[warp] = self.now(warp)
        else:
            self.touched[warp, lanes] = self.now(warp)

    def meet(self, warp: int) -> None:
        """Let the lanes of a warp meet: what any of them did is ordered before what all do next."""
        self.met[warp] = self.now(warp)
        self.parts.pop(warp, None)
        self.tick(warp)

    def meet_named(self, warp: int, mask: Array) -> None:
        """Let the lanes meet that each one's member mask names."""
        for word in np.unique(mask):
            if word == ALL:
                self.meet(warp)
            else:
                self.meet_in_part(warp, np.flatnonzero(word & BIT))

    def meet_in_part(self, warp: int, lanes: Array) -> None:
        """Let these lanes of a warp meet. Others are where they were."""
        partial = self.parts.get(warp)
        if partial is None:
            partial = self.parts[warp] = np.full((32, 32), self.met[warp], np.int32)
        together = partial[lanes].max(axis=0)
        together[lanes] = self.now(warp)
        partial[lanes] = together
        self.tick(warp)

    def unordered(self, warp: int, lanes: Array, partners: Array, moments: Array) -> Array:
        """Whether each lane is not ordered after what the other one did at that moment."""
        late, partial = moments > self.met[warp], self.parts.get(warp)
        return late if partial is None or not late.any() else late & (moments > partial[lanes, partners])

    def message_of(self, warp: int, lanes: Array) -> Message:
        """The message of some lanes, which do not speak for what others did since these lanes met them."""
        message, partial, before = self.message(warp), self.parts.get(warp), self.met[warp : warp + 1]
        if partial is not None:
            before = np.maximum(partial[lanes].max(axis=0), before)
        late = self.touched[warp] > before
        late[lanes] = False
        if late.any():
            moments = message.lanes[warp] = np.where(late, before, self.now(warp))
            message.vector[warp] = moments.min()
        return message

    def receive(self, warp: int, message: Message) -> None:
        row, now = self.row(warp), self.now(warp)
        row.join(message)
        row.lanes.pop(warp, None)
        row.vector[warp] = now
        self.met[warp] = max(self.met[warp], message.vector[warp])

    def knows(self, warp: int, other: int, lane: int, moment: int) -> bool:
        """Whether a warp is ordered after what a lane of another did, where the two entries as such do not
        say so.
        """
        moments = self.row(warp).lanes.get(other)
        return moments is not None and lane >= 0 and bool(moments[lane] >= moment)

    def see(self, warp: int, message: Packed, level: int) -> None:
        """Note the message that a relaxed load of a scope has read."""
        seen = self.observed.get(warp)
        if seen is None:
            seen = self.observed[warp] = np.zeros((LEVELS, self.agents), np.int32)
        known = seen[level - 1, message.columns]
        seen[level - 1, message.columns] = np.maximum(known, message.moments[0])
        row, columns = self.row(warp), message.columns
        row.heard[columns] = np.maximum(row.heard[columns], message.moments[0])
        if len(columns):
            row.extend(int(columns[0]), int(columns[-1]) + 1)

    def fence(self, warp: int, level: int, sequential: bool) -> None:
        """Apply a memory fence: what relaxed loads observed becomes known, what is known may be published
        by relaxed stores, at its scope. Sequential fences (membar is one) have one order. So such a fence
        comes after the one that published, too, where another warp has seen the message, and a barrier
        stands between: one thread takes a ticket, and its block waits for it before the fence."""
        row, seen = self.row(warp), self.observed.get(warp)
        if sequential and level == LEVELS:
            np.maximum(row.vector, row.heard, out=row.vector)
        if seen is not None:
            np.maximum(row.vector, seen[:level].max(axis=0), out=row.vector)
            row.extend(0, self.agents)
        np.maximum(row.fenced[:level], row.vector, out=row.fenced[:level])
        self.tick(warp)

    def proxy_fence(self, warp: int, *memories: int) -> None:
        row = self.row(warp)
        for memory in memories:
            np.maximum(row.proxied[memory], row.vector, out=row.proxied[memory])
        self.tick(warp)

    # -- tensor cores --

    def product_moment(self, warp: int) -> int:
        """The moment of a tensor core's read that no message covers yet."""
        return int(self.products[warp]) + 1

    def products_done(self, warp: int, waited: int) -> None:
        """A warp has waited for what the tensor core of another of its warpgroup, or its own, was at."""
        self.products[warp] += 1
        core, row = self.warps + warp, self.row(waited)
        row.vector[core] = self.products[warp]
        row.extend(core, core + 1)
