"""Lessons on the site: their pages, and on the ladder's page a picture of each rung, which opens its lesson.

`make docs` has the machine make them first, in build/lessons.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

LESSONS = Path(__file__).parent.parent / "build" / "lessons"
LADDER, INDEX = "ladder.md", "index.html"
# A rung of the lessons' own index.
CARD = re.compile(
    r'<a class="card" id="rung-(?P<number>\d+)" href="(?P<page>[^"]+)">(?P<picture><svg.*?</svg>)'
    r"<b>(?P<name>[^<]*)</b><span>(?P<idea>[^<]*)</span>",
    re.S,
)
SECTION = re.compile(r"^## (\d\d) (?:to|and) (\d\d):.*$", re.M)
log = logging.getLogger("mkdocs.hooks.lessons")


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    pages = sorted(LESSONS.glob("*.html"))
    if not pages:
        log.warning("%s: must have the lessons; got none. Build the site by: make docs", LESSONS)
    for page in pages:
        files.append(File.generated(config, f"lessons/{page.name}", content=page.read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    index = LESSONS / INDEX
    if page.file.src_uri != LADDER or not index.exists():
        return markdown
    return with_cards(markdown, index.read_text(encoding="utf-8"))


def with_cards(markdown: str, index: str) -> str:
    """The ladder's page with the cards of a section's rungs below its heading."""
    cards = {int(found["number"]): card(found) for found in CARD.finditer(index)}

    def below(heading: re.Match[str]) -> str:
        first, last = int(heading[1]), int(heading[2])
        rungs = "".join(cards[number] for number in range(first, last + 1))
        return f'{heading[0]}\n\n<div class="rungs">{rungs}</div>'

    return SECTION.sub(below, markdown)


def card(found: re.Match[str]) -> str:
    place = f'href="lessons/{found["page"]}" title="{found["idea"]}"'
    return f"<a {place}>{found['picture']}<span>{found['name']}</span></a>"
