"""What was meant to be reached on an H200, beside what the newest Records say: met or missed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lapidist.bench.protocol.cases import LISTS, shape_words
from lapidist.bench.protocol.contenders import LIBRARY
from lapidist.bench.protocol.record import Record, Run
from lapidist.bench.publish.corpora import DECODE, LARGE, MODES, TURNS, corpora, ragged_of, weights_read
from lapidist.bench.publish.markdown import row_of, rule
from lapidist.bench.publish.sharing_report import Group, by_shape, gains
from lapidist.bench.publish.squares import MODE_WORDS
from lapidist.bench.publish.tables import geomean
from lapidist.bench.publish.views import LIES, TIMED_MODES, in_math, shape_of, short_chip, squares
from lapidist.dtypes import FP8, short_name

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
    """`worst`: where, if it is a least of several. `again`: what the kernel that was chosen reached under its
    own name.
    """

    words: str
    wanted: float
    reached: float
    unit: str
    worst: str = ""
    again: float | None = None

    @property
    def cells(self) -> list[str]:
        again = "" if self.again is None else f"{self.again:.3f}{self.unit}"
        return [
            self.words,
            f"{self.wanted:g}{self.unit}",
            f"{self.reached:.3f}{self.unit}",
            again,
            self.verdict,
            self.worst,
        ]

    @property
    def verdict(self) -> str:
        turns = [turn >= self.wanted for turn in (self.reached, self.again) if turn is not None]
        return "met" if all(turns) else "met once" if any(turns) else "missed"


# The site keeps a first column on one line if numbers follow it. This one's are sentences.
WRAPPED = ("wanted",)


def aims_section(records: Sequence[Record], runs: Sequence[Run]) -> list[str]:
    """`records`: timed, of every mode; the corpus is in the runs."""
    sustained = [record for record in records if record.mode == "sustained" and record.ok]
    chosen = [record for record in sustained if record.kernel == LIBRARY]
    found = [*of_squares(chosen, sustained), *of_decode(chosen), *of_ragged(runs), *of_aligned(runs)]
    found += [*of_fp32(runs), *of_plain_squares(records), *of_batches(runs)]
    if not found:
        return []
    heads = ["of the planner's choices", "wanted", "reached", "again", "aim", "slowest at"]
    chip = f"On an {short_chip(chosen[0].device)}, where no chip is named. " if chosen else ""
    words = (
        f"{chip}x: times the speed of cuBLAS in the same run, sustained where nothing else is said."
        " *Wanted* is the least that was aimed at. *Again* is the kernel that the planner chose,"
        " measured once more under its own name. Where an aim is missed, [the climb](../ladder.md)"
        " says what limits, and [the attempts](../attempts.md) what was tried."
    )
    lines = [row_of(heads), rule(heads, WRAPPED), *(row_of(aim.cells) for aim in found)]
    return [f"## Aims on Hopper\n\n{words}\n\n" + "\n".join(lines) + "\n"]


def of_squares(records: Sequence[Record], others: Sequence[Record]) -> Iterator[Aim]:
    for kind, wanted in OF_SQUARES.items():
        for series in squares(in_math(records, kind)):
            timed = [record for record in series.records if record.ratio]
            for record in timed:
                if record.m == MAIN:
                    title = f"{MAIN}^3, {short_name(kind)}"
                    yield Aim(title, wanted, record.ratio or 0.0, "x", again=same_launch(record, others))
            large = [record for record in timed if record.m >= FROM]
            if large:
                least = min(large, key=lambda record: record.ratio or 0.0)
                title = f"the slowest square from {FROM}^3 up, {short_name(kind)}"
                yield Aim(
                    title,
                    NO_SQUARE_UNDER,
                    least.ratio or 0.0,
                    "x",
                    f"{least.m}^3",
                    same_launch(least, others),
                )


def same_launch(chosen: Record, others: Sequence[Record]) -> float | None:
    def problem(record: Record) -> tuple[object, ...]:
        return shape_of(record), record.dtype, record.layout

    same = (
        each
        for each in others
        if problem(each) == problem(chosen) and f"{each.kernel}: {each.config}" == chosen.config
    )
    return next((each.ratio for each in same), None)


def of_decode(records: Sequence[Record]) -> Iterator[Aim]:
    """Weights that are read, of a transformer's layers with few rows."""
    rows = [
        r
        for r in records
        if shape_of(r) in LISTS["layers"] and r.m <= DECODE and r.layout == "rcr" and r.seconds
    ]
    for kind in dict.fromkeys(record.dtype for record in rows):
        least = min(in_math(rows, kind), key=weights_read)
        where = f"{least.m} rows, {least.n} x {least.k}"
        yield Aim(
            f"weights read, 1 to {DECODE} rows, the slowest layer, {short_name(kind)}",
            OF_WEIGHTS,
            weights_read(least),
            " TB/s",
            where,
        )


def of_ragged(runs: Sequence[Run]) -> Iterator[Aim]:
    found = ragged_of(corpora(runs))
    for kind in RAGGED:
        mode = next(iter(found.get(kind, ())), None)
        if mode is not None:
            turns = "" if MODES[mode] == "sustained" else f", {MODES[mode]} turns"
            rows = [record for record, _ in found[kind][mode]]
            yield from of_corpus(f"{short_name(kind)}, {short_chip(rows[0].device)}{turns}", by_shape(rows))


def of_aligned(runs: Sequence[Run]) -> Iterator[Aim]:
    """The least of each aligned corpus in 16 bits, in every mode that it was measured in."""
    for corpus, modes in corpora(runs).items():
        for mode, rows in modes.items() if corpus.multiple > 1 and corpus.kind in RAGGED else ():
            groups = by_shape([record for record, _ in rows])
            by_shapes = {
                shape: gain
                for shape, here in groups.items()
                for gain in gains({shape: here}, LIBRARY, "cublas")
            }
            if by_shapes:
                worst = min(by_shapes, key=by_shapes.__getitem__)
                title = f"the slowest of {len(by_shapes)} {corpus.words}, {TURNS[mode].lower()}"
                yield Aim(title, NO_ALIGNED_UNDER, by_shapes[worst], "x", shape_words(*worst))


def of_fp32(runs: Sequence[Run]) -> Iterator[Aim]:
    """Mean and least of each of its corpora, in every mode that it was measured in."""
    for corpus, modes in corpora(runs).items():
        for mode, rows in modes.items() if corpus.kind == "float32" else ():
            groups = by_shape([record for record, _ in rows])
            found = {shape: gains({shape: here}, LIBRARY, "cublas") for shape, here in groups.items()}
            one_each = {shape: each[0] for shape, each in found.items() if each}
            if one_each:
                worst = min(one_each, key=one_each.__getitem__)
                title = f"{len(one_each)} {corpus.words}, {TURNS[mode].lower()}, geometric mean"
                wanted = OF_ALIGNED_FP32 if corpus.multiple > 1 else OF_FP32
                yield Aim(title, wanted, geomean(list(one_each.values())), "x")
                yield Aim("the slowest of these", NO_FP32_UNDER, one_each[worst], "x", shape_words(*worst))


def of_plain_squares(records: Sequence[Record]) -> Iterator[Aim]:
    chosen = [record for record in records if record.kernel == LIBRARY and record.ratio and record.ok]
    for kind in PLAIN:
        for mode in TIMED_MODES:
            rows = [
                r
                for r in in_math(chosen, kind)
                if r.mode == mode and shape_of(r) in LISTS["squares"] and not r.batch
            ]
            if rows:
                least = min(rows, key=lambda record: record.ratio or 0.0)
                title = f"the slowest square in any layout, {short_name(kind)}, {MODE_WORDS[mode]}"
                where = f"{least.m}^3, {LIES[least.layout[:2]]}"
                yield Aim(title, NO_PLAIN_SQUARE_UNDER, least.ratio or 0.0, "x", where)


def of_batches(runs: Sequence[Run]) -> Iterator[Aim]:
    """The least of each type, of the newest run that has it."""
    for kind in dict.fromkeys(record.dtype for run in runs for record in batches_of(run)):
        rows = next(found for run in reversed(runs) if (found := in_math(batches_of(run), kind)))
        least = min(rows, key=lambda record: record.ratio or 0.0)
        where = f"{least.batch} of {shape_words(least.m, least.n, least.k)}"
        title = f"the slowest batch, {short_name(kind)}, {short_chip(least.device)}, in bursts"
        yield Aim(title, NO_BATCH_UNDER, least.ratio or 0.0, "x", where)


def batches_of(run: Run) -> list[Record]:
    return [r for r in run.records if r.mode == "batches" and r.kernel == LIBRARY and r.ratio and r.ok]


def of_corpus(what: str, groups: Group) -> Iterator[Aim]:
    large = {shape: rows for shape, rows in groups.items() if min(shape) > LARGE}
    by_shapes = {
        shape: gain for shape, rows in groups.items() for gain in gains({shape: rows}, LIBRARY, "cublas")
    }
    of_large = gains(large, LIBRARY, "cublas")
    if by_shapes:
        title = f"{len(by_shapes)} ragged products, {what}, geometric mean"
        worst = min(by_shapes, key=by_shapes.__getitem__)
        yield Aim(title, OF_RAGGED, geomean(list(by_shapes.values())), "x")
        yield Aim("the slowest of these", NO_RAGGED_UNDER, by_shapes[worst], "x", shape_words(*worst))
    if of_large:
        yield Aim(
            f"of these, those with every side over {LARGE}, geometric mean",
            OF_LARGE_RAGGED,
            geomean(of_large),
            "x",
        )
