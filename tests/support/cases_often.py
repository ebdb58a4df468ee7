"""Tests under `often(count)`: `make test` runs so many of their cases, and surveys have the others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import pytest

RARE = "survey", "census"


def leave_to_surveys(items: Iterable[pytest.Item]) -> None:
    """Mark the cases that others stand for. The first and the last one stand, and others at equal steps."""
    cases = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        if item.get_closest_marker("often") and not any(map(item.get_closest_marker, RARE)):
            cases[item.nodeid.partition("[")[0]].append(item)
    for alike in cases.values():
        marker = alike[0].get_closest_marker("often")
        assert marker is not None
        stand = places(len(alike), *marker.args)
        for place, item in enumerate(alike):
            if place not in stand:
                item.add_marker(pytest.mark.survey)


def places(cases: int, count: int) -> set[int]:
    """Of so many cases, those that stand."""
    return {round(turn * (cases - 1) / max(count - 1, 1)) for turn in range(count)}
