"""Sums of all ranks' terms by the launch that meets the other ranks, of one rank in the machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")  # which these modules import

import torch

from lapidist.distributed.collectives import sum_by_tree, sum_of_terms
from lapidist.distributed.met_sums import THREADS, Meeting, add_terms
from lapidist.machine.together import Devices
from one_rank import addressed, drawn, with_checks

pytestmark = pytest.mark.frameworks
ARRIVED, FREE, STEP, LIMIT = 2, 3, 4, 10**12


class Flags:
    """Those of all ranks. What peers set is set already: their terms are there."""

    def __init__(self, ranks: int, rank: int) -> None:
        self.rank, self.of_ranks = rank, [np.zeros(STEP * ranks, np.int32) for _ in range(ranks)]
        self.reports, self.done = np.zeros(ranks, np.uint64), np.zeros(1, np.int32)
        for peer in range(ranks):
            if peer != rank:
                self.own(peer)[:] = 0, 0, 1, 1

    def own(self, peer: int) -> Any:
        return self.of_ranks[self.rank][STEP * peer : STEP * (peer + 1)]

    def meeting(self, limit: int = LIMIT) -> Meeting:
        flags, operands = addressed(self.of_ranks, reports=self.reports, done=self.done)
        at = operands["reports"].pointer, limit, operands["done"].pointer
        return Meeting(self.rank, flags, *at, ARRIVED, FREE, STEP, operands)

    def require_freed(self) -> None:
        """Peers were told that this rank's term is there, and that theirs were read."""
        assert self.done.tolist() == [0]
        for peer, flags in enumerate(self.of_ranks):
            if peer != self.rank:
                assert flags[STEP * self.rank :][:STEP].tolist() == [0, 0, 1, 1]
                assert self.own(peer).tolist() == [0, 0, 0, 1]


TERMS = [  # type, elements, and elements before them
    (torch.bfloat16, 2 * 8 * THREADS + 3, 0),
    (torch.float16, 5, 0),
    (torch.bfloat16, THREADS + 9, 1),  # so that terms start anywhere
    (torch.float32, 1000, 0),
    (torch.float64, 301, 0),
    (torch.int32, 70, 2),
]


def added(
    terms: Any, out: Any, flags: Flags, seed: int, by_tree: bool = False, limit: int = LIMIT, dead: int = -1
) -> None:
    """Peers but `dead` overwrite their terms when they are told that they were read, and then free."""

    def adds(devices: Devices) -> Iterator[None]:
        with with_checks(devices):
            add_terms(terms, out, flags.meeting(limit), by_tree, "machine")
        yield

    def peer(number: int) -> Any:
        def overwrites(devices: Devices) -> Iterator[None]:
            while not flags.of_ranks[number][STEP * flags.rank + FREE]:
                yield
            terms[number].fill_(77)
            flags.own(number)[FREE] = 1

        return overwrites

    peers = [peer(number) for number in range(len(terms)) if number not in (flags.rank, dead)]
    Devices(seed).run([adds, *peers])


@pytest.mark.parametrize(
    ("ranks", "by_tree", "dtype", "count", "skipped"),
    [
        (ranks, by_tree, *terms)
        for ranks, by_tree in ((2, False), (3, False), (4, True), (8, False), (8, True))
        for terms in TERMS
        if not by_tree or terms[0].itemsize >= 4  # trees add sums
    ],
)
def test_sums_have_the_bits_of_the_frameworks(
    ranks: int, by_tree: bool, dtype: Any, count: int, skipped: int
) -> None:
    terms = [drawn(count, dtype, rank, skipped) for rank in range(ranks)]
    out, flags = torch.zeros(count, dtype=dtype), Flags(ranks, ranks - 1)
    right = (sum_by_tree if by_tree else sum_of_terms)(terms)
    added(terms, out, flags, count, by_tree)
    assert torch.equal(out, right)
    flags.require_freed()
    assert not flags.reports.any()


@pytest.mark.parametrize("seed", range(4))
def test_terms_that_were_freed_may_be_overwritten(seed: int) -> None:
    """By the peer, while other blocks of this launch still run."""
    count = 4 * 8 * THREADS
    terms, out = [torch.ones(count, dtype=torch.float16) for _ in range(2)], torch.zeros(count).half()
    added(terms, out, Flags(2, 0), seed)
    assert (out == 2).all()


def test_a_peer_that_does_not_come_is_reported() -> None:
    """The launch goes on behind the limit: one that waits for ever takes its card with it."""
    terms, out, flags = [torch.ones(8) for _ in range(3)], torch.zeros(8), Flags(3, 1)
    flags.own(2)[ARRIVED] = 0
    added(terms, out, flags, 1, limit=1, dead=2)
    assert flags.reports.tolist() in ([0, 0, ARRIVED + 1], [FREE + 1, 0, ARRIVED + 1])
