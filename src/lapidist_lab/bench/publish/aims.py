"""What was meant to be reached on an H200, beside what the newest Records say: met or missed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lapidist.dtypes import FP8, short_name
from lapidist_lab.bench.protocol.cases import LISTS, shape_words
from lapidist_lab.bench.protocol.contenders import LIBRARY
from lapidist_lab.bench.protocol.record import Record, Run
from lapidist_lab.bench.publish.call_costs import DECODE, weights_read
from lapidist_lab.bench.publish.cells import chip, geomean, kind, shape, worst
from lapidist_lab.bench.publish.corpora import LARGE, MODES, TURNS, corpora, grouped, large_of, ragged_of
from lapidist_lab.bench.publish.record_views import LIES, TIMED_MODES, in_math, shape_of, squares
from lapidist_lab.bench.publish.section import Data
from lapidist_lab.bench.publish.sharing_tables import Group, gains_by_shape
from lapidist_lab.bench.publish.squares import MODE_WORDS
from lapidist_lab.bench.publish.tables import Column, fold, table

MAIN = 8192
# times cuBLAS at 8192^3, sustained
OF_SQUARES = {"bfloat16": 1.05, "float16": 1.05, "tf32": 1.10, FP8[0]: 1.10, "int8": 1.5}
NO_SQUARE_UNDER, FROM = 0.97, 2048
OF_WEIGHTS = 4.2  # TB/s
RAGGED = "bfloat16", "float16"
NO_ALIGNED_UNDER = 0.97
OF_RAGGED, NO_RAGGED_UNDER, OF_LARGE_RAGGED = 2.5, 0.95, 4.0
# of random products in fp32: ragged ones, and multiples of 16
OF_FP32, OF_ALIGNED_FP32, NO_FP32_UNDER = 1.05, 1.12, 0.95
NO_PLAIN_SQUARE_UNDER, PLAIN = 1.0, ("float32", "float64")  # of any size
NO_BATCH_UNDER = 1.0


class Aim(NamedTuple):
    """`worst`: where a least of several is. `repeated`: what the chosen kernel reached under its own name."""

    words: str
    target: float
    reached: float
    worst: str = ""
    repeated: float | None = None
    unit: str = "x"

    @property
    def verdict(self) -> str:
        turns = [turn >= self.target for turn in (self.reached, self.repeated) if turn is not None]
        return "met" if all(turns) else "met once" if any(turns) else "missed"


AIMS: Sequence[Column] = (
    ("of the planner's choices", lambda aim: aim.words),
    ("wanted", lambda aim: f"{aim.target:g}{aim.unit}"),
    ("reached", lambda aim: f"{aim.reached:.3f}{aim.unit}"),
    ("again", lambda aim: "" if aim.repeated is None else f"{aim.repeated:.3f}{aim.unit}"),
    ("aim", lambda aim: aim.verdict),
    ("slowest at", lambda aim: aim.worst),
)
# The site keeps a first column on one line if numbers follow it. This one's are sentences.
WRAPPED = ("wanted",)
WORDS = (
    "x: times the speed of cuBLAS in the same run, sustained where nothing else is said. *Wanted* is the"
    " least that was aimed at. *Again* is the kernel that the planner chose, measured once more under its"
    " own name. Where an aim is missed, [the climb](../ladder.md) says what limits, and [the"
    " attempts](../attempts.md) what was tried."
)


def aims_section(data: Data) -> list[str]:
    """The table of aims. Records are timed, in every mode; corpora are in the runs."""
    sustained = [record for record in data.records if record.mode == "sustained" and record.ok]
    chosen = [record for record in sustained if record.kernel == LIBRARY]
    aims = [*of_squares(chosen, sustained), *of_decode(chosen), *of_ragged(data.runs), *of_aligned(data.runs)]
    aims += [*of_fp32(data.runs), *of_plain_squares(data.records), *of_batches(data.runs)]
    if not aims:
        return []
    where = f"On an {chip(chosen[0])}, where no chip is named. " if chosen else ""
    met = sum(aim.verdict == "met" for aim in aims)
    counted = f"{met} of {len(aims)} aims are met. {where}{WORDS}"
    rows = fold("The aims", table(AIMS, aims, WRAPPED).markdown())
    return [f"## Aims on Hopper\n\n{counted}\n\n{rows}"]


def of_squares(records: Sequence[Record], sustained: Sequence[Record]) -> Iterator[Aim]:
    for math, target in OF_SQUARES.items():
        for series in squares(in_math(records, math)):
            timed = [record for record in series.records if record.ratio]
            for record in timed:
                if record.m == MAIN:
                    repeated = same_launch(record, sustained)
                    yield Aim(f"{MAIN}^3, {short_name(math)}", target, record.ratio or 0.0, repeated=repeated)
            large = [record for record in timed if record.m >= FROM]
            if large:
                least = worst(large)
                title = f"the slowest square from {FROM}^3 up, {short_name(math)}"
                repeated = same_launch(least, sustained)
                yield Aim(title, NO_SQUARE_UNDER, least.ratio or 0.0, f"{least.m}^3", repeated)


def same_launch(chosen: Record, sustained: Sequence[Record]) -> float | None:
    def launch(record: Record, config: str | None) -> tuple[object, ...]:
        return shape_of(record), record.dtype, record.layout, config

    chosen_launch = launch(chosen, chosen.config)
    return next(
        (row.ratio for row in sustained if launch(row, f"{row.kernel}: {row.config}") == chosen_launch), None
    )


def of_decode(records: Sequence[Record]) -> Iterator[Aim]:
    """The least rate at which weights are read, of layers with few rows."""
    rows = [
        r
        for r in records
        if shape_of(r) in LISTS["layers"] and r.m <= DECODE and r.layout == "rcr" and r.seconds
    ]
    for math in dict.fromkeys(record.dtype for record in rows):
        least = min(in_math(rows, math), key=weights_read)
        title = f"weights read, 1 to {DECODE} rows, the slowest layer, {short_name(math)}"
        where = f"{least.m} rows, {least.n} x {least.k}"
        yield Aim(title, OF_WEIGHTS, weights_read(least), where, unit=" TB/s")


def least_of(title: str, target: float, by_shape: dict[tuple[int, int, int], float]) -> Aim:
    slowest = min(by_shape, key=by_shape.__getitem__)
    return Aim(title, target, by_shape[slowest], shape_words(*slowest))


def cublas_gains(groups: Group) -> dict[tuple[int, int, int], float]:
    return gains_by_shape(groups, LIBRARY, "cublas")


def of_ragged(runs: Sequence[Run]) -> Iterator[Aim]:
    modes_by_type = ragged_of(corpora(runs))
    for math in RAGGED:
        for mode, rows in list(modes_by_type.get(math, {}).items())[:1]:
            turns = "" if MODES[mode] == "sustained" else f", {MODES[mode]} turns"
            by_shape, large = cublas_gains(grouped(rows)), cublas_gains(large_of(grouped(rows)))
            where = f"{kind(rows[0][0])}, {chip(rows[0][0])}{turns}"
            if by_shape:
                title = f"{len(by_shape)} ragged products, {where}, geometric mean"
                yield Aim(title, OF_RAGGED, geomean([*by_shape.values()]))
                yield least_of("the slowest of these", NO_RAGGED_UNDER, by_shape)
            if large:
                title = f"of these, those with every side over {LARGE}, geometric mean"
                yield Aim(title, OF_LARGE_RAGGED, geomean([*large.values()]))


def of_aligned(runs: Sequence[Run]) -> Iterator[Aim]:
    """The least of each aligned corpus in 16 bits, in every mode."""
    for corpus, modes in corpora(runs).items():
        for mode, rows in modes.items() if corpus.multiple > 1 and corpus.kind in RAGGED else ():
            if by_shape := cublas_gains(grouped(rows)):
                title = f"the slowest of {len(by_shape)} {corpus.words}, {TURNS[mode].lower()}"
                yield least_of(title, NO_ALIGNED_UNDER, by_shape)


def of_fp32(runs: Sequence[Run]) -> Iterator[Aim]:
    """Mean and least of each corpus in fp32, in every mode."""
    for corpus, modes in corpora(runs).items():
        for mode, rows in modes.items() if corpus.kind == "float32" else ():
            if by_shape := cublas_gains(grouped(rows)):
                title = f"{len(by_shape)} {corpus.words}, {TURNS[mode].lower()}, geometric mean"
                target = OF_ALIGNED_FP32 if corpus.multiple > 1 else OF_FP32
                yield Aim(title, target, geomean([*by_shape.values()]))
                yield least_of("the slowest of these", NO_FP32_UNDER, by_shape)


def of_plain_squares(records: Sequence[Record]) -> Iterator[Aim]:
    chosen = [record for record in records if record.kernel == LIBRARY and record.ratio and record.ok]
    plain = [record for record in chosen if shape_of(record) in LISTS["squares"] and not record.batch]
    for math in PLAIN:
        for mode in TIMED_MODES:
            rows = [record for record in in_math(plain, math) if record.mode == mode]
            if rows:
                least = worst(rows)
                title = f"the slowest square in any layout, {short_name(math)}, {MODE_WORDS[mode]}"
                where = f"{least.m}^3, {LIES[least.layout[:2]]}"
                yield Aim(title, NO_PLAIN_SQUARE_UNDER, least.ratio or 0.0, where)


def of_batches(runs: Sequence[Run]) -> Iterator[Aim]:
    """The slowest batch of each type, from the newest run that has the type."""
    for math in dict.fromkeys(record.dtype for run in runs for record in batches_of(run)):
        least = worst(next(batches for run in reversed(runs) if (batches := in_math(batches_of(run), math))))
        title = f"the slowest batch, {short_name(math)}, {chip(least)}, in bursts"
        yield Aim(title, NO_BATCH_UNDER, least.ratio or 0.0, f"{least.batch} of {shape(least)}")


def batches_of(run: Run) -> list[Record]:
    return [r for r in run.records if r.mode == "batches" and r.kernel == LIBRARY and r.ratio and r.ok]
