"""Records as tables for a terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import groupby

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lapidist.bench.cases import shape_words
from lapidist.bench.record import Record
from lapidist.bench.views import UNIT_WORDS, label
from lapidist.dtypes import short_name

SHOWN_LINES = 4  # of a compiler's log


def time_words(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1.0:
            return f"{seconds * scale:.4g} {unit}"
    return f"{seconds * 1e9:.4g} ns"


def geomean(values: Sequence[float]) -> float:
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def number(value: float | None, form: str = ".1f") -> str:
    return "-" if value is None else format(value, form)


def percent(value: float | None) -> str:
    return "-" if value is None else f"{value * 100:.1f}"


def occupancy(record: Record) -> str:
    """Blocks resident on an SM, and the warps of one."""
    if not record.blocks_per_sm or not record.warps_per_sm:
        return "-"
    return f"{record.blocks_per_sm} x {record.warps_per_sm // record.blocks_per_sm}"


def cells(record: Record) -> tuple[str, ...]:
    return (
        label(record.kernel),
        time_words(record.seconds),
        number(record.tflops, ".2f" if record.mode != "machine" else ".2g"),
        percent(record.ratio),
        percent(record.limit_share),
        percent(record.unit_share),
        number(record.registers, "d"),
        number(record.shared_bytes, "d"),
        occupancy(record),
        percent(record.ffma_share),
        number(record.worst, ".2f"),
    )


MACHINE_HEADS = (
    "rung",
    "wall time",
    "warp instr.",
    "multiply %",
    "sectors/load",
    "turns/shared load",
    "bytes/flop",
    "registers",
    "shared B",
    "error/bound",
)


def machine_cells(record: Record) -> tuple[str, ...]:
    """In the machine nothing has a speed, but everything a count. Instructions are those of whole warps."""
    return (
        label(record.kernel),
        time_words(record.seconds),
        number(record.warp_instructions, ",d"),
        percent(record.ffma_share),
        number(record.sectors),
        number(record.wavefronts, ".2f"),
        number(record.bytes_per_flop, ".3g"),
        number(record.registers, "d"),
        number(record.shared_bytes, "d"),
        number(record.worst, ".2f"),
    )


HEADS = (
    "rung",
    "time",
    "TFLOP/s",
    "% of cuBLAS",
    "% of limit",
    "% of unit",
    "registers",
    "shared B",
    "blocks x warps",
    "multiply %",
    "error/bound",
)


LEGEND = (
    "limit: what the chip's best unit for this type reaches; unit: the same of the unit that the kernel uses;"
    " multiply: of the main loop's instructions, those that multiply and add"
)
MACHINE_LEGEND = (
    "sectors: 32 bytes each, touched by one load of a warp; turns: cycles that shared memory serves one load"
    " of a warp (1 is free of bank conflicts for 4 bytes a lane, 4 for 16); multiply: of all instructions,"
    " those that multiply and add"
)


def columns_for(mode: str) -> tuple[tuple[str, ...], Callable[[Record], tuple[str, ...]]]:
    return (MACHINE_HEADS, machine_cells) if mode == "machine" else (HEADS, cells)


def show(console: Console, records: Sequence[Record]) -> None:
    """One table for each case; refusals and failures below it."""
    limits = [record for record in records if record.kind == "limit"]
    if limits:
        show_limits(console, limits)
    products = [record for record in records if record.kind != "limit"]
    for (m, n, k, dtype, device), group in groupby(
        products, key=lambda r: (r.m, r.n, r.k, r.dtype, r.device)
    ):
        rows = list(group)
        mode = "" if device == rows[0].mode else f", {rows[0].mode}"
        table = Table(title=f"{shape_words(m, n, k)} {dtype} on {device}{mode}", title_justify="left")
        heads, cells_of = columns_for(rows[0].mode)
        for place, head in enumerate(heads):
            table.add_column(head, justify="left" if place == 0 else "right", no_wrap=place == 0)
        for record in rows:
            table.add_row(*cells_of(record), style="bold" if record.kind == "peer" else None)
        console.print(table)
        console.print(MACHINE_LEGEND if rows[0].mode == "machine" else LEGEND, style="dim", highlight=False)
        if rows[0].mode == "machine":
            show_bounds(console, rows)
        show_errors(console, rows)


LIMIT_HEADS = ("unit", "type", "TFLOP/s", "W", "MHz", "error/bound")


def limit_cells(record: Record) -> tuple[str, ...]:
    """A unit's limit in one type."""
    seen = (number(record.power_w, ".0f"), number(record.clock_mhz, ".0f"), number(record.worst, ".3f"))
    return (UNIT_WORDS.get(record.unit or "", "-"), short_name(record.dtype), number(record.tflops), *seen)


def show_limits(console: Console, limits: Sequence[Record]) -> None:
    table = Table(title=f"Limits of the units on {limits[0].device}, sustained", title_justify="left")
    for place, head in enumerate(LIMIT_HEADS):
        table.add_column(head, justify="left" if place < 2 else "right")
    for record in limits:
        table.add_row(*limit_cells(record))
    console.print(table)
    show_errors(console, limits)


def show_bounds(console: Console, rows: Sequence[Record]) -> None:
    """What the counts say of each kernel on the chip that the machine plays."""
    console.print(
        "\nWhat would bound each on an H200, by these counts (lapidist explain NAME has the arithmetic):"
    )
    for record in rows:
        if record.note:
            console.print(
                f"  {label(record.kernel):22s}{escape(record.note)}", highlight=False, soft_wrap=True
            )


def show_errors(console: Console, rows: Sequence[Record]) -> None:
    reasons: dict[str, list[str]] = {}
    for record in rows:
        if record.error:
            reasons.setdefault(record.error, []).append(record.kernel)
    for reason, names in reasons.items():
        shown = escape("\n".join(reason.splitlines()[:SHOWN_LINES]))
        console.print(f"[red]{', '.join(names)}[/red]: {shown}" if len(names) < 4 else shown, highlight=False)
