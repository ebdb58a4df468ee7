"""Ways that write to other ranks' memory, played by several ranks in one process. Results are right in any
order of their streams, and every flag is needed."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("torch")  # which these modules import

from lapidist.distributed.exchange_steps import STEPS
from lapidist.distributed.peer_products import BUFFERS, FLAGS, WAYS
from lapidist.distributed.product_options import Options
from lapidist.distributed.row_products import RowProducts

pytestmark = pytest.mark.frameworks
CALLS, ROWS, K, N = 4, 6, 4, 4
ORDERS = 40


@pytest.fixture
def played(torch: Any) -> Any:
    return importlib.import_module("played_ranks")


def whole_numbers(torch: Any, seed: int, *shape: int) -> Any:
    return torch.randint(1, 9, shape, generator=torch.Generator().manual_seed(seed)).float()


def operands(torch: Any, way: str, count: int, call: int) -> tuple[list[Any], list[Any]]:
    """Rows and a matrix of each rank, other ones in each call."""
    rows = ROWS if way == "push" else ROWS * count
    return (
        [whole_numbers(torch, 100 * call + rank, rows, K) for rank in range(count)],
        [whole_numbers(torch, 100 * call + 50 + rank, K, N) for rank in range(count)],
    )


def expected(torch: Any, way: str, a: list[Any], b: list[Any]) -> list[Any]:
    if way == "push":
        return [torch.cat(a) @ matrix for matrix in b]
    total = sum(left @ right for left, right in zip(a, b, strict=True))
    return list(total.chunk(len(a))) if way == "slots" else [total] * len(a)


def results(
    torch: Any, played: Any, way: str, count: int, seed: int, drop: Any, captured: bool
) -> Iterator[bool]:
    """Whether each call's results are right on each rank. `captured`: replays of a graph with one call."""
    ranks = played.Ranks(count, seed, drop)
    given = [operands(torch, way, count, call) for call in range(CALLS)]
    name = {"push": "gathered", "slots": "scattered", "one_shot": "reduced"}[way]
    outputs = []
    for a, b in given:
        outputs.append([])
        for rank, member in enumerate(ranks.members):
            if captured:
                member.turns[way] = 0
            result = getattr(member, name)(a[rank], None, RowProducts([b[rank]], Options()))
            outputs[-1].append(result[0] if way == "push" else result)
    ranks.run()
    for (a, b), of_call in zip(given, outputs, strict=True):
        pairs = zip(of_call, expected(torch, way, a, b), strict=True)
        yield from (torch.equal(result, right) for result, right in pairs)


def nothing(rank: int, action: str, flag: int) -> bool:
    return False


@pytest.mark.parametrize("captured", [False, True], ids=["calls", "replays"])
@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("way", WAYS)
def test_any_order_of_streams_gives_the_results(
    torch: Any, played: Any, way: str, count: int, captured: bool
) -> None:
    for seed in range(ORDERS // 4):
        assert all(results(torch, played, way, count, seed, nothing, captured)), seed


def is_found(torch: Any, played: Any, way: str, drop: Any) -> bool:
    for seed in range(ORDERS):
        for captured in (False, True):
            try:
                if not all(results(torch, played, way, 2, seed, drop, captured)):
                    return True
            except played.Deadlock:
                return True
    return False


@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize("action", ["wait", "signal"])
@pytest.mark.parametrize("way", WAYS)
def test_every_flag_is_needed(torch: Any, played: Any, way: str, action: str, flag: str) -> None:
    """Without one kind of waits, or of signals, of one rank."""

    def drop(rank: int, dropped: str, index: int) -> bool:
        return rank == 0 and dropped == action and FLAGS[index // 2 % len(FLAGS)] == flag

    assert is_found(torch, played, way, drop)


@pytest.mark.parametrize("way", WAYS)
def test_steps_of_all_ranks_meet(way: Any) -> None:
    """For each wait there is one signal of the peer's in a call, so flags are as before when it ends."""
    for ranks in (2, 3, 8):
        steps = [STEPS[way](rank, ranks) for rank in range(ranks)]
        pairs = [(rank, step) for rank in range(ranks) for step in steps[rank]]
        waits = sorted((rank, step.peer, step.flag) for rank, step in pairs if step.action == "wait")
        signals = sorted((step.peer, rank, step.flag) for rank, step in pairs if step.action == "signal")
        assert waits == signals
        for rank in range(ranks):
            multiplied = [step.peer for step in steps[rank] if step.action == "multiply"]
            assert sorted(multiplied) == ([rank] if way == "one_shot" else [*range(ranks)])


def test_shards_are_multiplied_as_they_arrive() -> None:
    """This rank's first. What the next rank pushes first is multiplied next."""
    ranks = 4
    steps = [STEPS["push"](rank, ranks) for rank in range(ranks)]
    for rank in range(ranks):
        order = [step.peer for step in steps[rank] if step.action == "multiply"]
        assert order == [(rank + distance) % ranks for distance in range(ranks)]
        for place, peer in enumerate(order[1:]):
            pushed = [step.peer for step in steps[peer] if step.action == "push"]
            assert pushed[place] == rank
    assert BUFFERS == 2
