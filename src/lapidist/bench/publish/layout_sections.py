"""The table of layouts: what the study of them measured, a row a type and size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lapidist.bench.protocol.contenders import LIBRARY
from lapidist.bench.protocol.record import Record
from lapidist.bench.publish import charts
from lapidist.bench.publish.charts import Bar, Chart
from lapidist.bench.publish.markdown import fold, row_of, rule, speed
from lapidist.bench.publish.tables import percent
from lapidist.bench.publish.views import short_chip
from lapidist.bench.studies.layouts import LAYOUTS, MATHS, MODE, SIZES, VENDOR
from lapidist.dtypes import short_name

# in the field's words; the first layout is K-major in both
OTHER_WAYS = {"rr": "B N-major", "cc": "A M-major", "cr": "both"}


def layout_sections(records: Sequence[Record]) -> list[str]:
    rows = {
        (record.kernel, record.dtype, record.m, record.layout[:2]): record
        for record in records
        if record.mode == MODE
    }
    if not rows:
        return []
    heads = ["type", "m = n = k", "", *LAYOUTS.values()]
    lines = [row_of(heads), rule(heads)]
    for math in MATHS:
        for size in SIZES:
            for kernel in (LIBRARY, VENDOR):
                here = {layout: rows.get((kernel, math, size, layout)) for layout in LAYOUTS}
                if any(here.values()):
                    lines.append(row_of([short_name(math), str(size), kernel, *layout_cells(here)]))
    words = (
        "The tensor cores of Hopper read [K-major](../glossary.md#k-major) operands: A by rows, B by columns."
        " In 16-bit types they also read [N-major and M-major](../glossary.md#n-major) ones. In other types"
        " such an operand is transposed on its way through registers, or copied first. Or the planner takes"
        " mma.sync, which reads both. cuBLAS by torch has not all of these layouts."
    )
    table = "TFLOP/s, and in brackets % of what the same library does K-major.\n\n" + "\n".join(lines)
    return [f"{words} {of_layouts(records)}.\n", fold("Every layout, sustained, at two sizes", table)]


def layout_cells(here: Mapping[str, Record | None]) -> list[str]:
    """The speed in each layout, and its share of that in the first."""
    first = here[next(iter(LAYOUTS))]
    cells = []
    for record in here.values():
        if record is None or not record.tflops:
            cells.append("-")
            continue
        share = (
            f" ({percent(record.tflops / first.tflops)})"
            if first and first.tflops and record is not first
            else ""
        )
        cells.append(f"{speed(record)}{share}")
    return cells


def shares_left(records: Sequence[Record], size: int = max(SIZES)) -> list[tuple[str, Record, float]]:
    """Of each type in each other layout: the row, and what it keeps of the K-major speed, on that square."""
    rows = {
        (record.dtype, record.layout[:2]): record
        for record in records
        if record.mode == MODE and record.kernel == LIBRARY and record.m == size
    }
    first, *others = LAYOUTS
    pairs = [(way, rows.get((kind, first)), rows.get((kind, way))) for kind in MATHS for way in others]
    return [
        (way, record, record.tflops / base.tflops)
        for way, base, record in pairs
        if base and record and base.tflops and record.tflops
    ]


def of_layouts(records: Sequence[Record]) -> str:
    said = [
        f"{percent(min(shares))} to {percent(max(shares))} % at {size}^3"
        for size in sorted(SIZES, reverse=True)
        if (shares := [share for _, _, share in shares_left(records, size)])
    ]
    if not said:
        return ""
    chip = short_chip(next(record.device for record in records if record.mode == MODE))
    return f"Of our K-major speed, N-major and M-major operands keep {', '.join(said)}, on an {chip}"


def layout_chart(records: Sequence[Record]) -> Chart | None:
    drawn = [
        Bar(
            f"{short_name(record.dtype)}, {OTHER_WAYS[way]}",
            100 * share,
            f"{speed(record)} TFLOP/s, {percent(share)} %",
            "production",
        )
        for way, record, share in shares_left(records)
    ]
    words = f"What is left of the K-major speed in other layouts, {max(SIZES)}^3, sustained"
    return charts.bars("layouts", drawn, [("K-major", 100.0)], words) if drawn else None
