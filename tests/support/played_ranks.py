"""Several ranks in one process: their streams as queues of work that run in an order drawn from a seed.

Any order that waits and flags allow may happen on cards. Buffers that are not written yet hold NaN."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from lapidist.distributed.peer_products import PeerProducts
from lapidist.distributed.rank_memory import first_flags

Drop = Callable[[int, str, int], bool]


class Stream:
    """Work that was enqueued, and how much of it is done."""

    def __init__(self) -> None:
        self.work: deque[tuple[Callable[[], bool], Callable[[], None]]] = deque()
        self.enqueued = self.done = 0
        self.joined: Callable[[Stream, Stream], Any] = lambda stream, earlier: None

    def add(self, ready: Callable[[], bool], do: Callable[[], None]) -> None:
        self.work.append((ready, do))
        self.enqueued += 1

    def after(self, other: Stream) -> None:
        """Wait for what another stream has enqueued up to now."""
        count = other.enqueued
        self.add(lambda: other.done >= count, lambda: self.joined(self, other))


class Deadlock(Exception):
    """No stream can go on."""


class Ranks:
    """The memory of all ranks. `drop(rank, action, flag)` says which waits and signals are left out."""

    def __init__(self, count: int, seed: int, drop: Drop = lambda *_: False) -> None:
        self.count, self.random, self.drop = count, random.Random(seed), drop
        self.flags = [np.array(first_flags(count, rank), np.int32) for rank in range(count)]
        self.bytes: dict[Any, Any] = {}
        self.streams = [{"products": Stream(), "copies": Stream()} for _ in range(count)]
        self.members = [PeerProducts(RankMemory(self, rank)) for rank in range(count)]

    def run(self) -> None:
        """All that was enqueued, in some order."""
        streams = [stream for of_rank in self.streams for stream in of_rank.values()]
        while any(stream.work for stream in streams):
            ready = [stream for stream in streams if stream.work and stream.work[0][0]()]
            if not ready:
                raise Deadlock
            stream = self.random.choice(ready)
            stream.work.popleft()[1]()
            stream.done += 1


class RankMemory:
    """The memory of one rank, as lapidist.distributed.peer_products has it."""

    def __init__(self, ranks: Ranks, rank: int) -> None:
        self.all, self.rank, self.ranks = ranks, rank, ranks.count
        self.stream = ranks.streams[rank]["products"]

    def buffers(self, way: str, buffer: int, size: int) -> list[Any]:
        for rank in range(self.ranks):
            # NaN in any type of floats
            self.all.bytes.setdefault((way, buffer, rank), torch.full((size,), 255, dtype=torch.uint8))
        return [self.all.bytes[way, buffer, rank] for rank in range(self.ranks)]

    def wait(self, flag: int) -> None:
        if self.all.drop(self.rank, "wait", flag):
            return
        flags = self.all.flags[self.rank]
        self.stream.add(lambda: flags[flag] == 1, lambda: None)

    def clear(self, flag: int, count: int) -> None:
        if self.all.drop(self.rank, "clear", flag):
            return
        flags = self.all.flags[self.rank]
        self.stream.add(lambda: True, lambda: flags.__setitem__(slice(flag, flag + count), 0))

    def signal(self, peer: int, flag: int) -> None:
        if self.all.drop(self.rank, "signal", flag):
            return
        flags = self.all.flags[peer]
        self.stream.add(lambda: True, lambda: flags.__setitem__(flag, 1))

    def enqueue(self, work: Callable[[], Any]) -> None:
        self.stream.add(lambda: True, work)

    def enqueue_awaiting(self, work: Callable[[], Any], flags: Sequence[int]) -> None:
        waits = [flag for flag in flags if not self.all.drop(self.rank, "wait", flag)]
        of_rank = self.all.flags[self.rank]
        self.stream.add(lambda: all(of_rank[flag] for flag in waits), work)

    def arrivals(self, first: int, rows: int, step: int) -> None:
        return None

    def meeting(self, arrived: int, free: int, step: int) -> Any:
        return None

    def sending(self, missed: int) -> Any:
        return None

    @contextmanager
    def on(self, stream: str) -> Iterator[None]:
        previous, self.stream = self.stream, self.all.streams[self.rank][stream]
        yield
        self.stream = previous

    @contextmanager
    def call(self, way: str, waits: Sequence[tuple[int, int]], copies: bool) -> Iterator[None]:
        products, copies = self.all.streams[self.rank].values()
        copies.after(products)
        yield
        products.after(copies)
