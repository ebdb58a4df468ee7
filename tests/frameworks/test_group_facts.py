"""Why cards of a group cannot write to each other's memory, in words that plans print."""

from __future__ import annotations

import importlib
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.frameworks
HERE = "host"


@pytest.fixture
def facts(torch: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Of a process that sees three cards, of which the first two reach each other."""
    cuda = torch.cuda
    monkeypatch.setattr(cuda, "device_count", lambda: 3)
    monkeypatch.setattr(
        cuda, "get_device_properties", lambda ordinal: SimpleNamespace(uuid=f"card {ordinal}")
    )
    monkeypatch.setattr(cuda, "can_device_access_peer", lambda one, other: {one, other} == {0, 1})
    return importlib.import_module("lapidist.distributed.group_facts")


@pytest.mark.parametrize(
    ("cards", "reason"),
    [
        ([(HERE, "card 0"), (HERE, "card 1")], ""),
        ([(HERE, "card 0"), ("another", "card 1")], "the ranks run on several hosts"),
        ([(HERE, "card 0"), (HERE, "card 0")], "several ranks share a GPU"),
        ([(HERE, "card 0"), (HERE, "card 7")], "a process does not see rank 1's GPU"),
        ([(HERE, "card 0"), (HERE, "card 2")], "a GPU has no access to the memory of rank 1's"),
    ],
)
def test_cards_that_do_not_reach_each_other_are_told(facts: Any, cards: Any, reason: str) -> None:
    assert facts.no_peers(0, cards) == reason


def test_a_torch_without_symmetric_memory_is_told(facts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "find_spec", lambda name: None)
    assert "no symmetric memory" in facts.no_peers(0, [(HERE, "card 0"), (HERE, "card 1")])


def test_a_group_that_is_made_again_reads_no_values_of_the_last_one(
    torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store outlives a group, and calls are counted from the start. Threads play ranks."""
    facts = importlib.import_module("lapidist.distributed.group_facts")
    store, ranks = torch.distributed.HashStore(), 3
    monkeypatch.setattr(facts, "members_of", lambda group: group.members)
    monkeypatch.setattr(facts, "limit_of", lambda group: timedelta(seconds=20))
    with ThreadPoolExecutor(ranks) as threads:
        for turn in ("first", "second"):
            groups = [
                SimpleNamespace(
                    members=SimpleNamespace(rank=rank, ranks=ranks, calls=1), get_group_store=lambda: store
                )
                for rank in range(ranks)
            ]
            exchanges = [
                threads.submit(facts.values_of_ranks, group, "call", (turn, group.members.rank), "a call")
                for group in groups
            ]
            expected = [(turn, rank) for rank in range(ranks)]
            assert [exchange.result() for exchange in exchanges] == [expected] * ranks
    assert store.num_keys() == 0
