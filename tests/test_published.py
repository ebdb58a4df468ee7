"""What the repository publishes is what its Records say."""

from __future__ import annotations

from pathlib import Path

from lapidist.bench.report import publish

ROOT = Path(__file__).parent.parent


def test_published_numbers_are_those_of_the_records() -> None:
    assert publish(ROOT, check=True) == 0
