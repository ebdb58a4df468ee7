"""What the repository publishes is what its Records say."""

from __future__ import annotations

from pathlib import Path

import pytest

from lapidist.bench.protocol.record import read_runs
from lapidist.bench.publish.report import publish
from lapidist.device import chip

ROOT = Path(__file__).parents[3]


def test_published_numbers_are_those_of_the_records() -> None:
    assert publish(ROOT, check=True) == []


def test_the_limits_of_the_h200_are_measured_ones() -> None:
    """As the newest Records have them; shares in later Records refer to these numbers."""
    runs = [
        run for run in read_runs(ROOT / "results") if any(record.kind == "limit" for record in run.records)
    ]
    measured = {(record.unit, record.dtype): record.tflops for record in runs[-1].records}
    assert chip("h200").limits == pytest.approx(measured, rel=0.005)
