"""Types side by side: for each type one table of all square sizes, the limits of the units, and the summary
of the README.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lapidist.bench.protocol.cases import SQUARES
from lapidist.bench.protocol.contenders import LIBRARY
from lapidist.bench.protocol.frameworks import E5M2
from lapidist.bench.protocol.record import Record
from lapidist.bench.publish.markdown import fold, row_of, rule, speed
from lapidist.bench.publish.tables import LIMIT_HEADS, limit_cells, number, percent
from lapidist.bench.publish.views import (
    RUNG_NUMBER,
    TIMED_MODES,
    Series,
    in_another_layout,
    in_math,
    label,
    maths_in,
    shape_of,
    short_chip,
    squares,
)
from lapidist.dtypes import short_name

EXACT = "cublas_exact"
KIND_ORDER = {"rung": 0, "production": 1, "detour": 2, "peer": 3}
SUMMARY_SIZE = 8192
SUMMARY_CELLS = ("{mode}", "cuBLAS", "% of cuBLAS")
MODE_WORDS = {"sustained": "sustained", "burst": "in bursts"}


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
    words = (
        "TFLOP/s, and in brackets % of cuBLAS in the same run. Rows are of several runs: that of cuBLAS is of"
        " its newest, so two rows need not give the share in brackets. The last four columns are of each"
        " kernel's fastest size."
    )
    if EXACT in {each.kernel for each in series}:
        words += " `cublas_exact` is cuBLAS with sums that leave the tensor core for floats."
    if any(record.dtype == E5M2 and record.ratio is not None for each in series for record in each.records):
        words += " cuBLAS has no product of two e5m2: its B is e4m3."
    return fold(title, f"{words}\n\n" + "\n".join(lines) + "\n\n" + verdicts(ordered))


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
    chips = dict.fromkeys(record.device for record in records if record.kind == "limit")
    if not chips:
        return []
    words = (
        "Micro-kernels add the same products again and again, for over a second. Operands are random normal"
        " numbers in registers (for wgmma: in shared memory). A limit is what a unit does under these"
        " conditions, power included. What a kernel lacks of it, it loses by itself."
        " `lapidist bench limits` measures them."
    )
    tables = [
        f"Measured on an {chip}.\n\n{limits_table([each for each in records if each.device == chip])}"
        for chip in chips
    ]
    return [f"{words}\n\n" + "\n".join(tables)]


def of_limits(records: Sequence[Record]) -> str:
    """The most of each type, on the chip that was measured first."""
    rows = [record for record in records if record.kind == "limit" and record.tflops]
    here = [row for row in rows if row.device == rows[0].device]
    best: dict[str, float] = {}
    for row in here:
        best[row.dtype] = max(best.get(row.dtype, 0.0), row.tflops or 0.0)
    said = ", ".join(f"{short_name(kind)} {value:.1f}" for kind, value in best.items())
    return f"TFLOP/s on an {short_chip(here[0].device)}, without touching memory: {said}" if here else ""


def limits_table(records: Sequence[Record]) -> str:
    """The limits of one chip: where there are several, of the one that was measured first."""
    rows = [record for record in records if record.kind == "limit" and record.tflops]
    if not rows:
        return "Not measured yet.\n"
    rows = [row for row in rows if row.device == rows[0].device]
    return (
        "\n".join([row_of(LIMIT_HEADS), rule(LIMIT_HEADS), *(row_of(limit_cells(row)) for row in rows)])
        + "\n"
    )


# ---- the README's summary ----


def summary(records: Sequence[Record]) -> str:
    """The planner's choice at one size: sustained beside burst, each with cuBLAS in its own run."""
    kinds = [math for math in maths_in(records) if math != E5M2]  # cuBLAS has no product of two
    rows = [row for math in kinds if (row := summary_row(in_math(records, math), math))]
    if not rows:
        return "Not measured yet.\n"
    heads = ["type", *(what.format(mode=mode) for mode in TIMED_MODES for what in SUMMARY_CELLS)]
    least = worst_words([record for math in kinds for record in in_math(records, math)])
    return "\n".join([row_of(heads), rule(heads), *rows, "", least]) + "\n"


def worst_words(records: Sequence[Record]) -> str:
    """Of all types, sizes and modes."""
    found = [
        (record, mode)
        for math in maths_in(records)
        for mode in TIMED_MODES
        if (record := worst_square(in_math(records, math), mode))
    ]
    record, mode = min(found, key=lambda each: each[0].ratio or 0.0)
    place = f"{short_name(record.dtype)}, {record.m}^3, {MODE_WORDS[mode]}"
    return f"Of squares of {extents_of(records)} the worst has {percent(record.ratio)} % of cuBLAS ({place})."


def summary_row(records: Sequence[Record], math: str) -> str:
    """Types that were measured in one mode alone have no row."""
    cells = []
    for mode in TIMED_MODES:
        record = at_square(records, SUMMARY_SIZE, mode)
        if record is None:
            return ""
        cells += [speed(record), speed(vendor_of(record)), percent(record.ratio)]
    return row_of([short_name(math), *cells])


def at_square(records: Sequence[Record], size: int, mode: str) -> Record | None:
    """The planner's choice on a square, where cuBLAS was measured beside it."""
    found = (
        record
        for record in records
        if (record.kernel, record.mode, shape_of(record)) == (LIBRARY, mode, (size, size, size))
        and record.ratio
        and record.tflops
        and not in_another_layout(record)
    )
    return next(found, None)


def extents_of(records: Sequence[Record]) -> str:
    """Of the squares that the planner's choice was timed on beside cuBLAS."""
    sizes = [size for size in SQUARES if any(at_square(records, size, mode) for mode in TIMED_MODES)]
    return f"{sizes[0]}^3 to {sizes[-1]}^3" if len(sizes) > 1 else f"{sizes[0]}^3"


def worst_square(records: Sequence[Record], mode: str) -> Record | None:
    """The planner's choice on the square where it compares worst, of one type."""
    found = [record for size in SQUARES if (record := at_square(records, size, mode))]
    return min(found, key=lambda record: record.ratio or 0.0, default=None)


def vendor_of(record: Record) -> Record:
    """cuBLAS' record of the same run."""
    return replace(record, tflops=(record.tflops or 0.0) / (record.ratio or 1.0))
