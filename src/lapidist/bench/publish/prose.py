"""docs/performance.md, section by section. Losses stand beside wins."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from lapidist.bench.protocol.cases import shape_words
from lapidist.bench.protocol.record import Record, Run
from lapidist.bench.publish.aims import aims_section
from lapidist.bench.publish.corpora import corpus_sections, layer_sections, layers, planner_sections
from lapidist.bench.publish.layout_sections import layout_sections
from lapidist.bench.publish.markdown import Columns, row_of, rule, speed, table
from lapidist.bench.publish.scaled_sections import scaled_sections
from lapidist.bench.publish.squares import limits_section, type_sections
from lapidist.bench.publish.tables import geomean, number, occupancy, percent, time_words
from lapidist.bench.publish.views import (
    NO_PRODUCTS,
    RUNG_NUMBER,
    TIMED_MODES,
    Series,
    Shape,
    in_math,
    in_order,
    label,
    ladder_cases,
    main_case,
    maths_in,
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

INTRODUCTION = """# Performance

Written by `lapidist report` from the Records under `results/`; not edited by hand. `% of cuBLAS` compares
with the vendor's library in the same run, on the same card, with the same inputs. `% of limit` is the share
of what the chip's best unit for the type reaches with operands that never leave registers or shared memory,
`% of unit` the share of what the kernel's own unit does. `multiply %` counts, of the main loop's
instructions, those that multiply and add. `error/bound` is the largest error over its bound (right up to 1).
"""


def performance(found: Found, runs: Sequence[Run]) -> str:
    """The whole page."""
    records = [record for record, _ in found]
    parts = [INTRODUCTION, *aims_section(records, runs)]
    for mode in TIMED_MODES:
        products = [record for record in records if record.mode == mode and record.kind not in NO_PRODUCTS]
        parts += type_sections(products, mode)
        for kind in maths_in(products):
            parts += shapes_of(mode, kind, in_math(products, kind))
    parts += [*layer_sections(records), *layout_sections(records), *scaled_sections(records)]
    parts += [*corpus_sections(runs), *planner_sections(runs)]
    parts += limits_section(records)
    parts += host_section([record for record in records if record.mode == "host"])
    parts += warm_section(records)
    parts += failures_section(records)
    parts.append(runs_section(runs))
    return "\n".join(parts)


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


def ladder_section(title: str, records: Sequence[Record]) -> str:
    rows = in_order(record for record in records if record.kind != "detour")
    aside = in_order(record for record in records if record.kind == "detour")
    before = steps_between(rows)
    columns: Columns = {
        "kernel": lambda r: label(r.kernel),
        "time": lambda r: time_words(r.seconds),
        "TFLOP/s": speed,
        "step": lambda r: before.get(r.kernel, ""),
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
    return f"## {title}\n\n{table(columns, rows)}\n{words}{detours}"


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
    return f"## {title}\n\nTFLOP/s.\n\n" + "\n".join(lines) + "\n"


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
    return f"## {title}\n\n{table(columns, ordered)}\n{''.join(geomeans(ordered))}"


def geomeans(records: Sequence[Record]) -> list[str]:
    """Each kernel's ratio over its shapes, with the shapes that it loses."""
    lines = []
    for name in sorted({record.kernel for record in records if record.kind != "peer" and record.ratio}):
        ratios = [record.ratio for record in records if record.kernel == name and record.ratio]
        lost = sum(ratio < 1.0 for ratio in ratios)
        mean = f"geometric mean {geomean(ratios):.3f} of cuBLAS"
        lines.append(f"- {name}: {mean} over {len(ratios)} shapes; slower on {lost} of them\n")
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
        "torch's time over it": lambda r: number(r.ratio, ".2f"),
    }
    told = (
        "`matmul(out)` and `gemm(out)` are beside `torch.mm` with its `out`, `matmul` beside one that makes"
        " it, and C beside `torch.addmm`."
    )
    return [f"## What the host pays\n\n{told}\n\n{table(columns, records)}"]


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
        "What plans of squares, of a transformer's layers and of ragged products use, into an empty cache"
        " (`lapidist warm`), and of random products besides, where there are many plans (`--random`); with C,"
        " of those with beta C (`--with-c`). "
    )
    parts = [f"## Compiling ahead\n\n{head}{warming.list_words(lists)}\n\n{table(columns, lists)}"]
    if alone:
        parts.append(f"{warming.alone_words(alone)}\n\n{table(ALONE_COLUMNS, alone)}")
    return parts


ALONE_COLUMNS: Columns = {
    "type": lambda r: short_name(r.dtype),
    "of": lambda r: r.kernel,
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
    return ["## Refused or failed\n\n" + "\n".join(lines) + "\n"]


def lacking(record: Record) -> bool:
    """Of some layouts torch has no product, as their table says."""
    return record.mode == LAYOUTS_MODE and record.kernel == VENDOR


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
        lines.append(f"  - {c.mode}: {c.protocol}. Inputs: {c.inputs}. {seen_words(run)}")
        if c.cutlass:
            lines.append(f"  - CUTLASS: {c.cutlass}.")
        if c.remark:
            lines.append(f"  - {c.remark}.")
    return "\n".join(lines) + "\n"


def seen_words(run: Run) -> str:
    """Clocks, power and temperature over the run."""
    words = []
    for name, unit in (("clock_mhz", "MHz"), ("power_w", "W"), ("temperature_c", "degrees C")):
        values = [value for record in run.records if (value := getattr(record, name)) is not None]
        if values:
            words.append(f"{min(values):.0f} to {max(values):.0f} {unit}")
    return f"Seen while timing: {', '.join(words)}." if words else "Clocks and power were not seen."
