"""Sections on many products at once: the ragged corpus, and the layers of a transformer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

from lapidist.bench.protocol.cases import LISTS, Case, shape_words
from lapidist.bench.protocol.contenders import LIBRARY
from lapidist.bench.protocol.record import Record, Run
from lapidist.bench.publish.charts import Chart
from lapidist.bench.publish.markdown import fold, row_of, rule, speed
from lapidist.bench.publish.sharing_report import Group, by_shape, gains, scatter
from lapidist.bench.publish.tables import geomean, number, percent, time_words
from lapidist.bench.publish.views import TIMED_MODES, latest, maths_in, shape_of
from lapidist.dtypes import element_of, short_name

Found = Sequence[tuple[Record, Run]]
# in words; the first is the main one
MODES = {"corpus sustained": "sustained", "corpus burst": "burst", "short": "short"}
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
COLOURS = {"cublas": "#76b900", PADDED: "#3b6fb6", LIBRARY: "#d1495b"}


# ---- the corpus ----


def corpora(runs: Sequence[Run]) -> dict[str, dict[str, Found]]:
    """Of each type and mode, the newest rows of every shape that the way by hand was measured on. Short
    turns, which are neither sustained nor after a rest, only where there is nothing else."""
    rows = [(record, run) for record, run in latest(runs) if record.mode in MODES]
    shapes = {(record.mode, record.dtype, *shape_of(record)) for record, _ in rows if record.kernel == PADDED}
    kept = [(record, run) for record, run in rows if (record.mode, record.dtype, *shape_of(record)) in shapes]
    found: dict[str, dict[str, Found]] = {}
    for kind in maths_in(record for record, _ in kept):
        of_mode = {
            mode: [each for each in kept if (each[0].mode, each[0].dtype) == (mode, kind)] for mode in MODES
        }
        measured = {mode: rows for mode, rows in of_mode.items() if rows}
        found[kind] = {mode: rows for mode, rows in measured.items() if mode != "short" or len(measured) == 1}
    return found


def neighbours(mode: str, kind: str, groups: Group, runs: Sequence[Run]) -> Group:
    """Of the shapes whose sides rounded up were measured too: the rows of both, those of the neighbour named
    so.
    """
    rows = by_shape([record for record, _ in latest(runs) if (record.mode, record.dtype) == (mode, kind)])
    found = {}
    for shape, own in groups.items():
        beside = rows.get(Case(*shape, kind).neighbour.extents, {})
        if LIBRARY in beside:
            found[shape] = own | {f"{NEIGHBOUR}{name}": record for name, record in beside.items()}
    return found


def beside_neighbours(groups: Group) -> str:
    """What lines that do not start on 16 bytes cost: the neighbour's speed is 1."""
    heads = [
        "shapes",
        "of the neighbour's speed",
        "geomean",
        "least",
        "median",
        "most",
        f"{SHARE_AIM} or more",
        "count",
    ]
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
        "The same products with every side rounded up to whole pieces of 16 bytes, flops a second:\n\n"
        + "\n".join(lines)
        + "\n"
    )


def corpus_sections(runs: Sequence[Run]) -> list[str]:
    return [corpus_section(kind, found, runs) for kind, found in corpora(runs).items()]


def corpus_charts(runs: Sequence[Run]) -> list[Chart]:
    return [corpus_chart(kind, found) for kind, found in corpora(runs).items()]


def corpus_chart(kind: str, found: Mapping[str, Found]) -> Chart:
    records = [record for record, _ in next(iter(found.values()))]
    short = short_name(kind)
    words = f"TFLOP/s of each ragged product over its arithmetic intensity, {short}"
    return Chart(f"corpus-{short}", scatter(records, COLOURS, words), words)


def corpus_section(kind: str, found: Mapping[str, Found], runs: Sequence[Run]) -> str:
    heads = [
        "turns",
        "shapes",
        "ours",
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
    lines = [row_of(heads), rule(heads)]
    for mode, rows in found.items():
        lines += gain_lines(MODES[mode], by_shape([record for record, _ in rows]))
    everyone = [each for rows in found.values() for each in rows]
    wrong = [record for record, _ in everyone if not record.ok]
    failed = (
        f"{len(wrong)} of {len(everyone)} results were wrong or refused."
        if wrong
        else "Every result was right."
    )
    main, short = next(iter(found)), short_name(kind)
    groups = by_shape([record for record, _ in found[main]])
    words = f"Times of the second over those of the first; medians of the first's clock and power. {failed}"
    title = f"## {len(groups)} ragged products, {short}\n\n{corpus_words(groups)}\n"
    aligned = neighbours(main, kind, groups, runs)
    gain = fold(f"A corpus of {len(groups)} ragged shapes, {short}", f"{words}\n\n" + "\n".join(lines))
    shares = [fold("Beside aligned neighbours", beside_neighbours(aligned))] if aligned else []
    worst = fold(f"The {WORST} shapes that compare worst", worst_shapes(groups))
    from_runs = fold("Where these numbers come from", "\n".join(sources(everyone)))
    return "\n".join([title, corpus_chart(kind, found).shown(), gain, *shares, worst, from_runs])


def corpus_words(groups: Group) -> str:
    """The gain in words."""
    values = gains(groups, LIBRARY, "cublas")
    if not values:
        return "cuBLAS was not measured beside these."
    padded = gains(groups, LIBRARY, PADDED)
    by_hand = f" Against padding the operands by hand first, it is {geomean(padded):.2f}." if padded else ""
    return (
        f"The speed over that of cuBLAS is {geomean(values):.2f} in the geometric mean, {min(values):.2f} at"
        f" least and {max(values):.2f} at most.{by_hand}"
    )


def gain_lines(turns: str, groups: Group) -> list[str]:
    large = {shape: rows for shape, rows in groups.items() if min(shape) > LARGE}
    lines = []
    for words, part in (("all", groups), (f"every side over {LARGE}", large)):
        for (ours, rival), name in RIVALS.items():
            values = gains(part, ours, rival)
            if values:
                seen = seen_cells([rows[ours] for rows in part.values() if ours in rows])
                lines.append(row_of([turns, words, name, *gain_cells(values), *seen]))
    return lines


def seen_cells(records: Sequence[Record]) -> list[str]:
    """Clock and power: the medians."""
    clocks = [record.clock_mhz for record in records if record.clock_mhz is not None]
    powers = [record.power_w for record in records if record.power_w is not None]
    return [number(median(values) if values else None, ".0f") for values in (clocks, powers)]


def gain_cells(values: Sequence[float]) -> list[str]:
    ordered = sorted(values)
    numbers = [geomean(values), ordered[0], ordered[len(ordered) // 2], ordered[-1]]
    good, faster = (sum(value >= least for value in values) / len(values) for least in (GOOD, 1.0))
    return [
        *(f"{value:.2f}" for value in numbers),
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
    """TB/s, where each is read once."""
    return record.n * record.k * element_of(record.dtype).nbytes / (record.seconds or math.inf) / 1e12


def layer_cells(record: Record | None) -> list[str]:
    if record is None or record.seconds is None:
        return ["-"] * 6
    read = f"{weights_read(record):.2f}" if record.m <= DECODE else ""
    return [time_words(record.seconds), speed(record), read, percent(record.ratio), *seen_cells([record])]
