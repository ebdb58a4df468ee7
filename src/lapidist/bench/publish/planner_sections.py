"""The planner's own choices beside the fastest of what `lapidist tune` measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from lapidist.bench.protocol.cases import shape_words
from lapidist.bench.protocol.measure import TUNE
from lapidist.bench.protocol.record import Record, Run
from lapidist.bench.publish.corpora import WORST, sources
from lapidist.bench.publish.markdown import fold, row_of, rule
from lapidist.bench.publish.tables import percent, time_words
from lapidist.bench.publish.views import chips_of, maths_in, on_each_chip, shape_of, short_chip
from lapidist.dtypes import short_name

Pair = tuple[Record, Record]  # the planner's own choice, and the fastest


class Tuned(NamedTuple):
    """What one run measured of one type."""

    kind: str
    chip: str
    run: Run
    pairs: list[Pair]
    ways: int  # all that were timed

    @property
    def lost(self) -> list[float]:
        return [lost_by(*pair) for pair in self.pairs]

    @property
    def mean(self) -> float:
        """Geometric, of the times."""
        return math.exp(math.fsum(map(math.log1p, self.lost)) / len(self.pairs)) - 1.0

    @property
    def worst(self) -> Pair:
        return self.pairs[0]


def lost_by(own: Record, best: Record) -> float:
    return (own.seconds or 0.0) / (best.seconds or 1.0) - 1.0


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
    ordered = sorted(newest, key=lambda key: (kinds.index(key[0]), chips.index(key[1])))
    found = [Tuned(*key, newest[key][0], *paired(newest[key][1])) for key in ordered]
    return [each for each in found if each.pairs]


def paired(records: Sequence[Record]) -> tuple[list[Pair], int]:
    """The first row of each product is the planner's. What is lost most first; and how many were timed."""
    shapes: dict[tuple[str, int, int, int], list[Record]] = {}
    for record in records:
        shapes.setdefault((record.layout, *shape_of(record)), []).append(record)
    pairs, ways = [], 0
    for rows in shapes.values():
        timed = [record for record in rows if record.ok and record.seconds]
        if timed and timed[0] is rows[0]:
            pairs.append((rows[0], min(timed, key=lambda record: record.seconds or 0.0)))
            ways += len(timed)
    return sorted(pairs, key=lambda pair: -lost_by(*pair)), ways


def planner_sections(runs: Sequence[Run]) -> list[str]:
    found = tuned(runs)
    if not found:
        return []
    main = {each.kind: each.chip for each in reversed(found)}
    return [summary(found), *(planner_section(each, main[each.kind] == each.chip) for each in found)]


def summary(found: Sequence[Tuned]) -> str:
    """A line for each type and chip."""
    heads = ["type", "chip", "products", "ways timed", "lost %, geomean", "most", "at"]
    lines = [row_of(heads), rule(heads)]
    for each in found:
        worst = shape_words(*shape_of(each.worst[0]))
        cells = [short_name(each.kind), short_chip(each.chip), str(len(each.pairs)), str(each.ways)]
        lines.append(row_of([*cells, percent(each.mean), percent(max(each.lost)), worst]))
    words = (
        "How much longer the planner's own choice takes than the fastest that `lapidist tune` measured. Turns"
        " are short, so their noise counts as lost, too."
    )
    return f"## What the planner loses\n\n{words}\n\n" + "\n".join(lines) + "\n"


def planner_section(found: Tuned, main: bool) -> str:
    heads = ["m x n x k", "planned", "time", "fastest", "time ", "lost %"]
    lines = [row_of(heads), rule(heads)]
    for own, best in found.pairs[:WORST]:
        cells = [
            shape_words(*shape_of(own)),
            own.kernel,
            time_words(own.seconds),
            best.kernel,
            time_words(best.seconds),
        ]
        lines.append(row_of([*cells, percent(lost_by(own, best))]))
    words = (
        f"On {len(found.pairs)} products on an {short_chip(found.chip)} the planner's own choice took"
        f" {percent(found.mean)} % longer than the fastest in the geometric mean,"
        f" {percent(max(found.lost))} % at most."
    )
    body = "\n".join([*lines, "", *sources([(found.worst[0], found.run)])])
    title = short_name(found.kind) + ("" if main else f", {short_chip(found.chip)}")
    return f"## The planner's choices, {title}\n\n{words}\n\n" + fold(
        f"The {WORST} worst choices, {title}", body
    )
