"""A lesson as one HTML file: the template's parts put together, the data beside them as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from lapidist.kernels.kernel import Kernel
from lapidist_lab.lessons.ideas import PARTS, SHORT_WAY
from lapidist_lab.lessons.thumbnails import thumbnail

TEMPLATES = Path(__file__).parent / "template"
SCRIPTS = ("drawing.js", "memory.js", "where.js", "timeline.js", "opening.js", "page.js")


def page_of(lesson: dict[str, Any], rungs: Sequence[Kernel] = ()) -> str:
    """The HTML of a lesson. `rungs` have their pages in the same folder."""
    data = json.dumps(lesson, separators=(",", ":")).replace("<", "\\u003c")
    script = "\n".join((TEMPLATES / name).read_text(encoding="utf-8") for name in SCRIPTS)
    values = {
        "title": escape(f"{lesson['number']:02d} {lesson['name']}"),
        "name": escape(lesson["name"]),
        "nav": links(lesson["name"], rungs),
        "style": (TEMPLATES / "page.css").read_text(encoding="utf-8"),
        "script": script,
        "data": data,
    }
    return filled((TEMPLATES / "page.html").read_text(encoding="utf-8"), values)


def filled(template: str, values: dict[str, str]) -> str:
    """The template with each `@name@` replaced; replacements are not searched."""
    first, *parts_after = template.split("@")
    parts = [first]
    for place, part in enumerate(parts_after):
        parts.append(values[part] if place % 2 == 0 else part)
    return "".join(parts)


def file_name(number: int, kernel: Kernel) -> str:
    return f"{number:02d}_{kernel.name}.html"


def links(name: str, rungs: Sequence[Kernel]) -> str:
    """Links to the index, the rung before and the one after."""
    place = next((place for place, rung in enumerate(rungs) if rung.name == name), None)
    if place is None:
        return ""
    anchors = ['<a href="index.html">all rungs</a>']
    for other, words in ((place - 1, "before"), (place + 1, "next")):
        if 0 <= other < len(rungs):
            target = file_name(other + 1, rungs[other])
            anchors.append(f'<a href="{target}">{words}: {other + 1:02d} {rungs[other].name}</a>')
    return " ".join(anchors)


def index_of(lessons: Sequence[dict[str, Any]], rungs: Sequence[Kernel]) -> str:
    """The HTML of all rungs with their lessons, part by part, in the order of reading."""
    cards = [card(number, *pair) for number, pair in enumerate(zip(lessons, rungs, strict=True), 1)]
    parts = [
        f'<h2>{escape(title)}</h2>\n<div class="cards">{"".join(cards[first - 1 : last])}</div>'
        for title, first, last in PARTS
        if cards[first - 1 : last]
    ]
    ways = (f'<a href="#rung-{number}">{number:02d}</a>' for number in SHORT_WAY if number <= len(cards))
    values = {
        "style": (TEMPLATES / "page.css").read_text(encoding="utf-8"),
        "parts": "\n".join(parts),
        "short": " → ".join(ways),
    }
    return filled((TEMPLATES / "index.html").read_text(encoding="utf-8"), values)


def card(number: int, lesson: dict[str, Any], rung: Kernel) -> str:
    """A rung: its picture, what it teaches, what to read first, its speed."""
    needs = ", ".join(f"{need:02d}" for need in lesson["opening"]["needs"])
    facts = [f"read first: {needs}" if needs else "", speed_words(lesson)]
    return (
        f'<a class="card" id="rung-{number}" href="{file_name(number, rung)}">{thumbnail(lesson)}'
        f"<b>{number:02d} {rung.name}</b><span>{escape(lesson['header']['Lesson'])}</span>"
        f'<span class="muted">{escape("; ".join(filter(None, facts)))}</span></a>'
    )


def speed_words(lesson: dict[str, Any]) -> str:
    """With the size, as other pages show other sizes of a rung."""
    measured = lesson.get("measured") or {"rows": []}
    speeds = [row["tflops"] for row in measured["rows"] if row["name"] == lesson["name"]]
    return f"{speeds[0]:.3g} TFLOP/s in {lesson['math']}, {measured['shape']}" if speeds else ""
