"""The pages: links and anchors between them, tables that must hold."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import ml_dtypes
import numpy as np

import lapidist
from lapidist.kernels.rules.hopper import FAMILY as RULES
from lapidist.kernels.rules.problem_facts import Facts
from lapidist.kernels.rules.rule import refusal
from lapidist.kernels.wgmma.family import WGMMA_FAMILY, tile
from offenders import hold_none
from pages import PAGES, ROOT, name_of
from words import split


def links(page: Path) -> list[tuple[Path, str]]:
    """Within the project: the file, and the anchor or ""."""
    targets = re.findall(r"\]\(([^)\s]+)\)", page.read_text())
    parts = [target.partition("#") for target in targets if "//" not in target]
    return [((page.parent / file).resolve() if file else page, anchor) for file, _, anchor in parts]


def test_links_lead_somewhere() -> None:
    hold_none(f"{name_of(page)}: {file}" for page in PAGES for file, _ in links(page) if not file.exists())


def test_links_into_pages_find_their_anchors() -> None:
    """An anchor is a heading's, or a tag of its own."""
    hold_none(
        f"{name_of(page)}: {file.name}#{anchor}"
        for page in PAGES
        for file, anchor in links(page)
        if anchor and anchor not in anchors(file)
    )


@cache
def anchors(page: Path) -> set[str]:
    text = page.read_text()
    headings = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings} | set(
        re.findall(r'<a id="([^"]+)">', text)
    )


def test_the_glossary_is_sorted_and_short() -> None:
    entries = re.findall(
        r'^- <a id="[^"]+"></a>\*\*(.+?)\.\*\* (.+)$', (ROOT / "docs" / "glossary.md").read_text(), re.M
    )
    names = [re.sub(r"[^a-z0-9]", "", name.lower()) for name, _ in entries]
    assert len(names) > 60
    assert names == sorted(names)
    assert [name for name, words in entries if len(split(words)) > 2] == []


def test_the_widest_tiles_are_those_that_the_rules_take() -> None:
    """The table of docs/knobs.md: rows, then columns at most by TMA store, by direct store and in
    ping-pong.
    """
    table = re.findall(
        r"^\| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", (ROOT / "docs" / "knobs.md").read_text(), re.M
    )
    for row in table:
        rows, *said = map(int, row)
        assert [widest(rows, 512), widest(rows, 511), widest(rows, 512, ping_pong=True)] == said, rows
    assert [row[0] for row in table] == ["64", "128", "192", "256"]


def widest(rows: int, n: int, ping_pong: bool = False) -> int:
    """Where rows of D have 511 elements, TMA cannot store them."""
    a, b = np.zeros((512, 512), ml_dtypes.bfloat16), np.zeros((512, 512), ml_dtypes.bfloat16)[:, :n]
    facts = Facts(lapidist.plan(a, b, device="machine").plan.problem, WGMMA_FAMILY.family)
    taken = [
        n
        for n in range(16, 272, 16)
        if not refusal(RULES, tile("bfloat16", rows, n, 2, ping_pong=ping_pong), facts)
    ]
    return max(taken)


def test_the_map_for_contributors_names_what_there_is() -> None:
    """Every path stands in the tree; every kind of thing has its row."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    rows = [
        line.split("|")[1:-1]
        for line in text.splitlines()
        if line.startswith("| a") or line.startswith("| something")
    ]
    assert len(rows) >= 12
    for what, *cells in rows:
        named = [path for cell in cells for path in re.findall(r"`([^`]+)`", cell)]
        assert named, what
        for path in named:
            assert (ROOT / path).exists(), (what.strip(), path)
