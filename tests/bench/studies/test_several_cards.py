"""The study of several cards: how many calls its graphs hold, and its cases for any number of cards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lapidist_lab.bench.studies import several_cards
from lapidist_lab.bench.studies.several_cards import CARDS, GRAPH_SECONDS, MOST_CALLS, cards_of, cases

OF_HOST, OF_CARD, OF_REPLAY = 500e-6, 30e-6, 20e-6  # seconds of a call, and what a replay costs once
Counted = list[int]


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Counted:
    """The calls in each graph that was made, on cards whose host takes longer than they do."""
    made: Counted = []

    def graph_of(call: Callable[[], Any], count: int) -> Callable[[], Any]:
        made.append(count)
        return lambda: None

    def seconds_of(call: Callable[[], Any], count: int, device: str) -> float:
        return (OF_REPLAY + count * OF_CARD) / count if made else OF_HOST

    monkeypatch.setattr(several_cards, "graph_of", graph_of)
    monkeypatch.setattr(several_cards, "seconds_of", seconds_of)
    return made


def test_graphs_hold_calls_by_the_time_of_cards(graphs: Counted) -> None:
    """Not by the host's, which differs from way to way: a replay has costs of its own."""
    _, count = several_cards.captured(lambda: None)
    assert graphs == [4, count]
    assert GRAPH_SECONDS / 2 < count * OF_CARD <= GRAPH_SECONDS
    assert count <= MOST_CALLS


def test_a_first_graph_that_is_long_enough_is_kept(graphs: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(several_cards, "seconds_of", lambda *_: GRAPH_SECONDS / 3)
    assert several_cards.captured(lambda: None)[1] == 3
    assert graphs == [3]


def test_what_is_not_captured_is_called_as_often(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: Counted = []
    monkeypatch.setattr(several_cards, "seconds_of", lambda *_: GRAPH_SECONDS / 7)
    run, count = several_cards.repeated(lambda: calls.append(1))
    calls.clear()
    run()
    assert len(calls) == count == 7


@pytest.mark.parametrize("cards", CARDS)
def test_cards_share_all_of_a_case(cards: int) -> None:
    """Rows, columns and k divide, and a case tells how many cards have it."""
    for case in cases(cards):
        assert cards_of(case) == cards
        assert case.rows % cards == 0
        whole = (case.n * cards, case.k) if case.product == several_cards.GATHER else (case.n, case.k * cards)
        assert whole in several_cards.EXTENTS
