"""One self-contained page of a run: plots as inline SVG, tables, conditions. No script, no network, light and
dark.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from lapidist.bench.protocol.cases import shape_words
from lapidist.bench.protocol.record import Conditions, Record, row_of
from lapidist.bench.publish import svg
from lapidist.bench.publish.palette import DARK, DRAWN, LIGHT
from lapidist.bench.publish.tables import (
    COLUMNS,
    LIMIT_HEADS,
    MACHINE_COLUMNS,
    limit_cells,
    number,
    percent,
    whole,
)
from lapidist.bench.publish.views import (
    NO_PRODUCTS,
    Series,
    Shape,
    in_math,
    in_order,
    label,
    main_case,
    maths_in,
    on,
    roofline,
    roofs,
    shape_of,
    squares,
    sweep,
)
from lapidist.dtypes import short_name

STYLE = (
    f":root {{ color-scheme: light dark; {LIGHT} }}\n"
    f"@media (prefers-color-scheme: dark) {{ :root {{ {DARK} }} }}\n"
    f"{DRAWN}"
    """
body { margin: 2rem auto; max-width: 70rem; padding: 0 1.2rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .2rem; } h2 { font-size: 1.15rem; margin: 2.4rem 0 .4rem; }
p { margin: .3rem 0 .8rem; max-width: 50rem; } .muted { color: var(--muted); fill: var(--muted); }
svg { width: 100%; height: auto; font: 13px system-ui, "DejaVu Sans", sans-serif; }
svg .small { font-size: 12px; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .86rem;
  font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .5rem; border-bottom: 1px solid var(--grid); text-align: right; white-space: nowrap;
  }
th:first-child, td:first-child { text-align: left; } tr.peer td { font-weight: 600; }
tr.failed td { color: var(--warn); }
td.reason { text-align: left; white-space: normal; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; }
dt { color: var(--muted); } dd { margin: 0; overflow-wrap: anywhere; }
ul.key { list-style: none; padding: 0; display: flex;
  flex-wrap: wrap; gap: .3rem 1.2rem; } ul.key span { display: inline-block; width: .8em; height: .8em;
  border-radius: 2px; }
"""
)


def page(conditions: Conditions, records: Sequence[Record]) -> str:
    """The whole document."""
    parts = [head(conditions, main_case(records))]
    for math in maths_in(records):
        parts += plots_of(conditions, in_math(records, math), math)
    parts += [
        limits_section(records),
        tables_section(records),
        failures_section(records),
        conditions_section(conditions),
    ]
    title = escape(f"Lapidist on {conditions.device}")
    opening = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport"'
        ' content="width=device-width">'
    )
    top = f"{opening}<title>{title}</title><style>{STYLE}</style></head>"
    return f"{top}<body>\n{''.join(parts)}</body></html>\n"


def head(conditions: Conditions, shape: Shape | None) -> str:
    elsewhere = {"machine": "in the PTX machine, without a GPU", "none": "compiled, not run"}
    where = elsewhere.get(conditions.device, f"on {conditions.device}")
    what = f"{shape_words(*shape)}: " if shape else ""
    day = escape(conditions.date.replace("T", " ").replace("+00:00", " UTC"))
    return (
        f'<h1>The ladder {escape(where)}</h1><p class="muted">{escape(what)}{escape(conditions.mode)},'
        f" {day}</p>\n"
    )


# ---- plots ----


def plots_of(conditions: Conditions, records: Sequence[Record], math: str) -> list[str]:
    """The ladder as bars, speed against size, the roofline, for one type."""
    shape = main_case(records)
    if shape is None:
        return []
    climbed = in_order(on(records, shape))
    squared = [
        each for each in squares(records, least=3) if each.kernel in {record.kernel for record in climbed}
    ]
    return [
        ladder_section(conditions, f"The ladder at {shape_words(*shape)}, {short_name(math)}", climbed),
        size_section(conditions, squared, math, "m = n = k"),
        size_section(conditions, sweep(records), math, "m = n, at k = 1024"),
        roofline_section(conditions, climbed),
    ]


def ladder_section(conditions: Conditions, title: str, records: Sequence[Record]) -> str:
    """Speed of every rung; where nothing was timed, the share of the main loop that multiplies."""
    timed = [record for record in records if record.tflops is not None and record.limit_share is not None]
    if timed:
        return section(title, speed_bars(conditions, timed), legend({record.kind for record in timed}))
    counted = [record for record in records if record.ffma_share is not None]
    if not counted:
        return ""
    rows = [
        svg.Bar(label(r.kernel), 100 * (r.ffma_share or 0.0), f"{percent(r.ffma_share)} %", r.kind)
        for r in counted
    ]
    words = (
        "Nothing was timed. Share of the instructions that multiply and add, in percent: what is left over is"
        " overhead."
    )
    return section(title, svg.bars(rows, [("100 %", 100.0)], title), words)


def speed_bars(conditions: Conditions, timed: Sequence[Record]) -> str:
    rows = [svg.Bar(label(r.kernel), r.tflops or 0.0, bar_words(r), r.kind) for r in timed]
    marks = [("cuBLAS", r.tflops or 0.0) for r in timed if r.kernel == "cublas"]
    marks += [
        (f"limit of {name}, {limit:.4g}", limit) for name, limit in roofs(conditions, timed[0].dtype).items()
    ]
    return svg.bars(rows, marks, "TFLOP/s of each kernel")


def bar_words(record: Record) -> str:
    share = f", {percent(record.ratio)} %" if record.ratio is not None and record.kind != "peer" else ""
    return f"{number(record.tflops, '.1f' if (record.tflops or 0) >= 10 else '.2f')}{share}"


def legend(kinds: set[str]) -> str:
    names = {"rung": "rung", "production": "production kernel", "peer": "other libraries", "detour": "detour"}
    entries = [
        f'<li><span style="background:var(--{kind})"></span> {name}</li>'
        for kind, name in names.items()
        if kind in kinds
    ]
    return f'TFLOP/s, and % of cuBLAS in the same run.</p><ul class="key">{"".join(entries)}</ul><p>'


def size_section(conditions: Conditions, series: Sequence[Series], math: str, axis: str) -> str:
    if not series:
        return ""
    drawn = [(label(each.kernel), [(float(x), y) for x, y in each.points]) for each in series]
    plot = svg.lines(drawn, roofs(conditions, math), axis, "TFLOP/s", "TFLOP/s against size")
    return section(
        f"Speed against size, {axis}, {short_name(math)}", plot, "Small products do not fill the chip."
    )


def roofline_section(conditions: Conditions, records: Sequence[Record]) -> str:
    points = roofline(record for record in records if record.kind != "detour")
    known = roofs(conditions, records[0].dtype) if records else {}
    bandwidth = float(conditions.chip.get("dram_gbps", 0.0)) / 1000
    if not points or not known or not bandwidth:
        return ""
    plot = svg.roofline(
        [(label(p.kernel), p.intensity, p.tflops) for p in points], known, bandwidth, "Roofline"
    )
    words = (
        "A block's tile decides how many bytes it asks of global memory for each flop. Caches answer most of"
        " them, so the first rungs can stand above the line of the DRAM; what lies below both lines is lost"
        " to instructions and waiting."
    )
    return section(f"Roofline, {short_name(records[0].dtype)}", plot, words)


def section(title: str, plot: str, words: str) -> str:
    return f"<h2>{escape(title)}</h2><p>{words}</p>\n{plot}\n"


# ---- tables ----


def limits_section(records: Sequence[Record]) -> str:
    """What the micro-kernels reached, where they were measured."""
    rows = [record for record in records if record.kind == "limit"]
    if not rows:
        return ""
    lines = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in limit_cells(row)) + "</tr>" for row in rows
    )
    head = "".join(f"<th>{name}</th>" for name in LIMIT_HEADS)
    return f'<h2>Limits of the units</h2><div class="wide"><table><tr>{head}</tr>{lines}</table></div>\n'


def tables_section(records: Sequence[Record]) -> str:
    """One table for each shape and type, in the order in which they were measured."""
    groups: dict[tuple[Shape, str, str], list[Record]] = {}
    for record in records:
        if record.kind not in NO_PRODUCTS and record.mode != "host":
            groups.setdefault((shape_of(record), record.dtype, record.mode), []).append(record)
    parts = ["<h2>Numbers</h2>\n"]
    for (shape, dtype, mode), rows in groups.items():
        parts.append(
            f"<h3>{shape_words(*shape)}, {escape(dtype)}, {escape(mode)}</h3>\n{table(in_order(rows))}"
        )
    return "".join(parts)


def table(rows: Sequence[Record]) -> str:
    columns = MACHINE_COLUMNS if rows[0].mode == "machine" else COLUMNS
    heads = "".join(f"<th>{escape(whole(name))}</th>" for name in columns)
    lines = []
    for record in rows:
        css = "failed" if record.error and record.mode != "static" else record.kind
        row = "".join(f"<td>{escape(cell(record))}</td>" for cell in columns.values())
        lines.append(f'<tr class="{css}">{row}</tr>')
    return (
        f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>\n'
        + "\n".join(lines)
        + "\n</tbody></table></div>\n"
    )


def failures_section(records: Sequence[Record]) -> str:
    failed = [record for record in records if record.error and record.mode != "static"]
    if not failed:
        return ""
    lines = []
    for record in failed:
        where = f"<td>{escape(label(record.kernel))}</td><td>{shape_words(*shape_of(record))}</td>"
        lines.append(
            f'<tr>{where}<td class="reason">{escape((record.error or "").splitlines()[0])}</td></tr>'
        )
    return f'<h2>Refused or failed</h2><div class="wide"><table>{"".join(lines)}</table></div>\n'


def conditions_section(conditions: Conditions) -> str:
    items = []
    for name, value in row_of(conditions).items():
        if value not in (None, "", {}):
            items.append(f"<dt>{escape(name)}</dt><dd>{escape(words_of(value))}</dd>")
    return f"<h2>Conditions</h2><dl>{''.join(items)}</dl>\n"


def words_of(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {words_of(item)}" for name, item in value.items() if item is not None)
    return f"{value:g}" if isinstance(value, float) else str(value)
