"""A rule that many files, pages or cases must hold, in one test: it names all that break it.

A test for each of them would take longer to start than to run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


def hold_none(offenders: Iterable[str]) -> None:
    """Each is named, where pytest would cut a long list short."""
    found = list(offenders)
    assert not found, "\n".join(["", *found])


def each_holds(check: Callable[..., None], cases: Iterable[tuple[Any, ...]]) -> None:
    """Every case is tried, whatever became of those before it; what failed is said of each that did."""
    failures, tried = [], 0
    for case in cases:
        tried += 1
        try:
            check(*case)
        except Exception as error:
            failures.append(f"{case}: {type(error).__name__}: {error}")
    assert tried, "no cases"
    hold_none(failures)
