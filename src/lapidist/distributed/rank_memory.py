"""The memory that ways between ranks need, and its flags: what cards and played ranks have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, Protocol

from lapidist.distributed import sent_terms
from lapidist.distributed.exchange_steps import STEPS, Flag, Stream, Way
from lapidist.distributed.exchange_times import PARTS
from lapidist.distributed.met_sums import Meeting
from lapidist.distributed.sent_terms import Sending

# Of buffers. Sums are read by peers when slots may be written again; rooms are those of send_terms.cu.
Use = Way | Literal["sums", "rooms"]
BUFFERS = 2
FLAGS: tuple[Flag, ...] = ("free", "arrived", "summed")
WAYS: tuple[Way, ...] = tuple(STEPS)


class Memory(Protocol):
    """Memory that all ranks can write, and flags in it."""

    rank: int
    ranks: int

    def buffers(self, use: Use, buffer: int, size: int) -> Sequence[Any]:
        """The bytes of this buffer at each rank."""

    def enqueue(self, work: Callable[[], Any]) -> None:
        """Let the current stream do this."""

    def enqueue_awaiting(self, work: Callable[[], Any], flags: Sequence[int]) -> None:
        """The same with kernels that wait for these flags of this rank, one after the other."""

    def arrivals(self, first: int, rows: int, step: int) -> Any:
        """What such a kernel is told: its first flag, the rows of a part, and flags from part to part."""

    def meeting(self, arrived: int, free: int, step: int) -> Meeting | None:
        """What a kernel is told that waits for peers itself: the flags that rank 0 sets, and flags from rank
        to rank. None: streams wait.
        """

    def sending(self, missed: int) -> Sending | None:
        """What a kernel is told that sends few bytes to all peers and gets theirs, and what it reports if one
        does not come. None: there is no such kernel.
        """

    def wait(self, flag: int) -> None:
        """Let the current stream wait for a flag of this rank."""

    def clear(self, flag: int, count: int) -> None:
        """Let the current stream clear flags of this rank."""

    def signal(self, peer: int, flag: int) -> None:
        """Let the current stream set a flag of a peer, after what it wrote before."""

    def on(self, stream: Stream) -> AbstractContextManager[Any]:
        """Makes one of the two streams current."""

    def call(self, way: Way, waits: Sequence[tuple[int, int]], copies: bool) -> AbstractContextManager[Any]:
        """Both streams begin after what the caller's stream did, which continues after both. `waits`: the
        flags for which they wait, and the rank that sets each. `copies`: whether there are any.
        """


def flag_count(ranks: int) -> int:
    """Of those that are 0 or 1. Behind them lie counts of calls, of all senders and blocks."""
    return len(WAYS) * BUFFERS * len(FLAGS) * ranks * PARTS


def flag_index(way: Way, buffer: int, flag: Flag, peer: int, ranks: int, part: int = 0) -> int:
    """Of all flags of a rank, the one that a peer sets."""
    kind = (WAYS.index(way) * BUFFERS + buffer) * len(FLAGS) + FLAGS.index(flag)
    return (kind * ranks + peer) * PARTS + part


def way_of(flag: int, ranks: int) -> Way:
    """The way that has this flag."""
    return WAYS[flag // (BUFFERS * len(FLAGS) * ranks * PARTS)]


def first_flags(ranks: int, rank: int) -> list[int]:
    """What flags of a rank are before the first call: every buffer is free, and what it sends itself is there
    when its kernels start.
    """
    senders = [index // PARTS for index in range(flag_count(ranks))]
    flags = [
        int(FLAGS[sender // ranks % len(FLAGS)] == "free" or sender % ranks == rank) for sender in senders
    ]
    return flags + [0] * (ranks * sent_terms.BLOCKS)
