"""Plain English: short sentences everywhere, no private words, no term that the glossary does not have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from offenders import hold_none
from pages import PAGES, ROOT, ROOT_PAGES, name_of
from terms import NO_PROSE, TERMS, blanked, unlinked
from words import long_ones, of_docstring, of_docstrings, of_errors, of_help, of_page, prose_of

SOURCES = sorted((ROOT / "src").rglob("*.py"))
# The share of sentences that may be long; less is better.
SHARE = 0.02
PROSE = [*PAGES, ROOT / "CHANGELOG.md"]
PLAIN = [page for page in PROSE if name_of(page) != "docs/glossary.md"]
# The code's own words, or riddles; the glossary has the field's.
PRIVATE = (
    r"turned",
    r"told",
    r"board",
    r"leaves? by hand",
    r"touch(?:es)? along",
    r"way out of a (?:sum|tile)",
    r"copy engine",
)
# abbreviations that everybody knows
KNOWN = {"API", "BLAS", "CI", "CPU", "CUDA", "CUTLASS", "FLOP", "GPU", "HTML", "JAX", "JSON", "MLP", "NVIDIA"}
KNOWN |= {"KB", "SVG", "TB", "TFLOP", "XLA", "XOR"}


def too_long(page: Path) -> list[str]:
    """The long sentences of a page that has too many."""
    found = of_page(page.read_text())
    long = long_ones(found)
    return long if len(long) > SHARE * len(found) else []


def test_sentences_of_pages_are_short() -> None:
    hold_none(f"{name_of(page)}: {each}" for page in PROSE for each in too_long(page))


def test_pages_use_no_private_words() -> None:
    hold_none(
        f"{name_of(page)}: {word}"
        for page in PLAIN
        for word in re.findall(rf"\b(?:{'|'.join(PRIVATE)})\b", prose_of(page.read_text()), re.I)
    )


def test_entries_of_the_changelog_have_one_line() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text().partition("\n## ")[2].splitlines()[1:]
    assert [line for line in lines if line and not re.match(r"- |#|\*\*", line)] == []


def test_the_changelog_is_a_page() -> None:
    """What a user can do now, in at most 30 entries a release; docs/attempts.md has what changes gained."""
    releases = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(), flags=re.M)[1:]
    hold_none(release.split()[0] for release in releases if len(re.findall(r"^- ", release, re.M)) > 30)


# ---- Python ----


@pytest.mark.parametrize("read", [of_docstrings, of_errors, of_help], ids=lambda read: read.__name__)
def test_sentences_of_the_source_are_short(read) -> None:  # type: ignore[no-untyped-def]
    found = [each for path in SOURCES for each in read(path)]
    long = long_ones(found)
    assert len(found) > 50
    assert len(long) <= SHARE * len(found), long


@pytest.mark.parametrize("read", [of_errors, of_help], ids=lambda read: read.__name__)
def test_errors_and_help_use_no_private_words(read) -> None:  # type: ignore[no-untyped-def]
    found = [each for path in SOURCES for each in read(path)]
    assert [each for each in found if re.search(rf"\b(?:{'|'.join(PRIVATE)})\b", each, re.I)] == []


def test_what_counts_as_a_sentence() -> None:
    text = """Say what it is. Say more;
    and more.

    Parameters
    ----------
    a : array
        Of any type. It is read.

    Examples
    --------
    >>> 1 + 1
    2
    """
    plain = "\n".join(line.removeprefix("    ") for line in text.splitlines())
    assert of_docstring(plain) == ["Say what it is.", "Say more; and more.", "Of any type.", "It is read."]
    page = (
        "# Head\n\nOne. Two, `a b c` and [three](x.md).\n\n```\ncode\n```\n\n| a | b |\n\n- item\n- other\n"
    )
    assert of_page(page) == ["One.", "Two, code and [three].", "item", "other"]


# ---- terms ----

LINKED = [
    ROOT / "docs" / f"{name}.md"
    for name in (
        "attempts",
        "command-line",
        "knobs",
        "ladder",
        "library",
        "machine",
        "numerics",
        "planner",
        "stream-k",
        "wgmma",
        "tutorials/epilogue",
        "tutorials/first-product",
        "tutorials/own-kernel",
        "tutorials/tune",
    )
]


def abbreviations(page: Path) -> set[str]:
    prose = prose_of(blanked(page.read_text(), NO_PROSE))
    return set(re.findall(r"\b[A-Z][A-Z0-9]*[A-Z](?=s?\b)", prose))


def test_the_glossary_has_every_abbreviation() -> None:
    """Words in capitals, but those that everybody knows."""
    glossary = (ROOT / "docs" / "glossary.md").read_text()
    known = KNOWN | {path.stem.upper() for path in ROOT.glob("*.md")}
    hold_none(
        f"{name_of(page)}: {word}"
        for page in (*ROOT_PAGES, *LINKED)
        for word in sorted(abbreviations(page) - known)
        if word not in glossary
    )


def test_terms_are_linked_at_their_first_use() -> None:
    hold_none(f"{name_of(page)}: {term}" for page in LINKED for term in unlinked(page.read_text()))


def test_every_term_is_in_the_glossary() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text()
    assert [term for term in TERMS if f'<a id="{term}"></a>' not in glossary] == []


def test_only_the_first_use_in_prose_counts() -> None:
    assert unlinked("# A warp\n\n`warp`, then a [warp](g.md#warp) and a warp.\n") == []
    assert unlinked("Two warps in an SM, see [SM](g.md#sm).\n") == ["sm", "warp"]
    assert unlinked("| a warp |\n\n```\nwarp\n```\n\nwarp-wide\n") == []
