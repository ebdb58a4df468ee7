"""A lesson of one's own kernel: its source, with what each line asks of memory and what was found there, and
the turns of its first warps on one schedule."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from html import escape
from typing import Any

import numpy as np

from lapidist.launch import Launch
from lapidist.machine.authors.coverage import Coverage
from lapidist.machine.authors.findings import LINE, Findings
from lapidist.machine.authors.timeline import timeline_of
from lapidist.machine.counters import Counts, SiteTraffic
from lapidist.machine.faults import MachineFault
from lapidist.machine.run import run

WARPS_SHOWN, WIDTH, ROW = 16, 1000, 18
TURNS = {"global": "sectors", "local": "sectors", "shared": "wavefronts"}
STYLE = """body { font: 14px/1.4 monospace } td { padding: 0 1em; white-space: pre; vertical-align: top }
.no { background: #fdd } .half { background: #ffd } .yes { background: #dfd }
.here { outline: 2px solid #06c }
.found { color: #a00; white-space: pre-wrap } rect { fill: #69c } rect.wait { fill: #ccc }"""
# A turn under the mouse shows its line of the source.
SCRIPT = """for (const turn of document.querySelectorAll("rect[data-line]"))
  for (const [event, shown] of [["mouseenter", true], ["mouseleave", false]])
    turn.addEventListener(event, () =>
      document.getElementById(turn.dataset.line)?.classList.toggle("here", shown));"""


@contextmanager
def restored(launch: Launch) -> Iterator[None]:
    """Undo what runs write to the launch's arrays."""
    arrays = [m.owner for m in launch.memory if isinstance(m.owner, np.ndarray)]
    before = [array.copy() for array in arrays]
    try:
        yield
    finally:
        for array, content in zip(arrays, before, strict=True):
            if array.flags.writeable:
                np.copyto(array, content)


def page_of(launch: Launch, findings: Findings, coverage: Coverage, seed: int = 0) -> str:
    """A page by itself, of a launch that was checked. The launch's arrays stay as they are."""
    counts: Counts | None = None
    with restored(launch), suppress(MachineFault):  # it is among what was found
        counts = run(launch, exact_counts=True).counts
    with restored(launch):
        events = timeline_of(launch, seed).events
    requests = by_line(counts.sites if counts else ())
    below = {line: finding for finding in reversed(findings) for line in finding.lines[:1]}
    parts = [
        f"<!doctype html><meta charset=utf-8><title>{escape(coverage.kernel)}</title><style>{STYLE}</style>",
        f"<h1>{escape(coverage.kernel)}</h1><p>{escape(coverage.summary())}</p>",
        f"<pre>{escape(str(counts or 'It did not come to its end.'))}</pre>",
        f"<h2>Schedule {seed}: warps, in steps</h2>{drawn(events)}",
    ]
    for file in coverage.files:
        parts.append(f"<h2>{escape(file)}</h2><table>")
        for number, line, text in coverage.rows(file):
            place = f"{file}:{number}"
            kind, ways = ("", "") if line is None else (line.kind, str(line))
            cells = "".join(
                f"<td>{escape(cell)}</td>" for cell in (str(number), text, requests.get(place, ""), ways)
            )
            parts.append(f'<tr id="{escape(place)}" class="{kind}">{cells}</tr>')
            if place in below:
                parts.append(
                    f'<tr><td></td><td colspan=3 class="found">{escape(str(below[place]))}</td></tr>'
                )
        parts.append("</table>")
    return "\n".join([*parts, f"<script>{SCRIPT}</script>"]) + "\n"


def by_line(sites: tuple[SiteTraffic, ...]) -> Mapping[str, str]:
    """What the requests of each line of the source came to, space by space."""
    lines: dict[str, dict[str, Any]] = defaultdict(dict)
    for site in sites:
        match = LINE.search(site.source)
        spaces = lines[match[0] if match else f"PTX:{site.line}"]
        sum_so_far = spaces.get(site.space)
        spaces[site.space] = site.traffic if sum_so_far is None else sum_so_far + site.traffic
    return {
        place: "; ".join(
            f"{space}: {traffic.requests:,} requests, {traffic.per_request:.1f} {TURNS[space]} each"
            for space, traffic in spaces.items()
            if traffic.requests and space in TURNS
        )
        for place, spaces in lines.items()
    }


def drawn(events: list[dict[str, Any]]) -> str:
    """The turns of the first warps, and what they waited for, as a row a warp."""
    turns = [event for event in events if event["ph"] == "X"]
    warps = sorted({(event["pid"], event["tid"]) for event in turns})[:WARPS_SHOWN]
    end = max((event["ts"] + event["dur"] for event in turns), default=1)
    marks = [
        f'<text x="0" y="{ROW * row + 13}">block {block}, warp {warp}</text>'
        for row, (block, warp) in enumerate(warps)
    ]
    for event in turns:
        who = event["pid"], event["tid"]
        if who not in warps:
            continue
        left, width = (WIDTH * event[key] / end for key in ("ts", "dur"))
        waits = event["name"].startswith("wait")
        place = f'x="{left + 130:.1f}" y="{ROW * warps.index(who) + 2}" width="{max(width, 0.5):.1f}"'
        parts = f'class="wait" {place}' if waits else f'data-line="{escape(event["name"])}" {place}'
        marks.append(f'<rect {parts} height="{ROW - 4}"><title>{escape(event["name"])}</title></rect>')
    return f'<svg width="{WIDTH + 140}" height="{ROW * len(warps) + 4}">{"".join(marks)}</svg>'
