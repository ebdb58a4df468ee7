"""Copies of a warp land together where that is the same as one by one: in what is known of shared memory, in
what was read, and in what is found."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

import numpy as np
import pytest

from lapidist.machine.sanitize.landing import Landing, PendingCopy
from lapidist.machine.sanitize.sanitizer import Sanitizer
from lapidist_lab.machine_studies.mutants import fault_of
from lapidist_lab.machine_studies.specimens import Specimen, case_of

NAMES = ("writer", "written", "write_site", "lane", "last_reading", "read", "state")


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the sanitizer knows of memory at the end of each run."""
    digests, finish = [], Sanitizer.finish

    def digest(self: Sanitizer) -> None:
        state = hashlib.sha1(self.clocks.touched.tobytes())
        for _, shadow in [(0, self.shared), *sorted(self.globals.items())]:
            if not shadow.readers:
                shadow.replay()
            for name in NAMES:
                state.update(np.ascontiguousarray(getattr(shadow, name)).tobytes())
        digests.append(state.hexdigest())
        finish(self)

    monkeypatch.setattr(Sanitizer, "finish", digest)
    return digests


def one_by_one(_: Landing, copies: Sequence[PendingCopy]) -> bool:
    return not copies


def broken(ptx: str, pattern: str, by: str) -> str:
    changed = re.sub(pattern, by, ptx)
    assert changed != ptx
    return changed


@pytest.mark.parametrize("name", ["async_pipeline", "wide_copies"])
def test_copies_land_together_as_one_by_one(
    name: str, known: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    variant, together = case_of(Specimen(name, "float32")).variants[-1], list[bool]()
    ptx = variant.launch.binary.ptx
    texts = [
        ptx,
        broken(ptx, r"cp\.async\.wait_group\s+\d+;", "cp.async.wait_group 7;"),
        broken(ptx, r"bar\.sync\s+0;", ""),
    ]
    land = Landing.land_together

    def counted(self: Landing, copies: Sequence[PendingCopy]) -> bool:
        done = land(self, copies)
        together.append(done)
        return done

    found = []
    for way in (counted, one_by_one):
        monkeypatch.setattr(Landing, "land_together", way)
        found.append([fault_of(variant, text, 3, 200_000) for text in texts])
    assert any(together)
    assert found[0] == found[1]
    assert found[0][0] == ""
    assert all(found[0][1:])
    assert known[0] == known[len(known) // 2]
