"""What the layout of operands costs: the speed in each layout beside that of K-major operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lapidist.dtypes import short_name
from lapidist_lab.bench.protocol.contenders import LIBRARY
from lapidist_lab.bench.protocol.record import Record
from lapidist_lab.bench.publish import bar_charts
from lapidist_lab.bench.publish.bar_charts import Bar
from lapidist_lab.bench.publish.cells import chip, kind, percent, speed
from lapidist_lab.bench.publish.charts import Chart
from lapidist_lab.bench.publish.section import Data, Section
from lapidist_lab.bench.publish.tables import Table, fold
from lapidist_lab.bench.studies import operand_layouts

# in the field's words; the first layout is K-major in both
OTHER_WAYS = {"rr": "B N-major", "cc": "A M-major", "cr": "both"}
LAYOUT_WORDS = (
    "The tensor cores of Hopper read [K-major](../glossary.md#k-major) operands: A by rows, B by columns. In"
    " 16-bit types they also read [N-major and M-major](../glossary.md#n-major) ones. In other types such an"
    " operand is transposed on its way through registers, or copied first. Or the planner takes mma.sync,"
    " which reads both. cuBLAS by torch has not all of these layouts."
)
Ways = Mapping[str, Record | None]  # a product in each layout


def in_layouts(rows: Sequence[Record], math: str, size: int, kernel: str) -> Ways:
    at = {(r.kernel, r.dtype, r.m, r.layout[:2]): r for r in rows}
    return {layout: at.get((kernel, math, size, layout)) for layout in operand_layouts.LAYOUTS}


def k_major_share(ways: Ways, layout: str) -> float | None:
    """The speed in a layout over that in the first one."""
    first, record = ways[next(iter(operand_layouts.LAYOUTS))], ways[layout]
    return record.tflops / first.tflops if first and record and first.tflops and record.tflops else None


def layout_cell(ways: Ways, layout: str) -> str:
    record, share = ways[layout], k_major_share(ways, layout)
    if record is None or not record.tflops:
        return "-"
    other = layout in OTHER_WAYS and share is not None
    return f"{speed(record)} ({percent(share)})" if other else speed(record)


def layout_table(rows: Sequence[Record]) -> str:
    every = (
        (math, str(size), kernel, in_layouts(rows, math, size, kernel))
        for math in operand_layouts.MATHS
        for size in operand_layouts.SIZES
        for kernel in (LIBRARY, operand_layouts.VENDOR)
    )
    cells = [
        [short_name(math), size, kernel, *(layout_cell(ways, way) for way in operand_layouts.LAYOUTS)]
        for math, size, kernel, ways in every
        if any(ways.values())
    ]
    return Table(["type", "m = n = k", "", *operand_layouts.LAYOUTS.values()], cells).markdown()


def k_major_shares(rows: Sequence[Record], size: int) -> list[tuple[str, Record, float]]:
    """The layouts other than K-major, for each type: the row, and its share of the K-major speed on that
    square."""
    every = [in_layouts(rows, math, size, LIBRARY) for math in operand_layouts.MATHS]
    return [
        (way, record, share)
        for ways in every
        for way in OTHER_WAYS
        if (record := ways[way]) and (share := k_major_share(ways, way)) is not None
    ]


def of_layouts(data: Data) -> str:
    rows = data.of(operand_layouts.MODE)
    shares = {
        size: [share for *_, share in k_major_shares(rows, size)]
        for size in sorted(operand_layouts.SIZES, reverse=True)
    }
    ranges = [f"up to {percent(1 - min(values))} % at {size}^3" for size, values in shares.items() if values]
    cost = "N-major or M-major operands cost"
    return f"{cost} {', '.join(ranges)} of our K-major speed, on an {chip(rows[0])}" if ranges else ""


def layout_chart(rows: Sequence[Record]) -> Chart | None:
    size = max(operand_layouts.SIZES)
    drawn = [
        Bar(f"{kind(r)}, {OTHER_WAYS[way]}", 100 * share, f"{speed(r)} TFLOP/s, {percent(share)} %")
        for way, r, share in k_major_shares(rows, size)
    ]
    words = f"What is left of the K-major speed in other layouts, {size}^3, sustained"
    return bar_charts.bars("layouts", drawn, [("K-major", 100.0)], words) if drawn else None


LAYOUTS = Section(
    lambda data: data.of(operand_layouts.MODE),
    [
        lambda rows: f"{LAYOUT_WORDS} {of_layouts(Data(rows))}.",
        layout_chart,
        lambda rows: fold(
            "Every layout, sustained, at two sizes",
            f"TFLOP/s, and in brackets % of what the same library does K-major.\n\n{layout_table(rows)}",
        ),
    ],
)
