"""Tests of every combination: some have each value, and `make test` runs them; `make surveys` has a share of
the rest, and `make census`, before a release, all others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import pytest

Left = Sequence[tuple[Any, ...]]
SHARE = 6


def in_turns(*values: Iterable[Any], leave: Left = ()) -> list[Any]:
    """All combinations but those to leave; a survey or of the census, but for one of each value, which it
    shares with others.

    Of ("x", "y") and (1, 2, 3) these are x1, y2 and x3.
    """
    lists = [list(each) for each in values]
    turns = range(max(map(len, lists)))
    chosen = {tuple(turn % len(each) for each in lists) for turn in turns}
    found = []
    for places in product(*(range(len(each)) for each in lists)):
        case = tuple(each[place] for each, place in zip(lists, places, strict=True))
        if case not in leave:
            marks = [] if places in chosen else [rarely(sum(places), SHARE)]
            found.append(pytest.param(*case, marks=marks, id="-".join(map(str, case))))
    return found


def surveyed(cases: Iterable[Any]) -> list[Any]:
    """Those of a list that others stand for in `make test`."""
    return [pytest.param(*values_of(case), marks=pytest.mark.survey) for case in cases]


def sampled(*values: Iterable[Any], share: int) -> list[Any]:
    """All combinations; a survey has one in `share`, in which each value meets others in turns."""
    lists = [list(each) for each in values]
    found = []
    for places in product(*(range(len(each)) for each in lists)):
        case = [part for each, place in zip(lists, places, strict=True) for part in values_of(each[place])]
        words = "-".join(str(getattr(each, "name", each)) for each in case)
        found.append(pytest.param(*case, marks=rarely(sum(places), share), id=words))
    return found


def rarely(place: int, share: int) -> pytest.MarkDecorator:
    """A survey at one place in `share`."""
    return pytest.mark.census if place % share else pytest.mark.survey


def values_of(case: Any) -> tuple[Any, ...]:
    return case if isinstance(case, tuple) else (case,)
