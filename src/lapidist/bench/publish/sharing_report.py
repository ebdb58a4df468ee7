"""docs/stream-k.md and its plots, out of the Records that `lapidist streamk` keeps."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from lapidist.bench.protocol.cases import shape_words
from lapidist.bench.protocol.record import Record, Run
from lapidist.bench.publish.markdown import row_of, rule
from lapidist.bench.publish.svg import Frame, drawing, text
from lapidist.bench.publish.tables import geomean, time_words
from lapidist.bench.publish.views import latest, shape_of
from lapidist.bench.studies.streamk import MODE_CORPUS, MODE_COSTS, MODE_TABLE
from lapidist.dtypes import element_of, short_name

INTRODUCTION = """# Stream-K, measured

Written by `lapidist report` from the Records under `results/`; `lapidist streamk table|corpus|costs --record
results` makes them. Terms are in the [glossary](glossary.md).

[Stream-K](glossary.md#stream-k) gives full [waves](glossary.md#wave) of tiles to one block each. It shares
the rest evenly among as many blocks as the chip holds. Where the cost model predicts a gain smaller than its
own error, every tile stays with one block. Stream-K is then [data-parallel](glossary.md#data-parallel).

**Lessons of the first corpus**, whose worst shapes lost a quarter:

- Blocks on one SM share its speed. So the busiest SM counts, not the number of waves.
- Operands that are loaded element by element take registers, so fewer blocks fit than the schedule counts
  on. Some blocks then start only when others have ended.
- A kernel that takes its tiles from a schedule has a main loop that is up to a tenth slower. The state of
  the next tile occupies registers beside the sums.

**Lessons of `sgemm`.** Its tiles are 256 x 128, so there is often no more than one for each SM.

- Handing the sums of a tile to the next block takes as long as a whole step along k. So if a tile has more
  than a few [peers](glossary.md#peer), all of them write their partial sums at once. Then each peer adds up
  its part of the tile.
- The number of parts matters more than the size of each. To begin a part costs more than one further row of
  every thread's sums. So there are as many parts as blocks, and no more.
- The same tile with rows and columns exchanged fits other edges, at no cost.
- Half the tile, with two blocks an SM, was tried too. It was meant to waste less at the edges, and to overlap
  one block's waits with the other's work. Its loop was a sixth slower, and it was removed.
- Rows of D that start anywhere are stored by way of shared memory. Direct stores from registers touch every
  fourth element of a line at a time.

**Where `simt` is mispredicted.** Its prediction is too fast where five or more peers hand sums on in turn.
Charging their true cost was tried on 48 shapes and gained nothing on average. Products then went to clusters
of five and of seven blocks, which do not fit on the chip together.

**Lessons of `wgmma`:**

- The [epilogue](glossary.md#epilogue) of a large tile takes as long as many steps along k. This is so above
  all where rows of D start anywhere. So peers in a cluster gain from sharing a tile even where k is short.
- The peers send whole [patches](glossary.md#patch) of sums to the one that stores them. It stores them like
  those of an unshared tile. A peer's memory is faster to write than to read, and direct stores, two elements
  at a time, had cost the gain.
- Clusters whose operands are [packed](glossary.md#packed) first had packed them only with the blocks that
  have tiles. Now blocks without a tile help.
- [Turnstiles](glossary.md#turnstile) pay only where k is long. Blocks at different places of k no longer
  find each other's data in the L2. Tiles are shared where the model predicts a gain larger than its error.
"""
RIVALS = {
    "data_parallel": "the same kernel and tile, data-parallel",
    "best_tile": "the best data-parallel tile of each shape",
    "cublas": "cuBLAS",
}
STYLE = (
    "<style>text{font:13px sans-serif;fill:#445}.small{font-size:12px}.grid{stroke:#e4e7ec}"
    ".axis{stroke:#98a2b3}circle{fill-opacity:.55}.mark{stroke:#98a2b3;stroke-dasharray:5 4}</style>"
)
COLOURS = {"cublas": "#76b900", "stream_k": "#3b6fb6", "family": "#d1495b"}
Group = dict[tuple[int, int, int], dict[str, Record]]


def documents(root: Path, runs: Sequence[Run]) -> dict[Path, str]:
    """The page and a plot for each type that has a corpus; nothing before anything was measured."""
    parts, texts = [INTRODUCTION], {}
    for mode, part in ((MODE_TABLE, table_part), (MODE_CORPUS, corpus_part), (MODE_COSTS, costs_part)):
        found = [(record, run) for record, run in latest(runs) if record.mode == mode]
        for key in dict.fromkeys(group_of(record) for record, _ in found):
            own = [(record, run) for record, run in found if group_of(record) == key]
            parts += [part([record for record, _ in own]), *sources_of(own)]
            if mode == MODE_CORPUS:
                texts[root / "docs" / f"stream-k-{short_name(key[0])}.svg"] = scatter(
                    [record for record, _ in own]
                )
    if len(parts) > 1:
        texts[root / "docs" / "stream-k.md"] = "\n".join(parts)
    return texts


def group_of(record: Record) -> tuple[str, object]:
    """What stands in one table: a type's corpus, a type's costs, or one product."""
    return record.dtype, shape_of(record) if record.mode == MODE_TABLE else None


def sources_of(found: Sequence[tuple[Record, Run]]) -> list[str]:
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
    return f"## {shape}, {short_name(record.dtype)}\n\n" + "\n".join(lines) + "\n"


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
    head = f"## A corpus of {len(groups)} shapes, {short}\n\nThe rival's time over ours. {failed}\n\n"
    plot = f"\n![TFLOP/s over flops a byte](stream-k-{short}.svg)\n"
    return head + "\n".join(lines) + "\n" + plot


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


def scatter(records: Sequence[Record], colours: Mapping[str, str] = COLOURS) -> str:
    """TFLOP/s of each shape over its arithmetic intensity, for the kernels that have a colour."""
    shown = [record for record in records if record.kernel in colours and record.tflops]
    x_of: Callable[[Record], float] = intensity
    low, high = min(map(x_of, shown)), max(map(x_of, shown))
    speeds = [record.tflops or 0.0 for record in shown]
    frame = Frame((low / 1.1, high * 1.1), (min(speeds) / 1.2, max(speeds) * 1.2), log_y=True, left=64)
    x_ticks = [2.0**power for power in range(2, 12) if low <= 2.0**power <= high]
    y_ticks = [
        base * 10.0**power
        for power in range(-2, 4)
        for base in (1, 2, 5)
        if min(speeds) <= base * 10.0**power <= max(speeds)
    ]
    parts = [STYLE, *frame.axes(x_ticks, y_ticks, "flops a byte", "TFLOP/s")]
    for place, (name, colour) in enumerate(colours.items()):
        for record in [record for record in shown if record.kernel == name]:
            x, y = frame.x(intensity(record)), frame.y(record.tflops or 0.0)
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="{colour}"/>')
        parts.append(f'<circle cx="748" cy="{30 + 20 * place}" r="4" fill="{colour}"/>')
        parts.append(text(760, 34 + 20 * place, {"family": "planner's schedule"}.get(name, name)))
    svg = drawing(frame.bottom + 56, parts, "TFLOP/s over arithmetic intensity")
    return svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1) + "\n"


# ---- costs ----


def costs_part(records: Sequence[Record]) -> str:
    heads = ["config", "costs of a block", "dtype"]
    lines = [row_of(heads), rule(heads)]
    lines += [row_of([record.kernel, record.note or "", short_name(record.dtype)]) for record in records]
    model = (
        "A block's time is start + fixup (if its tile is shared) + iteration x iterations + peer x (peers"
        " - 1)."
    )
    return f"## What sharing a tile costs\n\n{model}\n\n" + "\n".join(lines) + "\n"
