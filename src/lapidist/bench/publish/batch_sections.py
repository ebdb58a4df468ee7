"""Batches beside cuBLAS's, on each chip that measured them."""

from __future__ import annotations

from collections.abc import Sequence

from lapidist.bench.protocol.cases import shape_words
from lapidist.bench.protocol.contenders import LIBRARY
from lapidist.bench.protocol.record import Record, Run
from lapidist.bench.publish.markdown import Columns, fold, speed, table
from lapidist.bench.publish.squares import vendor_of
from lapidist.bench.publish.tables import geomean, number, percent, time_words
from lapidist.bench.publish.views import chips_of, on_each_chip, short_chip
from lapidist.bench.studies.batches import LISTS, MODE
from lapidist.dtypes import short_name


def batches(runs: Sequence[Run]) -> dict[str, list[Record]]:
    """Of each chip the planner's choices that cuBLAS was measured beside, in the list's order."""
    every = on_each_chip(runs)
    batched = [record for record, _ in every if record.mode == MODE]
    ours = [record for record in batched if record.kernel == LIBRARY and record.ratio]
    order = {(math, shape): place for math, shapes in LISTS.items() for place, shape in enumerate(shapes)}
    maths = list(LISTS)

    def place(record: Record) -> tuple[int, int]:
        shape = (record.batch or 1, record.m, record.n, record.k)
        return maths.index(record.dtype), order.get((record.dtype, shape), len(order))

    by_chip = {chip: [record for record in ours if record.device == chip] for chip in chips_of(every)}
    return {chip: sorted(rows, key=place) for chip, rows in by_chip.items() if rows}


def of_batches(runs: Sequence[Run]) -> list[str]:
    """In short: each chip's gain."""
    said = []
    for chip, rows in batches(runs).items():
        ratios = [record.ratio or 0.0 for record in rows]
        worst = min(rows, key=lambda record: record.ratio or 0.0)
        said.append(
            f"{geomean(ratios):.2f} times cuBLAS on an {short_chip(chip)} in the geometric mean of"
            f" {len(rows)} batches, {min(ratios):.2f} at least ({batch_words(worst)})"
        )
    return said


def batch_words(record: Record) -> str:
    shape = shape_words(record.m, record.n, record.k, record.batch or 1)
    return f"{short_name(record.dtype)}, {shape}"


def batch_sections(runs: Sequence[Run]) -> list[str]:
    rows = [record for found in batches(runs).values() for record in found]
    if not rows:
        return []
    columns: Columns = {
        "batch": batch_words,
        "chip": lambda r: short_chip(r.device),
        "time": lambda r: time_words(r.seconds),
        "TFLOP/s": speed,
        "cuBLAS": lambda r: speed(vendor_of(r)),
        "% of cuBLAS": lambda r: percent(r.ratio),
        "MHz": lambda r: number(r.clock_mhz, ".0f"),
        "W": lambda r: number(r.power_w, ".0f"),
        "chosen": lambda r: r.config or "",
        "error/bound": lambda r: number(r.worst, ".3f"),
    }
    said = "".join(f"- {each}.\n" for each in of_batches(runs))
    return [
        f"In bursts, beside `torch.bmm` on the same data:\n\n{said}",
        fold("Every batch", table(columns, rows)),
    ]
