"""What `bench launch` and `bench shapes` call, on the host: that each form is right, and has its peer."""

from __future__ import annotations

import math

import pytest

from lapidist_lab.bench.studies import call_forms
from lapidist_lab.bench.studies import new_shapes as study
from lapidist_lab.bench.studies.new_shapes import (
    SETTLED,
    lengths,
    new_shapes,
    row,
    served,
    served_row,
    times_of,
)

pytestmark = pytest.mark.frameworks


def test_every_form_gives_the_product_and_has_a_peer() -> None:
    import torch

    a, b, out = (torch.randn(128, 128) for _ in range(3))
    forms = call_forms.of_matrices(a, b, out) | call_forms.of_many(a, b)
    forms |= call_forms.of_groups(a, b) | call_forms.of_layers(a, b)
    forms |= call_forms.of_factors(a, b) | call_forms.of_numpy()
    assert {name: each.worst for name, each in forms.items() if not each.worst <= 1} == {}
    assert {each.peer for each in forms.values() if each.peer} <= set(forms)
    assert sum(each.peer is None for each in forms.values()) == 13


def test_shapes_are_told_with_their_percentiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "HIGH", 256)
    drawn = new_shapes(6, 1)
    times = times_of("bf16", drawn, "cpu")
    record = row("CPU", "bf16", "shapes cold", times)
    assert (record.mode, record.calls, record.dtype) == ("shapes cold", 6, "bfloat16")
    assert record.seconds is not None
    assert record.p90 is not None
    assert record.p99 is not None
    assert 0 < record.seconds <= record.p90 <= record.p99 == pytest.approx(max(times[0]), rel=0.2)
    eight = times_of("e4m3", drawn, "cpu")
    assert [math.isnan(each) for each in eight[1]] == [n % 16 != 0 or k % 16 != 0 for _, n, k in drawn]


def test_a_request_loop_is_added_up() -> None:
    times = served(SETTLED + 4, "cpu", [(32, 16), (16, 32)])
    record = served_row("CPU", times)
    assert record.calls == 4
    assert record.ratio == pytest.approx(sum(times[1][SETTLED:]) / sum(times[0][SETTLED:]))
    assert "with the first 50 steps" in (record.note or "")


def test_lengths_are_those_of_decoding_with_prompts() -> None:
    found = lengths(2000, 3)
    assert all(1 <= each <= study.LONGEST for each in found)
    assert 0.8 < sum(each <= 64 for each in found) / len(found) < 0.9
