"""What a repository shows beside its code agrees with the code."""

from __future__ import annotations

import re

import lapidist
from pages import ROOT


def test_the_citation_names_this_version() -> None:
    text = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {lapidist.__version__}\n" in text


def test_the_changelog_has_a_place_for_what_is_new() -> None:
    assert re.search(r"^## (Unreleased|\d)", (ROOT / "CHANGELOG.md").read_text(), re.M)


def test_ci_elsewhere_runs_what_ci_runs_here() -> None:
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    assert "bash .ci/run" in workflow
    assert set(re.findall(r"run: make (\w+)", workflow)) <= targets
