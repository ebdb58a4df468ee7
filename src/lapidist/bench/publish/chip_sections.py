"""Squares of a type, sustained beside bursts, on each chip and in each layout, with the clocks of both sides.

A ratio says little without them: cuBLAS at a lower clock than ours, or the other way round, is another
product under another limit of power."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from lapidist.bench.protocol.cases import SQUARES
from lapidist.bench.protocol.contenders import LIBRARY
from lapidist.bench.protocol.record import Record, Run
from lapidist.bench.publish.markdown import fold, row_of, rule, speed
from lapidist.bench.publish.squares import MODE_WORDS, vendor_of
from lapidist.bench.publish.tables import number, percent
from lapidist.bench.publish.views import (
    LIES,
    TIMED_MODES,
    chips_of,
    in_another_layout,
    on_each_chip,
    shape_of,
    short_chip,
)
from lapidist.dtypes import short_name

ALIKE = 0.02  # chips whose ratios differ by no more agree: so do two runs of one chip


class Turn(NamedTuple):
    """The planner's choice on a square; the clock at which cuBLAS ran in the same run, and its speeds in all
    runs."""

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


def turns_of(runs: Sequence[Run], kind: str) -> dict[str, list[Turn]]:
    """Of each chip the newest of each square, layout and mode."""
    clocks: dict[tuple[object, ...], float | None] = {}
    speeds: dict[tuple[object, ...], list[float]] = {}
    for run in runs:
        for record in run.records:
            if record.kernel == "cublas" and record.dtype == kind and is_square(record):
                key = (run.name, *place_of(record))
                clocks[key] = record.clock_mhz
                speeds.setdefault(place_of(record), []).append(record.tflops or 0.0)
    every = on_each_chip(runs)
    found: dict[str, list[Turn]] = {chip: [] for chip in chips_of(every)}
    for record, run in every:
        if record.kernel == LIBRARY and record.dtype == kind and is_square(record) and record.ratio:
            place = place_of(record)
            clock = clocks.get((run.name, *place))
            found[record.device].append(Turn(record, clock, speeds.get(place, []), run))
    return {chip: turns for chip, turns in found.items() if turns}


def place_of(record: Record) -> tuple[object, ...]:
    return record.device, record.layout, record.m, record.mode


def is_square(record: Record) -> bool:
    return record.mode in TIMED_MODES and record.m in SQUARES and len(set(shape_of(record))) == 1


# ---- in words ----


def chip_words(runs: Sequence[Run], kind: str) -> list[str]:
    """A line for each chip, and where they differ."""
    found = turns_of(runs, kind)
    lines = [f"- {one_chip(chip, turns)} {taken(turns)}" for chip, turns in found.items()]
    return [*lines, *(f"- {each}" for each in differences(found))]


def taken(turns: Sequence[Turn]) -> str:
    """When, and by which call of cuBLAS."""
    days = sorted({turn.run.conditions.date[:10] for turn in turns})
    calls = dict.fromkeys(
        vendor.partition(" (")[0] for turn in turns if (vendor := turn.run.conditions.vendor)
    )
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return f"Measured {when}{', ' if calls else ''}{' and '.join(calls)}."


def one_chip(chip: str, turns: Sequence[Turn]) -> str:
    usual = [turn for turn in turns if not in_another_layout(turn.ours)]
    others = [turn for turn in turns if in_another_layout(turn.ours)]
    here = f"On an {short_chip(chip)}"
    return " ".join(
        said
        for where, own in ((here, usual), (f"{here} in other layouts", others))
        if own
        for said in reached(where, own)
    )


def reached(where: str, turns: Sequence[Turn]) -> Iterable[str]:
    """What share of cuBLAS, and at which clocks: of each mode, or that it was not measured."""
    for mode, words in MODE_WORDS.items():
        head = f"{where}, {words}" if mode == TIMED_MODES[0] else words.capitalize()
        own = [turn for turn in turns if turn.ours.mode == mode]
        if not own:
            yield f"{head}: not measured."
            continue
        sizes = sorted({turn.ours.m for turn in own})
        extents = f"{sizes[0]}^3" if len(sizes) == 1 else f"{sizes[0]}^3 to {sizes[-1]}^3"
        yield f"{head}: {span([100 * turn.ratio for turn in own], '.1f')} % of cuBLAS on {extents}."
        yield clock_words(own)


def clock_words(turns: Sequence[Turn]) -> str:
    ours = [turn.ours.clock_mhz for turn in turns if turn.ours.clock_mhz is not None]
    theirs = [turn.vendor_mhz for turn in turns if turn.vendor_mhz is not None]
    if not ours:
        return "Clocks were not seen."
    beside = f", cuBLAS at {span(theirs, '.0f')}" if theirs else ""
    return f"Ours ran at {span(ours, '.0f')} MHz{beside}."


def span(values: Sequence[float], spec: str) -> str:
    least, most = format(min(values), spec), format(max(values), spec)
    return least if least == most else f"{least} to {most}"


def differences(found: dict[str, list[Turn]]) -> list[str]:
    """Where the chips' ratios differ, on what both measured."""
    chips = list(found)
    return [line for other in chips[1:] for line in difference(chips[0], other, found)]


def difference(chip: str, other: str, found: dict[str, list[Turn]]) -> Iterable[str]:
    here, there = ({turn.place: turn for turn in found[each]} for each in (chip, other))
    shared = [place for place in here if place in there]
    for mode, words in MODE_WORDS.items():
        both = [place for place in shared if place[2] == mode]
        if not both:
            continue
        worst = max(both, key=lambda place: abs(here[place].ratio - there[place].ratio))
        apart = abs(here[worst].ratio - there[worst].ratio)
        pair = f"{short_chip(chip)} and {short_chip(other)}"
        layout, size, _ = worst
        if apart <= ALIKE:
            yield f"{pair} agree {words} within {percent(apart)} % of cuBLAS."
        else:
            yield (
                f"{pair} differ {words}, most at {size}^3 with {LIES[layout]}:"
                f" {percent(here[worst].ratio)} and {percent(there[worst].ratio)} % of cuBLAS."
            )


# ---- as a table ----


def chip_sections(runs: Sequence[Run], kind: str) -> list[str]:
    found = turns_of(runs, kind)
    if not found:
        return []
    heads = ["chip", "operands", "m = n = k"]
    for mode in TIMED_MODES:
        heads += [f"{mode}: TFLOP/s", "cuBLAS", "% of cuBLAS", "MHz", "cuBLAS at", "cuBLAS in all runs"]
    lines = [row_of(heads), rule(heads)]
    for chip, turns in found.items():
        at = {turn.place: turn for turn in turns}
        for layout in sorted({place[0] for place in at}, key=list(LIES).index):
            for size in sorted({place[1] for place in at if place[0] == layout}):
                cells = [cell for mode in TIMED_MODES for cell in turn_cells(at.get((layout, size, mode)))]
                lines.append(row_of([short_chip(chip), LIES[layout], str(size), *cells]))
    title = f"Squares, {short_name(kind)}, sustained beside bursts, on each chip"
    words = "TFLOP/s. *cuBLAS in all runs*: the least and the most that it reached in any run on that chip."
    return ["\n".join(chip_words(runs, kind)) + "\n", fold(title, f"{words}\n\n" + "\n".join(lines))]


def turn_cells(turn: Turn | None) -> list[str]:
    if turn is None:
        return ["-"] * 6
    clocks = [number(each, ".0f") for each in (turn.ours.clock_mhz, turn.vendor_mhz)]
    every = span(turn.vendor_tflops, ".1f") if turn.vendor_tflops else "-"
    return [speed(turn.ours), speed(vendor_of(turn.ours)), percent(turn.ratio), *clocks, every]
