"""Whether a tag, the versions and the changelog agree, and the notes of a release: run by the workflow.

`python tests/support/release.py v0.2.0 --notes notes.md`"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SECTION = re.compile(r"^## (.+)$", re.M)
PAGE = re.compile(r"\[([^\]]+)\]\((?!https?:)[^)]*\)")


def version_of_package(root: Path = ROOT) -> str:
    return re.search(r'^__version__ = "(.+)"$', (root / "src/lapidist/__init__.py").read_text(), re.M)[1]


def version_of_citation(root: Path = ROOT) -> str:
    return re.search(r"^version: (.+)$", (root / "CITATION.cff").read_text(), re.M)[1]


def sections(root: Path = ROOT) -> dict[str, str]:
    """Text of the changelog by heading, the newest first."""
    parts = SECTION.split((root / "CHANGELOG.md").read_text())
    return {heading: text.strip() for heading, text in zip(parts[1::2], parts[2::2], strict=True)}


def problems(tag: str, root: Path = ROOT) -> list[str]:
    """What is not ready for this tag."""
    version = version_of_package(root)
    newest = next(iter(sections(root)))
    dated = re.fullmatch(rf"{re.escape(version)} \(\d{{4}}-\d\d-\d\d\)", newest)
    found = [] if tag == f"v{version}" else [f"the tag {tag} is not v{version}, the package's version"]
    found += [] if version_of_citation(root) == version else ["CITATION.cff has another version"]
    found += [] if dated else [f"the changelog begins with {newest!r}, not with {version} and a date"]
    return found


def notes(root: Path = ROOT) -> str:
    """The newest section of the changelog, and the known issues. Pages that they link lie elsewhere: their
    words stay.
    """
    newest = next(iter(sections(root).values()))
    issues = re.search(r"^## Known issues\n+(.*?)\n+## ", (root / "docs/faq.md").read_text(), re.M | re.S)
    return PAGE.sub(r"\1", f"{newest}\n\n**Known issues**\n\n{issues[1]}\n")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("tag")
    parser.add_argument("--notes", type=Path, required=True)
    asked = parser.parse_args()
    found = problems(asked.tag)
    if found:
        sys.exit("\n".join(found))
    asked.notes.write_text(notes())


if __name__ == "__main__":
    main()
