"""Records as tables for a terminal."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from itertools import groupby

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lapidist.bench.protocol.cases import shape_words
from lapidist.bench.protocol.record import Record
from lapidist.bench.publish.views import UNIT_WORDS, label
from lapidist.dtypes import short_name

SHOWN_LINES = 4  # of a compiler's log
REFUSED = "RefusalError: "


def time_words(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1.0:
            return f"{seconds * scale:.4g} {unit}"
    return f"{seconds * 1e9:.4g} ns"


def geomean(values: Sequence[float]) -> float:
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def number(value: float | None, spec: str = ".1f") -> str:
    return "-" if value is None else format(value, spec)


def percent(value: float | None) -> str:
    return "-" if value is None else f"{value * 100:.1f}"


def occupancy(record: Record) -> str:
    """Blocks resident on an SM, and the warps of one."""
    if not record.blocks_per_sm or not record.warps_per_sm:
        return "-"
    return f"{record.blocks_per_sm} x {record.warps_per_sm // record.blocks_per_sm}"


def refusal_of(record: Record) -> str | None:
    """Why the kernel does not take the product, in the words of its rule; None where it took it."""
    said = record.error or ""
    if not said.startswith(REFUSED):
        return None
    rule = f"\n  {record.kernel}: "
    return said.partition(rule)[2].partition("\n")[0] or said.removeprefix(REFUSED)


def taken(record: Record) -> str:
    """The time, or what became of the kernel."""
    if record.error and record.seconds is None and record.mode != "static":
        return "failed" if refusal_of(record) is None else "refused"
    return time_words(record.seconds)


Column = Callable[[Record], str]
COLUMNS: dict[str, Column] = {
    "rung": lambda r: label(r.kernel),
    "time": taken,
    "TFLOP/s": lambda r: number(r.tflops, ".2f"),
    "% of cuBLAS": lambda r: percent(r.ratio),
    "% of limit": lambda r: percent(r.limit_share),
    "% of unit": lambda r: percent(r.unit_share),
    "regis- ters": lambda r: number(r.registers, "d"),
    "shared B": lambda r: number(r.shared_bytes, "d"),
    "blocks x warps": occupancy,
    "multi- ply %": lambda r: percent(r.ffma_share),
    "error/ bound": lambda r: number(r.worst, ".2f"),
}
# In the machine nothing has a speed, but everything a count. Instructions are those of whole warps.
MACHINE_COLUMNS: dict[str, Column] = {
    "rung": lambda r: label(r.kernel),
    "wall time": taken,
    "warp instr.": lambda r: number(r.warp_instructions, ",d"),
    "multi- ply %": lambda r: percent(r.ffma_share),
    "sectors/ load": lambda r: number(r.sectors),
    "turns/ load": lambda r: number(r.wavefronts, ".2f"),
    "bytes/ flop": lambda r: number(r.bytes_per_flop, ".3g"),
    "regis- ters": lambda r: number(r.registers, "d"),
    "shared B": lambda r: number(r.shared_bytes, "d"),
    "error/ bound": lambda r: number(r.worst, ".2f"),
}
LEAST_WANTED = ("% of unit", "multi- ply %", "shared B", "bytes/ flop", "regis- ters", "blocks x warps")
MARGIN = 2  # columns of a terminal beside each cell, and beside the table


def whole(head: str) -> str:
    """A column's head without the places where it may be broken into lines."""
    return head.replace("- ", "").replace("/ ", "/")


def fitting(
    columns: dict[str, Column], records: Sequence[Record], width: int
) -> dict[str, tuple[list[str], int]]:
    """The cells of each column and how wide it is. Where a table is too wide, whole columns are left out: a
    number is never parted from its unit.
    """
    found = {head: [cell(record) for record in records] for head, cell in columns.items()}
    widths = {head: max(map(len, [*head.split(), *cells])) for head, cells in found.items()}
    for head in LEAST_WANTED:
        if sum(widths.values()) + MARGIN * (len(widths) + 1) > width:
            widths.pop(head, None)
    return {head: (found[head], widths[head]) for head in widths}


LEGEND = (
    "limit: what the chip's best unit for this type reaches; unit: the same of the unit that the kernel uses;"
    " multiply: of the main loop's instructions, those that multiply and add; error/bound: up to 1 is right"
)
MACHINE_LEGEND = (
    "wall time: the machine's, on this computer; sectors: 32 bytes each, touched by one load of a warp;"
    " turns: cycles that shared memory serves one load of a warp (1 is free of bank conflicts for 4 bytes a"
    " lane, 4 for 16); bytes/flop: between the L2 and the SMs; multiply: of all instructions, those that"
    " multiply and add; error/bound: up to 1 is right"
)


def show(console: Console, records: Sequence[Record]) -> None:
    """One table for each case; refusals and failures below it."""
    limits = [record for record in records if record.kind == "limit"]
    if limits:
        show_limits(console, limits)
    products = [record for record in records if record.kind != "limit"]
    cases = groupby(products, key=lambda r: (r.batch, r.m, r.n, r.k, r.dtype, r.device))
    for rows in [list(group) for _, group in cases]:
        machine = rows[0].mode == "machine"
        show_case(console, rows, MACHINE_COLUMNS if machine else COLUMNS)
        if rows[-1] is products[-1]:
            console.print(MACHINE_LEGEND if machine else LEGEND, style="dim", highlight=False)
        if machine:
            show_bounds(console, rows)
        show_errors(console, rows)


def show_case(console: Console, rows: Sequence[Record], columns: dict[str, Column]) -> None:
    first = rows[0]
    mode = "" if first.device == first.mode else f", {first.mode}"
    shape = shape_words(first.m, first.n, first.k, first.batch or 1)
    title = f"{shape} {first.dtype} on {first.device}{mode}"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    shown = fitting(columns, rows, console.width)
    for place, (head, (_, width)) in enumerate(shown.items()):
        table.add_column(head, justify="left" if place == 0 else "right", width=width)
    for record, cells in zip(rows, zip(*(cells for cells, _ in shown.values()), strict=True), strict=True):
        table.add_row(*cells, style="bold" if record.kind == "peer" else None)
    console.print(table)
    left_out = [whole(head) for head in columns if head not in shown]
    if left_out:
        words = f"left out, as the terminal is narrow: {', '.join(left_out)}; --json and --csv have them"
        console.print(words, style="dim", highlight=False)


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
    if not any(record.note for record in rows):
        return
    console.print(
        "\nWhat would bound each on an H200, by these counts (lapidist explain NAME has the arithmetic):"
    )
    for record in rows:
        if record.note:
            line = f"  {label(record.kernel):22s}{record.note}"
            words = textwrap.fill(line, console.width, subsequent_indent=" " * 24, break_on_hyphens=False)
            console.print(escape(words), highlight=False, soft_wrap=True)


def show_errors(console: Console, rows: Sequence[Record]) -> None:
    refusals: dict[str, list[str]] = {}
    reasons: dict[str, list[str]] = {}
    for record in rows:
        refusal = refusal_of(record)
        if refusal is not None:
            refusals.setdefault(refusal, []).append(label(record.kernel))
        elif record.error:
            reasons.setdefault(record.error, []).append(record.kernel)
    for reason, names in refusals.items():
        console.print(f"refused by {', '.join(dict.fromkeys(names))}: {escape(reason)}", highlight=False)
    for reason, names in reasons.items():
        shown = escape("\n".join(reason.splitlines()[:SHOWN_LINES]))
        console.print(f"[red]{', '.join(names)}[/red]: {shown}" if len(names) < 4 else shown, highlight=False)
