"""The site: every page has a place in it, nothing comes from the network, and tools are pinned."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pages import ROOT

SITE = ROOT / "site"
CONFIG = (SITE / "mkdocs.yml").read_text()


def places() -> set[str]:
    return set(re.findall(r"(\S+\.md)$", CONFIG.partition("\nnav:\n")[2], re.M))


def test_every_page_has_a_place() -> None:
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert pages - places() == set()


def test_every_place_has_a_page() -> None:
    """Those of the root and of the reference are made when the site is built."""
    made = set(re.findall(r'"(\w+\.md)"', (SITE / "pages.py").read_text()))
    missing = {
        place
        for place in places()
        if not (ROOT / "docs" / place).exists() and place not in made and not place.startswith("reference/")
    }
    assert missing == set()


@pytest.mark.parametrize("path", sorted((SITE / "theme").iterdir()), ids=lambda path: path.name)
def test_nothing_is_fetched(path: Path) -> None:
    assert "//" not in re.sub(r"^ *//.*$", "", path.read_text(), flags=re.M)


def test_fonts_are_the_readers_own() -> None:
    assert re.search(r"^  font: false$", CONFIG, re.M)


def test_versions_are_named() -> None:
    line = re.search(r"^docs = \[(.*)\]$", (ROOT / "pyproject.toml").read_text(), re.M)
    assert line is not None
    assert all("=" in each for each in re.findall(r'"([^"]+)"', line[1]))
