"""Small products, batches, layers of a transformer, and what the host takes: calls and compiling."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import chain

from lapidist.dtypes import element_of, short_name
from lapidist_lab.bench.protocol.cases import LISTS, shape_words
from lapidist_lab.bench.protocol.contenders import LIBRARY
from lapidist_lab.bench.protocol.record import Record, Run
from lapidist_lab.bench.publish import bar_charts
from lapidist_lab.bench.publish.bar_charts import Bar
from lapidist_lab.bench.publish.cells import (
    COLUMNS,
    chip,
    kind,
    mean_words,
    number,
    percent,
    ratios,
    shape,
    time_words,
    worst,
)
from lapidist_lab.bench.publish.charts import Chart
from lapidist_lab.bench.publish.record_views import (
    TIMED_MODES,
    chips_of,
    in_math,
    maths_in,
    newest_by_chip,
    shape_of,
    short_chip,
)
from lapidist_lab.bench.publish.section import Data, Section, folded, joined
from lapidist_lab.bench.publish.squares import at_square
from lapidist_lab.bench.publish.tables import Column, Table, fold, table
from lapidist_lab.bench.studies import batched_products, warming

# ---- small squares ----

SMALL = (512, 1024)


def small(data: Data) -> list[Record]:
    kinds = maths_in(data.records)
    squares = (at_square(in_math(data.records, kind), size, "sustained") for kind in kinds for size in SMALL)
    return [record for record in squares if record]


def cublas_words(records: Sequence[Record]) -> str:
    """The mean over cuBLAS and the worst of these records; empty where none has a ratio."""
    values = ratios(records)
    return mean_words(values, f"{kind(worst(records))}, {shape(worst(records))}") if values else ""


def of_small(data: Data) -> str:
    rows = small(data)
    return f"{' and '.join(f'{size}^3' for size in SMALL)}, sustained: {cublas_words(rows)}" if rows else ""


def small_words(rows: Sequence[Record]) -> str:
    return (
        "A product of 512^3 takes some microseconds. What counts is the launch, the first load and the last"
        " store. Such products may share their tiles ([Stream-K](../stream-k.md)), and may start before the"
        f" launch ahead of them has ended. The planner's choice:\n\n{of_small(Data(rows))}."
    )


def small_chart(rows: Sequence[Record]) -> Chart:
    drawn = [
        Bar(f"{kind(r)}, {r.m}^3", 100 * (r.ratio or 0.0), f"{time_words(r.seconds)}, {percent(r.ratio)} %")
        for r in rows
    ]
    return bar_charts.bars(
        "small", drawn, [("cuBLAS", 100.0)], "Time of small squares, and % of cuBLAS, sustained", losses=True
    )


SMALL_COLUMNS = ("type | m = n = k | time | TFLOP/s | cuBLAS | % of cuBLAS | chosen",)
SQUARES = Section(small, [small_words, small_chart, lambda rows: table(SMALL_COLUMNS, rows).markdown()])

# ---- batches ----


def batched(runs: Sequence[Run]) -> dict[str, list[Record]]:
    """The planner's choices on batches that have a ratio, by chip, in the order of the list."""
    every = newest_by_chip(runs)
    ours = [r for r, _ in every if r.mode == batched_products.MODE and r.kernel == LIBRARY and r.ratio]
    order = [(math, shape) for math, shapes in batched_products.LISTS.items() for shape in shapes]
    maths = list(batched_products.LISTS)

    def place(record: Record) -> tuple[int, int]:
        product = record.dtype, (record.batch or 1, *shape_of(record))
        return maths.index(record.dtype), order.index(product) if product in order else len(order)

    by_chip = {chip: [record for record in ours if record.device == chip] for chip in chips_of(every)}
    return {chip: sorted(rows, key=place) for chip, rows in by_chip.items() if rows}


def of_batches(runs: Sequence[Run]) -> list[str]:
    return gains_of(batched(runs))


def gains_of(by_chip: Mapping[str, Sequence[Record]]) -> list[str]:
    """Each chip's gain, in words."""
    return [
        mean_words(ratios(rows), batch_words(worst(rows)), f" on an {short_chip(chip)}", " batches")
        for chip, rows in by_chip.items()
    ]


def batch_words(record: Record) -> str:
    return f"{kind(record)}, {shape_words(*shape_of(record), record.batch or 1)}"


BATCH_WORDS = "In bursts, beside `torch.bmm` on the same data:\n\n"
BATCHED: Sequence[Column] = (
    ("batch", batch_words),
    "chip | time | TFLOP/s | cuBLAS | % of cuBLAS | MHz | W | chosen | error/bound",
)
BATCHES = Section(
    lambda data: batched(data.runs),
    [
        lambda by_chip: BATCH_WORDS + "\n".join(f"- {gain}." for gain in gains_of(by_chip)),
        lambda by_chip: fold("Every batch", table(BATCHED, chain(*by_chip.values())).markdown()),
    ],
)
BATCHES_HEAD = Section(
    lambda data: batched(data.runs) or small(data), ["## Batches\n\nA batch is one call and one launch."]
)
NO_BATCHES = Section(lambda data: not batched(data.runs) and small(data), ["They have no Records yet."])

# ---- layers ----

DECODE = 64  # rows up to which a layer is bound by reading its weights
LAYER_WORDS = (
    "A few rows of activations times weights that are read once: the time is that of reading the weights."
    f" This is so up to {DECODE} rows. The weights are those of a transformer of 70 billion parameters, as"
    " torch's Linear keeps them. A dash stands for what was not timed. In int8 torch has no product of 16"
    " rows or fewer. The chart has the largest weights: TB/s of them that are read, and % of cuBLAS."
)


def layers(records: Sequence[Record]) -> list[Record]:
    """Rows of the library and cuBLAS on layers, of types that were measured on more than the square one."""
    rows = [
        r for r in records if r.kernel in (LIBRARY, "cublas") and r.layout == "rcr" and r.mode in TIMED_MODES
    ]
    rows = [record for record in rows if shape_of(record) in LISTS["layers"]]
    kinds = {record.dtype for record in rows if record.m != record.n}
    return [record for record in rows if record.dtype in kinds]


def weights_read(record: Record) -> float:
    """TB/s at which weights are read, each once."""
    return record.n * record.k * element_of(record.dtype).nbytes / (record.seconds or math.inf) / 1e12


def sustained_layers(records: Sequence[Record], decode: bool) -> list[Record]:
    """Sustained layers with the few rows of decoding, or those with more."""
    rows = [r for r in records if (r.kernel, r.mode) == (LIBRARY, "sustained") and (r.m <= DECODE) == decode]
    return [record for record in rows if shape_of(record) in LISTS["layers"] and record.seconds]


def of_decode(records: Sequence[Record]) -> str:
    rows, more_rows = (sustained_layers(records, decode) for decode in (True, False))
    if not rows:
        return ""
    read = [weights_read(record) for record in rows]
    rate = (
        f"Weights are read at {min(read):.2f} to {max(read):.2f} TB/s on an {chip(rows[0])}, sustained, for"
        f" 1 to {DECODE} rows in {len(maths_in(rows))} types."
    )
    mean, of_more = cublas_words(rows), cublas_words(more_rows)
    more = f"With {min(r.m for r in more_rows)} rows and more it is {of_more}." if of_more else ""
    return joined(rate, f"That is {mean}.", more) if mean else rate


def decode_chart(records: Sequence[Record]) -> Chart | None:
    """Bars of TB/s for each type, on the largest layer."""
    rows = sustained_layers(records, decode=True)
    if not rows:
        return None
    n, k = max((record.n, record.k) for record in rows)
    shown = [r for kind in maths_in(rows) for r in rows if (r.dtype, r.n, r.k) == (kind, n, k)]
    drawn = [
        Bar(
            f"{kind(r)}, {r.m} row{'s' if r.m > 1 else ''}",
            weights_read(r),
            f"{weights_read(r):.2f} TB/s" + (f", {percent(r.ratio)} %" if r.ratio else ""),
        )
        for r in sorted(shown, key=lambda r: (maths_in(rows).index(r.dtype), r.m))
    ]
    words = f"TB/s of weights read, and % of cuBLAS, for weights of {n} x {k}, sustained"
    return bar_charts.bars("decode", drawn, [], words)


def layer_cells(record: Record | None) -> list[str]:
    if record is None or record.seconds is None:
        return ["-"] * 6
    read = f"{weights_read(record):.2f}" if record.m <= DECODE else ""
    time, tflops, share, *sensors = (COLUMNS[head](record) for head in ("time", *LAYER_HEADS))
    return [time, tflops, read, share, *sensors]


LAYER_HEADS = ("TFLOP/s", "% of cuBLAS", "MHz", "W")


def layer_tables(records: Sequence[Record]) -> list[str]:
    """A table for each type, a row for each product: sustained, then burst."""
    at = {(r.dtype, shape_of(r), r.mode): r for r in records if r.kernel == LIBRARY}
    heads = ["n x k", "m"]
    for mode in TIMED_MODES:
        heads += [f"{mode}: time", "TFLOP/s", "TB/s of weights", *LAYER_HEADS[1:]]
    tables = []
    for dtype in maths_in(records):
        rows = []
        for m, n, k in LISTS["layers"]:
            both = [at.get((dtype, (m, n, k), mode)) for mode in TIMED_MODES]
            chosen = [record.config or "" for record in both if record]
            if chosen:
                rows.append(
                    [f"{n} x {k}", str(m), *(cell for r in both for cell in layer_cells(r)), chosen[0]]
                )
        tables.append(fold(f"Layers, {short_name(dtype)}", Table([*heads, "chosen"], rows).markdown()))
    return tables


LAYERS = Section(lambda data: layers(data.records), [LAYER_WORDS, of_decode, decode_chart, layer_tables])

# ---- calls ----

OURS = ("plan.execute", "matmul(out)", "gemm(out)", "gemm(c, out)", "matmul")
SHOWN_CALLS = (*OURS, "torch.mm", "torch.mm, new output", "torch.addmm")


def of_launch(records: Sequence[Record]) -> str:
    times = {record.kernel: record for record in records}
    plan, call, first = (times.get(name) for name in ("plan.execute", "matmul(out)", "first call, cold"))
    if plan is None or call is None:
        return ""
    cost = (
        f"The host takes {time_words(plan.seconds)} for a call of a plan, {time_words(call.seconds)} for"
        " matmul with `out`"
    )
    against_torch = f", {call.ratio:.2f} times as fast as torch.mm" if call.ratio else ""
    lost = [f"{row.kernel} ({row.ratio:.2f})" for row in records if (row.ratio or 1.0) < 1.0]
    slower = f"Slower than what they stand beside: {', '.join(lost)}." if lost else ""
    cold = f"A first call that compiles takes {time_words(first.seconds)}." if first else ""
    return joined(f"{cost}{against_torch}.", slower, cold)


def launch_chart(records: Sequence[Record]) -> Chart | None:
    times = {record.kernel: record for record in records}
    drawn = [
        Bar(
            name, 1e6 * (r.seconds or 0.0), time_words(r.seconds), "peer" if "torch" in name else "production"
        )
        for name in SHOWN_CALLS
        if (r := times.get(name))
    ]
    words, key = "Microseconds of the host for a call, median", {**bar_charts.KEY, "peer": "torch, by cuBLAS"}
    return bar_charts.bars("launch", drawn, [], words, key) if drawn else None


LAUNCH_WORDS = (
    "`matmul(out)` and `gemm(out)` stand beside `torch.mm` with its `out`. `matmul` stands beside one that"
    " makes its output, and `gemm(c, out)` beside `torch.addmm`. A *first call* is that of a new process:"
    " *cold* compiles its kernel, *disk cache* finds it on disk. What follows a colon is a part of the"
    " latter. A dash stands where there is no peer."
)
LAUNCH_COLUMNS: Sequence[Column] = (
    ("what", lambda r: r.kernel),
    "median | least | most",
    ("torch's or NumPy's time over it", lambda r: number(r.ratio, ".2f")),
)
LAUNCH = Section(
    lambda data: data.of("host"),
    [of_launch, launch_chart, LAUNCH_WORDS, lambda rows: table(LAUNCH_COLUMNS, rows).markdown()],
)

# ---- compiling ----

WARM_WORDS = (
    "`lapidist warm` compiles into an empty cache what plans of squares, of a transformer's layers and of"
    " ragged products use. `--random` adds random products, and `--with-c` products with beta C."
)
COMPILING = Section(
    lambda data: data.of(warming.MODE),
    [
        "## What does compiling cost?",
        lambda rows: f"{WARM_WORDS}\n\n{warming.list_words(rows)}",
        folded(
            "Lists of products",
            "type",
            ("compilers", lambda r: r.kernel),
            ("configurations", COLUMNS["calls"]),
            ("all", COLUMNS["time"]),
            ("the longest", COLUMNS["most"]),
        ),
    ],
)
ALONE = Section(
    lambda data: data.of(warming.MODE) and data.of(warming.ALONE),
    [
        warming.alone_words,
        folded(
            "The configs that take longest",
            "type",
            ("which", lambda r: r.kernel),
            ("kernel", lambda r: r.note or "-"),
            ("alone", COLUMNS["time"]),
            "least | most",
        ),
    ],
)
