"""Tensors as those of the call before: found so at once, by parts, and at once from then on."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from lapidist.calls.repeat import guard

pytestmark = pytest.mark.frameworks


@pytest.mark.parametrize("planned_in", ["enable_grad", "inference_mode"])
def test_tensors_of_the_other_mode_are_known_after_one_look(
    torch: Any, monkeypatch: pytest.MonkeyPatch, planned_in: str
) -> None:
    looks: list[Any] = []

    def watched(tensor: Any) -> Any:
        part = original(tensor)
        return lambda other: (looks.append(other), part(other))[1]

    original = guard.compared
    monkeypatch.setattr(guard, "compared", watched)
    with getattr(torch, planned_in)():
        alike = guard.compared_by_parts(torch.ones(3, 4), torch.ones(4, 5))
    for mode in (torch.inference_mode, contextlib.nullcontext):
        with mode():
            a, b = torch.ones(3, 4), torch.ones(4, 5)
            assert alike(a, b)
            looks.clear()
            assert alike(torch.zeros(3, 4), torch.zeros(4, 5))
            assert not looks
            others = [
                (a, b.double()),
                (a, torch.ones(5, 4).T),
                (torch.ones(2, 4), b),
                (torch.ones(3, 4, requires_grad=True), b),
                (torch._neg_view(a), b),
                (a.to("meta"), b),
            ]
            assert [alike(*each) for each in others] == [False] * len(others)


def test_tensors_that_are_not_alike_at_once_are_tried_once(
    torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[Any] = []
    monkeypatch.setattr(guard, "compared_at_once", lambda *given: (tried.append(given), lambda *_: False)[1])
    same = torch.ones(3, 3)
    alike = guard.compared_by_parts(same, same)
    assert all(alike(same, same) for _ in range(10))
    assert len(tried) == 1
