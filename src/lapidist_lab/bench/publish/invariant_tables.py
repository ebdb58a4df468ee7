"""Products whose rows keep their bits, beside the free choice and cuBLAS in the same turns."""

from __future__ import annotations

from collections.abc import Sequence

from lapidist_lab.bench.protocol.cases import shape_words
from lapidist_lab.bench.protocol.contenders import LIBRARY
from lapidist_lab.bench.protocol.record import Record
from lapidist_lab.bench.publish.cells import geomean, number, time_words, times_faster
from lapidist_lab.bench.publish.charts import Chart
from lapidist_lab.bench.publish.curves import Axis, curves
from lapidist_lab.bench.publish.record_views import shape_of, short_chip
from lapidist_lab.bench.publish.section import Data, Section
from lapidist_lab.bench.publish.tables import table
from lapidist_lab.bench.studies import served_model
from lapidist_lab.bench.studies.invariant_products import LAYERS, MODE, NAME, ROWS, SERVED_TYPES

FEW = 64  # rows up to which a product reads weights, and little else
MODEL_OF = {layer: model for model, layers in LAYERS.items() for layer in layers}


def ours(data: Data, mode: str = MODE) -> list[Record]:
    rows = [record for record in data.of(mode) if record.kernel == NAME and record.seconds]
    layers = list(MODEL_OF)
    return sorted(rows, key=lambda r: (r.device, layers.index((r.n, r.k)), r.m))


def free_choice(record: Record, data: Data) -> Record | None:
    alike = (r for r in data.of(record.mode) if r.kernel == LIBRARY and r.device == record.device)
    return next((r for r in alike if shape_of(r) == shape_of(record)), None)


def share(record: Record, data: Data) -> float | None:
    """The time of the free choice over that with one order of sums."""
    free = free_choice(record, data)
    return free.seconds / record.seconds if free and free.seconds and record.seconds else None


def same_config(record: Record, data: Data) -> str:
    free = free_choice(record, data)
    return "yes" if free and free.config == record.config else "no"


def loss_words(rows: Sequence[Record], data: Data) -> str:
    """The mean and the least share of the free choice's speed, for few rows and for many."""
    parts = []
    for words, part in (
        (f"up to {FEW} rows", [r for r in rows if r.m <= FEW]),
        (f"more than {FEW} rows", [r for r in rows if r.m > FEW]),
    ):
        shares = [(found, record) for record in part if (found := share(record, data))]
        if shares:
            least, record = min(shares, key=lambda pair: pair[0])
            mean = geomean([found for found, _ in shares])
            parts.append(f"{words} {mean:.2f}, {least:.2f} at least ({shape_words(*shape_of(record))})")
    return "; ".join(parts)


def of_invariant(data: Data) -> str:
    rows = ours(data)
    if not rows:
        return ""
    return f"On an {short_chip(rows[-1].device)}, of the free choice's speed: {loss_words(rows, data)}"


def every_layer(data: Data, mode: str = MODE) -> str:
    columns = (
        ("model", lambda record: MODEL_OF[record.n, record.k]),
        ("m x n x k", lambda record: shape_words(*shape_of(record))),
        ("chip", lambda record: short_chip(record.device)),
        ("time", lambda record: time_words(record.seconds)),
        ("of its speed", lambda record: number(share(record, data), ".2f")),
        ("the same config", lambda record: same_config(record, data)),
        ("cuBLAS over it", times_faster),
    )
    return table(columns, ours(data, mode)).markdown()


def other_types(data: Data) -> str:
    """Other types, each with a table of its own."""
    return "".join(
        f"\n## In {served.words}\n\n{every_layer(data, mode)}\n"
        f"Of the free choice's speed: {loss_words(ours(data, mode), data)}.\n\n"
        for mode, served in SERVED_TYPES.items()
        if mode != MODE and ours(data, mode)
    )


# ---- beside others ----

# What others published, in % of the speed without invariance. Nobody shows 5 % of loss or less.
PUBLISHED = {
    "TransformerEngine, opt-in: 91": 91.0,
    "batch_invariant_ops, products: about 80": 80.0,
    "vLLM, Qwen3-1.7B served: 42": 42.0,
}


def loss_chart(data: Data) -> Chart | None:
    """The share of the free choice's speed against the number of rows, for each model."""
    shares: dict[str, dict[int, list[float]]] = {}
    for record in ours(data):
        if (part := share(record, data)) is not None:
            shares.setdefault(MODEL_OF[record.n, record.k], {}).setdefault(record.m, []).append(part)
    series = [
        (model, [(float(m), 100 * geomean(by_rows[m])) for m in sorted(by_rows)])
        for model, by_rows in shares.items()
    ]
    words = (
        "The speed with one order of sums, in % of the free choice's, against rows; others' figures as lines"
    )
    x, y = Axis("rows", ROWS, True), Axis("% of the free choice's speed", (0, 115))
    return curves("invariant-rows", series, words, x, y, PUBLISHED) if series else None


def served_words(data: Data) -> str:
    """What a served model's trace took, in tokens a second."""
    rows = data.of(served_model.MODE)
    ours, free = (
        next((r for r in reversed(rows) if r.kernel == name), None)
        for name in (served_model.SERVED, served_model.FREE)
    )
    if ours is None or free is None or not ours.ratio:
        return ""
    return (
        f"\nA served model of {served_model.Shape().layers} such layers and a head decodes 1 to"
        f" {max(served_model.SEQUENCES)} sequences, with a prefill every {served_model.EVERY} steps. It gives"
        f" {ours.note} with one order of sums, and {free.note} with the free choice: {ours.ratio:.3f} of its"
        f" speed ({short_chip(ours.device)}).\n\n"
    )


PUBLISHED_WORDS = (
    "Dashed lines are what others published. vLLM gave 12,019 tokens/s, and 5,008 with batch invariance"
    " (H100 NVL, issue 53446). Products of batch_invariant_ops lose about 20 % to cuBLAS (Thinking Machines,"
    " 2025). TransformerEngine has 0.91 of its speed. Models and cards differ.\n\n"
)
WORDS = (
    "`invariant=True` gives a row of D [the same bits](../numerics.md#rows-that-keep-their-bits) for every"
    f" number of rows. Layers are those of models of 8 and 70 billion parameters, in bf16, with {ROWS[0]} to"
    f" {ROWS[-1]} rows. Calls are captured in CUDA graphs, in turns with the free choice and with cuBLAS,"
    " without rest. *Of its speed* is the time of the free choice over that of the invariant product. Where"
    " both have the same config, it shows how far two turns differ: the chip's clock follows its power.\n\n"
)
INVARIANT = Section(
    lambda data: ours(data) and data,
    [
        lambda data: WORDS + every_layer(data),
        lambda data: f"\nOf the free choice's speed: {loss_words(ours(data), data)}.\n\n{PUBLISHED_WORDS}",
        loss_chart,
        served_words,
        other_types,
    ],
)
NOT_YET = Section(
    lambda data: data.records and not ours(data),
    ["Invariant products have no Records yet. `lapidist bench invariant --record results` makes them."],
)
