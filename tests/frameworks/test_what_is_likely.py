"""Calls by turns: the one that followed last time is tried first, and must not serve another one."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

import lapidist
from beside_cases import Ready, call_of
from lapidist import api
from lapidist.calls import full_path
from lapidist.calls.repeat import with_arrays
from lapidist.calls.repeat.shape import key_with_arrays
from lapidist.calls.repeat.with_arrays import fast_path_with_arrays
from stand_in_card import Straight

pytestmark = pytest.mark.frameworks

N = 32  # of square matrices: shapes tell nothing apart


@lapidist.epilogue
def shifted(acc: Any, by: lapidist.Row) -> Any:
    return acc + by


@lapidist.epilogue
def multiplied(acc: Any, by: lapidist.Row) -> Any:
    return acc * by


@lapidist.epilogue
def powered(acc: Any, by: lapidist.Scalar) -> Any:
    return acc * by


FORMS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "gather_a": lambda torch: {"gather_a": torch.randperm(N)},
    "gather_b": lambda torch: {"gather_b": torch.randperm(N)},
    "scatter_d": lambda torch: {"scatter_d": torch.randperm(N), "out": torch.empty(N, N)},
    "both": lambda torch: {"gather_a": torch.randperm(N), "gather_b": torch.randperm(N)},
    "alpha": lambda torch: {"gather_a": torch.randperm(N), "alpha": random.random()},
    "no alpha": lambda torch: {"gather_a": torch.randperm(N), "alpha": 0},
    "alpha in memory": lambda torch: {"gather_a": torch.randperm(N), "alpha": torch.rand(())},
    "c": lambda torch: {"gather_a": torch.randperm(N), "c": torch.randn(N, N), "beta": random.random()},
    "out": lambda torch: {"gather_a": torch.randperm(N), "out": torch.empty(N, N)},
    "trans": lambda torch: {"gather_a": torch.randperm(N), "trans_a": True},
    "types": lambda torch: {"gather_a": torch.randperm(N), "precision": "tf32"},
    "shifted": lambda torch: {"epilogue": shifted(by=torch.randn(N))},
    "multiplied": lambda torch: {"epilogue": multiplied(by=torch.randn(N))},
    "powered": lambda torch: {"epilogue": powered(by=random.random())},
    "powered by an array": lambda torch: {"epilogue": powered(by=torch.rand(()))},
    "multiplied, gathered": lambda torch: {
        "epilogue": multiplied(by=torch.randn(N)),
        "gather_a": torch.randperm(N),
    },
}


SAME = {"out": "gather_a"}  # the call itself finds out whether an output was given


class ByTurns:
    """All forms, each with what its calls launch."""

    def __init__(self, torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.torch, self.monkeypatch = torch, monkeypatch
        self.cards: dict[str, Straight] = {}
        known: dict[Any, Any] = {}
        for form in FORMS:
            asked = self.asks(form)
            call = call_of(monkeypatch, lambda asked=asked: lapidist.gemm(**asked))  # type: ignore[misc]
            self.cards[form], bound = Straight(call), call.bound()
            result = full_path.run(None, bound, call.choices, None)
            again = fast_path_with_arrays(self.cards[form], bound, call, result)  # type: ignore[arg-type]
            assert again is not None, form
            known[key_with_arrays(call)] = again
        assert len(known) == len(FORMS)
        for module in (api, full_path):  # gemm asks whether any call has a path, and full_path follows it
            monkeypatch.setattr(module, "ARRAY_PATHS", known)

    def asks(self, form: str) -> dict[str, Any]:
        """With new arrays and numbers."""
        torch = self.torch
        return {"a": torch.randn(N, N), "b": torch.randn(N, N), **FORMS[form](torch)}

    def call(self, form: str) -> None:
        asked = self.asks(form)
        with self.monkeypatch.context() as patch:
            patch.setattr(full_path, "multiplied_with_arrays", lambda _: None)
            found = lapidist.gemm(**asked)
        assert found is not None, form
        call = call_of(self.monkeypatch, lambda: lapidist.gemm(**{**asked, "out": found}))
        expected = self.cards[form].expected(call)
        launched = [(name, card.kernel.given.pop()) for name, card in self.cards.items() if card.kernel.given]
        assert [(SAME.get(name, name), given) for name, given in launched] == [
            (SAME.get(form, form), expected)
        ]


@pytest.fixture
def by_turns(torch: Any, monkeypatch: pytest.MonkeyPatch, ready: Ready) -> ByTurns:
    return ByTurns(torch, monkeypatch)


def test_calls_in_any_order_are_told_apart(by_turns: ByTurns) -> None:
    rng = random.Random(29)
    for _ in range(10):
        for form in rng.sample(list(FORMS), len(FORMS)):
            by_turns.call(form)


def test_each_after_each(by_turns: ByTurns) -> None:
    """Once it was followed by itself, which is likely then."""
    for first in FORMS:
        for second in FORMS:
            for form in (first, first, second):
                by_turns.call(form)


def test_what_comes_in_the_same_order_is_found_at_once(
    by_turns: ByTurns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the layers of a model are: no key is made."""
    looked_up = []
    key_of = with_arrays.key_of
    monkeypatch.setattr(with_arrays, "key_of", lambda *given: looked_up.append(1) or key_of(*given))
    for turn in range(4):
        for form in FORMS:
            by_turns.call(form)
        if turn == 1:
            looked_up.clear()
    assert looked_up == []
