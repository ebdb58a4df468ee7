"""Types side by side, on squares: what the planner's choice reaches, every kernel, limits of the units."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lapidist.dtypes import short_name
from lapidist_lab.bench.protocol.array_library import E5M2
from lapidist_lab.bench.protocol.cases import SQUARES
from lapidist_lab.bench.protocol.contenders import LIBRARY
from lapidist_lab.bench.protocol.record import Record
from lapidist_lab.bench.publish import bar_charts, charts
from lapidist_lab.bench.publish.bar_charts import Bar
from lapidist_lab.bench.publish.cells import COLUMNS, chip, kind, percent, speed, vendor_of, worst
from lapidist_lab.bench.publish.charts import Chart
from lapidist_lab.bench.publish.record_views import (
    RUNG_NUMBER,
    TIMED_MODES,
    Series,
    in_another_layout,
    in_math,
    in_order,
    label,
    maths_in,
    on,
    shape_of,
    squares,
)
from lapidist_lab.bench.publish.section import Data, Section, joined
from lapidist_lab.bench.publish.tables import Table, fold, table
from lapidist_lab.bench.publish.terminal import LIMITS

EXACT = "cublas_exact"
KIND_ORDER = {"rung": 0, "production": 1, "detour": 2, "peer": 3}
SUMMARY_SIZE = 8192
MODE_WORDS = {"sustained": "sustained", "burst": "in bursts"}
CLIMBED = (4096, 4096, 4096)


# ---- the planner's choice ----


def at_square(records: Sequence[Record], size: int, mode: str) -> Record | None:
    """The planner's choice on a square, where cuBLAS was measured beside it."""
    choice = LIBRARY, mode, (size, size, size)
    return next(
        (
            r
            for r in records
            if (r.kernel, r.mode, shape_of(r)) == choice and r.ratio and r.tflops and not in_another_layout(r)
        ),
        None,
    )


def worst_square(records: Sequence[Record], mode: str) -> Record | None:
    """The planner's choice on the square where its ratio is worst, of one type."""
    choices = [record for size in SQUARES if (record := at_square(records, size, mode))]
    return worst(choices) if choices else None


def extents_of(records: Sequence[Record]) -> str:
    """The range of squares that the planner's choice and cuBLAS were timed on."""
    sizes = [size for size in SQUARES if any(at_square(records, size, mode) for mode in TIMED_MODES)]
    return f"{sizes[0]}^3 to {sizes[-1]}^3" if len(sizes) > 1 else f"{sizes[0]}^3"


def of_type(records: Sequence[Record]) -> str:
    """The planner's choice on a large square in both modes, in words, and where it is worst."""
    heads = {"sustained": f"At {SUMMARY_SIZE}^3, sustained, the planner's choice", "burst": "In bursts it"}
    choices = {mode: at_square(records, SUMMARY_SIZE, mode) for mode in TIMED_MODES}
    sentences = [
        f"{heads[mode]} reaches **{speed(record)} TFLOP/s**, {percent(record.ratio)} % of cuBLAS."
        for mode, record in choices.items()
        if record
    ]
    if not sentences:
        return "cuBLAS has no such product, or none was measured beside it."
    share = choices["sustained"]
    if share and share.limit_share is not None:
        sentences.append(
            f"That is {percent(share.limit_share)} % of the chip's limit for this type, sustained."
        )
    unseen = "In bursts none of them was measured." if worst_square(records, "burst") is None else ""
    return joined(*sentences, least_words(records), unseen)


def least_words(records: Sequence[Record]) -> str:
    """The least share of cuBLAS among squares of any size, in each mode."""
    least = [
        f"{percent(record.ratio)} % of cuBLAS {MODE_WORDS[mode]} (at {record.m}^3)"
        for mode in TIMED_MODES
        if (record := worst_square(records, mode))
    ]
    return f"Squares of {extents_of(records)} have at least {' and '.join(least)}." if least else ""


def in_short(records: Sequence[Record], math: str) -> str:
    in_type = in_math(records, math)
    speeds = [
        f"{speed(record)} TFLOP/s {MODE_WORDS[mode]} ({percent(record.ratio)} % of cuBLAS)"
        for mode in TIMED_MODES
        if (record := at_square(in_type, SUMMARY_SIZE, mode))
    ]
    return f"{', '.join(speeds)} at {SUMMARY_SIZE}^3. {least_words(in_type)}" if speeds else ""


def sizes_chart(records: Sequence[Record]) -> Chart | None:
    """Lines of speed against size, of ours and of cuBLAS in the same run, in both modes."""
    series: list[charts.Series] = []
    for mode in TIMED_MODES:
        timed = [record for record in records if record.mode == mode]
        ours = next((line.records for line in squares(timed) if line.kernel == LIBRARY), ())
        vendor = [vendor_of(record) for record in ours if record.ratio]
        for name, rows in ((f"cuBLAS, {mode}", vendor), (f"lapidist, {mode}", ours)):
            series.append((name, [(float(record.m), record.tflops or 0.0) for record in rows]))
    shown = [line for line in series if len(line[1]) > 1]
    short = kind(records[0])
    words = f"TFLOP/s of the planner's choice and of cuBLAS against m = n = k, {short}"
    return charts.lines(f"sizes-{short}", shown, words) if shown else None


# ---- the ladder as a picture ----


def climbed(records: Sequence[Record]) -> list[Record]:
    """The ladder and the production kernels at its main shape; none where little of it was climbed."""
    rows = [
        r for r in on(records, CLIMBED) if r.kind in ("rung", "production", "peer") and r.mode == "sustained"
    ]
    timed = [record for record in in_order(rows) if record.ratio is not None]
    return timed if sum(record.kind == "rung" for record in timed) > 1 else []


def ladder_chart(records: Sequence[Record]) -> Chart:
    """Bars of each kernel's share of cuBLAS in its own run; the line is cuBLAS."""
    choice = next((r.config or "" for r in records if r.kernel == LIBRARY), "")
    chosen = choice.partition(":")[0]
    # the same kernel and config, timed again under its own name, would be a second number for one thing
    rows = [
        Bar(f"{LIBRARY}: {chosen}" if r.kernel == LIBRARY and chosen else label(r.kernel), 100 * r.ratio,
            f"{speed(r)} TFLOP/s, {percent(r.ratio)} %", r.kind)
        for r in records
        if r.ratio is not None and r.kernel != "cublas" and f"{r.kernel}: {r.config}" != choice
    ]  # fmt: skip
    short, device = kind(records[0]), records[0].device.removeprefix("NVIDIA ")
    words = f"Each kernel's share of cuBLAS at 4096^3, {short}, sustained, on one {device}"
    return bar_charts.bars(f"ladder-{short}", rows, [("cuBLAS", 100.0)], words)


# ---- every kernel on every size ----

SERIES_WORDS = (
    "TFLOP/s, and in brackets % of cuBLAS in the same run. Rows are of several runs: that of cuBLAS is of its"
    " newest, so two rows need not give the share in brackets. The last four columns are of each kernel's"
    " fastest size."
)


def type_section(records: Sequence[Record], mode: str) -> str:
    """A table of every kernel on every size: TFLOP/s and % of cuBLAS, and shares at the best size; then who
    won."""
    series = sorted(squares(records), key=place_of)
    if not any(row.records[0].kind != "peer" for row in series):
        return ""

    def at_best(head: str) -> Callable[[Series], str]:
        return lambda kernel_series: COLUMNS[head](
            max(kernel_series.records, key=lambda record: record.tflops or 0.0)
        )

    sizes = sorted({record.m for row in series for record in row.records})
    columns = [
        ("kernel", lambda row: label(row.kernel)),
        *((f"{size}^3", lambda row, size=size: size_cell(row, size)) for size in sizes),
        ("at best, % of limit", at_best("% of limit")),
        ("% of its unit", at_best("% of unit")),
        *((head, at_best(head)) for head in ("MHz", "W")),
    ]
    exact = "`cublas_exact` is cuBLAS with sums that leave the tensor core for floats."
    mixed = "cuBLAS has no product of two e5m2: its B is e4m3."
    words = joined(
        SERIES_WORDS,
        exact if EXACT in {row.kernel for row in series} else "",
        mixed if any(r.dtype == E5M2 and r.ratio for row in series for r in row.records) else "",
    )
    body = f"{words}\n\n{table(columns, series).markdown()}\n{verdicts(series)}"
    return fold(f"Squares, {kind(records[0])}, {mode}", body)


def place_of(series: Series) -> tuple[int, int, str]:
    """The key to sort by: rungs from the lowest up, then production kernels, detours, peers."""
    return KIND_ORDER.get(series.records[0].kind, 9), RUNG_NUMBER.get(series.kernel, 99), series.kernel


def size_cell(series: Series, size: int) -> str:
    record = next((record for record in series.records if record.m == size), None)
    if record is None:
        return "-"
    share = f" ({percent(record.ratio)})" if record.ratio is not None and record.kernel != "cublas" else ""
    return f"{speed(record)}{share}"


def verdicts(series: Sequence[Series]) -> str:
    """Which of our kernels are faster than cuBLAS, and where; and which never are."""
    won, lost = [], []
    for kernel_series in series:
        compared = [
            r for r in kernel_series.records if r.ratio is not None and r.kind in ("rung", "production")
        ]
        sizes = [f"{record.m}^3" for record in compared if (record.ratio or 0.0) >= 1.0]
        if sizes:
            won.append(f"{label(kernel_series.kernel)} at {', '.join(sizes)}")
        elif compared:
            lost.append(label(kernel_series.kernel))
    if not won:
        return "None is faster than cuBLAS on any size." if lost else "cuBLAS has no such product."
    losers = f"Slower at every size: {', '.join(lost)}." if lost else ""
    return joined(f"Faster than cuBLAS: {'; '.join(won)}.", losers)


# ---- limits ----


def limits_of(records: Sequence[Record]) -> list[list[Record]]:
    """The limits of each chip, that which was measured first first."""
    rows = [record for record in records if record.kind == "limit" and record.tflops]
    return [[row for row in rows if row.device == chip] for chip in dict.fromkeys(row.device for row in rows)]


def of_limits(data: Data) -> str:
    """The best limit of each type, in words."""
    for rows in limits_of(data.records):
        best = {
            short_name(math): max(row.tflops or 0.0 for row in in_math(rows, math)) for math in maths_of(rows)
        }
        values = ", ".join(f"{short} {value:.1f}" for short, value in best.items())
        return f"TFLOP/s on an {chip(rows[0])}, without touching memory: {values}"
    return ""


def maths_of(records: Sequence[Record]) -> list[str]:
    return list(dict.fromkeys(record.dtype for record in records))


def limits_table(records: Sequence[Record]) -> str:
    """The limits of the chip that was measured first."""
    by_chip = limits_of(records)
    return table(LIMITS, by_chip[0]).markdown() if by_chip else "Not measured yet.\n"


LIMIT_WORDS = (
    "Micro-kernels add the same products again and again, for over a second. Operands are random normal"
    " numbers in registers (for wgmma: in shared memory). A limit is what a unit does under these"
    " conditions, power included. What a kernel lacks of it, it loses by itself. `lapidist bench limits`"
    " measures them."
)


def limits_chart(by_chip: Sequence[Sequence[Record]]) -> Chart:
    """Bars of each unit's limit, on the chip that was measured first."""
    rows = by_chip[0]
    drawn = [Bar(f"{LIMITS['unit'](r)}, {kind(r)}", r.tflops or 0.0, speed(r), "muted") for r in rows]
    words = f"TFLOP/s of each unit at most, by type, on an {chip(rows[0])}"
    return bar_charts.bars("limits", drawn, [], words, {"muted": f"limit in TFLOP/s, {chip(rows[0])}"})


UNITS = Section(
    lambda data: limits_of(data.records),
    [
        LIMIT_WORDS,
        limits_chart,
        lambda by_chip: "\n".join(
            f"Measured on an {rows[0].device}.\n\n{table(LIMITS, rows).markdown()}" for rows in by_chip
        ),
    ],
)

# ---- the README's summary ----


def summary(records: Sequence[Record]) -> str:
    """A table of the planner's choices at one size, sustained and burst. Types measured in one mode only have
    no row."""
    kinds = [math for math in maths_in(records) if math != E5M2]  # cuBLAS has no product of two
    by_type = {
        math: [at_square(in_math(records, math), SUMMARY_SIZE, mode) for mode in TIMED_MODES]
        for math in kinds
    }
    rows = [
        [
            short_name(math),
            *(cell for r in both if r for cell in (speed(r), speed(vendor_of(r)), percent(r.ratio))),
        ]
        for math, both in by_type.items()
        if all(both)
    ]
    if not rows:
        return "Not measured yet.\n"
    heads = ["type", *(head for mode in TIMED_MODES for head in (mode, "cuBLAS", "% of cuBLAS"))]
    every = [record for math in kinds for record in in_math(records, math)]
    slowest = worst(
        [r for math in kinds for mode in TIMED_MODES if (r := worst_square(in_math(every, math), mode))]
    )
    where = f"{kind(slowest)}, {slowest.m}^3, {MODE_WORDS[slowest.mode]}"
    least = f"Of squares of {extents_of(every)} the worst has {percent(slowest.ratio)} % of cuBLAS ({where})."
    return f"{Table(heads, rows).markdown()}\n{least}\n"
