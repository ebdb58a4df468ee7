"""What users meet, beside what they have without us: whole models, epilogues, new shapes. `ratio` is the
stock way's time over ours."""

from __future__ import annotations

from collections.abc import Sequence

from lapidist.bench.protocol.cases import shape_words
from lapidist.bench.protocol.record import Record
from lapidist.bench.publish import charts
from lapidist.bench.publish.charts import Bar, Chart
from lapidist.bench.publish.markdown import Columns, fold, row_of, rule, table
from lapidist.bench.publish.tables import geomean, number, time_words
from lapidist.bench.publish.views import LIES, short_chip
from lapidist.bench.studies.endings import PLAIN
from lapidist.bench.studies.epilogues import MODE as EPILOGUE
from lapidist.dtypes import short_name

MODEL = "model"
LOADED = "shapes loaded"
NEW_SHAPES = {"shapes cold": "nothing compiled", "shapes disk": "binaries on disk", LOADED: "binaries loaded"}
SERVED = "served"
MMA = ("mma sustained", "mma burst")
MMA_WORDS = {"mma sustained": "sustained", "mma burst": "in bursts"}
MODES = (MODEL, EPILOGUE, *NEW_SHAPES, SERVED, *MMA)


def times_faster(record: Record) -> str:
    return "-" if record.ratio is None else f"{record.ratio:.2f}x"


def ours_in(records: Sequence[Record], mode: str) -> list[Record]:
    found = [record for record in records if record.mode == mode and record.kind != "peer" and record.ratio]
    return sorted(found, key=lambda record: (record.device, record.kernel, record.dtype, record.m))


# ---- whole models ----


def of_models(records: Sequence[Record]) -> str:
    rows = [record for record in ours_in(records, MODEL) if record.ratio and record.ok]
    if not rows:
        return ""
    ratios = [record.ratio or 0.0 for record in rows]
    worst = min(rows, key=lambda record: record.ratio or 0.0)
    chips = " and ".join(dict.fromkeys(short_chip(record.device) for record in rows))
    return (
        f"{geomean(ratios):.2f}x the speed of stock in the geometric mean of {len(ratios)} cases,"
        f" {min(ratios):.2f}x to {max(ratios):.2f}x, on an {chips}."
        f" The worst is {worst.kernel}, {worst.m} rows"
    )


def model_sections(records: Sequence[Record]) -> list[str]:
    rows = ours_in(records, MODEL)
    if not rows:
        return []
    columns: Columns = {
        "case": lambda r: r.kernel,
        "rows": lambda r: str(r.m),
        "time": lambda r: time_words(r.seconds),
        "stock's time over ours": times_faster,
        "error/bound": lambda r: number(r.worst, ".3f"),
        "chip": lambda r: short_chip(r.device),
    }
    said = of_models(records)
    words = (
        "Stock is the same model with torch's or XLA's own products, in turns in the same process. Over 1x is"
        " faster than that. [In torch](../torch.md#whole-models-on-your-gpu) and"
        " [in JAX](../jax.md#what-runs-where) say which models these are. *Fused*: the activation is in a"
        " product's launch. In the chart, the last number is the rows of the products: all tokens."
    )
    over = [record for record in rows if not record.ok]
    left_out = (
        f" Not counted: {len(over)} of {len(rows)} cases, where the results differ by more than the bound."
        if over
        else ""
    )
    return [
        f"{f'Models have {said}. ' if said else ''}{words}{left_out}\n",
        fold("Every case", table(columns, rows)),
    ]


def short_case(kernel: str) -> str:
    """Of torch's cases without the package's name: bars want the room."""
    return kernel.removeprefix("lapidist.").removeprefix("torch, ")


def model_chart(records: Sequence[Record]) -> Chart | None:
    rows = ours_in(records, MODEL)
    drawn = [
        Bar(f"{short_case(r.kernel)}, {r.m}", 100 * (r.ratio or 0.0), times_faster(r), "production")
        for r in rows
        if r.ok
    ]
    words = "Stock's time over ours, in %, for whole models, by rows"
    return charts.bars("models", drawn, [("stock", 100.0)], words) if drawn else None


# ---- epilogues ----


def ending_of(record: Record) -> str:
    return record.kernel.partition(", ")[2] or record.kernel


def of_epilogues(records: Sequence[Record]) -> str:
    fused = [record for record in ours_in(records, EPILOGUE) if ending_of(record) != PLAIN]
    over = [record.over_plain for record in fused if record.over_plain]
    ratios = [record.ratio for record in fused if record.ratio]
    if not over:
        return ""
    return (
        f"An epilogue takes {geomean(over):.2f}x the time of the product alone in the geometric mean,"
        f" {min(over):.2f}x to {max(over):.2f}x. The fastest of torch's ways takes {geomean(ratios):.2f}x the"
        f" time of ours in the mean, {min(ratios):.2f}x at least"
    )


def by_ending(rows: Sequence[Record]) -> str:
    """A line for each epilogue and type, and the shape where it is slowest beside its peers."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for row in rows:
        groups.setdefault((ending_of(row), row.dtype), []).append(row)
    peers = ["fastest peer's time over ours", "at least", "least at"]
    heads = ["epilogue", "type", "time over the product alone", "at most", *peers, "chip"]
    lines = [row_of(heads), rule(heads)]
    for (ending, dtype), found in sorted(groups.items()):
        over, ratios = [r.over_plain or 1.0 for r in found], [r.ratio or 0.0 for r in found]
        worst = min(found, key=lambda r: r.ratio or 0.0)
        lines.append(
            row_of(
                [
                    ending,
                    short_name(dtype),
                    f"{geomean(over):.2f}",
                    f"{max(over):.2f}",
                    f"{geomean(ratios):.2f}x",
                    f"{min(ratios):.2f}x",
                    shape_words(worst.m, worst.n, worst.k),
                    ", ".join(sorted({short_chip(r.device) for r in found})),
                ]
            )
        )
    return "\n".join(lines) + "\n"


def epilogue_sections(records: Sequence[Record]) -> list[str]:
    rows = ours_in(records, EPILOGUE)
    if not rows:
        return []
    columns: Columns = {
        "epilogue": ending_of,
        "type": lambda r: short_name(r.dtype),
        "shape": lambda r: shape_words(r.m, r.n, r.k),
        "time": lambda r: time_words(r.seconds),
        "over the product alone": lambda r: number(r.over_plain, ".3f"),
        "fastest peer's time over ours": times_faster,
        "error/bound": lambda r: number(r.worst, ".3f"),
        "chip": lambda r: short_chip(r.device),
    }
    words = "An [epilogue](../tutorials/epilogue.md) runs in registers, before sums are stored."
    said = of_epilogues(records)
    return [
        f"{words}{' ' + said[0].upper() + said[1:] + '.' if said else ''} These peers are torch's kernels one"
        " after the other, the same by torch.compile, and for GELU by tanh cuBLASLt's own epilogue. Each line"
        " has the geometric means of all shapes, and the worst of them. `plain` is the product alone."
        " Turns are without rest.\n",
        by_ending(rows),
        fold("Every shape", table(columns, rows)),
    ]


# ---- new shapes ----


def new_shape_sections(records: Sequence[Record]) -> list[str]:
    rows = [record for mode in NEW_SHAPES for record in records if record.mode == mode]
    loops = [record for record in records if record.mode == SERVED]
    if not rows and not loops:
        return []
    columns: Columns = {
        "type": lambda r: short_name(r.dtype),
        "before the call": lambda r: NEW_SHAPES.get(r.mode, "a request loop"),
        "calls": lambda r: number(r.calls, "d"),
        "median": lambda r: time_words(r.seconds),
        "9 of 10 within": lambda r: time_words(r.p90),
        "99 of 100 within": lambda r: time_words(r.p99),
        "torch's time over ours": times_faster,
    }
    words = (
        "A new shape is planned before it runs. [The planner](../planner.md) says which binary serves it."
        " Times are of the caller, until the result is there. Under 1x torch is faster."
    )
    said = [words, *filter(None, [of_new_shapes(records)])]
    return [" ".join(said) + "\n", fold("New shapes, beside torch", table(columns, [*rows, *loops]))]


def of_new_shapes(records: Sequence[Record]) -> str:
    """Where nothing waits for a compiler."""
    rows = [r for r in records if r.mode == LOADED and r.ratio and r.seconds]
    if not rows:
        return ""
    ratios, times = [r.ratio or 0.0 for r in rows], [r.seconds or 0.0 for r in rows]
    return (
        f"With binaries loaded a new shape takes {time_words(min(times))} to {time_words(max(times))} in the"
        f" median, and torch {min(ratios):.2f}x to {max(ratios):.2f}x of that."
    )


# ---- mma.sync beside CUTLASS ----


def beside_cutlass(records: Sequence[Record]) -> list[Record]:
    return [record for mode in MMA for record in ours_in(records, mode) if record.peer]


def of_mma(records: Sequence[Record]) -> str:
    rows = beside_cutlass(records)
    ratios = [record.ratio for record in rows if record.ratio]
    if not ratios:
        return ""
    turns = " and ".join(sorted({MMA_WORDS[record.mode] for record in rows}))
    chips = " and ".join(sorted({short_chip(record.device) for record in rows}))
    return (
        f"{min(ratios):.2f}x to {max(ratios):.2f}x the speed of CUTLASS's kernel for mma.sync, {turns}, on an"
        f" {chips}"
    )


def mma_sections(records: Sequence[Record]) -> list[str]:
    rows = beside_cutlass(records)
    if not rows:
        return []
    columns: Columns = {
        "m x n x k": lambda r: shape_words(r.m, r.n, r.k),
        "type": lambda r: short_name(r.dtype),
        "operands": lambda r: LIES[r.layout[:2]],
        "time": lambda r: time_words(r.seconds),
        "TFLOP/s": lambda r: number(r.tflops, ".1f"),
        "CUTLASS's time over ours": times_faster,
        "turns": lambda r: r.mode.partition(" ")[2],
        "chip": lambda r: short_chip(r.device),
    }
    words = (
        "Cards before Hopper, and consumer Blackwell, multiply by mma.sync."
        f" `mma` has {of_mma(records)}. That is the kernel of CUTLASS's example 47, with sums in float as"
        " ours. Of its two schedules, a block for each tile and Stream-K, the faster counts.\n"
    )
    return [words, fold("Every product", table(columns, rows))]
