"""Records as tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import groupby

from rich.console import Console
from rich.markup import escape

from lapidist.commands.fold import folded
from lapidist_lab.bench.protocol.cases import shape_words
from lapidist_lab.bench.protocol.record import Record
from lapidist_lab.bench.publish.cells import (
    COLUMNS,
    Cell,
    kind,
    number,
    percent,
    refusal_of,
    time_or_outcome,
    time_words,
)
from lapidist_lab.bench.publish.record_views import UNIT_WORDS, label
from lapidist_lab.bench.publish.tables import table
from lapidist_lab.machine_studies.schedule_parts import PARTS

SHOWN_LINES = 4  # of a compiler's log
FEW = 4  # kernels that an error names, each
# a head may be broken into lines where it has spaces
TIMED: dict[str, Cell] = {
    "rung": COLUMNS["kernel"],
    "time": time_or_outcome,
    "TFLOP/s": lambda r: number(r.tflops, ".2f"),
    "% of cuBLAS": COLUMNS["% of cuBLAS"],
    "% of limit": COLUMNS["% of limit"],
    "% of unit": COLUMNS["% of unit"],
    "regis- ters": COLUMNS["registers"],
    "shared B": COLUMNS["shared bytes"],
    "blocks x warps": COLUMNS["blocks x warps"],
    "multi- ply %": COLUMNS["multiply %"],
    "error/ bound": lambda r: number(r.worst, ".2f"),
}
# In the machine nothing has a speed, but everything a count. Instructions are those of whole warps.
COUNTED: dict[str, Cell] = {
    "rung": COLUMNS["kernel"],
    "wall time": time_or_outcome,
    "warp instr.": lambda r: number(r.warp_instructions, ",d"),
    "multi- ply %": lambda r: percent(r.ffma_share),
    "sectors/ load": lambda r: number(r.sectors),
    "turns/ load": lambda r: number(r.wavefronts, ".2f"),
    "bytes/ flop": lambda r: number(r.bytes_per_flop, ".3g"),
    "regis- ters": COLUMNS["registers"],
    "shared B": COLUMNS["shared bytes"],
    "error/ bound": lambda r: number(r.worst, ".2f"),
}
SCHEDULED: dict[str, Cell] = {
    "rung": COLUMNS["kernel"],
    "CPU time": time_or_outcome,
    "of a plain run": lambda r: time_words(r.seconds and r.over_plain and r.seconds / r.over_plain),
    "times": lambda r: number(r.over_plain),
    "error/ bound": lambda r: number(r.worst, ".2f"),
}


def share_of(part: str, record: Record) -> str:
    return percent((record.parts or {}).get(part))


IN_PARTS: dict[str, Cell] = {
    "rung": COLUMNS["kernel"],
    "CPU time": time_or_outcome,
    **{part: partial(share_of, part) for part in PARTS},
}
DISPENSABLE = ("% of unit", "multi- ply %", "shared B", "bytes/ flop", "regis- ters", "blocks x warps")
LIMITS: dict[str, Cell] = {
    "unit": lambda r: UNIT_WORDS.get(r.unit or "", "-"),
    "type": kind,
    "TFLOP/s": lambda r: number(r.tflops),
    **{head: COLUMNS[head] for head in ("W", "MHz", "error/bound")},
}
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

SCHEDULED_LEGEND = (
    "CPU time: of a schedule with all checks, the median of all seeds; times: over a plain run's CPU time;"
    " error/bound: up to 1 is right"
)
PARTS_LEGEND = (
    "CPU time: of a schedule with all checks, the median of all seeds; the others: shares of it in %. Checks"
    " and notes are of what warps computed together; parted lanes, of warps that are not in step"
)
# Of a mode; of others TIMED.
COLUMNS_OF = {"machine": COUNTED, "schedule": SCHEDULED, "schedule parts": IN_PARTS}
LEGENDS = {"machine": MACHINE_LEGEND, "schedule": SCHEDULED_LEGEND, "schedule parts": PARTS_LEGEND}


def unbroken_head(head: str) -> str:
    """The head of a column without the places where it may be broken into lines."""
    return head.replace("- ", "").replace("/ ", "/")


def show(console: Console, records: Sequence[Record], drawn: bool = False) -> None:
    """Print a table for each case, refusals and failures below it. `drawn`: the tables were printed row by
    row."""
    limits = [record for record in records if record.kind == "limit"]
    if limits:
        title = f"Limits of the units on {limits[0].device}, sustained"
        console.print(table(LIMITS, limits).terminal(title, [None] * len(limits), word_columns=2))
        show_errors(console, limits)
    products = [record for record in records if record.kind != "limit"]
    cases = groupby(products, key=lambda r: (r.batch, r.m, r.n, r.k, r.dtype, r.device))
    for rows in [list(group) for _, group in cases]:
        if not drawn:
            show_case(console, rows, COLUMNS_OF.get(rows[0].mode, TIMED))
        if rows[-1] is products[-1]:
            print_words(console, LEGENDS.get(rows[0].mode, LEGEND))
        if rows[0].mode == "machine":
            show_bounds(console, rows)
        show_errors(console, rows)


def show_case(console: Console, rows: Sequence[Record], columns: dict[str, Cell]) -> None:
    first = rows[0]
    mode = "" if first.device == first.mode else f", {first.mode}"
    shape = shape_words(first.m, first.n, first.k, first.batch or 1)
    shown = table(columns, rows).fitting(console.width, DISPENSABLE)
    styles = ["bold" if record.kind == "peer" else None for record in rows]
    console.print(shown.terminal(f"{shape} {first.dtype} on {first.device}{mode}", styles))
    dropped = [head for head in columns if head not in shown.heads]
    if dropped:
        print_words(console, dropped_words(dropped))


def print_words(console: Console, words: str) -> None:
    console.print(folded(words, 0, console.width), style="dim", highlight=False, soft_wrap=True)


def dropped_words(heads: Sequence[str]) -> str:
    """Which columns the terminal lacks room for; empty where none."""
    names = ", ".join(map(unbroken_head, heads))
    return f"left out, as the terminal is narrow: {names}; --json and --csv have them" if heads else ""


def show_bounds(console: Console, rows: Sequence[Record]) -> None:
    """Print what bounds the kernels on the chip that the machine plays, by its counts: those with one bound
    and one advice together."""
    by_note: dict[str, list[str]] = {}
    for record in rows:
        if record.note:
            by_note.setdefault(record.note, []).append(label(record.kernel).split()[0])
    if by_note:
        head = "What would bound them on an H200, by these counts (lapidist explain NAME has the arithmetic):"
        console.print("\n" + folded(head, 0, console.width), highlight=False, soft_wrap=True)
    for note, names in by_note.items():
        words = folded(f"  {runs_of(names)}: {note}", 4, console.width)
        console.print(escape(words), highlight=False, soft_wrap=True)


def runs_of(names: Sequence[str]) -> str:
    """Numbers of rungs that follow each other as "01 to 03"; names between commas."""
    runs: list[list[str]] = []
    for name in names:
        if runs and name.isdigit() and runs[-1][-1].isdigit() and int(name) == int(runs[-1][-1]) + 1:
            runs[-1].append(name)
        else:
            runs.append([name])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 1 else run[0] for run in runs)


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
        line = f"[red]{', '.join(names)}[/red]: {shown}" if len(names) < FEW else shown
        console.print(line, highlight=False)
