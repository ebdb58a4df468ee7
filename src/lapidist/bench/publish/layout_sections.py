"""The table of layouts: what the study of them measured, a row a type and size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lapidist.bench.protocol.contenders import LIBRARY
from lapidist.bench.protocol.record import Record
from lapidist.bench.publish.markdown import row_of, rule, speed
from lapidist.bench.publish.tables import percent
from lapidist.bench.studies.layouts import LAYOUTS, MATHS, MODE, SIZES, VENDOR
from lapidist.dtypes import short_name


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
        "By how A and B lie, sustained: TFLOP/s, and in brackets % of what the same library does where"
        " neighbours touch along k (A by rows, B by columns). Of 16-bit types wgmma reads both ways. Of"
        " others one operand is turned on its way through registers, or first copied, or the planner takes"
        " mma.sync, which reads both. cuBLAS by torch has not all of these."
    )
    return [f"## Layouts\n\n{words}\n\n" + "\n".join(lines) + "\n"]


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
