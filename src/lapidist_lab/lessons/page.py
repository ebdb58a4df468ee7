"""A lesson as one HTML file: the template's parts put together, the data beside them as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from lapidist.kernels.kernel import Kernel

PARTS = Path(__file__).parent / "template"
SCRIPTS = ("drawing.js", "memory.js", "where.js", "timeline.js", "opening.js", "page.js")


def page_of(lesson: dict[str, Any], rungs: Sequence[Kernel] = ()) -> str:
    """The HTML of a lesson. `rungs` have their pages in the same folder."""
    data = json.dumps(lesson, separators=(",", ":")).replace("<", "\\u003c")
    script = "\n".join((PARTS / name).read_text(encoding="utf-8") for name in SCRIPTS)
    values = {
        "title": escape(f"{lesson['number']:02d} {lesson['name']}"),
        "name": escape(lesson["name"]),
        "nav": links(lesson["name"], rungs),
        "style": (PARTS / "page.css").read_text(encoding="utf-8"),
        "script": script,
        "data": data,
    }
    return filled((PARTS / "page.html").read_text(encoding="utf-8"), values)


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
    """The HTML of all rungs with their lessons, from the lowest."""
    rows = []
    for number, (lesson, rung) in enumerate(zip(lessons, rungs, strict=True), 1):
        speed = speed_words(lesson)
        words = escape(lesson["header"]["Lesson"])
        rows.append(
            f'<tr><td><a href="{file_name(number, rung)}">{number:02d} {rung.name}</a></td>'
            f'<td class="words">{words}</td><td>{escape(lesson["math"])}</td><td>{speed}</td></tr>'
        )
    values = {"style": (PARTS / "page.css").read_text(encoding="utf-8"), "rows": "\n".join(rows)}
    return filled((PARTS / "index.html").read_text(encoding="utf-8"), values)


def speed_words(lesson: dict[str, Any]) -> str:
    measured = lesson.get("measured") or {"rows": []}
    speeds = [row["tflops"] for row in measured["rows"] if row["name"] == lesson["name"]]
    return f"{speeds[0]:.3g}" if speeds else ""
