"""One self-contained page of a run: charts as inline SVG, tables to sort and filter, conditions. No network,
light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from lapidist.dtypes import short_name
from lapidist_lab.bench.protocol.cases import shape_words
from lapidist_lab.bench.protocol.record import Conditions, Record, row_of
from lapidist_lab.bench.publish.cells import shape
from lapidist_lab.bench.publish.charts import following, variables
from lapidist_lab.bench.publish.panels import Panel, Sources, panels
from lapidist_lab.bench.publish.record_views import NO_PRODUCTS, Shape, in_order, label, main_case, shape_of
from lapidist_lab.bench.publish.tables import Table, table
from lapidist_lab.bench.publish.terminal import COLUMNS_OF, LIMITS, TIMED, unbroken_head

PARTS = Path(__file__).parent / "template"
KIND_WORDS = {
    "rung": "rung",
    "production": "production kernel",
    "peer": "cuBLAS",
    "cutlass": "CUTLASS",
    "detour": "detour",
}
ELSEWHERE = {"machine": "in the PTX machine, without a GPU", "none": "compiled, not run"}
CHARTS = "charts-"
FEW_TABLES = 3  # so many are open from the start
TOP = (
    '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport"'
    ' content="width=device-width, initial-scale=1">'
)
TOOLS = (
    '<div class="tools"><input id="filter" type="search" aria-label="filter rows" placeholder="filter rows:'
    ' kernel, type, size (press /)"> <span id="told" class="muted" aria-live="polite"></span></div>'
)
Part = tuple[str, str, str]  # its anchor, its title and what is in it


def page(
    conditions: Conditions, records: Sequence[Record], sources: Sources | None = None, run: str = ""
) -> str:
    """The document. `sources` names the run of each record, where there are several, and `run` is that of the
    conditions. The first type's charts and the numbers are open."""
    runs = sources or {}
    candidates = [charts_part(math, shown) for math, shown in panels(conditions, records, runs).items()]
    candidates += [limits_part(records), tables_part(records, runs), failures_part(records)]
    parts = [part for part in [*candidates, conditions_part(conditions)] if part[2]]
    opened = {next((anchor for anchor, *_ in parts if anchor.startswith(CHARTS)), ""), "numbers"}
    shown = [
        f'<details id="{anchor}"{" open" if anchor in opened else ""}>'
        f"<summary><h2>{escape(title)}</h2></summary>\n{inside}</details>\n"
        for anchor, title, inside in parts
    ]
    links = "".join(f'<li><a href="#{anchor}">{escape(title)}</a></li>' for anchor, title, _ in parts)
    contents = f'<nav aria-label="contents"><ul>{links}</ul></nav>{TOOLS}\n'
    style, moves = ((PARTS / name).read_text(encoding="utf-8") for name in ("report.css", "report.js"))
    css = f":root {{ color-scheme: light dark; }}\n{variables(':root')}{style}"
    top = f"{TOP}<title>{escape(f'Lapidist on {conditions.device}')}</title><style>{css}</style></head>"
    script = f"<script>{moves}</script>"
    body = "".join([head(conditions, records, runs, run), contents, *shown])
    return f"{top}<body>\n{body}{script}</body></html>\n"


def head(conditions: Conditions, records: Sequence[Record], sources: Sources, run: str) -> str:
    """The title, the conditions' run and, where there are several, how many runs the numbers come from."""
    where = ELSEWHERE.get(conditions.device, f"on {conditions.device}")
    main = main_case(records)
    product = f"{shape_words(*main)}: " if main else ""
    day = conditions.date.replace("T", " ").replace("+00:00", " UTC")
    names = set(sources.values())
    several = f"; limits and conditions are that run's, the numbers of {len(names)} runs"
    of = f", {run}" if run else ""
    subtitle = escape(f"{product}{conditions.mode}, {day}{of}{several if len(names) > 1 else ''}")
    return f'<h1>The ladder {escape(where)}</h1><p class="muted">{subtitle}</p>\n'


def charts_part(math: str, shown: Sequence[Panel]) -> Part:
    inside = "".join(
        f"<h4>{escape(panel.title)}</h4><p>{escape(panel.words)}</p>{legend(panel)}\n{following(panel.drawn)}\n"
        for panel in shown
    )
    return f"{CHARTS}{short_name(math)}", f"Charts, {short_name(math)}", inside


def legend(panel: Panel) -> str:
    entries = [
        f'<li><span style="background:var(--{kind})"></span> {words}</li>'
        for kind, words in KIND_WORDS.items()
        if kind in panel.kinds
    ]
    return f'<ul class="key">{"".join(entries)}</ul>' if entries else ""


def limits_part(records: Sequence[Record]) -> Part:
    """The table of what the micro-kernels reached."""
    rows = [record for record in records if record.kind == "limit"]
    return "limits", "Limits of the units", table(LIMITS, rows).html() if rows else ""


def tables_part(records: Sequence[Record], sources: Sources) -> Part:
    """A table for each shape, type, mode and run, largest first: a share of cuBLAS stands beside numbers of
    its run only."""
    groups: dict[tuple[Shape, str, str, str], list[Record]] = {}
    for record in records:
        if record.kind not in NO_PRODUCTS and record.mode != "host":
            key = (shape_of(record), record.dtype, record.mode, sources.get(record.key, ""))
            groups.setdefault(key, []).append(record)
    parts = []
    for (extents, *words), rows in sorted(groups.items(), key=lambda group: -len(group[1])):
        title = ", ".join(filter(None, (shape_words(*extents), *words)))
        opened = " open" if len(groups) <= FEW_TABLES else ""
        summary = f"<summary><h3>{escape(title)}</h3></summary>"
        parts.append(f'<details class="case"{opened}>{summary}\n{case_table(in_order(rows))}</details>\n')
    return "numbers", "Numbers", "".join(parts)


def case_table(rows: Sequence[Record]) -> str:
    """The table of a case, without columns that are empty."""
    columns = COLUMNS_OF.get(rows[0].mode, TIMED)
    shown = table({unbroken_head(name): cell for name, cell in columns.items()}, rows).filled()
    css = ["failed" if row.error and row.mode != "static" else row.kind for row in rows]
    return shown.html(css, [row.seconds for row in rows])


def failures_part(records: Sequence[Record]) -> Part:
    failed = [record for record in records if record.error and record.mode != "static"]
    rows = [[label(row.kernel), shape(row), (row.error or "").splitlines()[0]] for row in failed]
    return (
        "failures",
        "Refused or failed",
        Table(["kernel", "product", "reason"], rows).html() if rows else "",
    )


def conditions_part(conditions: Conditions) -> Part:
    items = {name: value for name, value in row_of(conditions).items() if value not in (None, "", {})}
    listed = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(words_of(value))}</dd>" for name, value in items.items()
    )
    return "conditions", "Conditions", f"<dl>{listed}</dl>\n"


def words_of(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {words_of(item)}" for name, item in value.items() if item is not None)
    return f"{value:g}" if isinstance(value, float) else str(value)
