"""Tests of every combination: some have each value, and `make test` runs them; `make surveys` has a share of
the rest, and `make census`, before a release, all others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import pytest

Left = Sequence[tuple[Any, ...]]
SHARE = 6


def in_turns(
    *values: Iterable[Any], leave: Left = (), often: Left | None = None, share: int = SHARE
) -> list[Any]:
    """All combinations but those to leave; a survey or of the census, but for one of each value, which it
    shares with others.

    Of ("x", "y") and (1, 2, 3) these are x1, y2 and x3. With `often`, `make test` runs the combinations that
    it names instead, and a survey has the rest of these. A survey has one in `share` of all others.
    """
    lists = [list(each) for each in values]
    turns = range(max(map(len, lists)))
    chosen = {tuple(turn % len(each) for each in lists) for turn in turns}
    found, seen = [], 0
    for places in product(*(range(len(each)) for each in lists)):
        case = tuple(each[place] for each, place in zip(lists, places, strict=True))
        if case in leave:
            continue
        stands = places in chosen if often is None else case in often
        seen += stands
        marks = [] if stands else [rarely(0 if places in chosen else sum(places), share)]
        found.append(pytest.param(*case, marks=marks, id="-".join(map(str, case))))
    assert often is None or seen == len(often), "often: must name combinations of these values"
    return found


def surveyed(cases: Iterable[Any]) -> list[Any]:
    """Those of a list that others stand for in `make test`."""
    return [pytest.param(*values_of(case), marks=pytest.mark.survey) for case in cases]


def surveyed_but(cases: Iterable[Any], *often: int) -> list[Any]:
    """Those of a list, of which `make test` runs the ones at these places, and a survey the others."""
    listed = list(cases)
    rest = iter(surveyed(case for place, case in enumerate(listed) if place not in often))
    return [case if place in often else next(rest) for place, case in enumerate(listed)]


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
