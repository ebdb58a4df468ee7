"""Vector clocks: what each warp knows about the others, joined wherever the kernel synchronises.

Entry [w][v] is the last moment of warp v that w is ordered after. There are three of them per warp: what it knows
(`known`), what it knew at its last memory fence of each scope (`fenced`, which relaxed stores publish), and what it knew
at a proxy fence (`proxied`: generic writes that the copy engine and tensor cores may read).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

Array = np.ndarray
MOST_WARPS = 4096
LEVELS = 3  # block, cluster, GPU


@dataclass(slots=True)
class Message:
    """What a warp leaves at a barrier or in memory for those who come after it."""

    known: Array
    fenced: Array
    proxied: Array

    def join(self, other: Message) -> None:
        np.maximum(self.known, other.known, out=self.known)
        np.maximum(self.fenced, other.fenced, out=self.fenced)
        np.maximum(self.proxied, other.proxied, out=self.proxied)


class Clocks:
    def __init__(self, warps: int) -> None:
        self.known = np.zeros((warps, warps), np.int32)
        self.known[np.arange(warps), np.arange(warps)] = 1
        self.fenced = np.zeros((warps, LEVELS, warps), np.int32)
        self.proxied = np.zeros((warps, warps), np.int32)
        # What relaxed loads saw at each scope; a fence of that scope turns it into knowledge.
        self.seen = np.zeros((warps, LEVELS, warps), np.int32)
        # When each lane last touched memory, and when its warp last met.
        self.touched = np.zeros((warps, 32), np.int32)
        self.met = np.zeros(warps, np.int32)

    def now(self, warp: int) -> int:
        return int(self.known[warp, warp])

    def tick(self, warp: int) -> None:
        self.known[warp, warp] += 1

    def empty(self) -> Message:
        count = len(self.known)
        return Message(np.zeros(count, np.int32), np.zeros((LEVELS, count), np.int32), np.zeros(count, np.int32))

    def message(self, warp: int) -> Message:
        return Message(self.known[warp].copy(), self.fenced[warp].copy(), self.proxied[warp].copy())

    def touch(self, warp: int, lanes: Array) -> None:
        self.touched[warp, lanes] = self.known[warp, warp]

    def meet(self, warp: int) -> None:
        """The lanes of a warp meet: what any of them did is ordered before what all do next."""
        self.met[warp] = self.known[warp, warp]
        self.tick(warp)

    def message_of(self, warp: int, lanes: Array) -> Message:
        """What some lanes can speak for: not for accesses of others since the warp last met.

        If these lanes touched memory after the others did, one clock cannot tell the two apart; then they speak for all.
        """
        message = self.message(warp)
        touched = self.touched[warp]
        late = touched > self.met[warp]
        late[lanes] = False
        if late.any() and touched[lanes].max() <= touched[late].max():
            message.known[warp] = touched[late].min() - 1
        return message

    def receive(self, warp: int, message: Message) -> None:
        np.maximum(self.known[warp], message.known, out=self.known[warp])
        np.maximum(self.fenced[warp], message.fenced, out=self.fenced[warp])
        np.maximum(self.proxied[warp], message.proxied, out=self.proxied[warp])
        self.met[warp] = max(self.met[warp], message.known[warp])

    def see(self, warp: int, message: Message, level: int) -> None:
        """A relaxed load found a message of a scope."""
        np.maximum(self.seen[warp, level - 1], message.known, out=self.seen[warp, level - 1])

    def fence(self, warp: int, level: int) -> None:
        """A memory fence: what was seen becomes known, what is known may be published by relaxed stores, at its scope."""
        np.maximum(self.known[warp], self.seen[warp, :level].max(axis=0), out=self.known[warp])
        np.maximum(self.fenced[warp, :level], self.known[warp], out=self.fenced[warp, :level])
        self.tick(warp)

    def proxy_fence(self, warp: int) -> None:
        np.maximum(self.proxied[warp], self.known[warp], out=self.proxied[warp])
        self.tick(warp)
