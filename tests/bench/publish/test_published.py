"""What the repository publishes is what its Records say."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from lapidist.device import chip
from lapidist_lab.bench.protocol.record import Record, read_runs
from lapidist_lab.bench.publish.report import publish

ROOT = Path(__file__).parents[3]


def test_published_numbers_are_those_of_the_records() -> None:
    assert publish(ROOT, check=True) == []


def test_letters_of_charts_can_be_read_on_a_phone() -> None:
    """Where a page is 390 pixels wide and a picture 358: letters are 10 high at least."""
    drawings = [path.read_text() for path in (ROOT / "docs").rglob("*.svg")]
    assert len(drawings) > 60
    for drawn in drawings:
        (width,) = re.findall(r'<svg [^>]*?width="(\d+)"', drawn)
        letters = [float(size) for size in re.findall(r"font-size: ([\d.]+)px", drawn)]
        assert len(letters) == drawn.count("<text")
        assert min(letters) * min(1.0, 358 / int(width)) >= 10


@cache
def limits() -> Sequence[Record]:
    return [record for run in read_runs(ROOT / "results") for record in run.records if record.kind == "limit"]


@pytest.mark.parametrize("name", ["h100", "h200"])
def test_the_limits_of_chips_are_measured_ones(name: str) -> None:
    """As the newest Records of each have them; shares in later Records refer to these numbers."""
    measured = {(each.unit, each.dtype): each.tflops for each in limits() if name.upper() in each.device}
    assert chip(name).limits == pytest.approx(measured, rel=0.005)
