"""Types side by side: for each type one table of all square sizes, the limits of the units, and the summary
of the README.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lapidist.bench.protocol.contenders import LIBRARY
from lapidist.bench.protocol.frameworks import E5M2
from lapidist.bench.protocol.record import Record
from lapidist.bench.publish.markdown import row_of, rule, speed
from lapidist.bench.publish.tables import LIMIT_HEADS, limit_cells, number, percent
from lapidist.bench.publish.views import RUNG_NUMBER, Series, in_math, label, maths_in, squares
from lapidist.dtypes import short_name

KIND_ORDER = {"rung": 0, "production": 1, "detour": 2, "peer": 3}
SUMMARY_SIZES = (4096, 8192)


def type_sections(records: Sequence[Record], mode: str) -> list[str]:
    """One table for each type that was measured on two sizes or more."""
    return [
        section
        for math in maths_in(records)
        if (section := type_section(f"Squares, {short_name(math)}, {mode}", squares(in_math(records, math))))
    ]


def type_section(title: str, series: Sequence[Series]) -> str:
    """TFLOP/s and % of cuBLAS of every kernel on every size; shares at its best size; who won and who
    lost.
    """
    if not any(each.records[0].kind != "peer" for each in series):
        return ""
    ordered = sorted(series, key=place_of)
    sizes = sorted({record.m for each in series for record in each.records})
    heads = ["kernel", *(f"{size}^3" for size in sizes), "at best, % of limit", "% of its unit", "MHz", "W"]
    lines = [row_of(heads), rule(heads)]
    for each in ordered:
        at = {record.m: record for record in each.records}
        best = max(each.records, key=lambda record: record.tflops or 0.0)
        cells = [size_cell(at.get(size)) for size in sizes]
        seen = [number(best.clock_mhz, ".0f"), number(best.power_w, ".0f")]
        lines.append(
            row_of([label(each.kernel), *cells, percent(best.limit_share), percent(best.unit_share), *seen])
        )
    words = "TFLOP/s, and in brackets % of cuBLAS in the same run."
    if any(record.dtype == E5M2 and record.ratio is not None for each in series for record in each.records):
        words += " cuBLAS has no product of two e5m2: its B is e4m3."
    return f"## {title}\n\n{words}\n\n" + "\n".join(lines) + "\n\n" + verdicts(ordered)


def place_of(series: Series) -> tuple[int, int, str]:
    """Rungs as they are climbed, then production kernels, detours, peers."""
    return KIND_ORDER.get(series.records[0].kind, 9), RUNG_NUMBER.get(series.kernel, 99), series.kernel


def size_cell(record: Record | None) -> str:
    if record is None:
        return "-"
    share = f" ({percent(record.ratio)})" if record.ratio is not None and record.kernel != "cublas" else ""
    return f"{speed(record)}{share}"


def verdicts(series: Sequence[Series]) -> str:
    """Which of our kernels passed cuBLAS, and where; which never did."""
    won, lost = [], []
    for each in series:
        compared = [
            record
            for record in each.records
            if record.ratio is not None and record.kind in ("rung", "production")
        ]
        sizes = [f"{record.m}^3" for record in compared if (record.ratio or 0.0) >= 1.0]
        if sizes:
            won.append(f"{label(each.kernel)} at {', '.join(sizes)}")
        elif compared:
            lost.append(label(each.kernel))
    if not won:
        return "None is faster than cuBLAS on any size.\n" if lost else "cuBLAS has no such product.\n"
    winners = f"Faster than cuBLAS: {'; '.join(won)}."
    losers = f" Slower at every size: {', '.join(lost)}." if lost else ""
    return f"{winners}{losers}\n"


def limits_section(records: Sequence[Record]) -> list[str]:
    """What the micro-kernels reached: the 100 % of every share."""
    rows = [record for record in records if record.kind == "limit"]
    if not rows:
        return []
    words = (
        "Micro-kernels that add the same products again and again, random normal operands in registers"
        " (wgmma: in shared\nmemory), for over a second (`lapidist bench limits`). A limit is what a unit"
        " does under these conditions, power\nincluded; a kernel's share of it is what the kernel loses by"
        " itself."
    )
    return [
        f"## Limits of the units, {rows[0].device.removeprefix('NVIDIA ')}\n\n{words}\n\n{limits_table(rows)}"
    ]


def limits_table(records: Sequence[Record]) -> str:
    rows = [record for record in records if record.kind == "limit" and record.tflops]
    if not rows:
        return "Not measured yet.\n"
    return (
        "\n".join([row_of(LIMIT_HEADS), rule(LIMIT_HEADS), *(row_of(limit_cells(row)) for row in rows)])
        + "\n"
    )


# ---- the README's summary ----


def summary(records: Sequence[Record]) -> str:
    """For every type the best kernel of ours beside cuBLAS at two sizes."""
    rows = [
        row
        for math in maths_in(records)
        for size in SUMMARY_SIZES
        if (row := summary_row(in_math(records, math), math, size))
    ]
    if not rows:
        return "Not measured yet.\n"
    heads = ["type", "m = n = k", "best kernel", "TFLOP/s", "cuBLAS", "% of cuBLAS", "% of limit"]
    return "\n".join([row_of(heads), rule(heads), *rows]) + "\n"


def summary_row(records: Sequence[Record], math: str, size: int) -> str:
    """cuBLAS as it was in the run of our best."""
    here = [record for record in records if record.m == record.n == record.k == size and record.tflops]
    layout = next((record.layout for record in here if record.kernel == "cublas"), "")
    ours = [
        record
        for record in here
        if record.kind in ("rung", "production") and record.ratio and record.layout == layout
    ]
    if not ours:
        return ""
    best = max(ours, key=lambda record: record.tflops or 0.0)
    vendor = replace(best, tflops=(best.tflops or 0.0) / (best.ratio or 1.0))
    cells = [speed(best), speed(vendor), percent(best.ratio), percent(best.limit_share)]
    chosen = (best.config or "").partition(":")[0] if best.kernel == LIBRARY else ""
    return row_of([short_name(math), str(size), label(chosen or best.kernel), *cells])
