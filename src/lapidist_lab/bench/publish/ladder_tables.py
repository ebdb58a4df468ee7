"""The page of a type: the answer, each chip's, the ladder on each shape, and every other product."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from lapidist.dtypes import short_name
from lapidist_lab.bench.protocol.cases import shape_words
from lapidist_lab.bench.protocol.record import Record
from lapidist_lab.bench.publish.call_costs import layers
from lapidist_lab.bench.publish.cells import geomean, number, percent, ratios, speed, vendor_of
from lapidist_lab.bench.publish.chips import chip_sections
from lapidist_lab.bench.publish.record_views import (
    NO_PRODUCTS,
    RUNG_NUMBER,
    TIMED_MODES,
    Series,
    Shape,
    in_another_layout,
    in_math,
    in_order,
    label,
    ladder_cases,
    main_case,
    on,
    shape_of,
    squares,
    sweep,
)
from lapidist_lab.bench.publish.section import Data, Part, Section
from lapidist_lab.bench.publish.squares import climbed, ladder_chart, of_type, sizes_chart, type_section
from lapidist_lab.bench.publish.tables import Column, fold, table

CLIMB = "The ladder at 4096^3, each kernel beside cuBLAS in its own run (detours are in the table):"


def type_sections(kind: str, titled: bool = False) -> list[Section]:
    """The sections of one type: the answer, each chip's, speed against size, the ladder, and every table."""

    def products(data: Data) -> list[Record]:
        timed = [
            r for r in in_math(data.records, kind) if r.mode in TIMED_MODES and r.kind not in NO_PRODUCTS
        ]
        return [record for record in timed if not in_another_layout(record)]

    def in_mode(mode: str) -> Part:
        def part(rows: Sequence[Record]) -> list[str]:
            timed = [record for record in rows if record.mode == mode]
            return [type_section(timed, mode), *shapes_of(mode, kind, timed)] if timed else []

        return part

    head: list[Part] = [f"## {short_name(kind)}"] if titled else []
    return [
        Section(products, [*head, of_type]),
        Section(lambda data: products(data) and data, [lambda data: chip_sections(data.runs, kind)]),
        Section(products, [sizes_chart]),
        Section(lambda data: climbed(products(data)), [CLIMB, ladder_chart]),
        Section(products, [in_mode(mode) for mode in TIMED_MODES]),
    ]


def shapes_of(mode: str, kind: str, records: Sequence[Record]) -> list[str]:
    """Tables of the ladder by shape, of the sweep, and of all shapes that no other table has."""
    where = f"{short_name(kind)}, {mode}"
    shapes, series = climbed_shapes(records), sweep(records)
    parts = [
        ladder_section(f"The ladder at {shape_words(*shape)}, {where}", on(records, shape))
        for shape in shapes
    ]
    if series:
        parts.append(sweep_section(f"m = n against speed at k = 1024, {where}", series))
    shown = {id(record) for kernel_series in (*series, *squares(records)) for record in kernel_series.records}
    shown |= {id(record) for record in layers(records)}
    remaining = [record for record in records if shape_of(record) not in shapes and id(record) not in shown]
    return [*parts, *([shapes_section(f"Other shapes, {where}", remaining)] if remaining else [])]


def climbed_shapes(records: Sequence[Record]) -> list[Shape]:
    """Shapes on which most of the ladder was climbed, smallest first; for tensor cores' few rungs the main
    shape."""
    climbed = sorted(ladder_cases(records, least=8), key=lambda shape: (math.prod(shape), shape))
    main = main_case(records)
    return climbed or ([main] if main in ladder_cases(records, least=2) else [])


LADDER_WORDS = (
    "*step*: how many times as fast as the rung in the row above. *cuBLAS then*: TFLOP/s of cuBLAS in that"
    " run. *blocks x warps*: the blocks that an SM holds at once, and the warps of each. [The"
    " index](index.md#how-it-is-measured) has the other columns."
)
COUNTED = "registers | shared bytes | blocks x warps | multiply % | W | MHz | error/bound"


def ladder_section(title: str, records: Sequence[Record]) -> str:
    rows = in_order(record for record in records if record.kind != "detour")
    aside = in_order(record for record in records if record.kind == "detour")
    before = steps_between(rows)
    then = ("cuBLAS then", lambda r: speed(vendor_of(r)) if r.ratio and r.kind != "peer" else "")
    step = ("step", lambda r: before.get(r.kernel, ""))
    shares = "% of cuBLAS | % of limit | % of unit"
    columns: Sequence[Column] = ("kernel | time | TFLOP/s", step, then, shares, COUNTED)
    lost = [f"{label(name)} ({gain})" for name, gain in before.items() if float(gain.rstrip("x")) < 1.0]
    words = f"Slower than the rung before: {', '.join(lost)}.\n" if lost else ""
    detours = f"\nDetours:\n\n{table(columns, aside).markdown()}" if aside else ""
    return fold(title, f"{LADDER_WORDS}\n\n{table(columns, rows).markdown()}\n{words}{detours}")


def steps_between(rows: Sequence[Record]) -> Mapping[str, str]:
    """How many times as fast each rung is as the one below it."""
    rungs = [record for record in rows if record.kernel in RUNG_NUMBER and record.seconds]
    return {
        record.kernel: f"{below.seconds / record.seconds:.2f}x"
        for below, record in pairwise(rungs)
        if below.seconds and record.seconds
    }


def sweep_section(title: str, series: Sequence[Series]) -> str:
    """A table of TFLOP/s of every kernel on every size, and the best of ours against cuBLAS."""
    rows: dict[int, dict[str, Record]] = {}
    for kernel_series in series:
        for record in kernel_series.records:
            rows.setdefault(record.m, {})[kernel_series.kernel] = record

    def best(row: Mapping[str, Record]) -> str:
        shares = ratios([record for record in row.values() if record.kind != "peer"])
        return percent(max(shares)) if shares else "-"

    def tflops(row: Mapping[str, Record], name: str) -> str:
        return number(row[name].tflops, ".2f") if name in row else "-"

    columns = [
        ("m = n", lambda row: str(next(iter(row.values())).m)),
        *(
            (label(kernel_series.kernel), lambda row, name=kernel_series.kernel: tflops(row, name))
            for kernel_series in series
        ),
        ("best, % of cuBLAS", best),
    ]
    return fold(title, "TFLOP/s.\n\n" + table(columns, [row for _, row in sorted(rows.items())]).markdown())


OTHER_SHAPES = (
    "On other shapes, each from the newest run that has it, which may be"
    " [of older code](index.md#how-it-is-measured):"
)
SHAPE_COLUMNS = (
    "m x n x k | kernel | time | TFLOP/s | % of cuBLAS | % of limit | MHz | W | chosen | L2 | error/bound",
)


def shapes_section(title: str, records: Sequence[Record]) -> str:
    ordered = sorted(records, key=lambda r: (r.m * r.n * r.k, shape_of(r), r.kind != "peer", r.kernel))
    means = geomeans(ordered)
    folded = fold(title, table(SHAPE_COLUMNS, ordered).markdown())
    return "\n\n".join([OTHER_SHAPES, *means, folded] if means else [folded])


def geomeans(records: Sequence[Record]) -> list[str]:
    """A line for each kernel: its mean ratio, and how often it is slower."""
    names = sorted({record.kernel for record in records if record.kind != "peer" and record.ratio})
    by_kernel = {name: ratios([record for record in records if record.kernel == name]) for name in names}
    return [
        f"- {label(name)}: geometric mean {geomean(values):.3f} of cuBLAS over {len(values)} shapes,"
        f" {min(values):.3f} at least; slower on {sum(ratio < 1.0 for ratio in values)} of them"
        for name, values in by_kernel.items()
    ]
