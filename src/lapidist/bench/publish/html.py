"""One self-contained page of a run: charts as inline SVG, tables to sort and filter, conditions. No network,
light and dark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from lapidist.bench.protocol.cases import shape_words
from lapidist.bench.protocol.record import Conditions, Record, row_of
from lapidist.bench.publish.charts import following, variables
from lapidist.bench.publish.panels import Panel, Sources, panels
from lapidist.bench.publish.tables import COLUMNS, LIMIT_HEADS, MACHINE_COLUMNS, Column, limit_cells, whole
from lapidist.bench.publish.views import NO_PRODUCTS, Shape, in_order, label, main_case, shape_of
from lapidist.dtypes import short_name

PARTS = Path(__file__).parent / "template"
KIND_WORDS = {
    "rung": "rung",
    "production": "production kernel",
    "peer": "other libraries",
    "detour": "detour",
}
ABSENT, CHARTS = "-", "charts-"
FEW_TABLES = 3  # so many are open from the start
Section = tuple[str, str, str]  # its anchor, its title and what is in it


def style() -> str:
    return f":root {{ color-scheme: light dark; }}\n{variables(':root')}{(PARTS / 'report.css').read_text()}"


def page(conditions: Conditions, records: Sequence[Record], sources: Sources | None = None) -> str:
    """The whole document. `sources` tell of records from several runs which is from which."""
    runs = sources or {}
    drawn = panels(conditions, records, runs)
    found = [*(charts_section(math, shown) for math, shown in drawn.items())]
    found += [limits_section(records), tables_section(records, runs), failures_section(records)]
    sections = [section for section in [*found, conditions_section(conditions)] if section[2]]
    title = escape(f"Lapidist on {conditions.device}")
    opening = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport"'
        ' content="width=device-width, initial-scale=1">'
    )
    top = f"{opening}<title>{title}</title><style>{style()}</style></head>"
    opened = {next((anchor for anchor, _, _ in sections if anchor.startswith(CHARTS)), ""), "numbers"}
    shown = [folded(section, section[0] in opened) for section in sections]
    body = [head(conditions, main_case(records)), contents(sections), *shown]
    script = f"<script>{(PARTS / 'report.js').read_text()}</script>"
    return f"{top}<body>\n{''.join(body)}{script}</body></html>\n"


def head(conditions: Conditions, shape: Shape | None) -> str:
    elsewhere = {"machine": "in the PTX machine, without a GPU", "none": "compiled, not run"}
    where = elsewhere.get(conditions.device, f"on {conditions.device}")
    what = f"{shape_words(*shape)}: " if shape else ""
    day = escape(conditions.date.replace("T", " ").replace("+00:00", " UTC"))
    return (
        f'<h1>The ladder {escape(where)}</h1><p class="muted">{escape(what)}{escape(conditions.mode)},'
        f" {day}</p>\n"
    )


def contents(sections: Sequence[Section]) -> str:
    links = "".join(f'<li><a href="#{anchor}">{escape(title)}</a></li>' for anchor, title, _ in sections)
    tools = (
        '<div class="tools"><input id="filter" type="search" aria-label="filter rows"'
        ' placeholder="filter rows: kernel, type, size (press /)"> <span id="told" class="muted"'
        ' aria-live="polite"></span></div>'
    )
    return f'<nav aria-label="contents"><ul>{links}</ul></nav>{tools}\n'


def folded(section: Section, opened: bool) -> str:
    """The first type's charts and the numbers are open, the rest is a touch away."""
    anchor, title, inside = section
    more = " open" if opened else ""
    return f'<details id="{anchor}"{more}><summary><h2>{escape(title)}</h2></summary>\n{inside}</details>\n'


# ---- charts ----


def charts_section(math: str, shown: Sequence[Panel]) -> Section:
    parts = "".join(
        f"<h4>{escape(panel.title)}</h4><p>{escape(panel.words)}</p>{legend(panel)}\n{following(panel.drawn)}\n"
        for panel in shown
    )
    return f"{CHARTS}{short_name(math)}", f"Charts, {short_name(math)}", parts


def legend(panel: Panel) -> str:
    entries = [
        f'<li><span style="background:var(--{kind})"></span> {words}</li>'
        for kind, words in KIND_WORDS.items()
        if kind in panel.kinds
    ]
    return f'<ul class="key">{"".join(entries)}</ul>' if entries else ""


# ---- tables ----


def limits_section(records: Sequence[Record]) -> Section:
    """What the micro-kernels reached, where they were measured."""
    rows = [limit_cells(record) for record in records if record.kind == "limit"]
    return "limits", "Limits of the units", table_of(LIMIT_HEADS, rows, [""] * len(rows)) if rows else ""


def tables_section(records: Sequence[Record], sources: Sources) -> Section:
    """One table for each shape, type, mode and run, those with most rows first. So a share of cuBLAS stands
    only beside numbers of its own run."""
    groups: dict[tuple[Shape, str, str, str], list[Record]] = {}
    for record in records:
        if record.kind not in NO_PRODUCTS and record.mode != "host":
            key = (shape_of(record), record.dtype, record.mode, sources.get(record.key, ""))
            groups.setdefault(key, []).append(record)
    parts = []
    for (shape, dtype, mode, run), rows in sorted(groups.items(), key=lambda group: -len(group[1])):
        title = ", ".join(part for part in (shape_words(*shape), dtype, mode, run) if part)
        opened = " open" if len(groups) <= FEW_TABLES else ""
        summary = f"<summary><h3>{escape(title)}</h3></summary>"
        parts.append(f'<details class="case"{opened}>{summary}\n{table(in_order(rows))}</details>\n')
    return "numbers", "Numbers", "".join(parts)


def table(rows: Sequence[Record]) -> str:
    """Columns in which no row has anything are left out."""
    columns: Mapping[str, Column] = MACHINE_COLUMNS if rows[0].mode == "machine" else COLUMNS
    cells = {name: [cell(record) for record in rows] for name, cell in columns.items()}
    kept = [name for name, column in cells.items() if any(each != ABSENT for each in column)]
    css = ["failed" if row.error and row.mode != "static" else row.kind for row in rows]
    lines = list(zip(*(cells[name] for name in kept), strict=True))
    return table_of([whole(name) for name in kept], lines, css, [row.seconds for row in rows])


def table_of(
    heads: Sequence[str],
    lines: Sequence[Sequence[str]],
    css: Sequence[str],
    seconds: Sequence[float | None] = (),
) -> str:
    """`seconds`: what a column of times is sorted by, since their units differ."""
    top = "".join(f"<th><button>{escape(name)}</button></th>" for name in heads)
    rows = []
    for place, (line, kind) in enumerate(zip(lines, css, strict=True)):
        cells = "".join(
            cell_of(name, words, seconds[place] if place < len(seconds) else None)
            for name, words in zip(heads, line, strict=True)
        )
        rows.append(f'<tr class="{kind}">{cells}</tr>')
    body = "\n".join(rows)
    return f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>\n{body}\n</tbody></table></div>\n'


def cell_of(head: str, words: str, seconds: float | None) -> str:
    sorted_by = f' data-value="{seconds:g}"' if head.endswith("time") and seconds is not None else ""
    return f"<td{sorted_by}>{escape(words)}</td>"


def failures_section(records: Sequence[Record]) -> Section:
    failed = [record for record in records if record.error and record.mode != "static"]
    lines = []
    for record in failed:
        where = f"<td>{escape(label(record.kernel))}</td><td>{shape_words(*shape_of(record))}</td>"
        reason = escape((record.error or "").splitlines()[0])
        lines.append(f'<tr>{where}<td class="reason">{reason}</td></tr>')
    rows = f'<div class="wide"><table><tbody>{"".join(lines)}</tbody></table></div>\n' if lines else ""
    return "failures", "Refused or failed", rows


def conditions_section(conditions: Conditions) -> Section:
    items = []
    for name, value in row_of(conditions).items():
        if value not in (None, "", {}):
            items.append(f"<dt>{escape(name)}</dt><dd>{escape(words_of(value))}</dd>")
    return "conditions", "Conditions", f"<dl>{''.join(items)}</dl>\n"


def words_of(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {words_of(item)}" for name, item in value.items() if item is not None)
    return f"{value:g}" if isinstance(value, float) else str(value)
