"""What docs/stream-k.md shows of the Records of `lapidist streamk`: single products, corpora, costs."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from lapidist.dtypes import element_of, short_name
from lapidist_lab.bench.protocol.record import Record, Run
from lapidist_lab.bench.publish.cells import COLUMNS, geomean, kind, shape
from lapidist_lab.bench.publish.charts import Chart
from lapidist_lab.bench.publish.points import scatter
from lapidist_lab.bench.publish.record_views import RunRecords, Shape, latest, shape_of
from lapidist_lab.bench.publish.tables import Column, Table, fold, table
from lapidist_lab.bench.studies.streamk import MODE_CORPUS, MODE_COSTS, MODE_TABLE

RIVALS = {
    "data_parallel": "the same kernel and tile, data-parallel",
    "best_tile": "the best data-parallel tile of each shape",
    "cublas": "cuBLAS",
}
OURS = {"stream_k": "Stream-K", "family": "the planner's schedule", "lapidist": "lapidist"}
WAYS = {"stream_k": "Stream-K", "data_parallel": "One block a tile"}
DRAWN = {"cublas": "cuBLAS", "stream_k": "stream_k", "family": "planner's schedule"}
COSTS = ("start", "iteration", "alongside", "fixup", "peer")
Group = dict[Shape, dict[str, Record]]


def sharing_blocks(runs: Sequence[Run]) -> dict[str, str]:
    """The blocks of the page by name; none where nothing was measured."""
    parts = {MODE_TABLE: table_part, MODE_CORPUS: corpus_part, MODE_COSTS: costs_part}
    return {mode: block_of(groups, parts[mode]) for mode in parts if (groups := groups_of(runs, mode))}


def sharing_charts(runs: Sequence[Run]) -> list[Chart]:
    return [corpus_chart(records_of(group)) for group in groups_of(runs, MODE_CORPUS)]


def groups_of(runs: Sequence[Run], mode: str) -> list[RunRecords]:
    """The newest rows of a mode by table: a type's corpus or costs, or one product."""
    groups: dict[tuple[str, object], list[tuple[Record, Run]]] = {}
    for record, run in latest(runs):
        if record.mode == mode:
            key = record.dtype, shape_of(record) if mode == MODE_TABLE else None
            groups.setdefault(key, []).append((record, run))
    return list(groups.values())


def block_of(groups: Sequence[RunRecords], part: Callable[[Sequence[Record]], str]) -> str:
    """Every table, and the runs below them."""
    conditions = {run.name: run.conditions for group in groups for _, run in group}
    sources = [
        f"From `results/{name}`: {c.date[:10]}, {c.device}, {c.vendor}; {c.protocol}.\n"
        for name, c in conditions.items()
    ]
    shown = "\n".join(part(records_of(group)) for group in groups)
    return f"{shown}\n{fold('Where these numbers come from', chr(10).join(sources))}"


def records_of(run_records: RunRecords) -> list[Record]:
    return [record for record, _ in run_records]


# ---- single products ----


def table_part(records: Sequence[Record]) -> str:
    columns = (
        ("way", lambda r: r.kernel),
        "time",
        ("TFLOP/s", lambda r: f"{r.tflops or 0:.1f}"),
        ("% of cuBLAS", lambda r: f"{100 * (r.ratio or 0):.1f}"),
        ("passed", lambda r: "yes" if r.ok else "no"),
        ("what ran", lambda r: r.config or r.error or ""),
    )
    product = f"{shape(records[0])}, {kind(records[0])}"
    folded = fold(f"{product}: {len(records)} ways", table(columns, records).markdown())
    return f"**{product}.** {best_way(records)}\n\n{folded}"


def best_way(records: Sequence[Record]) -> str:
    """The fastest of ours beside data-parallel tiles and cuBLAS, in words."""
    timed = [record for record in records if record.ok and record.tflops and record.kernel != "cublas"]
    best = max(timed, key=lambda record: record.tflops or 0.0)
    plain = next((record for record in timed if record.kernel == "data_parallel"), best)
    return (
        f"{way_words(best.kernel)} is the fastest way: {best.tflops or 0:.1f} TFLOP/s,"
        f" {100 * (best.ratio or 0):.1f} % of cuBLAS. Data-parallel tiles reach {plain.tflops or 0:.1f}."
    )


def way_words(name: str) -> str:
    """The words for a way to share, as "split_k  2 parallel" in a Record."""
    way, *more = name.split()
    split = f"Split-K of {more[0]} ({', '.join(more[1:])})" if more[1:] else ""
    return split if way == "split_k" and split else WAYS.get(name, name)


# ---- corpora ----


def by_shape(records: Sequence[Record]) -> Group:
    groups: Group = {}
    for record in records:
        groups.setdefault(shape_of(record), {})[record.kernel] = record
    return groups


def gains_by_shape(groups: Group, ours: str, rival: str) -> dict[Shape, float]:
    """The rival's time over ours, on every shape that both ran."""
    pairs = {shape: (rows.get(ours), rows.get(rival)) for shape, rows in groups.items()}
    return {
        shape: b.seconds / a.seconds for shape, (a, b) in pairs.items() if a and b and a.seconds and b.seconds
    }


def gains(groups: Group, ours: str, rival: str) -> list[float]:
    return list(gains_by_shape(groups, ours, rival).values())


def verdict_words(records: Sequence[Record]) -> str:
    wrong = sum(not record.ok for record in records)
    return f"{wrong} of {len(records)} results were wrong or refused." if wrong else "Every result was right."


def corpus_part(records: Sequence[Record]) -> str:
    groups = by_shape(records)
    heads = ["ours", "against", "geomean", "average", "deviation", "least", "most", "under 0.9", "shapes"]
    rows = [
        [name, words, *statistics_of(values)]
        for ours, name in OURS.items()
        for rival, words in RIVALS.items()
        if (values := gains(groups, ours, rival))
    ]
    title = f"**A corpus of {len(groups)} shapes, {kind(records[0])}.** The rival's time over ours."
    shown = f"{Table(heads, rows).markdown()}\n{corpus_chart(records).shown()}"
    return f"{title} {verdict_words(records)}\n\n{shown}"


def corpus_chart(records: Sequence[Record]) -> Chart:
    words = f"TFLOP/s of each product over its arithmetic intensity, {kind(records[0])}"
    return scatter(f"stream-k-{kind(records[0])}", over_intensity(records, DRAWN), words)


def statistics_of(values: Sequence[float]) -> list[str]:
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    numbers = [geomean(values), statistics.fmean(values), spread, min(values), max(values)]
    return [
        *(f"{number:.2f}" for number in numbers),
        str(sum(value < 0.9 for value in values)),
        str(len(values)),
    ]


def over_intensity(
    records: Sequence[Record], names: Mapping[str, str]
) -> dict[str, list[tuple[float, float]]]:
    """Intensity and TFLOP/s of each shape, for the kernels in `names`."""
    return {
        drawn: [(intensity(r), r.tflops) for r in records if r.kernel == kernel and r.tflops]
        for kernel, drawn in names.items()
    }


def intensity(record: Record) -> float:
    """Flops for each byte of the operands and the result, each moved once."""
    m, n, k = shape_of(record)
    return 2.0 * m * n * k / (element_of(record.dtype).nbytes * (m * k + k * n + m * n))


# ---- costs ----


def costs_part(records: Sequence[Record]) -> str:
    """A table of the costs in notes like "start 5.2e-06 s, fixup 3.1e-06 s"."""

    def microseconds(cost: str, record: Record) -> str:
        words = dict(entry.split()[:2] for entry in (record.note or "").split(", ") if entry)
        return f"{1e6 * float(words[cost]):.3g}" if cost in words else "-"

    columns: list[Column] = [("config", COLUMNS["kernel"])]
    columns += [(f"{cost}, us", partial(microseconds, cost)) for cost in COSTS]
    kinds = ", ".join(dict.fromkeys(short_name(record.dtype) for record in records))
    title = f"Costs of a block, {kinds}: {len(records)} configs"
    return fold(title, table(columns, records).markdown())
