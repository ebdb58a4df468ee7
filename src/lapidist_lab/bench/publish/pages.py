"""The pages under docs/performance, one for each question: words and charts first, tables folded below."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from lapidist.dtypes import FP8, short_name
from lapidist_lab.bench.publish import (
    call_costs,
    complex_tables,
    emulated_tables,
    few_bits_tables,
    group_tables,
    invariant_tables,
    layout_tables,
    parallel_tables,
    squares,
    study_tables,
    symmetric_tables,
)
from lapidist_lab.bench.publish.aims import aims_section
from lapidist_lab.bench.publish.areas import areas_chart, areas_table
from lapidist_lab.bench.publish.charts import Chart
from lapidist_lab.bench.publish.corpora import CORPORA, corpora, of_ragged
from lapidist_lab.bench.publish.ladder_tables import type_sections
from lapidist_lab.bench.publish.planner_tables import PLANNER
from lapidist_lab.bench.publish.runs import RUNS
from lapidist_lab.bench.publish.section import Data, Section, Written, joined
from lapidist_lab.bench.publish.tables import Table, fold

FOLDER = Path("docs") / "performance"
RUNS_FILE = Path("results") / "runs.md"  # data beside the Records, no page
HEAD = "<!-- Written by `lapidist report` from the Records under results/. -->\n"
NOTES = (
    "[Sustained](../glossary.md#sustained) means long turns without rest, at the clock that the chip can"
    " hold. Burst means short turns, each after a rest. Every share of cuBLAS is of cuBLAS in the same run."
    " [How it is measured](index.md#how-it-is-measured) says more."
)
AREA_WORDS = (
    "Each bar is the geometric mean of an area's cases, as a multiple of the speed of who stands beside it in"
    " the same run. The point is the worst case, red where it is a loss. Both modes count, sustained and in"
    " bursts."
)
MEASURED = (Path(__file__).parent / "template" / "measured.md").read_text(encoding="utf-8")


class Page(NamedTuple):
    """A question, the sections that answer it, and the answer in short. `notes` stand at the end."""

    name: str
    title: str
    sections: Sequence[Section]
    in_short: Callable[[Data], str]
    notes: str = ""

    def written(self, data: Data) -> Written:
        """The parts of the page; none where nothing was measured."""
        parts = [part for section in self.sections for part in section.written(data)]
        return [*parts, self.notes] if parts and self.notes else parts

    def files(self, root: Path, parts: Written) -> dict[Path, str]:
        folder = root / FOLDER
        texts = {folder / f"{self.name}.md": text_of(self.title, parts)}
        for part in parts:
            texts |= part.files(folder) if isinstance(part, Chart) else {}
        return texts


def text_of(title: str, parts: Written) -> str:
    shown = [part.shown() if isinstance(part, Chart) else part for part in parts]
    return "\n\n".join(text.strip("\n") for text in (f"{HEAD}\n# {title}", *shown)) + "\n"


def type_page(kind: str) -> Page:
    short = short_name(kind)
    return Page(
        short,
        f"How fast is {short}?",
        type_sections(kind),
        lambda data: squares.in_short(data.records, kind),
        NOTES,
    )


PAGES = (
    *map(type_page, ("float32", "bfloat16", "float16", "tf32", "float64", "int8")),
    Page(
        "fp8",
        "How fast is 8-bit floating point?",
        [*(section for kind in FP8 for section in type_sections(kind, titled=True)), study_tables.SCALED],
        lambda data: joined(squares.in_short(data.records, FP8[0]), study_tables.of_scaled(data)),
        NOTES,
    ),
    Page(
        "ragged",
        "How fast are random products, ragged and aligned?",
        [CORPORA, PLANNER],
        lambda data: "<br>".join(of_ragged(corpora(data.runs))),
    ),
    Page(
        "decode",
        "How fast are decode and other layers of a transformer?",
        [call_costs.LAYERS],
        lambda data: call_costs.of_decode(call_costs.layers(data.records)),
    ),
    Page(
        "small",
        "How fast are small products and batches?",
        [call_costs.SQUARES, call_costs.BATCHES_HEAD, call_costs.BATCHES, call_costs.NO_BATCHES],
        lambda data: joined(call_costs.of_small(data), *call_costs.of_batches(data.runs), by="; "),
    ),
    Page(
        "grouped",
        "How fast are products of groups, as of experts?",
        [group_tables.GROUPS, group_tables.NO_GROUPS],
        lambda data: group_tables.of_groups(data) or "not measured yet",
    ),
    Page(
        "emulated",
        "How fast and how near is emulated float32?",
        [emulated_tables.EMULATED, emulated_tables.NOT_YET],
        lambda data: emulated_tables.of_emulated(data) or "not measured yet",
    ),
    Page(
        "invariant",
        "What does it cost that rows keep their bits?",
        [invariant_tables.INVARIANT, invariant_tables.NOT_YET],
        lambda data: invariant_tables.of_invariant(data) or "not measured yet",
    ),
    Page(
        "complex",
        "How fast are products of complex numbers?",
        [complex_tables.COMPLEX, complex_tables.NOT_YET],
        lambda data: complex_tables.of_complex(data) or "not measured yet",
    ),
    Page(
        "several-cards",
        "How fast are products over several cards?",
        [parallel_tables.PARALLEL, parallel_tables.NOT_YET],
        lambda data: parallel_tables.of_parallel(data) or "not measured yet",
    ),
    Page(
        "few-bits",
        "How fast are weights of few bits?",
        [few_bits_tables.FEW_BITS, few_bits_tables.NOT_YET],
        lambda data: few_bits_tables.of_few_bits(data) or "not measured yet",
    ),
    Page(
        "symmetric",
        "How fast are symmetric products?",
        [symmetric_tables.SYMMETRIC, symmetric_tables.NOT_YET],
        lambda data: symmetric_tables.of_symmetric(data) or "not measured yet",
    ),
    Page(
        "launch",
        "What does a call cost?",
        [
            call_costs.LAUNCH,
            call_costs.COMPILING,
            call_costs.ALONE,
            study_tables.SHAPES,
            study_tables.DEFAULT,
        ],
        lambda data: joined(call_costs.of_launch(data.of("host")), study_tables.of_new_shapes(data)),
    ),
    Page("layouts", "What does a layout cost?", [layout_tables.LAYOUTS], layout_tables.of_layouts),
    Page("epilogues", "What does an epilogue cost?", [study_tables.EPILOGUES], study_tables.of_epilogues),
    Page("models", "How fast are whole models?", [study_tables.MODELS], study_tables.of_models),
    Page("mma", "How fast is mma.sync beside CUTLASS?", [study_tables.MMA], study_tables.of_mma),
    Page("limits", "What can the chip do at most?", [squares.UNITS], squares.of_limits),
)
BY_NAME = {page.name: page for page in PAGES}


def documents(root: Path, data: Data) -> dict[Path, str]:
    """The text of every page that has numbers, and of their index."""
    written = {page.name: parts for page in PAGES if (parts := page.written(data))}
    front = index(list(written), data)
    texts = {root / FOLDER / "index.md": text_of("Performance", front)}
    for part in front:
        texts |= part.files(root / FOLDER) if isinstance(part, Chart) else {}
    if runs := RUNS.written(data):
        texts[root / RUNS_FILE] = text_of("Which runs the numbers come from", runs)
    for name, parts in written.items():
        texts |= BY_NAME[name].files(root, parts)
    return texts


def index(names: Sequence[str], data: Data) -> Written:
    pages = [BY_NAME[name] for name in names]
    rows = [[f"[{page.title}]({page.name}.md)", page.in_short(data)] for page in pages]
    # beside the question, the answer is words too
    in_words = Table(["question", "in short"], rows, ("in short",)).markdown()
    chart = areas_chart(data)
    summary: Written = [AREA_WORDS, chart, areas_table(data)] if chart else []
    links = "\n".join(f"- [{page.title}]({page.name}.md)" for page in pages)
    return [*summary, f"## Questions\n\n{links}", fold("Each answer in a sentence", in_words),
            *aims_section(data), MEASURED]  # fmt: skip
