"""Squares of a type, sustained beside bursts, on each chip and in each layout, with the clocks of both sides.

A ratio says little without them: cuBLAS at a lower clock than ours, or the other way round, is another
product under another limit of power."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from lapidist.dtypes import short_name
from lapidist_lab.bench.protocol.cases import SQUARES
from lapidist_lab.bench.protocol.contenders import LIBRARY
from lapidist_lab.bench.protocol.record import Record, Run
from lapidist_lab.bench.publish.cells import Cell, number, percent, span, speed, vendor_of
from lapidist_lab.bench.publish.record_views import (
    LIES,
    TIMED_MODES,
    chips_of,
    in_another_layout,
    newest_by_chip,
    shape_of,
    short_chip,
)
from lapidist_lab.bench.publish.squares import MODE_WORDS
from lapidist_lab.bench.publish.tables import Column, fold, table

ALIKE = 0.02  # chips whose ratios differ by no more agree: so do two runs of one chip


class Turn(NamedTuple):
    """The planner's choice on a square, the clock of cuBLAS in the same run, and its speeds in all runs."""

    ours: Record
    vendor_mhz: float | None
    vendor_tflops: Sequence[float]
    run: Run

    @property
    def ratio(self) -> float:
        return self.ours.ratio or 0.0

    @property
    def place(self) -> tuple[str, int, str]:
        return self.ours.layout[:2], self.ours.m, self.ours.mode


Turns = Mapping[str, Sequence[Turn]]  # of each chip


def turns_of(runs: Sequence[Run], kind: str) -> Turns:
    """The newest turn of each square, layout and mode, by chip."""
    clocks: dict[tuple[object, ...], float | None] = {}
    speeds: dict[tuple[object, ...], list[float]] = {}
    for run in runs:
        for record in run.records:
            if record.kernel == "cublas" and is_square(record, kind):
                place = place_of(record)
                clocks[run.name, place] = record.clock_mhz
                speeds.setdefault(place, []).append(record.tflops or 0.0)
    every = newest_by_chip(runs)
    by_chip: dict[str, list[Turn]] = {chip: [] for chip in chips_of(every)}
    for record, run in every:
        if record.kernel == LIBRARY and is_square(record, kind) and record.ratio:
            place = place_of(record)
            turn = Turn(record, clocks.get((run.name, place)), speeds.get(place, []), run)
            by_chip[record.device].append(turn)
    return {chip: turns for chip, turns in by_chip.items() if turns}


def place_of(record: Record) -> tuple[object, ...]:
    return record.device, record.layout, record.m, record.mode


def is_square(record: Record, kind: str) -> bool:
    timed = record.dtype == kind and record.mode in TIMED_MODES
    return timed and record.m in SQUARES and len(set(shape_of(record))) == 1


# ---- in words ----


def chip_words(by_chip: Turns) -> list[str]:
    """A line for each chip, and one for each difference."""
    chips = list(by_chip)
    lines = [f"- {one_chip(chip, turns)} {date_words(turns)}" for chip, turns in by_chip.items()]
    return lines + [f"- {line}" for other in chips[1:] for line in difference(chips[0], other, by_chip)]


def date_words(turns: Sequence[Turn]) -> str:
    """When the turns were measured, and by which call of cuBLAS."""
    days = sorted({turn.run.conditions.date[:10] for turn in turns})
    vendors = [turn.run.conditions.vendor for turn in turns]
    calls = dict.fromkeys(vendor.partition(" (")[0] for vendor in vendors if vendor)
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return f"Measured {when}{', ' if calls else ''}{' and '.join(calls)}."


def one_chip(chip: str, turns: Sequence[Turn]) -> str:
    place = f"On an {short_chip(chip)}"
    return " ".join(
        sentence
        for where, other in ((place, False), (f"{place} in other layouts", True))
        if (in_layouts := [turn for turn in turns if in_another_layout(turn.ours) == other])
        for sentence in reached(where, in_layouts)
    )


def reached(where: str, turns: Sequence[Turn]) -> Iterable[str]:
    """Of each mode the share of cuBLAS and the clocks, or that it was not measured."""
    for mode, words in MODE_WORDS.items():
        head = f"{where}, {words}" if mode == TIMED_MODES[0] else words.capitalize()
        in_mode = [turn for turn in turns if turn.ours.mode == mode]
        if in_mode:
            extents = span([turn.ours.m for turn in in_mode], "d", "^3")
            yield f"{head}: {span([100 * turn.ratio for turn in in_mode], '.1f')} % of cuBLAS on {extents}."
            yield clock_words(in_mode)
        else:
            yield f"{head}: not measured."


def clock_words(turns: Sequence[Turn]) -> str:
    ours = [turn.ours.clock_mhz for turn in turns if turn.ours.clock_mhz is not None]
    theirs = [turn.vendor_mhz for turn in turns if turn.vendor_mhz is not None]
    vendor_clock = f", cuBLAS at {span(theirs, '.0f')}" if theirs else ""
    return f"Ours ran at {span(ours, '.0f')} MHz{vendor_clock}." if ours else "Clocks were not seen."


def difference(chip: str, other: str, by_chip: Turns) -> Iterator[str]:
    """Where the ratios of two chips differ, among products that both measured."""
    first, second = ({turn.place: turn.ratio for turn in by_chip[name]} for name in (chip, other))
    pair = f"{short_chip(chip)} and {short_chip(other)}"
    for mode, words in MODE_WORDS.items():
        gaps = {
            place: abs(first[place] - second[place])
            for place in first
            if place in second and place[2] == mode
        }
        if not gaps:
            continue
        most = max(gaps, key=gaps.__getitem__)
        if gaps[most] <= ALIKE:
            yield f"{pair} agree {words} within {percent(gaps[most])} % of cuBLAS."
        else:
            shares = f"{percent(first[most])} and {percent(second[most])} % of cuBLAS"
            yield f"{pair} differ {words}, most at {most[1]}^3 with {LIES[most[0]]}: {shares}."


# ---- as a table ----


def chip_sections(runs: Sequence[Run], kind: str) -> list[str]:
    by_chip = turns_of(runs, kind)
    if not by_chip:
        return []
    rows = []
    for chip, turns in by_chip.items():
        at = {turn.place: turn for turn in turns}
        squares = sorted(
            {place[:2] for place in at}, key=lambda square: (list(LIES).index(square[0]), square[1])
        )
        rows += [(short_chip(chip), *square, at) for square in squares]
    columns: list[Column] = [
        ("chip", lambda row: row[0]),
        ("operands", lambda row: LIES[row[1]]),
        ("m = n = k", lambda row: str(row[2])),
    ]
    for mode in TIMED_MODES:
        for head, cell in TURN.items():
            columns.append((head.format(mode=mode), turn_cell(mode, cell)))
    words = "TFLOP/s. *cuBLAS in all runs*: the least and the most that it reached in any run on that chip."
    title = f"Squares, {short_name(kind)}, sustained beside bursts, on each chip"
    return ["\n".join(chip_words(by_chip)), fold(title, f"{words}\n\n{table(columns, rows).markdown()}")]


TURN: dict[str, Cell] = {
    "{mode}: TFLOP/s": lambda turn: speed(turn.ours),
    "cuBLAS": lambda turn: speed(vendor_of(turn.ours)),
    "% of cuBLAS": lambda turn: percent(turn.ratio),
    "MHz": lambda turn: number(turn.ours.clock_mhz, ".0f"),
    "cuBLAS at": lambda turn: number(turn.vendor_mhz, ".0f"),
    "cuBLAS in all runs": lambda turn: span(turn.vendor_tflops, ".1f") if turn.vendor_tflops else "-",
}


def turn_cell(mode: str, cell: Cell) -> Cell:
    def of_row(row: tuple[str, str, int, Mapping[tuple[str, int, str], Turn]]) -> str:
        turn = row[3].get((row[1], row[2], mode))
        return "-" if turn is None else cell(turn)

    return of_row
