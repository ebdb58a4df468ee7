"""The charts of a run, for pages and for files: of each type the ladder, speed against size, the roofline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lapidist.dtypes import short_name
from lapidist_lab.bench.protocol.cases import shape_words
from lapidist_lab.bench.protocol.record import Conditions, Key, Record
from lapidist_lab.bench.publish import bar_charts, charts
from lapidist_lab.bench.publish.bar_charts import Bar
from lapidist_lab.bench.publish.cells import kind, number, percent
from lapidist_lab.bench.publish.record_views import (
    Series,
    in_another_layout,
    in_math,
    in_order,
    label,
    main_case,
    maths_in,
    on,
    roofline,
    roofs,
    squares,
    sweep,
)

Sources = Mapping[Key, str]  # of a record's key, the name of its run


@dataclass(frozen=True, slots=True)
class Panel:
    """A chart, what it is called, and what to know when reading it."""

    title: str
    drawn: str
    words: str
    kinds: frozenset[str] = frozenset()  # of the bars


def panels(conditions: Conditions, records: Sequence[Record], sources: Sources) -> dict[str, list[Panel]]:
    """The charts that the Records allow, by type."""
    by_type = {math: of_type(conditions, in_math(records, math), math, sources) for math in maths_in(records)}
    return {math: drawn for math, drawn in by_type.items() if drawn}


def of_type(conditions: Conditions, records: Sequence[Record], math: str, sources: Sources) -> list[Panel]:
    shape = main_case(records)
    if shape is None:
        return []
    climbed = in_order([record for record in on(records, shape) if not in_another_layout(record)])
    names = {record.kernel for record in climbed}
    squared = [series for series in squares(records, least=3) if series.kernel in names]
    drawn = [
        ladder(conditions, f"The ladder at {shape_words(*shape)}, {short_name(math)}", climbed, sources),
        against_size(conditions, squared, math, "m = n = k"),
        against_size(conditions, sweep(records), math, "m = n, at k = 1024"),
        under_roofs(conditions, climbed),
    ]
    return [panel for panel in drawn if panel is not None]


# ---- the ladder ----


def ladder(conditions: Conditions, title: str, records: Sequence[Record], sources: Sources) -> Panel | None:
    """Bars of every rung's speed; of several runs, of shares of cuBLAS in the same run. Where nothing was
    timed, of the share of instructions that multiply."""
    timed = [record for record in records if record.tflops is not None and record.limit_share is not None]
    shared = [record for record in timed if record.ratio is not None and record.kernel != "cublas"]
    counted = [record for record in records if record.ffma_share is not None]
    if shared and len({sources.get(record.key, "") for record in timed}) > 1:
        rows, marks = [share_bar(r, sources) for r in shared], [("cuBLAS in the same run", 100.0)]
        alt, words = (
            "% of cuBLAS of each kernel",
            "Bars are % of cuBLAS in the same run; the numbers are TFLOP/s, and that share."
            + most_of(shared, sources),
        )
    elif timed:
        rows = [Bar(label(r.kernel), r.tflops or 0.0, bar_words(r), r.kind) for r in timed]
        marks = [("cuBLAS", r.tflops or 0.0) for r in timed if r.kernel == "cublas"]
        limits = roofs(conditions, timed[0].dtype)
        marks += [(f"limit of {name}, {limit:.4g}", limit) for name, limit in limits.items()]
        alt, words = "TFLOP/s of each kernel", "TFLOP/s, and % of cuBLAS in the same run."
    elif counted:
        shares = [(record, record.ffma_share or 0.0) for record in counted]
        rows = [Bar(label(r.kernel), 100 * share, f"{percent(share)} %", r.kind) for r, share in shares]
        alt, marks, words = title, [("100 %", 100.0)], COUNTED
    else:
        return None
    kinds = frozenset(row.colour for row in rows)
    return Panel(title, bar_charts.bars("", rows, marks, alt, key={}).drawn, words, kinds)


COUNTED = (
    "Nothing was timed. Share of the instructions that multiply and add, in percent: what is left over is"
    " overhead."
)


def most_of(records: Sequence[Record], sources: Sources) -> str:
    """The run that most bars come from, in words."""
    runs = Counter(sources.get(record.key, "") for record in records)
    name, count = runs.most_common(1)[0]
    return f" {count} of {len(records)} are of {name}; point at one for its run." if name else ""


def share_bar(record: Record, sources: Sources) -> Bar:
    """A bar that names its run under the pointer, and what cuBLAS reached in it."""
    vendor = (record.tflops or 0.0) / (record.ratio or 1.0)
    more = f"cuBLAS in that run {vendor:.4g}, {sources.get(record.key, '')}"
    return Bar(label(record.kernel), 100 * (record.ratio or 0.0), bar_words(record), record.kind, more)


def bar_words(record: Record) -> str:
    shown = record.ratio is not None and record.kernel != "cublas"
    share = f", {percent(record.ratio)} %" if shown else ""
    return f"{number(record.tflops, '.1f' if (record.tflops or 0) >= 10 else '.2f')}{share}"


# ---- size and roofline ----


def against_size(conditions: Conditions, series: Sequence[Series], math: str, axis: str) -> Panel | None:
    if not series:
        return None
    drawn = [
        (label(kernel_series.kernel), [(float(x), y) for x, y in kernel_series.points])
        for kernel_series in series
    ]
    chart = charts.lines("", drawn, "TFLOP/s against size", roofs(conditions, math), axis)
    title = f"Speed against size, {axis}, {short_name(math)}"
    return Panel(title, chart.drawn, "Small products do not fill the chip.")


ROOFLINE = (
    "A block's tile decides how many bytes it asks of global memory for each flop. Caches answer most of"
    " them, so the first rungs can stand above the line of the DRAM. What lies below both lines is lost to"
    " instructions and waiting."
)


def under_roofs(conditions: Conditions, records: Sequence[Record]) -> Panel | None:
    points = roofline(record for record in records if record.kind != "detour")
    limits = roofs(conditions, records[0].dtype) if records else {}
    bandwidth = float(conditions.chip.get("dram_gbps", 0.0)) / 1000
    if not points or not limits or not bandwidth:
        return None
    named = [(label(p.kernel), p.intensity, p.tflops) for p in points]
    chart = charts.roofline("", named, limits, bandwidth, "Roofline")
    return Panel(f"Roofline, {kind(records[0])}", chart.drawn, ROOFLINE)


def file_of(conditions: Conditions, records: Sequence[Record]) -> str:
    """One SVG of all charts."""
    shown = [panel for drawn in panels(conditions, records, {}).values() for panel in drawn]
    return charts.stacked([(panel.title, panel.drawn) for panel in shown])
