"""The pages under docs/performance, one for each question: words and charts first, tables folded below."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lapidist.bench.protocol.record import Record, Run
from lapidist.bench.publish import answers
from lapidist.bench.publish.aims import aims_section
from lapidist.bench.publish.batch_sections import batch_sections, of_batches
from lapidist.bench.publish.charts import Chart
from lapidist.bench.publish.chip_sections import chip_sections
from lapidist.bench.publish.corpora import (
    DECODE,
    corpora,
    corpus_charts,
    corpus_sections,
    layer_sections,
    layers,
)
from lapidist.bench.publish.corpus_summary import summary_sections
from lapidist.bench.publish.layout_sections import layout_chart, layout_sections, of_layouts
from lapidist.bench.publish.planner_sections import planner_sections
from lapidist.bench.publish.prose import (
    failures_section,
    host_section,
    of_runs,
    runs_section,
    shapes_of,
    warm_section,
)
from lapidist.bench.publish.scaled_sections import of_scaled, scaled_chart, scaled_sections
from lapidist.bench.publish.squares import limits_section, of_limits, type_sections
from lapidist.bench.publish.stock_sections import (
    epilogue_sections,
    mma_sections,
    model_chart,
    model_sections,
    new_shape_sections,
    of_epilogues,
    of_mma,
    of_models,
    of_new_shapes,
)
from lapidist.bench.publish.views import NO_PRODUCTS, TIMED_MODES, in_another_layout, in_math
from lapidist.bench.publish.withdrawn import Withdrawal
from lapidist.bench.publish.withdrawn import section as withdrawn_section
from lapidist.dtypes import FP8, short_name

FOLDER = Path("docs") / "performance"
HEAD = "<!-- Written by `lapidist report` from the Records under results/. -->\n"
NOTES = (
    "[Sustained](../glossary.md#sustained) means long turns without rest, at the clock that the chip can"
    " hold. Burst means short turns, each after a rest. Every share of cuBLAS is of cuBLAS in the same run."
    " [How it is measured](index.md#how-it-is-measured) says more."
)
SHORT_TURNS = (
    "[Sustained](../glossary.md#sustained) turns and bursts are as on [the other pages](index.md#how-it-is-"
    "measured). Short turns follow each other without rest: one replay to warm up, one that is timed."
)
TYPES = {kind: (kind,) for kind in ("float32", "bfloat16", "float16", "tf32", "float64", "int8")}
TYPE_PAGES = {**{short_name(kind): kinds for kind, kinds in TYPES.items()}, "fp8": FP8}


@dataclass
class Page:
    """A name, a question, and what answers it; nothing was measured where there are no parts."""

    name: str
    title: str
    parts: list[str] = field(default_factory=list)
    charts: list[Chart] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "\n".join([f"{HEAD}\n# {self.title}\n", *self.parts]).rstrip("\n") + "\n"

    def show(self, chart: Chart | None) -> None:
        if chart is not None:
            self.charts.append(chart)
            self.parts.append(chart.shown())

    def files(self, root: Path) -> dict[Path, str]:
        texts = {root / FOLDER / f"{self.name}.md": self.text}
        for chart in self.charts:
            texts |= chart.files(root / FOLDER)
        return texts


def documents(
    root: Path, records: Sequence[Record], runs: Sequence[Run], withdrawals: Sequence[Withdrawal]
) -> dict[Path, str]:
    """Every page that something was measured for, and the index of them."""
    pages = [page for page in all_pages(records, runs, withdrawals) if page.parts]
    texts: dict[Path, str] = {}
    for page in [index_page(pages, records, runs), *pages]:
        texts |= page.files(root)
    return texts


def all_pages(
    records: Sequence[Record], runs: Sequence[Run], withdrawals: Sequence[Withdrawal]
) -> Iterable[Page]:
    for name, kinds in TYPE_PAGES.items():
        yield type_page(name, kinds, records, runs)
    yield ragged_page(runs)
    yield decode_page(records)
    yield small_page(records, runs)
    yield launch_page(records)
    yield layouts_page(records)
    yield epilogues_page(records)
    yield models_page(records)
    yield mma_page(records)
    yield limits_page(records)
    yield runs_page(records, runs, withdrawals)


# ---- a type ----


def type_page(name: str, kinds: Sequence[str], records: Sequence[Record], runs: Sequence[Run]) -> Page:
    page = Page(name, f"How fast is {'8-bit floating point' if name == 'fp8' else name}?")
    for kind in kinds:
        own = in_math(records, kind)
        products = [
            each
            for each in own
            if each.mode in TIMED_MODES and each.kind not in NO_PRODUCTS and not in_another_layout(each)
        ]
        if products:
            add_type(page, kind, products, chip_sections(runs, kind))
    scaled = scaled_sections(records) if name == "fp8" else []
    if scaled:
        page.parts.append("## With factors\n")
        page.show(scaled_chart(records))
        page.parts += scaled
    if page.parts:
        page.parts.append(f"\n{NOTES}\n")
    return page


def add_type(page: Page, kind: str, records: Sequence[Record], on_chips: Sequence[str]) -> None:
    """Of one type: the answer, each chip's, speed against size, the ladder, and every table."""
    short = short_name(kind)
    if page.name == "fp8":
        page.parts.append(f"## {short}\n")
    page.parts.append(answers.of_type(records) + "\n")
    page.parts += on_chips
    page.show(answers.sizes_chart(short, records))
    sustained = [record for record in records if record.mode == "sustained"]
    climbed = answers.climbed(sustained)
    if climbed:
        page.parts.append(
            "The ladder at 4096^3, each kernel beside cuBLAS in its own run (detours are in the table):\n"
        )
        page.show(answers.beside_cublas(f"ladder-{short}", climbed, answers.ladder_words(short, climbed)))
    for mode in TIMED_MODES:
        timed = [record for record in records if record.mode == mode]
        page.parts += [*type_sections(timed, mode), *shapes_of(mode, kind, timed)]


# ---- other questions ----


def ragged_page(runs: Sequence[Run]) -> Page:
    page = Page("ragged", "How fast are random products, ragged and aligned?")
    sections = corpus_sections(runs)
    if sections:
        page.parts.append("\n".join(f"- {each}" for each in answers.of_ragged(corpora(runs))) + "\n")
        page.parts.append(f"{SHORT_TURNS}\n")
        page.parts += summary_sections(runs)
        page.charts += corpus_charts(runs)
        page.parts += sections
    page.parts += planner_sections(runs)
    return page


def decode_page(records: Sequence[Record]) -> Page:
    page = Page("decode", "How fast are decode and other layers of a transformer?")
    rows = layers(records)
    if rows:
        page.parts.append(
            "A few rows of activations times weights that are read once: the time is that of reading the"
            f" weights. This is so up to {DECODE} rows. The weights are those of a transformer of 70 billion"
            " parameters, as torch's Linear keeps them. A dash stands for what was not timed. In int8 torch"
            " has no product of 16 rows or fewer. The chart has the largest weights: TB/s of them that are"
            " read, and % of cuBLAS.\n"
        )
        page.parts.append(answers.of_decode(rows) + "\n")
        page.show(answers.decode_chart(rows))
        page.parts += layer_sections(records)
    return page


def small_page(records: Sequence[Record], runs: Sequence[Run]) -> Page:
    page = Page("small", "How fast are small products and batches?")
    table = answers.small_table(records)
    if table:
        page.parts.append(
            "A product of 512^3 takes some microseconds. What counts is the launch, the first load and the"
            " last store. Such products may share their tiles ([Stream-K](../stream-k.md)), and may start"
            " before the launch ahead of them has ended. The planner's choice:\n\n"
            f"{answers.of_small(records)}.\n"
        )
        page.show(answers.small_chart(records))
        page.parts.append(table)
    batches = batch_sections(runs)
    if batches or table:
        page.parts.append("## Batches\n\nA batch is one call and one launch.\n")
        page.parts += batches or ["They have no Records yet.\n"]
    return page


def launch_page(records: Sequence[Record]) -> Page:
    page = Page("launch", "What does a call cost?")
    host = [record for record in records if record.mode == "host"]
    if host:
        page.parts.append(answers.of_launch(host) + "\n")
        page.show(answers.launch_chart(host))
        page.parts += host_section(host)
    compiled = warm_section(records)
    if compiled:
        page.parts += ["## What does compiling cost?\n", *compiled]
    new = new_shape_sections(records)
    if new:
        page.parts += ["## What does a new shape cost?\n", *new]
    return page


def models_page(records: Sequence[Record]) -> Page:
    page = Page("models", "How fast are whole models?")
    sections = model_sections(records)
    if sections:
        page.parts.append(sections[0])
        page.show(model_chart(records))
        page.parts += sections[1:]
    return page


def epilogues_page(records: Sequence[Record]) -> Page:
    return Page("epilogues", "What does an epilogue cost?", epilogue_sections(records))


def mma_page(records: Sequence[Record]) -> Page:
    return Page("mma", "How fast is mma.sync beside CUTLASS?", mma_sections(records))


def layouts_page(records: Sequence[Record]) -> Page:
    page = Page("layouts", "What does a layout cost?")
    sections = layout_sections(records)
    if sections:
        page.parts.append(sections[0])
        page.show(layout_chart(records))
        page.parts += sections[1:]
    return page


def limits_page(records: Sequence[Record]) -> Page:
    return Page("limits", "What can the chip do at most?", limits_section(records))


def runs_page(records: Sequence[Record], runs: Sequence[Run], withdrawals: Sequence[Withdrawal]) -> Page:
    parts = [runs_section(runs), *failures_section(records), withdrawn_section(withdrawals)]
    return Page("runs", "Which runs do the numbers come from?", [part for part in parts if part])


# ---- the index ----


def index_page(pages: Sequence[Page], records: Sequence[Record], runs: Sequence[Run]) -> Page:
    said = {name: answers.in_short(records, kinds[0]) for name, kinds in TYPE_PAGES.items()}
    said["ragged"] = "<br>".join(answers.of_ragged(corpora(runs)))
    said["decode"] = answers.of_decode(layers(records))
    said["small"] = "; ".join(filter(None, (answers.of_small(records), *of_batches(runs))))
    said["fp8"] = " ".join(filter(None, (said["fp8"], of_scaled(records))))
    host = [record for record in records if record.mode == "host"]
    said["launch"] = " ".join(filter(None, (answers.of_launch(host), of_new_shapes(records))))
    said["layouts"] = of_layouts(records)
    said["epilogues"] = of_epilogues(records)
    said["models"], said["mma"] = of_models(records), of_mma(records)
    said["limits"], said["runs"] = of_limits(records), of_runs(runs)
    lines = ["| question | in short |", "|---|---|"]
    lines += [f"| [{page.title}]({page.name}.md) | {said.get(page.name, '')} |" for page in pages]
    return Page("index", "Performance", ["\n".join(lines) + "\n", *aims_section(records, runs), MEASURED])


MEASURED = """## How it is measured

- **Same run.** Every number of cuBLAS was taken in the same run, on the same card, with the same inputs, in
  turns with ours. Runs differ by a few percent, so a share never mixes two runs.
- **Chips.** What several chips measured is shown of the one with most Records, unless a table has a column
  for the chip. The others are in [the runs](runs.md).
- **Sustained.** Turns of over half a second without rest, at the clock that the chip can hold under its power
  limit. *Burst* turns are short, each after a rest: the clock stays high.
- **Code.** A run names the commit whose code it timed ([the runs](runs.md)). Kernels that changed since keep
  their numbers until they are timed again; rungs that never were say "not yet".
- **Inputs.** Random normal numbers (integers: uniform), fresh for each case. Zeros would draw less power.
- **The L2.** Inputs rotate over sets that together exceed the L2, unless a table says otherwise.
- **Right results.** Each result is held against float64. *error/bound* is the largest error over its
  [bound](../numerics.md#what-a-result-may-be-off-by); up to 1 is right.
- **% of limit** is the share of what the chip's best unit for the type reaches without touching memory
  ([limits](limits.md)). *% of unit* is the same of the unit that the kernel uses. *multiply %* counts, of the
  main loop's instructions, those that multiply and add.

`lapidist report` writes these pages from the Records under `results/`, and nothing else does.
[The runs](runs.md) have dates, versions and protocols.
"""
