"""Tests of every combination: of these `make test` runs some, which have each value, and `make surveys` the
rest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import pytest

Left = Sequence[tuple[Any, ...]]


def in_turns(*values: Iterable[Any], leave: Left = ()) -> list[Any]:
    """All combinations but those to leave; a survey, but for one of each value, which it shares with others.

    Of ("x", "y") and (1, 2, 3) these are x1, y2 and x3.
    """
    lists = [list(each) for each in values]
    turns = range(max(map(len, lists)))
    chosen = {tuple(turn % len(each) for each in lists) for turn in turns}
    found = []
    for places in product(*(range(len(each)) for each in lists)):
        case = tuple(each[place] for each, place in zip(lists, places, strict=True))
        if case not in leave:
            marks = [] if places in chosen else [pytest.mark.survey]
            found.append(pytest.param(*case, marks=marks, id="-".join(map(str, case))))
    return found


def surveyed(cases: Iterable[Any]) -> list[Any]:
    """Those of a list that others stand for in `make test`."""
    values = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [pytest.param(*each, marks=pytest.mark.survey) for each in values]
