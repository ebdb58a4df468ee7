"""Reads of memory that nobody wrote are noted late, many at once: as if one after the other."""

from __future__ import annotations

import numpy as np
import pytest

from lapidist.machine.sanitize import shadow
from lapidist.machine.sanitize.shadow import Shadow

GRAINS, READERS = 40, 5
NOTED = ["read", "reader", "last_reading", "last_read"]


@pytest.mark.parametrize("at_once", [1, 16, 1 << 15])
@pytest.mark.parametrize("seed", range(4))
def test_reads_noted_late_are_those_noted_one_by_one(
    seed: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shadow, "REPLAYED", at_once)
    random = np.random.default_rng(seed)
    late, at_each = (Shadow(4 * GRAINS, 4, READERS) for _ in range(2))
    for moment in range(1, 120):
        agent, site = int(random.integers(READERS)), int(random.integers(100))
        lanes = np.sort(random.choice(32, random.integers(1, 6), replace=False))
        each = int(random.choice([1, 2]))
        at = random.permutation(GRAINS)[: each * len(lanes)]
        sites = np.full(len(at), site, np.int32)
        late.log_read(at, agent, moment, site if moment % 2 else sites, lanes)
        at_each.note_read(at, 0, agent, moment, site, np.repeat(lanes, each))
        if random.random() < 0.05:
            late.replay()
    late.replay()
    for name in NOTED:
        assert np.array_equal(getattr(late, name), getattr(at_each, name)), name
    assert not late.status.any()
