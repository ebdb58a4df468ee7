"""Many random products at once, ragged and aligned: each corpus, all of them in a line, and chips apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from math import prod
from statistics import median
from typing import NamedTuple

from lapidist.dtypes import short_name
from lapidist_lab.bench.protocol.cases import Case, drawn_from
from lapidist_lab.bench.protocol.contenders import LIBRARY
from lapidist_lab.bench.protocol.record import Record, Run
from lapidist_lab.bench.publish.cells import geomean, mean_words, number, percent
from lapidist_lab.bench.publish.charts import Chart
from lapidist_lab.bench.publish.chips import ALIKE
from lapidist_lab.bench.publish.points import ratios_over_size
from lapidist_lab.bench.publish.record_views import (
    LIES,
    RunRecords,
    chips_of,
    maths_in,
    newest_by_chip,
    shape_of,
    short_chip,
)
from lapidist_lab.bench.publish.section import Section, joined
from lapidist_lab.bench.publish.sharing_tables import (
    Group,
    by_shape,
    gains,
    gains_by_shape,
    records_of,
    verdict_words,
)
from lapidist_lab.bench.publish.tables import Table, fold, table

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
SHARE_AIM, GOOD, WORST = 0.8, 0.95, 10


class Corpus(NamedTuple):
    """The products that a seed draws, of one type, on one chip."""

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


Corpora = Mapping[Corpus, Mapping[str, RunRecords]]


def corpora(runs: Sequence[Run]) -> dict[Corpus, dict[str, RunRecords]]:
    """The newest rows of every shape, by corpus and mode; ragged ones where the way by hand was measured,
    too. Main ones first: the chip with most rows, then the newest seed."""
    every = newest_by_chip(runs)
    rows = [(record, run) for record, run in every if record.mode in MODES]
    padded = {where(record) for record, _ in rows if record.kernel == PADDED}
    by_corpus: dict[Corpus, dict[str, list[tuple[Record, Run]]]] = {}
    for record, run in rows:
        multiple, seed = drawn_from(run.conditions.protocol)
        if multiple > 1 or where(record) in padded:
            corpus = Corpus(record.dtype, multiple, record.device, record.layout[:2], seed)
            by_corpus.setdefault(corpus, {}).setdefault(record.mode, []).append((record, run))
    kinds, chips = maths_in(record for record, _ in rows), chips_of(every)
    ordered = sorted(by_corpus, key=lambda key: newest(by_corpus[key].values()), reverse=True)
    ordered.sort(key=lambda key: (key.layout != "rr", key.layout))
    ordered.sort(key=lambda key: (kinds.index(key.kind), key.multiple, chips.index(key.chip)))
    chosen = {key: modes_of(key, by_corpus) for key in ordered}
    return {corpus: modes for corpus, modes in chosen.items() if modes}


def where(record: Record) -> tuple[object, ...]:
    return record.device, record.mode, record.dtype, record.layout, shape_of(record)


def newest(modes: Iterable[RunRecords]) -> str:
    return max(run.conditions.date for rows in modes for _, run in rows)


def modes_of(corpus: Corpus, by_corpus: Corpora) -> dict[str, RunRecords]:
    """The modes of a corpus, in order; short turns only where longer ones have fewer shapes."""
    longer = [
        len(grouped(rows))
        for other, modes in by_corpus.items()
        if other.alike == corpus.alike
        for mode, rows in modes.items()
        if mode != "short"
    ]
    by_mode = {mode: by_corpus[corpus][mode] for mode in MODES if mode in by_corpus[corpus]}
    if "short" in by_mode and max(longer, default=0) >= len(grouped(by_mode["short"])):
        del by_mode["short"]
    return by_mode


def grouped(rows: RunRecords) -> Group:
    return by_shape(records_of(rows))


def large_of(groups: Group) -> Group:
    return {shape: rows for shape, rows in groups.items() if min(shape) > LARGE}


def ragged_of(by_corpus: Corpora) -> dict[str, Mapping[str, RunRecords]]:
    """The main ragged corpus of each type."""
    mains: dict[str, Mapping[str, RunRecords]] = {}
    for corpus, modes in by_corpus.items():
        if corpus.multiple == 1:
            mains.setdefault(corpus.kind, modes)
    return mains


# ---- a corpus ----


def corpus_sections(runs: Sequence[Run]) -> list[str | Chart]:
    by_corpus = corpora(runs)
    mains = {id(modes): kind for kind, modes in ragged_of(by_corpus).items()}
    parts: list[str | Chart] = []
    for corpus, modes in by_corpus.items():
        by_mode = {mode: grouped(rows) for mode, rows in modes.items()}
        digits = 2 if corpus.multiple == 1 else 3
        sentences = [turn_words(mode, groups, digits) for mode, groups in by_mode.items()]
        parts.append(f"## {len(next(iter(by_mode.values())))} {corpus.words}\n\n{' '.join(sentences)}")
        if id(modes) in mains:
            parts.append(corpus_chart(modes))
        parts += corpus_tables(corpus, modes, by_mode, runs)
    return parts


def corpus_chart(modes: Mapping[str, RunRecords]) -> Chart:
    records = records_of(next(iter(modes.values())))
    short = short_name(records[0].dtype)
    words = f"Speed of each ragged product as a multiple of cuBLAS, over its size, {short}; losses are red"
    gains_of = gains_by_shape(by_shape(records), LIBRARY, "cublas")
    points = [(prod(shape) ** (1 / 3), ratio) for shape, ratio in gains_of.items()]
    return ratios_over_size(f"corpus-{short}", points, words)


def corpus_tables(
    corpus: Corpus, modes: Mapping[str, RunRecords], by_mode: Mapping[str, Group], runs: Sequence[Run]
) -> list[str]:
    main, groups = next(iter(by_mode.items()))
    run_records = [pair for rows in modes.values() for pair in rows]
    words = (
        f"Each number is B's time over A's: over 1, A is faster. *{GOOD} or more* and *faster* are shares of"
        f" the products. MHz and W are A's medians. {verdict_words(records_of(run_records))}"
    )
    aligned = neighbours(main, corpus, groups, runs) if corpus.multiple == 1 else {}
    ours = [rows[LIBRARY] for rows in groups.values() if LIBRARY in rows and rows[LIBRARY].ratio]
    slowest = table(SLOWEST, sorted(ours, key=lambda row: row.ratio or 0.0)[:WORST])
    return [
        fold(
            f"A corpus of {len(groups)} {corpus.words}",
            f"{words}\n\n{gain_table(corpus, by_mode).markdown()}",
        ),
        *([fold("Beside aligned neighbours", neighbour_table(aligned))] if aligned else []),
        fold(f"The {WORST} shapes that compare worst", slowest.markdown()),
        fold("Where these numbers come from", "\n".join(sources(run_records))),
    ]


SLOWEST = ("m x n x k | time | TFLOP/s | % of cuBLAS | MHz | W | chosen",)


def turn_words(mode: str, groups: Group, digits: int) -> str:
    """The gain of a mode in words, with the clocks of both sides."""
    values, padded = (gains(groups, LIBRARY, rival) for rival in ("cublas", PADDED))
    if not values:
        return "cuBLAS was not measured beside these."
    ours, theirs = (sensor_cells(groups, name)[0] for name in (LIBRARY, "cublas"))
    return joined(
        f"{TURNS[mode]}, the speed over that of cuBLAS is {geomean(values):.{digits}f} in the geometric mean"
        f" of {len(values)}, {min(values):.{digits}f} at least and {max(values):.{digits}f} at most.",
        "" if "-" in (ours, theirs) else f"In the median ours ran at {ours} MHz, cuBLAS at {theirs}.",
        f"Against padding the operands by hand first, it is {geomean(padded):.2f}." if padded else "",
    )


def gain_table(corpus: Corpus, by_mode: Mapping[str, Group]) -> Table:
    gain = ["geomean", "least", "median", "most", f"{GOOD} or more", "faster", "count"]
    digits = 2 if corpus.multiple == 1 else 3
    rows = [
        [MODES[mode], words, name, *gain_cells(values, digits), *sensor_cells(part, ours)]
        for mode, groups in by_mode.items()
        for words, part in (("all", groups), (f"every side over {LARGE}", large_of(groups)))
        for (ours, rival), name in RIVALS.items()
        if (values := gains(part, ours, rival))
    ]
    return Table(["turns", "shapes", "A against B", *gain, "MHz", "W"], rows, ("shapes",))


def sensor_cells(groups: Group, name: str) -> list[str]:
    """The medians of clock and power."""
    records = [rows[name] for rows in groups.values() if name in rows]
    clocks = [record.clock_mhz for record in records if record.clock_mhz is not None]
    powers = [record.power_w for record in records if record.power_w is not None]
    return [number(median(values) if values else None, ".0f") for values in (clocks, powers)]


def gain_cells(values: Sequence[float], digits: int = 2) -> list[str]:
    ordered = sorted(values)
    numbers = [geomean(values), ordered[0], ordered[len(ordered) // 2], ordered[-1]]
    return [
        *(f"{value:.{digits}f}" for value in numbers),
        *(reaching(values, least) for least in (GOOD, 1.0)),
        str(len(values)),
    ]


def reaching(values: Sequence[float], least: float) -> str:
    return f"{percent(sum(value >= least for value in values) / len(values))} %"


def neighbours(mode: str, corpus: Corpus, groups: Group, runs: Sequence[Run]) -> Group:
    """The rows of shapes that were also measured with their sides rounded up, together with those of the
    neighbour."""
    place = mode, corpus.kind, corpus.chip, corpus.layout
    rows = by_shape(
        [r for r, _ in newest_by_chip(runs) if (r.mode, r.dtype, r.device, r.layout[:2]) == place]
    )
    pairs = {}
    for shape, measured in groups.items():
        aligned = rows.get(Case(*shape, corpus.kind).neighbour.extents, {})
        if LIBRARY in aligned:
            pairs[shape] = measured | {f"{NEIGHBOUR}{name}": record for name, record in aligned.items()}
    return pairs


def neighbour_table(groups: Group) -> str:
    """A table of the speed over that of the aligned neighbour: what unaligned lines cost."""
    rows = []
    for words, part in (("all", groups), (f"every side over {LARGE}", large_of(groups))):
        for name, title in ((LIBRARY, LIBRARY), ("cublas", "cuBLAS")):
            pairs = [
                (rows_of_shape.get(name), rows_of_shape.get(f"{NEIGHBOUR}{name}"))
                for rows_of_shape in part.values()
            ]
            values = [a.tflops / b.tflops for a, b in pairs if a and b and a.tflops and b.tflops]
            if values:
                cells = gain_cells(values)
                rows.append([words, title, *cells[:4], reaching(values, SHARE_AIM), cells[-1]])
    heads = ["shapes", "who", "geomean", "least", "median", "most", f"{SHARE_AIM} or more", "count"]
    return (
        "The speed (flops a second) over that on the same product with every side rounded up to whole"
        f" pieces of 16 bytes:\n\n{Table(heads, rows).markdown()}"
    )


def sources(run_records: RunRecords) -> list[str]:
    """A line for each run: its protocol, which has the seed."""
    runs = {run.name: run for _, run in run_records}
    return [f"From `results/{name}`: {run.conditions.protocol}.\n" for name, run in sorted(runs.items())]


# ---- all of them in short ----


def of_ragged(by_corpus: Corpora) -> list[str]:
    """Each type's gain over cuBLAS in every mode: first ragged products, then aligned ones."""
    lines = [gain_words(kind, modes) for kind, modes in ragged_of(by_corpus).items()]
    aligned: dict[tuple[str, int, str, str], list[tuple[Corpus, Mapping[str, RunRecords]]]] = {}
    for corpus, modes in by_corpus.items():
        if corpus.multiple > 1:
            aligned.setdefault(corpus.alike, []).append((corpus, modes))
    lines += map(aligned_words, aligned.values())
    return [line for line in lines if line]


def gain_words(kind: str, modes: Mapping[str, RunRecords]) -> str:
    sentences: list[str] = []
    for mode, rows in modes.items():
        values, padded = (gains(grouped(rows), LIBRARY, rival) for rival in ("cublas", PADDED))
        if values:
            whose = f"{short_name(kind)} on an {short_chip(rows[0][0].device)}, {TURNS[mode].lower()}"
            sentences.append(
                f"{TURNS[mode] if sentences else whose}: {mean_words(values, noun=' ragged products')}."
            )
        if padded:
            by_hand = "Beside cuBLAS with operands padded by hand first"
            sentences.append(f"{by_hand}: {geomean(padded):.2f} times, {min(padded):.2f} at least.")
    return " ".join(sentences)


def aligned_words(alike: Sequence[tuple[Corpus, Mapping[str, RunRecords]]]) -> str:
    """The gains over cuBLAS in corpora that differ by their seeds, in all modes."""
    each = [gains(grouped(rows), LIBRARY, "cublas") for _, modes in alike for rows in modes.values()]
    values = [value for gained in each for value in gained]
    if not values:
        return ""
    corpus, means = alike[0][0], sorted(geomean(gained) for gained in each if gained)
    head = f"{short_name(corpus.kind)}, multiples of {corpus.multiple}, {LIES[corpus.layout]}"
    span = f"{means[0]:.2f} to {means[-1]:.2f}" if len(means) > 1 else f"{means[0]:.2f}"
    of = (
        f"the geometric means of {len(means)} runs"
        if len(means) > 1
        else f"the geometric mean of {len(values)}"
    )
    return f"{head}, {short_chip(corpus.chip)}: {span} times cuBLAS in {of}. The least is {min(values):.2f}."


def summary_section(runs: Sequence[Run]) -> str:
    """A table with a row for each corpus and mode, and what two chips reach on the same products."""
    by_corpus = corpora(runs)
    heads = ["type", "products", "operands", "chip", "seed", "turns", "count"]
    heads += ["over cuBLAS, geomean", "least", "MHz", "cuBLAS at", "measured"]
    rows = []
    for corpus, modes in by_corpus.items():
        sort = "ragged" if corpus.multiple == 1 else f"multiples of {corpus.multiple}"
        whose = [short_name(corpus.kind), sort, LIES[corpus.layout], short_chip(corpus.chip), corpus.seed]
        for mode, run_records in modes.items():
            groups = grouped(run_records)
            values = gains(groups, LIBRARY, "cublas")
            if values:
                gain = [str(len(values)), f"{geomean(values):.3f}", f"{min(values):.3f}"]
                clocks = [sensor_cells(groups, name)[0] for name in (LIBRARY, "cublas")]
                rows.append([*whose, MODES[mode], *gain, *clocks, newest([run_records])[:10]])
    lines = [f"- {line}" for line in chip_comparisons(by_corpus)]
    return "\n".join([Table(heads, rows, ("products", "turns")).markdown(), *lines])


def chip_comparisons(by_corpus: Corpora) -> Iterator[str]:
    """The gains of two chips on the products that both multiplied, for each seed that both have."""
    pairs = [
        pair for pair in combinations(by_corpus, 2) if len({corpus._replace(chip="") for corpus in pair}) == 1
    ]
    for pair, mode in [(both, mode) for both in pairs for mode in by_corpus[both[0]]]:
        first_groups, second_groups = (grouped(by_corpus[corpus].get(mode, ())) for corpus in pair)
        both = [shape for shape in first_groups if shape in second_groups]
        first, second = (
            gains({shape: groups[shape] for shape in both}, LIBRARY, "cublas")
            for groups in (first_groups, second_groups)
        )
        if first and second:
            means, corpus = (geomean(first), geomean(second)), pair[0]
            verb = "agree" if abs(means[0] / means[1] - 1.0) <= ALIKE else "differ"
            chips = " and ".join(short_chip(corpus.chip) for corpus in pair)
            yield (
                f"{chips} {verb} on {len(both)} {corpus.sort}, {short_name(corpus.kind)},"
                f" {LIES[corpus.layout]}, {TURNS[mode].lower()}. The geometric means are {means[0]:.3f} and"
                f" {means[1]:.3f}, the least {min(first):.3f} and {min(second):.3f}."
            )


SHORT_TURNS = (
    "[Sustained](../glossary.md#sustained) turns and bursts are as on [the other"
    " pages](index.md#how-it-is-measured). Short turns follow each other without rest: one replay to warm"
    " up, one that is timed."
)
CORPORA = Section(
    lambda data: corpora(data.runs) and data.runs,
    [
        lambda runs: "\n".join(f"- {line}" for line in of_ragged(corpora(runs))),
        SHORT_TURNS,
        summary_section,
        corpus_sections,
    ],
)
