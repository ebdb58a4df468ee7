"""Few bytes that each rank has for peers, by the launch that sends them: of one rank in the machine. What
peers send lies there already, and so do their counts of calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")  # which these modules import

import torch

from lapidist.distributed import sent_terms
from lapidist.distributed.collectives import sum_by_tree, sum_of_terms
from lapidist.distributed.sent_terms import Sending, in_bytes, send_and_add, send_and_gather
from lapidist.machine.together import Devices
from one_rank import addressed, drawn, with_checks

pytestmark = pytest.mark.frameworks
BLOCKS, THREADS, MISSED, LIMIT = 2, 32, 5, 10**12
MOST_CALLS = 2**31 - 1  # that a flag counts: then it goes on with the least number
POISON = 255  # NaN in every type of floats


@pytest.fixture(autouse=True)
def few_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sent_terms, "BLOCKS", BLOCKS)
    monkeypatch.setattr(sent_terms, "THREADS", THREADS)


class Rooms:
    """Those of all ranks, with flags, where this rank made `calls` calls and peers have begun more."""

    def __init__(self, ranks: int, rank: int, size: int, calls: int = 1, ahead: int = 1) -> None:
        """`ahead`: how many calls peers have begun that this rank has not."""
        self.rank, self.room = rank, -(-size // 16) * 16
        self.call, of_peers = (int(np.int64(calls + more).astype(np.int32)) for more in (1, ahead))
        size_of_all = 2 * ranks * self.room
        self.of_ranks = [torch.full((size_of_all,), POISON, dtype=torch.uint8) for _ in range(ranks)]
        self.flags = [np.full((ranks, BLOCKS), calls, np.int32) for _ in range(ranks)]
        self.flags[rank][[peer for peer in range(ranks) if peer != rank]] = of_peers
        self.calls, self.reports = np.full(BLOCKS, calls, np.int32), np.zeros(ranks, np.uint64)

    def at(self, owner: int, sender: int, call: int) -> Any:
        """What a rank sends to an owner in a call."""
        of_all = self.of_ranks[owner].view(2, len(self.of_ranks), self.room)
        return of_all[call % 2, sender]

    def arrive(self, sender: int, *tensors: Any) -> None:
        sent = torch.cat([in_bytes(tensor) for tensor in tensors])
        self.at(self.rank, sender, self.call)[: len(sent)] = sent

    def sending(self, limit: int = LIMIT) -> Sending:
        flags, operands = addressed(self.flags, reports=self.reports, calls=self.calls)
        at = operands["reports"].pointer, limit, operands["calls"].pointer
        return Sending(self.rank, flags, *at, MISSED, operands)

    def run(self, call: Any, *arguments: Any, limit: int = LIMIT, **how: Any) -> None:
        def sends(devices: Devices) -> Iterator[None]:
            with with_checks(devices):
                call(*arguments, self.of_ranks, self.sending(limit), device="machine", **how)
            yield

        Devices(self.rank).run([sends])

    def require_sent(self, peer: int, *tensors: Any) -> None:
        """A peer has these bytes, the count of this call, and nothing else."""
        sent = torch.cat([in_bytes(tensor) for tensor in tensors])
        room = self.at(peer, self.rank, self.call)
        assert torch.equal(room[: len(sent)], sent)
        room[: len(sent)] = POISON
        assert bool((self.of_ranks[peer] == POISON).all())
        assert self.flags[peer][self.rank].tolist() == [self.call] * BLOCKS

    def require_counted(self) -> None:
        assert self.calls.tolist() == [self.call] * BLOCKS


TERMS = [  # type, elements, and elements before them
    (torch.bfloat16, 5 * 8 * THREADS * BLOCKS + 8, 0),
    (torch.float16, 5, 0),
    (torch.bfloat16, 4 * THREADS + 8, 1),
    (torch.float32, 301, 1),
    (torch.int32, 72, 0),
]


SUMS = [  # ranks, this one, whether a tree adds, which adds sums, and terms
    *((2, 0, False, terms) for terms in TERMS),
    *((3, 1, False, terms) for terms in TERMS[1:3]),
    *((4, 3, True, terms) for terms in TERMS[3:]),
    (8, 5, False, TERMS[2]),
]


@pytest.mark.parametrize(("ranks", "rank", "by_tree", "terms"), SUMS)
def test_terms_are_sent_and_added(ranks: int, rank: int, by_tree: bool, terms: Any) -> None:
    """Other ones to each rank, in the order of ranks, with the bits of the framework's sum."""
    dtype, count, skipped = terms
    rooms = Rooms(ranks, rank, count * dtype.itemsize, calls=1 + rank)
    own = [drawn(count, dtype, peer, skipped) for peer in range(ranks)]
    of_all = [drawn(count, dtype, 50 + sender) for sender in range(ranks)]
    of_all[rank] = own[rank]
    peers = [peer for peer in range(ranks) if peer != rank]
    for peer in peers:
        rooms.arrive(peer, of_all[peer])
    out = torch.zeros(count, dtype=dtype)

    def add(*arguments: Any, device: str) -> None:
        send_and_add(own, out, *arguments, by_tree, device)

    rooms.run(add)
    assert torch.equal(out, (sum_by_tree if by_tree else sum_of_terms)(of_all))
    for peer in peers:
        rooms.require_sent(peer, own[peer])
    rooms.require_counted()
    assert not rooms.reports.any()


GATHERS = [  # ranks, this one, its calls, calls that peers began behind these, bytes of rows, factors
    (2, 1, 1, 1, 24, 0),
    (2, 0, MOST_CALLS, 1, 5 * 16 * THREADS * BLOCKS, 64),
    (3, 1, MOST_CALLS - 1, 2, 48, 5),
    (4, 2, 3, 2, 37, 5),
    pytest.param(8, 0, 2, 1, 40, 4, marks=pytest.mark.survey),
]


@pytest.mark.parametrize(("ranks", "rank", "calls", "ahead", "rows", "factors"), GATHERS)
def test_rows_are_gathered_with_their_factors(
    ranks: int, rank: int, calls: int, ahead: int, rows: int, factors: int
) -> None:
    rooms = Rooms(ranks, rank, rows + 4 * factors, calls, ahead)
    shards = [drawn(rows, torch.uint8, sender) for sender in range(ranks)]
    scales = [drawn(factors, torch.float32, 9 + sender) for sender in range(ranks)]
    peers = [peer for peer in range(ranks) if peer != rank]
    for peer in peers:
        rooms.arrive(peer, shards[peer], scales[peer])
    outs = [torch.zeros(ranks * rows, dtype=torch.uint8), torch.zeros(ranks * 4 * factors, dtype=torch.uint8)]

    def gather(*arguments: Any, device: str) -> None:
        scale = in_bytes(scales[rank]) if factors else None
        send_and_gather(shards[rank], scale, outs[: 1 + (factors > 0)], *arguments, device)

    rooms.run(gather)
    assert torch.equal(outs[0], torch.cat(shards))
    assert torch.equal(outs[1], in_bytes(torch.cat(scales)))
    for peer in peers:
        rooms.require_sent(peer, shards[rank], scales[rank])
    rooms.require_counted()
    assert not rooms.reports.any()


@pytest.mark.parametrize("missing", [0, 2])
def test_a_peer_that_does_not_come_is_reported(missing: int) -> None:
    """The launch goes on behind the limit. The number tells the host which way it was."""
    rooms, own, out = Rooms(3, 1, 64), [torch.ones(16) for _ in range(3)], torch.zeros(16)
    rooms.flags[1][missing] -= 1

    def add(*arguments: Any, device: str) -> None:
        send_and_add(own, out, *arguments, False, device)

    rooms.run(add, limit=1)
    assert rooms.reports.tolist() == [MISSED * (peer == missing) for peer in range(3)]
    rooms.require_counted()
