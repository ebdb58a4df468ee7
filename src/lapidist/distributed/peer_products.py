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
from lapidist.distributed.exchange_times import PARTS
from lapidist.distributed.exchange_ways import of_rows
from lapidist.distributed.row_products import RowProducts

BUFFERS = 2
FLAGS: tuple[Flag, ...] = ("free", "arrived")
WAYS = tuple(STEPS)
LEAST_PART = 16 << 20  # bytes: the copy engine is slow for less
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

    def enqueue_awaiting(self, work: Callable[[], Any], flags: Sequence[int]) -> None:
        """The same with kernels that wait for these flags of this rank, one after the other."""

    def arrivals(self, first: int, rows: int, step: int) -> Any:
        """What such a kernel is told: its first flag, the rows of a part, and flags from part to part."""

    def wait(self, flag: int) -> None:
        """Let the current stream wait for a flag of this rank."""

    def clear(self, flag: int, count: int) -> None:
        """Let the current stream clear flags of this rank."""

    def signal(self, peer: int, flag: int) -> None:
        """Let the current stream set a flag of a peer, after what it wrote before."""

    def on(self, stream: Stream) -> AbstractContextManager[Any]:
        """Makes one of the two streams current."""

    def call(self, way: Way, waits: Sequence[tuple[int, int]]) -> AbstractContextManager[Any]:
        """Both streams begin after what the caller's stream did, which continues after both. `waits`: the
        flags for which they wait, and the rank that sets each.
        """


def flag_count(ranks: int) -> int:
    return len(WAYS) * BUFFERS * len(FLAGS) * ranks * PARTS


def flag_index(way: Way, buffer: int, flag: Flag, peer: int, ranks: int, part: int = 0) -> int:
    """Of all flags of a rank, the one that a peer sets."""
    kind = (WAYS.index(way) * BUFFERS + buffer) * len(FLAGS) + FLAGS.index(flag)
    return (kind * ranks + peer) * PARTS + part


def first_flags(ranks: int, rank: int) -> list[int]:
    """What flags of a rank are before the first call: every buffer is free, and what it sends itself is there
    when its kernels start.
    """
    senders = [index // PARTS for index in range(flag_count(ranks))]
    return [
        int(FLAGS[sender // ranks % len(FLAGS)] == "free" or sender % ranks == rank) for sender in senders
    ]


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

    def run(
        self,
        way: Way,
        buffer: int,
        actions: Mapping[Action, Callable[[Step], Any]],
        parts: int = 1,
        **shape: bool,
    ) -> None:
        memory = self.memory
        how: dict[str, Any] = {"parts": parts, **shape} if way == "waiting" else shape
        steps = STEPS[way](memory.rank, memory.ranks, **how)
        with memory.call(way, self.waits(steps, way, buffer, parts)):
            for stream, of_stream in groupby(steps, key=lambda step: step.stream):
                with memory.on(stream):
                    for step in of_stream:
                        self.do(step, way, buffer, actions, parts)

    def flag(self, step: Step, way: Way, buffer: int, parts: int) -> int:
        """That of this rank which a peer sets; of a signal, that of the peer."""
        assert step.flag is not None
        peer = self.memory.rank if step.action == "signal" else step.peer
        return flag_index(way, buffer, step.flag, peer, self.memory.ranks, step.part * (PARTS // parts))

    def awaited(self, step: Step, way: Way, buffer: int, parts: int) -> list[tuple[int, int]]:
        """Flags for which kernels wait, and the ranks that set them."""
        step_of_part, ranks = PARTS // parts, self.memory.ranks
        return [
            (flag_index(way, buffer, "arrived", peer, ranks, part * step_of_part), peer)
            for peer in range(step.peer, step.end)
            for part in range(parts)
        ]

    def waits(self, steps: Sequence[Step], way: Way, buffer: int, parts: int) -> list[tuple[int, int]]:
        waits = []
        for step in steps:
            if step.action == "wait":
                waits.append((self.flag(step, way, buffer, parts), step.peer))
            elif step.action == "await":
                waits += [
                    (flag, peer)
                    for flag, peer in self.awaited(step, way, buffer, parts)
                    if peer != self.memory.rank
                ]
        return waits

    def do(
        self, step: Step, way: Way, buffer: int, actions: Mapping[Action, Callable[[Step], Any]], parts: int
    ) -> None:
        memory = self.memory
        if step.action == "await":
            flags = [
                flag for flag, peer in self.awaited(step, way, buffer, parts) if peer != self.memory.rank
            ]
            memory.enqueue_awaiting(partial(actions["await"], step), flags)
        elif step.flag is None:
            memory.enqueue(partial(actions[step.action], step))
        elif step.action == "wait":
            memory.wait(self.flag(step, way, buffer, parts))
        elif step.action == "clear":
            memory.clear(
                self.flag(step, way, buffer, parts), PARTS if step.flag == "arrived" and parts > 1 else 1
            )
        else:
            memory.signal(step.peer, self.flag(step, way, buffer, parts))

    # ---- the ways ----

    def gathered(self, rows: Any, scale: Any, products: RowProducts) -> list[Any]:
        """Products of all ranks' rows. `scale`: the factors of all of them."""
        rank, ranks = self.memory.rank, self.memory.ranks
        parts, buffer = self.parts("push", rows, ranks)
        outs = products.new(rows, ranks, rows.shape[0])

        def multiply(step: Step) -> None:
            peer = step.peer
            shard = rows if peer == rank else parts[rank][peer]
            first = peer * rows.shape[0]
            factors = of_rows(scale, slice(first, first + rows.shape[0]), ranks * rows.shape[0])
            products.multiply(shard, factors, [out[peer] for out in outs])

        def push(step: Step) -> None:
            parts[step.peer][rank].copy_(rows)

        self.run("push", buffer, {"multiply": multiply, "push": push})
        return [out.flatten(0, 1) for out in outs]

    def gathered_in_kernel(self, rows: Any, scale: Any, products: RowProducts) -> list[Any]:
        """The same by kernels that wait for shards themselves. A small shard is copied to where the others
        arrive, so that b is read once.
        """
        rank, ranks, count = self.memory.rank, self.memory.ranks, rows.shape[0]
        together = rows.numel() * rows.element_size() < LEAST_PART
        parts, of_ranks, buffer = shard_parts(rows), *self.whole("waiting", rows, ranks)
        outs = products.new(rows, ranks, count)
        of_part = count // parts

        def multiply(step: Step) -> None:
            factors = of_rows(scale, slice(rank * count, (rank + 1) * count), ranks * count)
            products.multiply(rows, factors, [out[rank] for out in outs])

        def multiply_awaiting(step: Step) -> None:
            shards = slice(step.peer, step.end)
            lines = slice(step.peer * count, step.end * count)
            (first, _), *_ = self.awaited(step, "waiting", buffer, parts)
            arrivals = self.memory.arrivals(first, of_part, PARTS // parts)
            products.multiply(
                of_ranks[rank][lines],
                of_rows(scale, lines, ranks * count),
                [out[shards].flatten(0, 1) for out in outs],
                arrivals,
            )

        def copy(step: Step) -> None:
            of_ranks[rank][rank * count : (rank + 1) * count].copy_(rows)

        def push(step: Step) -> None:
            first = step.part * of_part
            at = rank * count + first
            of_ranks[step.peer][at : at + of_part].copy_(rows[first : first + of_part])

        actions: dict[Action, Callable[[Step], Any]] = {
            "multiply": multiply,
            "await": multiply_awaiting,
            "copy": copy,
            "push": push,
        }
        self.run("waiting", buffer, actions, parts, together=together)
        return [out.flatten(0, 1) for out in outs]

    def scattered(self, rows: Any, scale: Any, products: RowProducts) -> Any:
        """This rank's rows of the sum of all ranks' products."""
        rank, ranks = self.memory.rank, self.memory.ranks
        owned = rows.shape[0] // ranks
        (out,) = products.new(rows, owned)
        parts, buffer = self.parts("slots", out, ranks)
        at_once = ranks == 2 and products.adds_in_product(rows)

        def term(peer: int, to: Any, other: Any = None) -> None:
            block = slice(peer * owned, (peer + 1) * owned)
            factors = of_rows(scale, block, rows.shape[0])
            products.multiply(rows[block], factors, [to], added=other)

        def multiply(step: Step) -> None:
            term(step.peer, parts[step.peer][rank])

        def add(_: Step) -> None:
            if at_once:
                term(rank, out, parts[rank][1 - rank])
            else:
                products.sum_of(parts[rank], out)

        self.run("slots", buffer, {"multiply": multiply, "add": add}, at_once=at_once)
        return out

    def reduced(self, rows: Any, scale: Any, products: RowProducts, owned: bool = False) -> Any:
        """The sum of all ranks' products. `owned`: this rank's rows of it."""
        memory, count = self.memory, rows.shape[0]
        (term,) = products.new(rows, count)
        parts, buffer = self.parts("one_shot", term, 1)
        terms = [part for (part,) in parts]
        mine = slice(memory.rank * count // memory.ranks, (memory.rank + 1) * count // memory.ranks)
        out = term[mine] if owned else term

        def multiply(step: Step) -> None:
            products.multiply(rows, scale, [terms[step.peer]])

        def add(_: Step) -> None:
            products.sum_of([term[mine] for term in terms] if owned else terms, out)

        self.run("one_shot", buffer, {"multiply": multiply, "add": add})
        return out

    def whole(self, way: Way, like: Any, ranks: int) -> tuple[list[Any], int]:
        """For each rank its buffer, with the rows of all ranks one after the other."""
        buffer = self.turn(way)
        size = like.numel() * like.element_size() * ranks
        of_ranks = self.memory.buffers(way, buffer, size)
        shape = (ranks * like.shape[0], *like.shape[1:])
        return [of_rank[:size].view(like.dtype).view(shape) for of_rank in of_ranks], buffer

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


def shard_parts(rows: Any) -> int:
    """Into how many parts a shard is cut, each with a flag: copies of a part must be long enough."""
    parts = PARTS
    while parts > 1 and (rows.shape[0] % parts or rows.numel() * rows.element_size() < parts * LEAST_PART):
        parts //= 2
    return parts
