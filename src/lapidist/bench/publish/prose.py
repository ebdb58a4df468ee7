"""Sections of the pages under docs/performance: tables below their summaries. Losses stand beside wins."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from lapidist.bench.protocol.cases import shape_words
from lapidist.bench.protocol.record import Record, Run
from lapidist.bench.publish.corpora import layers
from lapidist.bench.publish.markdown import Columns, fold, row_of, rule, speed, table
from lapidist.bench.publish.squares import vendor_of
from lapidist.bench.publish.tables import geomean, number, occupancy, percent, time_words
from lapidist.bench.publish.views import (
    RUNG_NUMBER,
    Series,
    Shape,
    in_order,
    label,
    ladder_cases,
    main_case,
    on,
    shape_of,
    squares,
    sweep,
)
from lapidist.bench.studies import warming
from lapidist.bench.studies.layouts import MODE as LAYOUTS_MODE
from lapidist.bench.studies.layouts import VENDOR
from lapidist.dtypes import short_name

Found = Sequence[tuple[Record, Run]]


def shapes_of(mode: str, kind: str, records: Sequence[Record]) -> list[str]:
    """The ladder on each shape it was climbed on, the sweep, and all shapes that no table above has."""
    parts: list[str] = []
    short = short_name(kind)
    shapes = climbed_shapes(records)
    for shape in shapes:
        parts.append(
            ladder_section(f"The ladder at {shape_words(*shape)}, {short}, {mode}", on(records, shape))
        )
    series = sweep(records)
    if series:
        parts.append(sweep_section(f"m = n against speed at k = 1024, {short}, {mode}", series))
    shown = {id(record) for each in (*series, *squares(records)) for record in each.records}
    shown |= {id(record) for record in layers(records)}
    others = [record for record in records if shape_of(record) not in shapes and id(record) not in shown]
    if others:
        parts.append(shapes_section(f"Other shapes, {short}, {mode}", others))
    return parts


def climbed_shapes(records: Sequence[Record]) -> list[Shape]:
    """Where a good part of the ladder was climbed, smallest first; of the few rungs on tensor cores alone,
    the main shape.
    """
    whole = sorted(ladder_cases(records, least=8), key=lambda shape: (math.prod(shape), shape))
    main = main_case(records)
    return whole or ([main] if main in ladder_cases(records, least=2) else [])


# ---- the ladder ----

LADDER_COLUMNS = (
    "*step*: how many times as fast as the rung in the row above. *cuBLAS then*: TFLOP/s of cuBLAS in that"
    " run. *blocks x warps*: the blocks that an SM holds at once, and the warps of each."
    " [The index](index.md#how-it-is-measured) has the other columns."
)


def ladder_section(title: str, records: Sequence[Record]) -> str:
    rows = in_order(record for record in records if record.kind != "detour")
    aside = in_order(record for record in records if record.kind == "detour")
    before = steps_between(rows)
    columns: Columns = {
        "kernel": lambda r: label(r.kernel),
        "time": lambda r: time_words(r.seconds),
        "TFLOP/s": speed,
        "step": lambda r: before.get(r.kernel, ""),
        "cuBLAS then": lambda r: speed(vendor_of(r)) if r.ratio and r.kind != "peer" else "",
        "% of cuBLAS": lambda r: percent(r.ratio),
        "% of limit": lambda r: percent(r.limit_share),
        "% of unit": lambda r: percent(r.unit_share),
        "registers": lambda r: number(r.registers, "d"),
        "shared bytes": lambda r: number(r.shared_bytes, "d"),
        "blocks x warps": occupancy,
        "multiply %": lambda r: percent(r.ffma_share),
        "W": lambda r: number(r.power_w, ".0f"),
        "MHz": lambda r: number(r.clock_mhz, ".0f"),
        "error/bound": lambda r: number(r.worst, ".3f"),
    }
    lost = [f"{label(name)} ({gain})" for name, gain in before.items() if float(gain.rstrip("x")) < 1.0]
    words = f"Slower than the rung before: {', '.join(lost)}.\n" if lost else ""
    detours = f"\nDetours:\n\n{table(columns, aside)}" if aside else ""
    return fold(title, f"{LADDER_COLUMNS}\n\n{table(columns, rows)}\n{words}{detours}")


def steps_between(rows: Sequence[Record]) -> dict[str, str]:
    """How much faster each rung is than the one below it."""
    rungs = [record for record in rows if record.kernel in RUNG_NUMBER and record.seconds]
    gains = {}
    for below, record in pairwise(rungs):
        if below.seconds and record.seconds:
            gains[record.kernel] = f"{below.seconds / record.seconds:.2f}x"
    return gains


# ---- shapes ----


def sweep_section(title: str, series: Sequence[Series]) -> str:
    """TFLOP/s of every kernel on every size, and the best of ours against the vendor."""
    names = [each.kernel for each in series]
    at = {each.kernel: {record.m: record for record in each.records} for each in series}
    heads = ["m = n", *(label(name) for name in names), "best, % of cuBLAS"]
    lines = [row_of(heads), rule(heads)]
    for size in sorted({record.m for each in series for record in each.records}):
        rows = [at[name].get(size) for name in names]
        ratios = [record.ratio for record in rows if record and record.kind != "peer" and record.ratio]
        speeds = [number(record.tflops, ".2f") if record else "-" for record in rows]
        lines.append(row_of([str(size), *speeds, percent(max(ratios)) if ratios else "-"]))
    return fold(title, "TFLOP/s.\n\n" + "\n".join(lines))


OTHER_SHAPES = (
    "On other shapes, each from the newest run that has it, which may be"
    " [of older code](index.md#how-it-is-measured):"
)


def shapes_section(title: str, records: Sequence[Record]) -> str:
    ordered = sorted(records, key=lambda r: (r.m * r.n * r.k, shape_of(r), r.kind != "peer", r.kernel))
    columns: Columns = {
        "m x n x k": lambda r: shape_words(*shape_of(r)),
        "kernel": lambda r: label(r.kernel),
        "time": lambda r: time_words(r.seconds),
        "TFLOP/s": speed,
        "% of cuBLAS": lambda r: percent(r.ratio),
        "% of limit": lambda r: percent(r.limit_share),
        "MHz": lambda r: number(r.clock_mhz, ".0f"),
        "W": lambda r: number(r.power_w, ".0f"),
        "chosen": lambda r: r.config or "",
        "L2": lambda r: r.l2 or "",
        "error/bound": lambda r: number(r.worst, ".3f"),
    }
    means = geomeans(ordered)
    head = [f"{OTHER_SHAPES}\n", *means] if means else []
    return "\n".join([*head, fold(title, table(columns, ordered))])


def geomeans(records: Sequence[Record]) -> list[str]:
    """Each kernel's ratio over its shapes, with the shapes that it loses."""
    lines = []
    for name in sorted({record.kernel for record in records if record.kind != "peer" and record.ratio}):
        ratios = [record.ratio for record in records if record.kernel == name and record.ratio]
        lost = sum(ratio < 1.0 for ratio in ratios)
        mean = f"geometric mean {geomean(ratios):.3f} of cuBLAS over {len(ratios)} shapes"
        lines.append(f"- {label(name)}: {mean}, {min(ratios):.3f} at least; slower on {lost} of them\n")
    return lines


# ---- the rest ----


def host_section(records: Sequence[Record]) -> list[str]:
    if not records:
        return []
    columns: Columns = {
        "what": lambda r: r.kernel,
        "median": lambda r: time_words(r.seconds),
        "least": lambda r: time_words(r.seconds_min),
        "most": lambda r: time_words(r.seconds_max),
        "torch's or NumPy's time over it": lambda r: number(r.ratio, ".2f"),
    }
    summary = (
        "`matmul(out)` and `gemm(out)` stand beside `torch.mm` with its `out`. `matmul` stands beside one"
        " that makes its output, and `gemm(c, out)` beside `torch.addmm`. A *first call* is that of a new"
        " process: *cold* compiles its kernel, *disk cache* finds it on disk. What follows a colon is a part"
        " of the latter. A dash stands where there is no peer."
    )
    return [f"{summary}\n\n{table(columns, records)}"]


def warm_section(records: Sequence[Record]) -> list[str]:
    lists, alone = (
        [record for record in records if record.mode == mode] for mode in (warming.MODE, warming.ALONE)
    )
    if not lists:
        return []
    columns: Columns = {
        "type": lambda r: short_name(r.dtype),
        "compilers": lambda r: r.kernel,
        "configurations": lambda r: number(r.calls, "d"),
        "all": lambda r: time_words(r.seconds),
        "the longest": lambda r: time_words(r.seconds_max),
    }
    head = (
        "`lapidist warm` compiles into an empty cache what plans of squares, of a transformer's layers and of"
        " ragged products use. `--random` adds random products, and `--with-c` products with beta C."
    )
    parts = [f"{head}\n\n{warming.list_words(lists)}\n", fold("Lists of products", table(columns, lists))]
    if alone:
        rows = fold("The configs that take longest", table(ALONE_COLUMNS, alone))
        parts.append(f"{warming.alone_words(alone)}\n\n{rows}")
    return parts


ALONE_COLUMNS: Columns = {
    "type": lambda r: short_name(r.dtype),
    "which": lambda r: r.kernel,
    "kernel": lambda r: r.note or "-",
    "alone": lambda r: time_words(r.seconds),
    "least": lambda r: time_words(r.seconds_min),
    "most": lambda r: time_words(r.seconds_max),
}


def failures_section(records: Sequence[Record]) -> list[str]:
    failed = [record for record in records if record.error and not lacking(record)]
    if not failed:
        return []
    lines = []
    for record in failed:
        reason = (record.error or "").splitlines()[0]
        lines.append(
            f"- {label(record.kernel)}, {shape_words(*shape_of(record))}, {short_name(record.dtype)}:"
            f" {reason}"
        )
    return ["## Refused or failed\n\n" + fold(f"{len(lines)} products", "\n".join(lines))]


def lacking(record: Record) -> bool:
    """Whether it is cuBLAS in a layout that torch cannot multiply; the layouts' table says so."""
    return record.mode == LAYOUTS_MODE and record.kernel == VENDOR


def of_runs(runs: Sequence[Run]) -> str:
    if not runs:
        return ""
    days = sorted(run.conditions.date[:10] for run in runs)
    return f"{len(runs)} runs, {days[0]} to {days[-1]}: chips, versions, commits and protocols"


def runs_section(runs: Sequence[Run]) -> str:
    lines = ["## Runs", ""]
    for run in runs:
        c = run.conditions
        versions = [
            ("driver", c.driver),
            ("CUDA", c.cuda),
            ("NVRTC", c.nvrtc),
            ("lapidist", c.lapidist),
            ("commit", c.commit),
        ]
        known = ", ".join(f"{name} {value}" for name, value in versions if value)
        lines.append(
            f"- `results/{run.name}`: {c.date}, {c.device}, {known}. {c.vendor or 'No vendor library'}."
            f" `{c.command}`"
        )
        lines.append(f"    - {c.mode}: {c.protocol}. Inputs: {c.inputs}. {seen_words(run)}")
        if c.cutlass:
            lines.append(f"    - CUTLASS: {c.cutlass}.")
        if c.remark:
            lines.append(f"    - {c.remark}.")
    return "\n".join(lines) + "\n"


def seen_words(run: Run) -> str:
    """Clocks, power and temperature over the run."""
    words = []
    for name, unit in (("clock_mhz", "MHz"), ("power_w", "W"), ("temperature_c", "degrees C")):
        values = [value for record in run.records if (value := getattr(record, name)) is not None]
        if values:
            words.append(f"{min(values):.0f} to {max(values):.0f} {unit}")
    return f"Seen while timing: {', '.join(words)}." if words else "Clocks and power were not seen."
