"""What works of several devices know of each other's accesses to memory that they share.

    work 0   | writes a word | releases a flag |
    work 1                                     | acquires it | reads the word, or writes it again

A work knows what another one did once it acquired, at the scope of the system, a flag that was released at
this scope behind it. Who reads a word must know of its last write, and who writes it of its last reads, too.
Works are kernels of one stream, one after the other: blocks of a kernel are not told apart here."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lapidist.machine.faults import Race
from lapidist.machine.instructions.copies import Transfer

Array = np.ndarray
WORD = 2  # bytes
ALWAYS = np.iinfo(np.int64).max


class SharedWords:
    """When each work used words of the memory that devices share, and what others know of it."""

    def __init__(self, works: int) -> None:
        self.time = 0
        self.clocks = np.zeros((works, works), np.int64)  # up to when a work knows another one's accesses
        np.fill_diagonal(self.clocks, ALWAYS)
        self.published: dict[int, Array] = {}  # by the flag's address: what who released it knew
        self._ranges: list[SharedRange] = []

    def share(self, start: int, nbytes: int) -> None:
        self._ranges.append(SharedRange(start, nbytes, len(self.clocks)))

    def publish(self, work: int, flags: Array, releases: bool = True) -> None:
        """What a store to these addresses tells who acquires them later: nothing, unless it releases."""
        if not releases and not self.published:
            return
        for flag in flags.tolist():
            if releases:
                self.published[flag] = self._message(work)
            else:
                self.published.pop(flag, None)

    def acquire(self, work: int, flags: Array) -> None:
        for flag in flags.tolist():
            if flag in self.published:
                np.maximum(self.clocks[work], self.published[flag], out=self.clocks[work])

    def join(self, work: int, earlier: int) -> None:
        """A stream goes on behind what another one of its device did."""
        np.maximum(self.clocks[work], self._message(earlier), out=self.clocks[work])

    def _message(self, work: int) -> Array:
        message = self.clocks[work].copy()
        message[work] = self.time
        return message

    def read(self, work: int, addresses: Array, nbytes: int) -> None:
        self.time += 1
        for shared, words in self._words(addresses, nbytes):
            self._require_order(work, shared, words, "reads what another device wrote")
            shared.read[work, words] = self.time

    def write(self, work: int, addresses: Array, nbytes: int) -> None:
        self.time += 1
        for shared, words in self._words(addresses, nbytes):
            self._require_order(work, shared, words, "writes again what another device wrote")
            if (shared.read[:, words] > self.clocks[work][:, None]).any():
                self._refuse("writes what another device reads")
            shared.written[words], shared.writer[words] = self.time, work

    def transfer(self, work: int, transfer: Transfer) -> None:
        """A box of TMA's."""
        if transfer.map is not None:
            (self.read if transfer.to_shared else self.write)(work, *lines_of(transfer))

    def _words(self, addresses: Array, nbytes: int) -> Iterator[tuple[SharedRange, Array]]:
        addresses = addresses.astype(np.int64)
        for shared in self._ranges:
            first = addresses[(addresses >= shared.start) & (addresses < shared.end)] - shared.start
            if len(first):
                words = (first[:, None] + np.arange(0, nbytes, WORD)).ravel() // WORD
                yield shared, words[words < shared.written.size]

    def _require_order(self, work: int, shared: SharedRange, words: Array, what: str) -> None:
        if (shared.written[words] > self.clocks[work][shared.writer[words]]).any():
            self._refuse(what)

    def _refuse(self, what: str) -> None:
        raise Race(
            f"a device {what}, without an acquire, at the system's scope, of a flag that was released behind"
        )


class SharedRange:
    """When each word was written last, and by which work; and when each work read it last."""

    def __init__(self, start: int, nbytes: int, works: int) -> None:
        count = -(-nbytes // WORD)
        self.start, self.end = start, start + nbytes
        self.written, self.writer = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self.read = np.zeros((works, count), np.int64)


def lines_of(transfer: Transfer) -> tuple[Array, int]:
    """Where the lines of a box begin, and how long they are. What lies outside the map is left out."""
    assert transfer.map is not None
    tensor_map, corner = transfer.map, transfer.corner
    element = transfer.nbytes // int(np.prod(tensor_map.box))
    first, end = max(corner[0], 0), min(corner[0] + tensor_map.box[0], tensor_map.shape[0])
    at = np.array([tensor_map.address + first * element], np.int64)
    for start, box, extent, stride in zip(
        corner[1:], tensor_map.box[1:], tensor_map.shape[1:], tensor_map.strides, strict=False
    ):
        steps = np.arange(start, start + box)
        steps = steps[(steps >= 0) & (steps < extent)]
        at = (at[:, None] + steps * stride).ravel()
    return at, max(0, end - first) * element
