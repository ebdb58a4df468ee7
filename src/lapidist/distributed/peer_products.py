"""Products by the steps of a way that writes to other ranks' memory.

A way has two buffers and uses them in turn, so that a rank may start a call while others still read what it
sent in the last one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import groupby
from typing import Any, Protocol

from lapidist.distributed.exchange_steps import STEPS, Action, Flag, Step, Stream, Way
from lapidist.distributed.exchange_ways import of_rows
from lapidist.distributed.row_products import RowProducts

BUFFERS = 2
FLAGS: tuple[Flag, ...] = ("free", "arrived")
WAYS = tuple(STEPS)
VIEWS = 64  # of buffers, by shape and type, that are kept
ALIGNMENT = 1024  # bytes, of a part of a buffer: TMA and copies want whole lines


class Memory(Protocol):
    """Memory that all ranks can write, and flags in it."""

    rank: int
    ranks: int

    def buffers(self, way: Way, buffer: int, size: int) -> Sequence[Any]:
        """The bytes of this buffer at each rank."""

    def enqueue(self, work: Callable[[], Any]) -> None:
        """Let the current stream do this."""

    def wait(self, flag: int) -> None:
        """Let the current stream wait for a flag of this rank, and clear it."""

    def signal(self, peer: int, flag: int) -> None:
        """Let the current stream set a flag of a peer, after what it wrote before."""

    def on(self, stream: Stream) -> AbstractContextManager[Any]:
        """Makes one of the two streams current."""

    def call(self, way: Way) -> AbstractContextManager[Any]:
        """Both streams begin after what the caller's stream did, which continues after both."""


def flag_count(ranks: int) -> int:
    return len(WAYS) * BUFFERS * len(FLAGS) * ranks


def flag_index(way: Way, buffer: int, flag: Flag, peer: int, ranks: int) -> int:
    """Of all flags of a rank, the one that a peer sets."""
    return ((WAYS.index(way) * BUFFERS + buffer) * len(FLAGS) + FLAGS.index(flag)) * ranks + peer


def first_flags(ranks: int) -> list[int]:
    """What flags are before the first call: every buffer is free."""
    return [int(FLAGS[index // ranks % len(FLAGS)] == "free") for index in range(flag_count(ranks))]


class PeerProducts:
    """The ways of one group over its memory."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.turns = dict.fromkeys(WAYS, 0)
        self._views: dict[Any, tuple[Any, list[list[Any]]]] = {}

    def turn(self, way: Way) -> int:
        """The buffer of this call; the next call has the other one."""
        buffer = self.turns[way]
        self.turns[way] = (buffer + 1) % BUFFERS
        return buffer

    def run(self, way: Way, buffer: int, actions: Mapping[Action, Callable[[int], Any]]) -> None:
        memory = self.memory
        with memory.call(way):
            steps = STEPS[way](memory.rank, memory.ranks)
            for stream, of_stream in groupby(steps, key=lambda step: step.stream):
                with memory.on(stream):
                    for step in of_stream:
                        self.do(step, way, buffer, actions)

    def do(self, step: Step, way: Way, buffer: int, actions: Mapping[Action, Callable[[int], Any]]) -> None:
        memory = self.memory
        if step.flag is None:
            memory.enqueue(partial(actions[step.action], step.peer))
        elif step.action == "wait":
            memory.wait(flag_index(way, buffer, step.flag, step.peer, memory.ranks))
        else:
            memory.signal(step.peer, flag_index(way, buffer, step.flag, memory.rank, memory.ranks))

    # ---- the ways ----

    def gathered(self, rows: Any, scale: Any, products: RowProducts) -> list[Any]:
        """Products of all ranks' rows. `scale`: the factors of all of them."""
        rank, ranks = self.memory.rank, self.memory.ranks
        parts, buffer = self.parts("push", rows, ranks)
        outs = products.new(rows, ranks, rows.shape[0])

        def multiply(peer: int) -> None:
            shard = rows if peer == rank else parts[rank][peer]
            first = peer * rows.shape[0]
            factors = of_rows(scale, slice(first, first + rows.shape[0]), ranks * rows.shape[0])
            products.multiply(shard, factors, [out[peer] for out in outs])

        def push(peer: int) -> None:
            parts[peer][rank].copy_(rows)

        self.run("push", buffer, {"multiply": multiply, "push": push})
        return [out.flatten(0, 1) for out in outs]

    def scattered(self, rows: Any, scale: Any, products: RowProducts) -> Any:
        """This rank's rows of the sum of all ranks' products."""
        rank, ranks = self.memory.rank, self.memory.ranks
        owned = rows.shape[0] // ranks
        (out,) = products.new(rows, owned)
        parts, buffer = self.parts("slots", out, ranks)

        def multiply(peer: int) -> None:
            block = slice(peer * owned, (peer + 1) * owned)
            factors = of_rows(scale, block, rows.shape[0])
            products.multiply(rows[block], factors, [parts[peer][rank]])

        def add(_: int) -> None:
            products.sum_of(parts[rank], out)

        self.run("slots", buffer, {"multiply": multiply, "add": add})
        return out

    def reduced(self, rows: Any, scale: Any, products: RowProducts) -> Any:
        """The sum of all ranks' products."""
        (out,) = products.new(rows, rows.shape[0])
        parts, buffer = self.parts("one_shot", out, 1)
        terms = [part for (part,) in parts]

        def multiply(rank: int) -> None:
            products.multiply(rows, scale, [terms[rank]])

        def add(_: int) -> None:
            products.sum_of(terms, out)

        self.run("one_shot", buffer, {"multiply": multiply, "add": add})
        return out

    def parts(self, way: Way, like: Any, count: int) -> tuple[list[list[Any]], int]:
        """For each rank the parts of its buffer, of a tensor's shape and type, and the buffer's number."""
        size = like.numel() * like.element_size()
        stride = -(-size // ALIGNMENT) * ALIGNMENT
        buffer = self.turn(way)
        of_ranks = self.memory.buffers(way, buffer, count * stride)
        key = way, buffer, like.shape, like.dtype
        cached = self._views.get(key)
        if cached is None or cached[0] is not of_ranks:  # larger buffers are others
            if len(self._views) >= VIEWS:
                self._views.clear()
            cached = (
                of_ranks,
                [
                    [
                        of_rank[part * stride : part * stride + size].view(like.dtype).view(like.shape)
                        for part in range(count)
                    ]
                    for of_rank in of_ranks
                ],
            )
            self._views[key] = cached
        return cached[1], buffer
