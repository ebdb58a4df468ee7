"""What users meet, beside what they have without us: models, epilogues, new shapes, mma.sync, layouts,
factors. `ratio` is the other way's time over ours."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lapidist_lab.bench.protocol.contenders import LIBRARY
from lapidist_lab.bench.protocol.record import Record
from lapidist_lab.bench.publish import bar_charts
from lapidist_lab.bench.publish.bar_charts import Bar
from lapidist_lab.bench.publish.cells import (
    chip,
    geomean,
    kind,
    mean_words,
    number,
    percent,
    ratios,
    shape,
    speed,
    time_words,
    times_faster,
    worst,
)
from lapidist_lab.bench.publish.charts import Chart
from lapidist_lab.bench.publish.mean_and_worst import mean_and_worst
from lapidist_lab.bench.publish.record_views import LIES, shape_of
from lapidist_lab.bench.publish.section import Data, Part, Section, folded, joined
from lapidist_lab.bench.publish.tables import Column, fold, table
from lapidist_lab.bench.studies import default_kernels, operand_layouts, scaled_products
from lapidist_lab.bench.studies.after_products import PLAIN
from lapidist_lab.bench.studies.epilogue_costs import MODE as EPILOGUE

MODEL, SERVED, LOADED = "model", "served", "shapes loaded"
NEW_SHAPES = {"shapes cold": "nothing compiled", "shapes disk": "binaries on disk", LOADED: "binaries loaded"}
MMA_WORDS = {"mma sustained": "sustained", "mma burst": "in bursts"}
SCALED_WORDS = {scaled_products.MODE: "sustained", scaled_products.BURST_MODE: "in bursts"}
MODES = (
    MODEL,
    EPILOGUE,
    *NEW_SHAPES,
    SERVED,
    *default_kernels.MODES,
    *MMA_WORDS,
    operand_layouts.MODE,
    *SCALED_WORDS,
)


# ---- whole models ----


def of_models(data: Data) -> str:
    rows = [record for record in data.ours(MODEL) if record.ok]
    if not rows:
        return ""
    values, chips = ratios(rows), " and ".join(dict.fromkeys(map(chip, rows)))
    return (
        f"{geomean(values):.2f}x the speed of stock in the geometric mean of {len(values)} cases,"
        f" {min(values):.2f}x to {max(values):.2f}x, on an {chips}."
        f" The worst is {worst(rows).kernel}, {worst(rows).m} rows"
    )


def model_words(rows: Sequence[Record]) -> str:
    summary, over = of_models(Data(rows)), [record for record in rows if not record.ok]
    words = (
        "Stock is the same model with torch's or XLA's own products, in turns in the same process. Over 1x is"
        " faster than that. [In torch](../torch.md#whole-models-on-your-gpu) and"
        " [in JAX](../jax.md#what-runs-where) say which models these are. *Fused*: the activation is in a"
        " product's launch. In the chart, the last number is the rows of the products: all tokens."
    )
    exclusions = (
        f"Not counted: {len(over)} of {len(rows)} cases, where the results differ by more than the bound."
    )
    return joined(f"Models have {summary}." if summary else "", words, exclusions if over else "")


def model_chart(rows: Sequence[Record]) -> Chart | None:
    """Bars of stock's time over ours. torch's cases lack the package's name: bars need the room."""
    drawn = [
        Bar(
            f"{r.kernel.removeprefix('lapidist.').removeprefix('torch, ')}, {r.m}",
            100 * r.ratio,
            times_faster(r),
        )
        for r in rows
        if r.ok and r.ratio
    ]
    words = "Stock's time over ours, in %, for whole models, by rows"
    return bar_charts.bars("models", drawn, [("stock", 100.0)], words, losses=True) if drawn else None


CASE: Sequence[Column] = (
    ("case", lambda r: r.kernel),
    "rows | time",
    ("stock's time over ours", times_faster),
    "error/bound | chip",
)
MODELS = Section(lambda data: data.ours(MODEL), [model_words, model_chart, folded("Every case", *CASE)])

# ---- epilogues ----


def ending_of(record: Record) -> str:
    return record.kernel.partition(", ")[2] or record.kernel


def of_epilogues(data: Data) -> str:
    fused = [record for record in data.ours(EPILOGUE) if ending_of(record) != PLAIN]
    over = [record.over_plain for record in fused if record.over_plain]
    if not over:
        return ""
    return (
        f"An epilogue takes {geomean(over):.2f}x the time of the product alone in the geometric mean,"
        f" {min(over):.2f}x to {max(over):.2f}x. The fastest of torch's ways takes"
        f" {geomean(ratios(fused)):.2f}x the time of ours in the mean, {min(ratios(fused)):.2f}x at least"
    )


def epilogue_words(rows: Sequence[Record]) -> str:
    summary = of_epilogues(Data(rows))
    return joined(
        "An [epilogue](../tutorials/epilogue.md) runs in registers, before sums are stored.",
        f"{summary[:1].upper()}{summary[1:]}." if summary else "",
        "These peers are torch's kernels one after the other, the same by torch.compile, and for GELU by tanh"
        " cuBLASLt's own epilogue. Each line has the geometric means of all shapes, and the worst of them."
        " `plain` is the product alone. Turns are without rest.",
    )


def by_ending(rows: Sequence[Record]) -> str:
    """A table with a line for each epilogue and type, and the shape with the least ratio."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for row in rows:
        groups.setdefault((ending_of(row), row.dtype), []).append(row)
    columns = (
        ("epilogue", lambda group: ending_of(group[0])),
        ("type", lambda group: kind(group[0])),
        ("time over the product alone", lambda group: f"{geomean(over_plain(group)):.2f}"),
        ("at most", lambda group: f"{max(over_plain(group)):.2f}"),
        ("fastest peer's time over ours", lambda group: f"{geomean(ratios(group)):.2f}x"),
        ("at least", lambda group: f"{min(ratios(group)):.2f}x"),
        ("least at", lambda group: shape(worst(group))),
        ("chip", lambda group: ", ".join(sorted({*map(chip, group)}))),
    )
    return table(columns, [group for _, group in sorted(groups.items())]).markdown()


def epilogue_chart(rows: Sequence[Record]) -> Chart:
    """Of each epilogue torch's time over ours: the mean of all types and shapes, and the worst."""
    names = sorted({ending_of(row) for row in rows})
    by_name = {name: ratios([row for row in rows if ending_of(row) == name]) for name in names}
    words = "Of each epilogue the speed beside torch's fastest way: the mean, and the worst case"
    return mean_and_worst("epilogues", by_name, words, "torch")


def over_plain(rows: Sequence[Record]) -> list[float]:
    return [record.over_plain or 1.0 for record in rows]


EPILOGUES = Section(
    lambda data: data.ours(EPILOGUE),
    [
        epilogue_words,
        epilogue_chart,
        by_ending,
        folded(
            "Every shape",
            ("epilogue", ending_of),
            "type | shape | time",
            ("over the product alone", lambda r: number(r.over_plain, ".3f")),
            ("fastest peer's time over ours", times_faster),
            "error/bound | chip",
        ),
    ],
)

# ---- new shapes ----


def of_new_shapes(data: Data) -> str:
    """The time of a new shape where nothing waits for a compiler, in words."""
    rows = [record for record in data.of(LOADED) if record.ratio and record.seconds]
    if not rows:
        return ""
    times = [record.seconds or 0.0 for record in rows]
    return (
        f"With binaries loaded a new shape takes {time_words(min(times))} to {time_words(max(times))} in the"
        f" median, and torch {min(ratios(rows)):.2f}x to {max(ratios(rows)):.2f}x of that."
    )


SHAPE_WORDS = (
    "A new shape is planned before it runs. [The planner](../planner.md) says which binary serves it. Times"
    " are of the caller, until the result is there. Under 1x torch is faster."
)
SHAPES = Section(
    lambda data: data.of(*NEW_SHAPES, SERVED),
    [
        "## What does a new shape cost?",
        lambda rows: joined(SHAPE_WORDS, of_new_shapes(Data(rows))),
        folded(
            "New shapes, beside torch",
            "type",
            ("before the call", lambda r: NEW_SHAPES.get(r.mode, "a request loop")),
            "calls | median",
            ("9 of 10 within", lambda r: time_words(r.p90)),
            ("99 of 100 within", lambda r: time_words(r.p99)),
            ("torch's time over ours", times_faster),
        ),
    ],
)

# ---- the default beside compile="wait" ----

DEFAULT_WORDS = {
    default_kernels.CAPTURED: "a graph after three calls",
    default_kernels.EAGER: "calls after a second of calls",
}


def of_default(data: Data) -> str:
    """What a captured graph has of the speed of compile="wait", in words."""
    rows = [record for record in data.of(default_kernels.CAPTURED) if record.over_wait]
    if not rows:
        return ""
    shares = [record.over_wait or 0.0 for record in rows]
    return (
        f"On a new machine a graph that is captured after three calls has {min(shares):.3f}x to"
        f' {max(shares):.3f}x the speed of compile="wait" in the mean.'
    )


DEFAULT = Section(
    lambda data: data.of(*default_kernels.MODES),
    [
        "## Which kernels does a program get that asks for none?",
        lambda rows: joined(
            "The cache is empty at first. A graph keeps its kernels for good, so its capture waits for the"
            " best. Calls take them when they are compiled.",
            of_default(Data(rows)),
        ),
        folded(
            'The default, beside compile="wait" and torch',
            "type",
            ("who", lambda r: DEFAULT_WORDS[r.mode]),
            ("shapes", lambda r: str(r.calls)),
            ("wait's time over the default's", lambda r: f"{r.over_wait:.3f}x"),
            ("torch's time over the default's", times_faster),
            ("besides", lambda r: r.note or ""),
        ),
    ],
)

# ---- mma.sync beside CUTLASS ----


def cutlass_rows(data: Data) -> list[Record]:
    return [record for record in data.ours(*MMA_WORDS) if record.peer]


def of_mma(data: Data) -> str:
    rows = cutlass_rows(data)
    if not rows:
        return ""
    turns = " and ".join(sorted({MMA_WORDS[record.mode] for record in rows}))
    least, most = min(ratios(rows)), max(ratios(rows))
    chips = " and ".join(sorted({*map(chip, rows)}))
    return f"{least:.2f}x to {most:.2f}x the speed of CUTLASS's kernel for mma.sync, {turns}, on an {chips}"


def mma_chart(rows: Sequence[Record]) -> Chart:
    """Bars of CUTLASS's time over ours."""
    drawn = [
        Bar(f"{kind(r)}, {shape(r)}{MMA_LAYOUTS.get(r.layout[:2], '')}", 100 * (r.ratio or 0.0),
            f"{speed(r)} TFLOP/s, {times_faster(r)}")
        for r in rows
    ]  # fmt: skip
    words = "The speed of mma on each product, in % of CUTLASS's kernel for mma.sync"
    return bar_charts.bars("mma", drawn, [("CUTLASS", 100.0)], words, losses=True)


MMA_LAYOUTS = {"rc": ", B by columns", "cr": ", A by columns", "cc": ", both"}
MMA = Section(
    cutlass_rows,
    [
        lambda rows: (
            "Cards before Hopper, and consumer Blackwell, multiply by mma.sync."
            f" `mma` has {of_mma(Data(rows))}. That is the kernel of CUTLASS's example 47, with sums in float"
            " as ours. Of its two schedules, a block for each tile and Stream-K, the faster counts."
        ),
        mma_chart,
        folded(
            "Every product",
            "m x n x k | type",
            ("operands", lambda r: LIES[r.layout[:2]]),
            "time",
            ("TFLOP/s", lambda r: number(r.tflops)),
            ("CUTLASS's time over ours", times_faster),
            ("turns", lambda r: r.mode.partition(" ")[2]),
            "chip",
        ),
    ],
)

# ---- 8-bit floats with factors ----


def of_scaled(data: Data) -> str:
    """The ratio to cuBLAS with the same factors, in each mode, in words."""
    sentences = []
    for mode, turns in SCALED_WORDS.items():
        rows = [r for r in data.of(mode) if r.kernel.startswith(f"{LIBRARY}, ") and r.ratio]
        if rows:
            where = f"{ending_of(worst(rows))}, {shape(worst(rows))}"
            sentences.append(f"With factors, {turns}: {mean_words(ratios(rows), where)}.")
    return " ".join(sentences)


def of_schemes(
    rows: Sequence[Record], shapes: Sequence[tuple[int, int, int]], who: str = LIBRARY
) -> list[Record]:
    """The rows in the order of the study's shapes and schemes."""
    at = {(record.kernel, shape_of(record)): record for record in rows}
    every = [
        at.get((f"{who}, {scheme.name}", shape)) for shape in shapes for scheme in scaled_products.SCHEMES
    ]
    return [record for record in every if record]


def scaled_table(mode: str, title: str) -> Part:
    def part(rows: Sequence[Record]) -> str:
        in_mode = [record for record in rows if record.mode == mode]
        every = (*scaled_products.SHAPES, *scaled_products.MODEL_SHAPES)
        theirs = {(ending_of(r), shape_of(r)): r for r in of_schemes(in_mode, every, "cublas") if r.seconds}

        def vendor(record: Record) -> str:
            record_of_vendor = theirs.get((ending_of(record), shape_of(record)))
            return speed(record_of_vendor) if record_of_vendor else "-"

        extents = ("m x n x k", lambda r: "x".join(map(str, shape_of(r))))
        columns = (
            extents,
            ("factors", ending_of),
            "time | TFLOP/s",
            ("cuBLAS", vendor),
            "% of cuBLAS | chosen",
        )
        ours = of_schemes(in_mode, every)
        return fold(title, table(columns, ours).markdown()) if ours else ""

    return part


def scaled_chart(rows: Sequence[Record]) -> Chart | None:
    """Bars of every scheme on the largest square, beside cuBLAS with the same factors."""
    square = max(scaled_products.SHAPES, key=math.prod)
    sustained = [record for record in rows if record.mode == scaled_products.MODE]
    drawn = [
        Bar(ending_of(r), 100 * r.ratio, f"{speed(r)} TFLOP/s, {percent(r.ratio)} %")
        for r in of_schemes(sustained, [square])
        if r.ratio
    ]
    words = f"Each form of factors beside cuBLAS with the same, e4m3, {square[0]}^3, sustained"
    return bar_charts.bars("factors", drawn, [("cuBLAS", 100.0)], words, losses=True) if drawn else None


FACTORS = (
    "e4m3 with [factors](../glossary.md#factor), results in bfloat16, sustained. Beside each, cuBLAS by"
    " `torch._scaled_mm` with the same factors. [Promoted](../glossary.md#promoted) sums leave the tensor"
    " core every 128 of k; factors along k imply it."
)
SCALED = Section(
    lambda data: (
        of_schemes(data.of(*SCALED_WORDS), (*scaled_products.SHAPES, *scaled_products.MODEL_SHAPES))
        and data.of(*SCALED_WORDS)
    ),
    [
        "## With factors",
        scaled_chart,
        lambda rows: joined(FACTORS, of_scaled(Data(rows))),
        scaled_table(scaled_products.MODE, "8-bit floats with factors, every form and shape"),
        scaled_table(scaled_products.BURST_MODE, "8-bit floats with factors, in bursts"),
    ],
)
