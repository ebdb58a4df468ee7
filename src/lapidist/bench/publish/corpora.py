"""Sections on many products at once: the ragged corpus, and the layers of a transformer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

from lapidist.bench.protocol.cases import LISTS, Case, drawn_from, shape_words
from lapidist.bench.protocol.contenders import LIBRARY
from lapidist.bench.protocol.record import Record, Run
from lapidist.bench.publish.charts import Chart, scatter
from lapidist.bench.publish.markdown import fold, row_of, rule, speed
from lapidist.bench.publish.sharing_report import Group, by_shape, gains, over_intensity
from lapidist.bench.publish.tables import geomean, number, percent, time_words
from lapidist.bench.publish.views import (
    LIES,
    TIMED_MODES,
    Found,
    chips_of,
    maths_in,
    on_each_chip,
    shape_of,
    short_chip,
)
from lapidist.dtypes import element_of, short_name

# in words; the first is the main one
MODES = {"corpus sustained": "sustained", "corpus burst": "burst", "short": "short"}
TURNS = {"corpus sustained": "Sustained", "corpus burst": "In bursts", "short": "In short turns"}
PADDED, COMPILED = "padded", "compiled"
RIVALS = {
    (LIBRARY, "cublas"): "lapidist against cuBLAS",
    (LIBRARY, PADDED): "lapidist against padding by hand",
    (LIBRARY, COMPILED): "lapidist against torch.compile, where every side is over 1024",
    (PADDED, "cublas"): "padding by hand against cuBLAS",
}
NEIGHBOUR = "aligned "  # before the names of those that multiplied it
LARGE = 2048
SHARE_AIM = 0.8
GOOD = 0.95
WORST = 10
DECODE = 64  # rows up to which a layer is bound by reading its weights
DRAWN = {"cublas": "cuBLAS", PADDED: "padding by hand", LIBRARY: LIBRARY}


# ---- the corpus ----


class Corpus(NamedTuple):
    """What stands in one section: the products that a seed gives, of one type, on one chip."""

    kind: str
    multiple: int  # of which every extent is one; ragged ones: 1
    chip: str
    layout: str  # of A and B
    seed: str

    @property
    def alike(self) -> tuple[str, int, str, str]:
        """What corpora with different seeds have in common."""
        return self[:4]

    @property
    def sort(self) -> str:
        return "ragged products" if self.multiple == 1 else f"products of multiples of {self.multiple}"

    @property
    def words(self) -> str:
        of = f"{self.sort}, {short_name(self.kind)}, {LIES[self.layout]}"
        return f"{of}, {short_chip(self.chip)}, seed {self.seed}"


Corpora = Mapping[Corpus, Mapping[str, Found]]


def corpora(runs: Sequence[Run]) -> dict[Corpus, dict[str, Found]]:
    """Of each corpus and mode, the newest rows of every shape: of ragged ones, where the way by hand was
    measured. Main ones first: on the chip with most rows, the newest seed. Short turns, which are neither
    sustained nor after a rest, only where they have more shapes.
    """
    every = on_each_chip(runs)
    rows = [(record, run) for record, run in every if record.mode in MODES]
    padded = {where(record) for record, _ in rows if record.kernel == PADDED}
    found: dict[Corpus, dict[str, list[tuple[Record, Run]]]] = {}
    for record, run in rows:
        multiple, seed = drawn_from(run.conditions.protocol)
        if multiple > 1 or where(record) in padded:
            corpus = Corpus(record.dtype, multiple, record.device, record.layout[:2], seed)
            found.setdefault(corpus, {}).setdefault(record.mode, []).append((record, run))
    kinds, chips = maths_in(record for record, _ in rows), chips_of(every)
    ordered = sorted(found, key=lambda each: newest(found[each]), reverse=True)
    ordered.sort(key=lambda each: (each.layout != "rr", each.layout))
    ordered.sort(key=lambda each: (kinds.index(each.kind), each.multiple, chips.index(each.chip)))
    kept = {each: modes_of(each, found) for each in ordered}
    return {corpus: modes for corpus, modes in kept.items() if modes}


def where(record: Record) -> tuple[object, ...]:
    return record.device, record.mode, record.dtype, record.layout, shape_of(record)


def newest(modes: Mapping[str, Found]) -> str:
    return max(run.conditions.date for rows in modes.values() for _, run in rows)


def modes_of(corpus: Corpus, found: Corpora) -> dict[str, Found]:
    """In order, and without short turns where longer ones have as many shapes."""
    longer = [
        len(by_shape([record for record, _ in rows]))
        for other, modes in found.items()
        if other.alike == corpus.alike
        for mode, rows in modes.items()
        if mode != "short"
    ]
    own = {mode: found[corpus][mode] for mode in MODES if mode in found[corpus]}
    if "short" in own and max(longer, default=0) >= len(by_shape([record for record, _ in own["short"]])):
        del own["short"]
    return own


def ragged_of(found: Corpora) -> dict[str, Mapping[str, Found]]:
    """The main ragged corpus of each type."""
    mains: dict[str, Mapping[str, Found]] = {}
    for corpus, modes in found.items():
        if corpus.multiple == 1:
            mains.setdefault(corpus.kind, modes)
    return mains


def neighbours(mode: str, corpus: Corpus, groups: Group, runs: Sequence[Run]) -> Group:
    """Of the shapes whose sides rounded up were measured too: the rows of both, those of the neighbour named
    so.
    """
    kind, _, chip, layout, _ = corpus
    own = [record for record, _ in on_each_chip(runs) if (record.mode, record.dtype) == (mode, kind)]
    rows = by_shape([record for record in own if (record.device, record.layout[:2]) == (chip, layout)])
    found = {}
    for shape, here in groups.items():
        beside = rows.get(Case(*shape, kind).neighbour.extents, {})
        if LIBRARY in beside:
            found[shape] = here | {f"{NEIGHBOUR}{name}": record for name, record in beside.items()}
    return found


def beside_neighbours(groups: Group) -> str:
    """What lines that do not start on 16 bytes cost: the neighbour's speed is 1."""
    heads = ["shapes", "who", "geomean", "least", "median", "most", f"{SHARE_AIM} or more", "count"]
    lines = [row_of(heads), rule(heads)]
    large = {shape: rows for shape, rows in groups.items() if min(shape) > LARGE}
    for words, part in (("all", groups), (f"every side over {LARGE}", large)):
        for name, title in ((LIBRARY, LIBRARY), ("cublas", "cuBLAS")):
            pairs = [(rows.get(name), rows.get(f"{NEIGHBOUR}{name}")) for rows in part.values()]
            values = [
                own.tflops / other.tflops
                for own, other in pairs
                if own and other and own.tflops and other.tflops
            ]
            if values:
                cells = gain_cells(values)
                good = sum(value >= SHARE_AIM for value in values) / len(values)
                lines.append(row_of([words, title, *cells[:4], f"{percent(good)} %", cells[-1]]))
    return (
        "The speed (flops a second) over that on the same product with every side rounded up to whole pieces"
        " of 16 bytes:\n\n" + "\n".join(lines) + "\n"
    )


def corpus_sections(runs: Sequence[Run]) -> list[str]:
    found = corpora(runs)
    charts = {id(modes): corpus_chart(kind, modes) for kind, modes in ragged_of(found).items()}
    return [corpus_section(each, modes, runs, charts.get(id(modes))) for each, modes in found.items()]


def corpus_charts(runs: Sequence[Run]) -> list[Chart]:
    """Of the main ragged corpus of each type."""
    return [corpus_chart(kind, modes) for kind, modes in ragged_of(corpora(runs)).items()]


def corpus_chart(kind: str, found: Mapping[str, Found]) -> Chart:
    records = [record for record, _ in next(iter(found.values()))]
    short = short_name(kind)
    words = f"TFLOP/s of each ragged product over its arithmetic intensity, {short}"
    return scatter(f"corpus-{short}", over_intensity(records, DRAWN), words)


def corpus_section(
    corpus: Corpus, found: Mapping[str, Found], runs: Sequence[Run], chart: Chart | None
) -> str:
    heads = [
        "turns",
        "shapes",
        "A against B",
        "geomean",
        "least",
        "median",
        "most",
        f"{GOOD} or more",
        "faster",
        "count",
        "MHz",
        "W",
    ]
    lines = [row_of(heads), rule(heads, ("shapes",))]
    digits = 2 if corpus.multiple == 1 else 3
    by_mode = {mode: by_shape([record for record, _ in rows]) for mode, rows in found.items()}
    for mode, here in by_mode.items():
        lines += gain_lines(MODES[mode], here, digits)
    everyone = [each for rows in found.values() for each in rows]
    wrong = [record for record, _ in everyone if not record.ok]
    failed = (
        f"{len(wrong)} of {len(everyone)} results were wrong or refused."
        if wrong
        else "Every result was right."
    )
    main = next(iter(found))
    groups = by_mode[main]
    words = (
        f"Each number is B's time over A's: over 1, A is faster. *{GOOD} or more* and *faster* are shares of"
        f" the products. MHz and W are A's medians. {failed}"
    )
    said = [turn_words(mode, here, digits) for mode, here in by_mode.items()]
    title = f"## {len(groups)} {corpus.words}\n\n{' '.join(said)}\n"
    aligned = neighbours(main, corpus, groups, runs) if corpus.multiple == 1 else {}
    gain = fold(f"A corpus of {len(groups)} {corpus.words}", f"{words}\n\n" + "\n".join(lines))
    shares = [fold("Beside aligned neighbours", beside_neighbours(aligned))] if aligned else []
    worst = fold(f"The {WORST} shapes that compare worst", worst_shapes(groups))
    from_runs = fold("Where these numbers come from", "\n".join(sources(everyone)))
    drawn = [chart.shown()] if chart is not None else []
    return "\n".join([title, *drawn, gain, *shares, worst, from_runs])


def turn_words(mode: str, groups: Group, digits: int) -> str:
    """The gain in words, with the clocks of both sides."""
    values = gains(groups, LIBRARY, "cublas")
    if not values:
        return "cuBLAS was not measured beside these."
    padded = gains(groups, LIBRARY, PADDED)
    by_hand = f" Against padding the operands by hand first, it is {geomean(padded):.2f}." if padded else ""
    ours, theirs = (
        seen_cells([rows[name] for rows in groups.values() if name in rows])[0]
        for name in (LIBRARY, "cublas")
    )
    clocks = "" if "-" in (ours, theirs) else f" In the median ours ran at {ours} MHz, cuBLAS at {theirs}."
    return (
        f"{TURNS[mode]}, the speed over that of cuBLAS is {geomean(values):.{digits}f} in the geometric mean"
        f" of {len(values)}, {min(values):.{digits}f} at least and {max(values):.{digits}f} at"
        f" most.{clocks}{by_hand}"
    )


def gain_lines(turns: str, groups: Group, digits: int) -> list[str]:
    large = {shape: rows for shape, rows in groups.items() if min(shape) > LARGE}
    lines = []
    for words, part in (("all", groups), (f"every side over {LARGE}", large)):
        for (ours, rival), name in RIVALS.items():
            values = gains(part, ours, rival)
            if values:
                seen = seen_cells([rows[ours] for rows in part.values() if ours in rows])
                lines.append(row_of([turns, words, name, *gain_cells(values, digits), *seen]))
    return lines


def seen_cells(records: Sequence[Record]) -> list[str]:
    """Clock and power: the medians."""
    clocks = [record.clock_mhz for record in records if record.clock_mhz is not None]
    powers = [record.power_w for record in records if record.power_w is not None]
    return [number(median(values) if values else None, ".0f") for values in (clocks, powers)]


def gain_cells(values: Sequence[float], digits: int = 2) -> list[str]:
    ordered = sorted(values)
    numbers = [geomean(values), ordered[0], ordered[len(ordered) // 2], ordered[-1]]
    good, faster = (sum(value >= least for value in values) / len(values) for least in (GOOD, 1.0))
    return [
        *(f"{value:.{digits}f}" for value in numbers),
        f"{percent(good)} %",
        f"{percent(faster)} %",
        str(len(values)),
    ]


def worst_shapes(groups: Mapping[tuple[int, int, int], Mapping[str, Record]]) -> str:
    """Where it loses most, and by what."""
    ours = [rows[LIBRARY] for rows in groups.values() if LIBRARY in rows and rows[LIBRARY].ratio]
    heads = ["m x n x k", "time", "TFLOP/s", "% of cuBLAS", "MHz", "W", "chosen"]
    lines = [row_of(heads), rule(heads)]
    for record in sorted(ours, key=lambda each: each.ratio or 0.0)[:WORST]:
        cells = [
            shape_words(*shape_of(record)),
            time_words(record.seconds),
            speed(record),
            percent(record.ratio),
        ]
        lines.append(row_of([*cells, *seen_cells([record]), record.config or ""]))
    return "\n".join(lines) + "\n"


def sources(found: Found) -> list[str]:
    """Each run with its protocol, the seed in it."""
    runs = {run.name: run for _, run in found}
    return [f"From `results/{name}`: {run.conditions.protocol}.\n" for name, run in sorted(runs.items())]


# ---- the layers ----


def layers(records: Sequence[Record]) -> list[Record]:
    """Rows of the library and cuBLAS on layers, of the types in which more than the one square among them was
    measured.
    """
    rows = [
        record
        for record in records
        if record.kernel in (LIBRARY, "cublas") and record.layout == "rcr" and record.mode in TIMED_MODES
    ]
    rows = [record for record in rows if shape_of(record) in LISTS["layers"]]
    kinds = {record.dtype for record in rows if record.m != record.n}
    return [record for record in rows if record.dtype in kinds]


def layer_sections(records: Sequence[Record]) -> list[str]:
    rows = layers(records)
    return [
        layer_section(kind, [record for record in rows if record.dtype == kind]) for kind in maths_in(rows)
    ]


def layer_section(kind: str, records: Sequence[Record]) -> str:
    """A row for each product: sustained beside burst."""
    heads = ["n x k", "m"]
    for mode in TIMED_MODES:
        heads += [f"{mode}: time", "TFLOP/s", "TB/s of weights", "% of cuBLAS", "MHz", "W"]
    lines = [row_of([*heads, "chosen"]), rule([*heads, "chosen"])]
    at = {(shape_of(record), record.mode): record for record in records if record.kernel == LIBRARY}
    for shape in LISTS["layers"]:
        rows = [at.get((shape, mode)) for mode in TIMED_MODES]
        if any(rows):
            chosen = next(row.config or "" for row in rows if row)
            cells = [cell for row in rows for cell in layer_cells(row)]
            lines.append(row_of([f"{shape[1]} x {shape[2]}", str(shape[0]), *cells, chosen]))
    return fold(f"Layers, {short_name(kind)}", "\n".join(lines))


def weights_read(record: Record) -> float:
    """TB/s at which weights are read, each once."""
    return record.n * record.k * element_of(record.dtype).nbytes / (record.seconds or math.inf) / 1e12


def layer_cells(record: Record | None) -> list[str]:
    if record is None or record.seconds is None:
        return ["-"] * 6
    read = f"{weights_read(record):.2f}" if record.m <= DECODE else ""
    return [time_words(record.seconds), speed(record), read, percent(record.ratio), *seen_cells([record])]
