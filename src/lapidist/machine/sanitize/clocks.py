"""Vector clocks: what each warp knows about the others, joined wherever the kernel synchronises.

Entry [w][v] is the last moment of v that warp w is ordered after. v is a warp. Behind all warps come their
tensor cores, whose reads are no lane's. Each warp has three clocks. `vectors` holds what it knows. `fenced`
is what it knew at its last memory fence of each scope, which relaxed stores publish. `proxied` is what it
knew at a proxy fence of each kind of memory: generic writes there that TMA and tensor cores may read.

Lanes of a warp share an entry, until some speak for themselves alone. Then `lanes` has what is known of
each, and the entry the least of that."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

Array = np.ndarray
MOST_WARPS = 4096
LEVELS = 3  # block, cluster, GPU
CLUSTER = 1
SHARED, GLOBAL = 0, 1  # kinds of memory: a proxy fence that names one orders nothing in the other


@dataclass(slots=True)
class Message:
    """What a warp leaves at a barrier or in memory for those who come after it."""

    vector: Array
    fenced: Array
    proxied: Array
    lanes: dict[int, Array] = field(default_factory=dict)

    def join(self, other: Message) -> None:
        """Take in what another message knows, in place."""
        vector, lanes = self.vector, self.lanes
        single = {
            warp: np.maximum(lanes.get(warp, vector[warp]), other.lanes.get(warp, other.vector[warp]))
            for warp in lanes.keys() | other.lanes.keys()
        }
        np.maximum(vector, other.vector, out=vector)
        lanes.clear()
        for warp, moments in single.items():
            vector[warp] = moments.min()
            if vector[warp] < moments.max():
                lanes[warp] = moments
        np.maximum(self.fenced, other.fenced, out=self.fenced)
        np.maximum(self.proxied, other.proxied, out=self.proxied)


class Clocks:
    def __init__(self, warps: int, products: bool) -> None:
        """`products`: warps have tensor cores that read for themselves."""
        agents = 2 * warps if products else warps
        self.warps, self.agents = warps, agents
        self.vectors = np.zeros((warps, agents), np.int32)
        self.vectors[np.arange(warps), np.arange(warps)] = 1
        self.fenced = np.zeros((warps, LEVELS, agents), np.int32)
        self.proxied = np.zeros((warps, 2, agents), np.int32)
        self.lanes: list[dict[int, Array]] = [{} for _ in range(warps)]
        # What relaxed loads saw at each scope; a fence of that scope turns it into knowledge.
        self.observed = np.zeros((warps, LEVELS, agents), np.int32)
        # When each lane last touched memory, and when its warp last met.
        self.touched = np.zeros((warps, 32), np.int32)
        self.met = np.zeros(warps, np.int32)
        self.products = np.zeros(warps, np.int32)  # the last moment of each tensor core that is over

    def now(self, warp: int) -> int:
        return int(self.vectors[warp, warp])

    def tick(self, warp: int) -> None:
        self.vectors[warp, warp] += 1

    def empty(self) -> Message:
        count = self.agents
        return Message(
            np.zeros(count, np.int32), np.zeros((LEVELS, count), np.int32), np.zeros((2, count), np.int32)
        )

    def row(self, warp: int) -> Message:
        """What a warp knows, as a message that shares its memory."""
        return Message(self.vectors[warp], self.fenced[warp], self.proxied[warp], self.lanes[warp])

    def message(self, warp: int) -> Message:
        row = self.row(warp)
        return Message(row.vector.copy(), row.fenced.copy(), row.proxied.copy(), dict(row.lanes))

    def touch(self, warp: int, lanes: Array) -> None:
        if len(lanes) == 32:
            self.touched[warp] = self.vectors[warp, warp]
        else:
            self.touched[warp, lanes] = self.vectors[warp, warp]

    def meet(self, warp: int) -> None:
        """Let the lanes of a warp meet: what any of them did is ordered before what all do next."""
        self.met[warp] = self.vectors[warp, warp]
        self.tick(warp)

    def message_of(self, warp: int, lanes: Array) -> Message:
        """The message of some lanes, which do not speak for what others did since the warp last met."""
        message = self.message(warp)
        late = self.touched[warp] > self.met[warp]
        late[lanes] = False
        if late.any():
            message.lanes[warp] = np.where(late, self.met[warp], self.vectors[warp, warp])
            message.vector[warp] = self.met[warp]
        return message

    def receive(self, warp: int, message: Message) -> None:
        now = self.now(warp)
        self.row(warp).join(message)
        self.lanes[warp].pop(warp, None)
        self.vectors[warp, warp] = now
        self.met[warp] = max(self.met[warp], message.vector[warp])

    def knows(self, warp: int, other: int, lane: int, moment: int) -> bool:
        """Whether a warp is ordered after what a lane of another did, where the two entries as such do not
        say so.
        """
        moments = self.lanes[warp].get(other)
        return moments is not None and lane >= 0 and bool(moments[lane] >= moment)

    def see(self, warp: int, message: Message, level: int) -> None:
        """Note the message that a relaxed load of a scope has read."""
        np.maximum(self.observed[warp, level - 1], message.vector, out=self.observed[warp, level - 1])

    def fence(self, warp: int, level: int) -> None:
        """Apply a memory fence: what relaxed loads observed becomes known, what is known may be published
        by relaxed stores, at its scope."""
        np.maximum(self.vectors[warp], self.observed[warp, :level].max(axis=0), out=self.vectors[warp])
        np.maximum(self.fenced[warp, :level], self.vectors[warp], out=self.fenced[warp, :level])
        self.tick(warp)

    def proxy_fence(self, warp: int, *memories: int) -> None:
        for memory in memories:
            np.maximum(self.proxied[warp, memory], self.vectors[warp], out=self.proxied[warp, memory])
        self.tick(warp)

    # -- tensor cores --

    def product_moment(self, warp: int) -> int:
        """The moment of a tensor core's read that no message covers yet."""
        return int(self.products[warp]) + 1

    def products_done(self, warp: int, waited: int) -> None:
        """A warp has waited for what the tensor core of another of its warpgroup, or its own, was at."""
        self.products[warp] += 1
        self.vectors[waited, self.warps + warp] = self.products[warp]
