"""What the docs show happens: every session in README.md and docs/, as printed; and the links between the pages."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SESSIONS = [page for page in PAGES if "\n>>> " in page.read_text()]


def test_the_readme_and_the_knobs_are_among_them() -> None:
    assert {"README.md", "knobs.md"} <= {page.name for page in SESSIONS}


@pytest.mark.parametrize("page", SESSIONS, ids=lambda page: page.name)
def test_a_session_prints_what_the_page_says(page: Path) -> None:
    """`...` stands for what may change; a closing fence is no output."""
    text = page.read_text().replace("\n```", "\n\n```")
    test = doctest.DocTestParser().get_doctest(text, {}, page.name, str(page), 0)
    found = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test)
    assert found.attempted
    assert found.failed == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = [target.partition("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text())]
    assert [target for target in targets if "//" not in target and target and not (page.parent / target).exists()] == []


def test_the_map_for_contributors_names_what_there_is() -> None:
    """Every path stands in the tree; every kind of thing has its row."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    rows = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("| a") or line.startswith("| something")]
    assert len(rows) >= 12
    for what, *cells in rows:
        named = [path for cell in cells for path in re.findall(r"`([^`]+)`", cell)]
        assert named, what
        for path in named:
            assert (ROOT / path).exists(), (what.strip(), path)
