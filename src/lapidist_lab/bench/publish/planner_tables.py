"""The planner's own choices beside the fastest of what `lapidist tune` measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from lapidist.dtypes import short_name
from lapidist_lab.bench.protocol.measure import TUNE
from lapidist_lab.bench.protocol.record import Record, Run
from lapidist_lab.bench.publish.cells import percent, shape, time_words
from lapidist_lab.bench.publish.corpora import WORST, sources
from lapidist_lab.bench.publish.record_views import chips_of, maths_in, on_each_chip, shape_of, short_chip
from lapidist_lab.bench.publish.section import Section
from lapidist_lab.bench.publish.tables import Column, fold, table

Pair = tuple[Record, Record]  # the planner's own choice, and the fastest


class Tuned(NamedTuple):
    """What one run measured of one type. `main`: on the first chip that has it."""

    kind: str
    chip: str
    run: Run
    pairs: list[Pair]  # what is lost most first
    ways: int  # all that were timed
    main: bool

    @property
    def mean(self) -> float:
        """Geometric, of the times."""
        return math.exp(math.fsum(math.log1p(lost_by(pair)) for pair in self.pairs) / len(self.pairs)) - 1.0


def lost_by(pair: Pair) -> float:
    return (pair[0].seconds or 0.0) / (pair[1].seconds or 1.0) - 1.0


def tuned(runs: Sequence[Run]) -> list[Tuned]:
    """Of each type and chip the newest run that measured it: another one chose by another planner."""
    newest: dict[tuple[str, str], tuple[Run, list[Record]]] = {}
    for run in runs:
        rows = [record for record in run.records if record.mode == TUNE.mode and record.kind != "peer"]
        for kind in maths_in(rows):
            own = [record for record in rows if record.dtype == kind]
            newest[kind, own[0].device] = run, own
    chips = chips_of(on_each_chip(runs))
    kinds = maths_in(record for _, rows in newest.values() for record in rows)
    found: list[Tuned] = []
    for key in sorted(newest, key=lambda key: (kinds.index(key[0]), chips.index(key[1]))):
        run, rows = newest[key]
        pairs, ways = paired(rows)
        if pairs:
            found.append(Tuned(*key, run, pairs, ways, key[0] not in {each.kind for each in found}))
    return found


def paired(records: Sequence[Record]) -> tuple[list[Pair], int]:
    """The first row of each product is the planner's; and how many were timed."""
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
    ("type", lambda each: short_name(each.kind)),
    ("chip", lambda each: short_chip(each.chip)),
    ("products", lambda each: str(len(each.pairs))),
    ("ways timed", lambda each: str(each.ways)),
    ("lost %, geomean", lambda each: percent(each.mean)),
    ("most", lambda each: percent(lost_by(each.pairs[0]))),
    ("at", lambda each: shape(each.pairs[0][0])),
)
CHOICES: Sequence[Column] = (
    ("m x n x k", lambda pair: shape(pair[0])),
    ("planned", lambda pair: pair[0].kernel),
    ("time", lambda pair: time_words(pair[0].seconds)),
    ("fastest", lambda pair: pair[1].kernel),
    ("time ", lambda pair: time_words(pair[1].seconds)),
    ("lost %", lambda pair: percent(lost_by(pair))),
)


def planner_section(found: Tuned) -> str:
    words = (
        f"On {len(found.pairs)} products on an {short_chip(found.chip)} the planner's own choice took"
        f" {percent(found.mean)} % longer than the fastest in the geometric mean,"
        f" {percent(lost_by(found.pairs[0]))} % at most."
    )
    shown = table(CHOICES, found.pairs[:WORST]).markdown()
    body = "\n".join([shown, *sources([(found.pairs[0][0], found.run)])])
    title = short_name(found.kind) + ("" if found.main else f", {short_chip(found.chip)}")
    return (
        f"## The planner's choices, {title}\n\n{words}\n\n{fold(f'The {WORST} worst choices, {title}', body)}"
    )


PLANNER = Section(
    lambda data: tuned(data.runs),
    [
        lambda found: f"## What the planner loses\n\n{LOST}\n\n{table(SUMMARY, found).markdown()}",
        lambda found: [planner_section(each) for each in found],
    ],
)
