"""What docs/stream-k.md shows of the Records of `lapidist streamk`: single products, corpora, costs."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence

from lapidist.bench.protocol.cases import shape_words
from lapidist.bench.protocol.record import Record, Run
from lapidist.bench.publish.charts import Chart, scatter
from lapidist.bench.publish.markdown import fold, row_of, rule
from lapidist.bench.publish.tables import geomean, time_words
from lapidist.bench.publish.views import latest, shape_of
from lapidist.bench.studies.streamk import MODE_CORPUS, MODE_COSTS, MODE_TABLE
from lapidist.dtypes import element_of, short_name

RIVALS = {
    "data_parallel": "the same kernel and tile, data-parallel",
    "best_tile": "the best data-parallel tile of each shape",
    "cublas": "cuBLAS",
}
WAYS = {"stream_k": "Stream-K", "data_parallel": "One block a tile"}
DRAWN = {"cublas": "cuBLAS", "stream_k": "stream_k", "family": "planner's schedule"}
Group = dict[tuple[int, int, int], dict[str, Record]]
Found = Sequence[tuple[Record, Run]]


def sharing_blocks(runs: Sequence[Run]) -> dict[str, str]:
    """The blocks of the page by name; nothing before anything was measured."""
    parts = {MODE_TABLE: table_part, MODE_CORPUS: corpus_part, MODE_COSTS: costs_part}
    return {mode: block_of(groups, parts[mode]) for mode in parts if (groups := groups_of(runs, mode))}


def sharing_charts(runs: Sequence[Run]) -> list[Chart]:
    return [corpus_chart(records_of(found)) for found in groups_of(runs, MODE_CORPUS)]


def groups_of(runs: Sequence[Run], mode: str) -> list[Found]:
    """The newest rows of a mode, those of one table together."""
    groups: dict[tuple[str, object], list[tuple[Record, Run]]] = {}
    for record, run in latest(runs):
        if record.mode == mode:
            groups.setdefault(group_of(record), []).append((record, run))
    return list(groups.values())


def block_of(groups: Sequence[Found], part: Callable[[Sequence[Record]], str]) -> str:
    """Every table, and below them the runs."""
    sources = dict.fromkeys(source for found in groups for source in sources_of(found))
    shown = "\n".join(part(records_of(found)) for found in groups)
    return f"{shown}\n{fold('Where these numbers come from', chr(10).join(sources))}"


def records_of(found: Found) -> list[Record]:
    return [record for record, _ in found]


def group_of(record: Record) -> tuple[str, object]:
    """What stands in one table: a type's corpus, a type's costs, or one product."""
    return record.dtype, shape_of(record) if record.mode == MODE_TABLE else None


def sources_of(found: Found) -> list[str]:
    return [source_of(run) for run in {run.name: run for _, run in found}.values()]


def source_of(run: Run) -> str:
    c = run.conditions
    return f"From `results/{run.name}`: {c.date[:10]}, {c.device}, {c.vendor}; {c.protocol}.\n"


# ---- the table ----


def table_part(records: Sequence[Record]) -> str:
    record = records[0]
    heads = ["way", "time", "TFLOP/s", "% of cuBLAS", "passed", "what ran"]
    lines = [row_of(heads), rule(heads)]
    for each in records:
        speed, ratio = f"{each.tflops or 0:.1f}", f"{100 * (each.ratio or 0):.1f}"
        cells = [
            each.kernel,
            time_words(each.seconds),
            speed,
            ratio,
            "yes" if each.ok else "no",
            each.config or each.error or "",
        ]
        lines.append(row_of(cells))
    shape = shape_words(record.m, record.n, record.k)
    title = f"{shape}, {short_name(record.dtype)}: {len(records)} ways"
    return f"{best_way(records, title)}\n\n{fold(title, chr(10).join(lines))}"


def best_way(records: Sequence[Record], title: str) -> str:
    """The fastest of ours beside data-parallel tiles and cuBLAS, in words."""
    timed = [each for each in records if each.ok and each.tflops and each.kernel != "cublas"]
    best = max(timed, key=lambda each: each.tflops or 0.0)
    plain = next((each for each in timed if each.kernel == "data_parallel"), best)
    return (
        f"**{title.partition(':')[0]}.** {way_words(best.kernel)} is the fastest way:"
        f" {best.tflops or 0:.1f} TFLOP/s, {100 * (best.ratio or 0):.1f} % of cuBLAS. Data-parallel tiles"
        f" reach {plain.tflops or 0:.1f}."
    )


def way_words(name: str) -> str:
    """A way to share as its Record names it: "split_k  2 parallel"."""
    kind, *more = name.split()
    return (
        f"Split-K of {more[0]} ({', '.join(more[1:])})"
        if kind == "split_k" and more[1:]
        else WAYS.get(name, name)
    )


# ---- the corpus ----


def by_shape(records: Sequence[Record]) -> Group:
    groups: Group = {}
    for record in records:
        groups.setdefault(shape_of(record), {})[record.kernel] = record
    return groups


def gains(groups: Group, ours: str, rival: str) -> list[float]:
    """The rival's time over ours, on every shape that both ran."""
    pairs = [(rows.get(ours), rows.get(rival)) for rows in groups.values()]
    return [b.seconds / a.seconds for a, b in pairs if a and b and a.seconds and b.seconds]


def corpus_part(records: Sequence[Record]) -> str:
    groups = by_shape(records)
    heads = ["ours", "against", "geomean", "average", "deviation", "least", "most", "under 0.9", "shapes"]
    lines = [row_of(heads), rule(heads)]
    for ours, name in (
        ("stream_k", "Stream-K"),
        ("family", "the planner's schedule"),
        ("lapidist", "lapidist"),
    ):
        for rival, words in RIVALS.items():
            values = gains(groups, ours, rival)
            if values:
                lines.append(row_of([name, words, *statistics_of(values)]))
    short = short_name(records[0].dtype)
    wrong = [record for record in records if not record.ok]
    failed = (
        f"{len(wrong)} of {len(records)} results were wrong or refused."
        if wrong
        else "Every result was right."
    )
    title = f"A corpus of {len(groups)} shapes, {short}"
    return f"**{title}.** The rival's time over ours. {failed}\n\n" + "\n".join(
        [*lines, "", corpus_chart(records).shown()]
    )


def corpus_chart(records: Sequence[Record]) -> Chart:
    short = short_name(records[0].dtype)
    words = f"TFLOP/s of each product over its arithmetic intensity, {short}"
    return scatter(f"stream-k-{short}", over_intensity(records, DRAWN), words)


def over_intensity(
    records: Sequence[Record], names: Mapping[str, str]
) -> dict[str, list[tuple[float, float]]]:
    """Intensity and TFLOP/s of each shape, for the kernels that have a name in the chart."""
    return {
        drawn: [(intensity(r), r.tflops) for r in records if r.kernel == kernel and r.tflops]
        for kernel, drawn in names.items()
    }


def statistics_of(values: Sequence[float]) -> list[str]:
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    numbers = [geomean(values), statistics.fmean(values), spread, min(values), max(values)]
    return [
        *(f"{number:.2f}" for number in numbers),
        str(sum(value < 0.9 for value in values)),
        str(len(values)),
    ]


def intensity(record: Record) -> float:
    """Flops for each byte of the operands and the result, each moved once."""
    size = element_of(record.dtype).nbytes
    return (
        2.0
        * record.m
        * record.n
        * record.k
        / (size * (record.m * record.k + record.k * record.n + record.m * record.n))
    )


# ---- costs ----


COSTS = ("start", "iteration", "alongside", "fixup", "peer")


def costs_part(records: Sequence[Record]) -> str:
    heads = ["config", *(f"{cost}, us" for cost in COSTS)]
    lines = [row_of(heads), rule(heads)]
    lines += [row_of([record.kernel, *microseconds(record.note or "")]) for record in records]
    kinds = ", ".join(dict.fromkeys(short_name(record.dtype) for record in records))
    return fold(f"Costs of a block, {kinds}: {len(records)} configs", "\n".join(lines))


def microseconds(note: str) -> list[str]:
    """Each cost, of a note like "start 5.2e-06 s, fixup 3.1e-06 s"; a dash where it is not there."""
    words = dict(each.split()[:2] for each in note.split(", ") if each)
    return [f"{1e6 * float(words[cost]):.3g}" if cost in words else "-" for cost in COSTS]
