"""Products with weights of few bits, beside the fastest other product of the same turns."""

from __future__ import annotations

from lapidist_lab.bench.protocol.record import Record
from lapidist_lab.bench.publish.cells import geomean, ratios, time_words, times_faster
from lapidist_lab.bench.publish.charts import Chart
from lapidist_lab.bench.publish.mean_and_worst import mean_and_worst
from lapidist_lab.bench.publish.record_views import short_chip
from lapidist_lab.bench.publish.section import Data, Section
from lapidist_lab.bench.publish.tables import fold, table
from lapidist_lab.bench.studies import few_bits_experts, few_bits_model
from lapidist_lab.bench.studies.few_bits import LAYERS, MODE, OURS
from lapidist_lab.bench.studies.served_model import PAST, Shape

DECODE = 64  # rows
ORDER = {layer: number for number, layer in enumerate(LAYERS)}


def ours(data: Data) -> list[Record]:
    rows = [record for record in data.of(MODE) if record.kernel in OURS and record.ratio]
    return sorted(rows, key=lambda r: (r.device, ORDER.get((r.n, r.k), len(ORDER)), r.m, r.kernel))


def of_few_bits(data: Data) -> str:
    rows = ours(data)
    parts = []
    for words, chosen in (
        (f"up to {DECODE} rows", [r for r in rows if r.m <= DECODE]),
        ("more rows", [r for r in rows if r.m > DECODE]),
    ):
        times = [record.ratio or 0.0 for record in chosen]
        if times:
            parts.append(f"{words} {geomean(times):.2f} times, {min(times):.2f} at least")
    return f"On an {short_chip(rows[-1].device)}, of the fastest peer: {'; '.join(parts)}" if parts else ""


def by_weights(data: Data) -> Chart:
    """A bar for each kind of weights, with few rows and with more."""
    groups: dict[str, list[Record]] = {}
    for record in sorted(ours(data), key=lambda r: (weights_of(r), r.m > DECODE)):
        rows = f"up to {DECODE} rows" if record.m <= DECODE else "more rows"
        groups.setdefault(f"{weights_of(record)}, {rows}", []).append(record)
    words = "Weights of few bits beside the fastest peer: the mean, and the worst case; losses are red"
    return mean_and_worst(
        "few-bits", {name: ratios(rows) for name, rows in groups.items()}, words, "the peer"
    )


def weights_of(record: Record) -> str:
    return record.kernel.partition(", ")[2]


def every_case(data: Data) -> str:
    columns = (
        ("layer", lambda record: LAYERS.get((record.n, record.k), "")),
        ("rows", lambda record: str(record.m)),
        ("n x k", lambda record: f"{record.n} x {record.k}"),
        ("weights", weights_of),
        ("chip", lambda record: short_chip(record.device)),
        ("time", lambda record: time_words(record.seconds)),
        ("weights read", lambda record: record.note or "-" if record.m <= DECODE else "-"),
        ("fastest peer", lambda record: record.peer or "-"),
        ("it over ours", times_faster),
    )
    return fold("Every case", table(columns, ours(data)).markdown())


def of_model(data: Data) -> str:
    """A whole model's decode, in tokens a second."""
    rows = [record for record in data.of(MODE) if record.kernel in few_bits_model.NAMES and record.ratio]
    if not rows:
        return ""
    rows.sort(key=lambda record: (record.device, record.m, few_bits_model.NAMES.index(record.kernel)))
    columns = (
        ("sequences", lambda record: str(record.m)),
        ("weights", lambda record: record.kernel.removesuffix(few_bits_model.SUFFIX)),
        ("chip", lambda record: short_chip(record.device)),
        ("a step", lambda record: time_words(record.seconds)),
        ("speed", lambda record: record.note or "-"),
        ("fastest bf16 over it", times_faster),
    )
    shape = Shape()
    words = (
        f"\nA Llama-shaped model of {shape.layers} layers ({shape.hidden}, {shape.inner}, {shape.heads}"
        f" heads, {shape.shared} of keys) decodes. Each token sees {PAST} others. A step is a CUDA graph.\n\n"
    )
    return words + table(columns, rows).markdown()


def of_experts(data: Data) -> str:
    """Rows that are gathered or scattered, by the experts' weights."""
    rows = [record for record in data.of(MODE) if record.kernel in few_bits_experts.NAMES and record.ratio]
    if not rows:
        return ""
    place = few_bits_experts.NAMES.index
    rows.sort(key=lambda record: (record.device, record.n, record.k, record.m, place(record.kernel)))
    columns = (
        ("layer", lambda record: record.note or "-"),
        ("n x k", lambda record: f"{record.n} x {record.k}"),
        ("weights", lambda record: record.kernel.rpartition(", ")[0]),
        ("rows are", lambda record: record.kernel.rpartition(", ")[2]),
        ("chip", lambda record: short_chip(record.device)),
        ("time", lambda record: time_words(record.seconds)),
        ("fastest bf16 over it", times_faster),
    )
    of_few_bits = [record.ratio or 0.0 for record in rows if "bf16" not in record.kernel]
    words = (
        "\nExperts of a mixture gather rows of tokens by their indices, or scatter rows to tokens, each times"
        " a factor. Weights of few bits are"
        f" {min(of_few_bits):.2f} to {max(of_few_bits):.2f} times as fast as the faster bfloat16.\n\n"
    )
    return words + fold("Each layer", table(columns, rows).markdown())


WORDS = (
    "`lapidist.quantised` multiplies bfloat16 and e4m3 by [weights of few bits](../tutorials/few-bits.md):"
    " int4 with factors of 128, and MXFP4. Peers are cuBLAS and our own kernels with the weight in bfloat16,"
    " and torch's operators for packed int4 and int8. Calls are captured in CUDA graphs, in turns"
    " after a rest, over weights that the L2 cannot hold."
)
NO_REST = "after 0 s of rest"  # in a run's protocol


def without_rest(data: Data) -> str | None:
    """How many products are of runs whose turns followed each other at once, if some are."""
    earlier = {record for run in data.runs if NO_REST in run.conditions.protocol for record in run.records}
    rows = ours(data)
    products = {(record.m, record.n, record.k) for record in rows}
    old = {(record.m, record.n, record.k) for record in rows if record in earlier}
    if not old or old == products:
        return None
    return f"{len(old)} of {len(products)} products are of an earlier run: other kernels, and no rest."


FEW_BITS = Section(
    lambda data: ours(data) and data, [WORDS, without_rest, by_weights, every_case, of_model, of_experts]
)
NOT_YET = Section(
    lambda data: data.records and not ours(data),
    ["Weights of few bits have no Records yet. `lapidist bench few_bits --record results` makes them."],
)
