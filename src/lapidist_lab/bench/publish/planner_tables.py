"""The planner's own choices beside the fastest of what `lapidist tune` measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from lapidist.dtypes import short_name
from lapidist_lab.bench.protocol.record import Record, Run
from lapidist_lab.bench.protocol.timing import TUNE
from lapidist_lab.bench.publish.cells import percent, shape, time_words
from lapidist_lab.bench.publish.corpora import WORST, sources
from lapidist_lab.bench.publish.record_views import chips_of, maths_in, newest_by_chip, shape_of, short_chip
from lapidist_lab.bench.publish.section import Section
from lapidist_lab.bench.publish.tables import Column, fold, table

Pair = tuple[Record, Record]  # the planner's own choice, and the fastest


class Tuned(NamedTuple):
    """What one run measured of one type. `main`: the chip is the first that has it."""

    kind: str
    chip: str
    run: Run
    pairs: list[Pair]  # what is lost most first
    ways: int  # all that were timed
    main: bool

    @property
    def mean(self) -> float:
        """The geometric mean of the times over the fastest, less 1."""
        return math.exp(math.fsum(math.log1p(lost_by(pair)) for pair in self.pairs) / len(self.pairs)) - 1.0


def lost_by(pair: Pair) -> float:
    return (pair[0].seconds or 0.0) / (pair[1].seconds or 1.0) - 1.0


def tuned(runs: Sequence[Run]) -> list[Tuned]:
    """The newest run of each type and chip: in earlier ones another planner chose."""
    newest: dict[tuple[str, str], tuple[Run, list[Record]]] = {}
    for run in runs:
        rows = [record for record in run.records if record.mode == TUNE.mode and record.kind != "peer"]
        for kind in maths_in(rows):
            in_type = [record for record in rows if record.dtype == kind]
            newest[kind, in_type[0].device] = run, in_type
    chips = chips_of(newest_by_chip(runs))
    kinds = maths_in(record for _, rows in newest.values() for record in rows)
    results: list[Tuned] = []
    for key in sorted(newest, key=lambda key: (kinds.index(key[0]), chips.index(key[1]))):
        run, rows = newest[key]
        pairs, ways = paired(rows)
        if pairs:
            results.append(Tuned(*key, run, pairs, ways, key[0] not in {result.kind for result in results}))
    return results


def paired(records: Sequence[Record]) -> tuple[list[Pair], int]:
    """The planner's choice (the first row) and the fastest of each product, and how many ways were timed."""
    shapes: dict[tuple[str, int, int, int], list[Record]] = {}
    for record in records:
        shapes.setdefault((record.layout, *shape_of(record)), []).append(record)
    pairs, ways = [], 0
    for rows in shapes.values():
        timed = [record for record in rows if record.ok and record.seconds]
        if timed and timed[0] is rows[0]:
            pairs.append((rows[0], min(timed, key=lambda record: record.seconds or 0.0)))
            ways += len(timed)
    return sorted(pairs, key=lambda pair: -lost_by(pair)), ways


LOST = (
    "How much longer the planner's own choice takes than the fastest that `lapidist tune` measured. Turns are"
    " short, so their noise counts as lost, too."
)
SUMMARY: Sequence[Column] = (
    ("type", lambda result: short_name(result.kind)),
    ("chip", lambda result: short_chip(result.chip)),
    ("products", lambda result: str(len(result.pairs))),
    ("ways timed", lambda result: str(result.ways)),
    ("lost %, geomean", lambda result: percent(result.mean)),
    ("most", lambda result: percent(lost_by(result.pairs[0]))),
    ("at", lambda result: shape(result.pairs[0][0])),
)
CHOICES: Sequence[Column] = (
    ("m x n x k", lambda pair: shape(pair[0])),
    ("planned", lambda pair: pair[0].kernel),
    ("time", lambda pair: time_words(pair[0].seconds)),
    ("fastest", lambda pair: pair[1].kernel),
    ("time ", lambda pair: time_words(pair[1].seconds)),
    ("lost %", lambda pair: percent(lost_by(pair))),
)


def planner_section(result: Tuned) -> str:
    words = (
        f"On {len(result.pairs)} products on an {short_chip(result.chip)} the planner's own choice took"
        f" {percent(result.mean)} % longer than the fastest in the geometric mean,"
        f" {percent(lost_by(result.pairs[0]))} % at most."
    )
    shown = table(CHOICES, result.pairs[:WORST]).markdown()
    body = "\n".join([shown, *sources([(result.pairs[0][0], result.run)])])
    title = short_name(result.kind) + ("" if result.main else f", {short_chip(result.chip)}")
    return (
        f"## The planner's choices, {title}\n\n{words}\n\n{fold(f'The {WORST} worst choices, {title}', body)}"
    )


PLANNER = Section(
    lambda data: tuned(data.runs),
    [
        lambda results: f"## What the planner loses\n\n{LOST}\n\n{table(SUMMARY, results).markdown()}",
        lambda results: [planner_section(result) for result in results],
    ],
)
