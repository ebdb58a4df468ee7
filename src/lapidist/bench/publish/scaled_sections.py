"""The table of 8-bit floats with factors: what the study of them measured, a row a shape and form."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from lapidist.bench.protocol.cases import shape_words
from lapidist.bench.protocol.contenders import LIBRARY
from lapidist.bench.protocol.record import Record
from lapidist.bench.publish import charts
from lapidist.bench.publish.charts import Bar, Chart
from lapidist.bench.publish.markdown import fold, row_of, rule, speed
from lapidist.bench.publish.tables import geomean, percent, time_words
from lapidist.bench.publish.views import shape_of
from lapidist.bench.studies.scaled import BURST_MODE, MODE, MODEL_SHAPES, SCHEMES, SHAPES, Scheme


def scaled_sections(records: Sequence[Record]) -> list[str]:
    tables = {mode: scaled_table(records, mode) for mode in (MODE, BURST_MODE)}
    titles = {
        MODE: "8-bit floats with factors, every form and shape",
        BURST_MODE: "8-bit floats with factors, in bursts",
    }
    folds = [fold(titles[mode], table) for mode, table in tables.items() if table]
    words = (
        "e4m3 with [factors](../glossary.md#factor), results in bfloat16, sustained. Beside each, cuBLAS by"
        " `torch._scaled_mm` with the same factors. [Promoted](../glossary.md#promoted) sums leave the tensor"
        " core every 128 of k; factors along k imply it."
    )
    return [f"{words} {of_scaled(records)}\n", *folds] if folds else []


def of_scaled(records: Sequence[Record]) -> str:
    """Beside cuBLAS with the same factors, in each mode, with the worst."""
    said = []
    for mode, turns in ((MODE, "sustained"), (BURST_MODE, "in bursts")):
        rows = [r for r in records if r.mode == mode and r.kernel.startswith(f"{LIBRARY}, ") and r.ratio]
        if rows:
            worst = min(rows, key=lambda record: record.ratio or 0.0)
            place = f"{worst.kernel.partition(', ')[2]}, {shape_words(*shape_of(worst))}"
            mean = f"{geomean([r.ratio or 0.0 for r in rows]):.2f} times cuBLAS in the geometric mean"
            said.append(
                f"With factors, {turns}: {mean} of {len(rows)}, {worst.ratio:.2f} at least ({place})."
            )
    return " ".join(said)


def scaled_table(records: Sequence[Record], mode: str) -> str:
    rows = {(record.kernel, shape_of(record)): record for record in records if record.mode == mode}
    heads = ["m x n x k", "factors", "time", "TFLOP/s", "cuBLAS", "% of cuBLAS", "chosen"]
    found = [
        row_of(cells)
        for shape in (*SHAPES, *MODEL_SHAPES)
        for scheme in SCHEMES
        if (cells := scheme_cells(rows, scheme, shape))
    ]
    return "\n".join([row_of(heads), rule(heads), *found]) if found else ""


def scheme_cells(
    rows: Mapping[tuple[str, Any], Record], scheme: Scheme, shape: tuple[int, int, int]
) -> list[str]:
    ours, vendor = (rows.get((f"{who}, {scheme.name}", shape)) for who in ("lapidist", "cublas"))
    if ours is None:
        return []
    theirs = "-" if vendor is None or vendor.seconds is None else speed(vendor)
    size = "x".join(map(str, shape))
    return [
        size,
        scheme.name,
        time_words(ours.seconds),
        speed(ours),
        theirs,
        percent(ours.ratio),
        ours.config or "",
    ]


def scaled_chart(records: Sequence[Record]) -> Chart | None:
    """Every form on the largest square, beside cuBLAS with the same factors."""
    rows = {(record.kernel, shape_of(record)): record for record in records if record.mode == MODE}
    shape = max(SHAPES, key=math.prod)
    found = [(scheme.name, rows.get((f"lapidist, {scheme.name}", shape))) for scheme in SCHEMES]
    drawn = [
        Bar(name, 100 * (r.ratio or 0.0), f"{speed(r)} TFLOP/s, {percent(r.ratio)} %", "production")
        for name, r in found
        if r and r.ratio
    ]
    words = f"Each form of factors beside cuBLAS with the same, e4m3, {shape[0]}^3, sustained"
    return charts.bars("factors", drawn, [("cuBLAS", 100.0)], words) if drawn else None
