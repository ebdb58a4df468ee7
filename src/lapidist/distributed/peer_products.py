"""Products by the steps of a way that writes to other ranks' memory.

A way has two buffers and uses them in turn, so that a rank may start a call while others still read what it
sent in the last one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby
from math import prod
from typing import Any

from lapidist.distributed import sent_terms
from lapidist.distributed.exchange_steps import STEPS, Action, Flag, Step, Way, peers_after
from lapidist.distributed.exchange_times import LEAST_PART, MOST_ADDED, PARTS, parts_of
from lapidist.distributed.rank_memory import BUFFERS, WAYS, Memory, Use, flag_count, flag_index
from lapidist.distributed.row_factors import of_rows
from lapidist.distributed.row_products import RowProducts
from lapidist.distributed.sent_terms import Sending, in_bytes, send_and_gather

VIEWS = 64  # of buffers, by shape and type, that are kept
ALIGNMENT = 1024  # bytes, of a part of a buffer: TMA and copies want whole lines


class PeerProducts:
    """The ways of one group over its memory."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.turns = dict.fromkeys(WAYS, 0)
        self._cached_views: dict[Any, tuple[Any, list[list[list[Any]]]]] = {}

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
        how: dict[str, Any] = {"parts": parts, **shape} if way in ("waiting", "slots") else shape
        steps = STEPS[way](memory.rank, memory.ranks, **how)
        copies = any(step.stream == "copies" for step in steps)
        with memory.call(way, self.waits(steps, way, buffer, parts), copies):
            for stream, of_stream in groupby(steps, key=lambda step: step.stream):
                with memory.on(stream):
                    for step in of_stream:
                        self.do(step, way, buffer, actions, parts)

    def flag(self, step: Step, way: Way, buffer: int, parts: int) -> int:
        """That of this rank which a peer sets; of a signal, that of the peer."""
        assert step.flag is not None
        peer = self.memory.rank if step.action == "signal" else step.peer
        return flag_index(way, buffer, step.flag, peer, self.memory.ranks, step.part * (PARTS // parts))

    def first_flag(self, way: Way, buffer: int, flag: Flag) -> int:
        """Of those that ranks set: rank 0's."""
        return flag_index(way, buffer, flag, 0, self.memory.ranks)

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
            if step.action == "meet":
                others = peers_after(step.peer, self.memory.ranks)
                waits += [(self.first_flag(way, buffer, "arrived") + peer * PARTS, peer) for peer in others]
            elif step.action == "wait":
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
        """Products of all ranks' rows. `scale`: the factors of this rank's, which travel with them."""
        rank, ranks = self.memory.rank, self.memory.ranks
        sent = [rows] if scale is None else [rows, scale]
        views, buffer = self.parts("push", ranks, *sent)
        outs = products.new(rows, ranks, rows.shape[0])

        def multiply(step: Step) -> None:
            peer = step.peer
            shard, *factors = sent if peer == rank else [parts[rank][peer] for parts in views]
            products.multiply(shard, only(factors), [out[peer] for out in outs])

        def push(step: Step) -> None:
            for tensor, parts in zip(sent, views, strict=True):
                parts[step.peer][rank].copy_(tensor)

        self.run("push", buffer, {"multiply": multiply, "push": push})
        return [out.flatten(0, 1) for out in outs]

    def gathered_in_kernel(self, rows: Any, scale: Any, products: RowProducts) -> list[Any]:
        """The same by kernels that wait for shards themselves. A small shard is copied to where the others
        arrive, so that b is read once.
        """
        rank, ranks, count = self.memory.rank, self.memory.ranks, rows.shape[0]
        together = rows.numel() * rows.element_size() < LEAST_PART
        parts, sent = shard_parts(rows), [rows] if scale is None else [rows, scale]
        (of_ranks, *factors), buffer = self.whole("waiting", ranks, *sent)
        outs = products.new(rows, ranks, count)
        of_part, mine = count // parts, slice(rank * count, (rank + 1) * count)

        def multiply(step: Step) -> None:
            products.multiply(rows, scale, [out[rank] for out in outs])

        def multiply_awaiting(step: Step) -> None:
            shards = slice(step.peer, step.end)
            lines = slice(step.peer * count, step.end * count)
            (first, _), *_ = self.awaited(step, "waiting", buffer, parts)
            arrivals = self.memory.arrivals(first, of_part, PARTS // parts)
            products.multiply(
                of_ranks[rank][lines],
                only([of_all[rank][lines] for of_all in factors]),
                [out[shards].flatten(0, 1) for out in outs],
                arrivals,
            )

        def copy(step: Step) -> None:
            for tensor, everything in zip(sent, (of_ranks, *factors), strict=True):
                everything[rank][mine].copy_(tensor)

        def push(step: Step) -> None:
            if scale is not None and step.part == 0:  # before any part's flag
                factors[0][step.peer][mine].copy_(scale)
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

    def gathered_at_once(self, rows: Any, scale: Any, products: RowProducts) -> list[Any]:
        """The same by one kernel, which sends the shard to all ranks and gets theirs, and one product."""
        ranks, sent = self.memory.ranks, [rows] if scale is None else [rows, scale.contiguous()]
        everything = [part.new_empty((ranks * part.shape[0], *part.shape[1:])) for part in sent]
        outs = products.new(rows, ranks * rows.shape[0])
        rooms = self.rooms(sum(part.numel() * part.element_size() for part in sent))
        sending = self.memory.sending(self.first_flag("one_shot", 0, "arrived") + 1)
        assert sending is not None
        sent_bytes, all_bytes = ([in_bytes(part) for part in parts] for parts in (sent, everything))

        def send() -> None:
            send_and_gather(
                sent_bytes[0], only(sent_bytes[1:]), all_bytes, rooms, sending, products.options.device
            )

        def multiply() -> None:
            products.multiply(everything[0], only(everything[1:]), outs)

        with self.memory.call("one_shot", self.waits_of_sent(), False):
            self.memory.enqueue(send)
            self.memory.enqueue(multiply)
        return outs

    def rooms(self, size: int) -> Sequence[Any]:
        """At each rank: those of two calls, for so many bytes of each sender."""
        return self.memory.buffers("rooms", 0, 2 * self.memory.ranks * (-(-size // ALIGNMENT) * ALIGNMENT))

    def waits_of_sent(self) -> list[tuple[int, int]]:
        """The counts of calls that peers' first blocks set."""
        first, ranks = flag_count(self.memory.ranks), self.memory.ranks
        return [(first + peer * sent_terms.BLOCKS, peer) for peer in peers_after(self.memory.rank, ranks)]

    def scattered(self, rows: Any, scale: Any, products: RowProducts, shared: bool = False) -> Any:
        """This rank's rows of the sum of all ranks' products. `shared`: all rows, which their owners sum in
        parts, and others read while the next part is multiplied.
        """
        rank, ranks = self.memory.rank, self.memory.ranks
        owned = rows.shape[0] // ranks
        (out,) = products.new(rows, ranks if shared else 1, owned)
        (slots,), buffer = self.parts("slots", ranks, out[0])
        sums_of = self.sums_of(buffer, out[0]) if shared else [*out]
        sums = sums_of[rank if shared else 0]
        at_once, parts = ranks == 2 and products.adds_in_product(rows), shard_parts(sums) if shared else 1
        of_part = owned // parts

        def in_part(step: Step) -> slice:
            return slice(step.part * of_part, (step.part + 1) * of_part)

        def term(peer: int, part: slice, to: Any, other: Any = None) -> None:
            block = slice(peer * owned + part.start, peer * owned + part.stop)
            products.multiply(rows[block], of_rows(scale, block), [to], added=other)

        def multiply(step: Step) -> None:
            part = in_part(step) if step.peer == rank else slice(0, owned)
            term(step.peer, part, slots[step.peer][rank][part])

        def add(step: Step) -> None:
            part = in_part(step)
            if at_once:
                term(rank, part, sums[part], slots[rank][1 - rank][part])
            else:
                products.sum_of([slot[part] for slot in slots[rank]], sums[part])

        def copy(step: Step) -> None:
            out[rank].copy_(sums)

        def pull(step: Step) -> None:
            part = in_part(step)
            out[step.peer][part].copy_(sums_of[step.peer][part])

        actions: dict[Action, Callable[[Step], Any]] = {
            "multiply": multiply,
            "add": add,
            "copy": copy,
            "pull": pull,
        }
        self.run("slots", buffer, actions, parts, at_once=at_once, shared=shared)
        return out.flatten(0, 1)

    def scattered_by_tiles(self, rows: Any, scale: Any, products: RowProducts) -> Any:
        """The same by one product, whose tiles are stored where their rows are owned."""
        rank, ranks = self.memory.rank, self.memory.ranks
        (out,) = products.new(rows, rows.shape[0] // ranks)
        (of_ranks,), buffer = self.whole("tiles", ranks, out)
        slots = [everything.unflatten(0, (ranks, -1)) for everything in of_ranks]

        def multiply(step: Step) -> None:
            at_owners = [slot[step.peer] for slot in slots]
            products.multiply_to_owners(rows, scale, at_owners, of_ranks[rank], (rank + 1) % ranks)

        self.multiply_and_add("tiles", buffer, multiply, slots[rank], out, products)
        return out

    def reduced(self, rows: Any, scale: Any, products: RowProducts, owned: bool = False) -> Any:
        """The sum of all ranks' products. `owned`: this rank's rows of it. Few bytes are sent by the kernel
        that adds; of many, it reads those of others.
        """
        memory, count = self.memory, rows.shape[0]
        (term,) = products.new(rows, count)
        of_peer = term.numel() * term.element_size() // (memory.ranks if owned else 1)
        if of_peer <= MOST_ADDED and products.meets(term, memory.ranks):
            sending = memory.sending(self.first_flag("one_shot", 0, "arrived") + 1)
            if sending is not None:
                return self.sent_and_added(rows, scale, products, term, owned, sending)
        (parts,), buffer = self.parts("one_shot", 1, term)
        terms = [part for (part,) in parts]
        mine = slice(memory.rank * count // memory.ranks, (memory.rank + 1) * count // memory.ranks)
        out = term[mine] if owned else term

        def multiply(step: Step) -> None:
            products.multiply(rows, scale, [terms[step.peer]])

        mine_of_all = [term[mine] for term in terms] if owned else terms
        self.multiply_and_add("one_shot", buffer, multiply, mine_of_all, out, products)
        return out

    def sent_and_added(
        self, rows: Any, scale: Any, products: RowProducts, term: Any, owned: bool, sending: Sending
    ) -> Any:
        """`term`: of this rank, not multiplied yet."""
        memory, owned_rows = self.memory, len(rows) // self.memory.ranks
        of_ranks = term.unflatten(0, (memory.ranks, owned_rows)) if owned else [term] * memory.ranks
        out = of_ranks[memory.rank].new_empty(of_ranks[memory.rank].shape)
        rooms = self.rooms(out.numel() * out.element_size())
        with memory.call("one_shot", self.waits_of_sent(), False):
            memory.enqueue(partial(products.multiply, rows, scale, [term]))
            memory.enqueue(partial(products.sum_sent, list(of_ranks), out, rooms, sending))
        return out

    def multiply_and_add(
        self,
        way: Way,
        buffer: int,
        multiply: Callable[[Step], Any],
        terms: Sequence[Any],
        out: Any,
        products: RowProducts,
    ) -> None:
        """The sum by one kernel that meets the other ranks, or by the framework behind the stream's waits."""
        arrived, free = (self.first_flag(way, buffer, flag) for flag in ("arrived", "free"))
        meeting = self.memory.meeting(arrived, free, PARTS) if products.meets(out, len(terms)) else None

        def add(_: Step) -> None:
            products.sum_of(terms, out)

        def meet(_: Step) -> None:
            assert meeting is not None
            products.sum_met(terms, out, meeting)

        actions: dict[Action, Callable[[Step], Any]] = {"multiply": multiply, "add": add, "meet": meet}
        self.run(way, buffer, actions, meets=meeting is not None)

    def whole(self, way: Way, ranks: int, *likes: Any) -> tuple[list[list[Any]], int]:
        """For each tensor, for each rank: those of all ranks in its buffer, one after the other."""
        shapes = [((ranks * like.shape[0], *like.shape[1:]), like.dtype) for like in likes]
        buffer = self.turn(way)
        views = self._views(way, buffer, 1, shapes)
        return [[part for (part,) in of_ranks] for of_ranks in views], buffer

    def sums_of(self, buffer: int, like: Any) -> list[Any]:
        """For each rank: the sums of its rows, where others read them."""
        return [part for (part,) in self._views("sums", buffer, 1, [(tuple(like.shape), like.dtype)])[0]]

    def parts(self, way: Way, count: int, *likes: Any) -> tuple[list[list[list[Any]]], int]:
        """For each tensor, for each rank: parts of its buffer, of that shape and type; and its number."""
        buffer = self.turn(way)
        return self._views(way, buffer, count, [(tuple(like.shape), like.dtype) for like in likes]), buffer

    def _views(self, use: Use, buffer: int, count: int, shapes: Sequence[Any]) -> list[list[list[Any]]]:
        """Parts of each shape and type; those of one shape follow each other."""
        sizes = [prod(shape) * dtype.itemsize for shape, dtype in shapes]
        strides = [-(-size // ALIGNMENT) * ALIGNMENT for size in sizes]
        of_ranks = self.memory.buffers(use, buffer, count * sum(strides))
        key = use, buffer, count, *shapes
        cached = self._cached_views.get(key)
        if cached is None or cached[0] is not of_ranks:  # larger buffers are others
            if len(self._cached_views) >= VIEWS:
                self._cached_views.clear()
            views, first = [], 0
            for (shape, dtype), size, stride in zip(shapes, sizes, strides, strict=True):
                starts = range(first, first + count * stride, stride or 1)
                views.append(
                    [
                        [of_rank[at : at + size].view(dtype).view(shape) for at in starts]
                        for of_rank in of_ranks
                    ]
                )
                first += count * stride
            cached = self._cached_views[key] = of_ranks, views
        return cached[1]


def only(values: Sequence[Any]) -> Any:
    """One value, if there is one."""
    return values[0] if values else None


def shard_parts(rows: Any) -> int:
    """Into how many parts these rows of a rank are cut."""
    return parts_of(rows.shape[0], rows.numel() * rows.element_size())
