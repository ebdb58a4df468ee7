"""Planning new shapes: the choices stay those that were recorded."""

from __future__ import annotations

import pytest
from recorded_choices import asked, line_of, recorded


def test_choices_are_those_that_were_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAPIDIST_TUNED", "0")
    found = [line_of(each) for each in asked()]
    changed = [pair for pair in zip(recorded(), found, strict=True) if pair[0] != pair[1]]
    assert changed == []
