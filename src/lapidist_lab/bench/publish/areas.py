"""Every area of the measurements in one row: the mean beside its peer, the worst case and the best."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from lapidist.dtypes import FP8, short_name
from lapidist_lab.bench.protocol.array_library import E5M2
from lapidist_lab.bench.protocol.contenders import LIBRARY
from lapidist_lab.bench.protocol.record import Record
from lapidist_lab.bench.publish import (
    call_costs,
    complex_tables,
    emulated_tables,
    few_bits_tables,
    group_tables,
    invariant_tables,
    parallel_tables,
    study_tables,
    symmetric_tables,
)
from lapidist_lab.bench.publish.cells import geomean
from lapidist_lab.bench.publish.charts import Chart
from lapidist_lab.bench.publish.corpora import corpora, grouped
from lapidist_lab.bench.publish.mean_and_worst import mean_and_worst
from lapidist_lab.bench.publish.record_views import TIMED_MODES, in_math, maths_in, squares
from lapidist_lab.bench.publish.section import Data
from lapidist_lab.bench.publish.sharing_tables import gains
from lapidist_lab.bench.publish.tables import Table
from lapidist_lab.bench.studies.epilogue_costs import MODE as EPILOGUE
from lapidist_lab.bench.studies.invariant_products import SERVED_TYPES

CUBLAS, TORCH = "cuBLAS", "torch"


class Area(NamedTuple):
    """What was measured, beside whom, and the ratio of every case: over 1 is faster than the peer."""

    name: str
    page: str
    peer: str
    ratios: Sequence[float]

    @property
    def mean(self) -> float:
        return geomean(self.ratios)

    @property
    def worst(self) -> float:
        return min(self.ratios)


def areas(data: Data) -> list[Area]:
    """The areas that have measurements, in the order of the pages."""
    layers = call_costs.layers(data.records)
    rows = [
        *(squares_area(data.records, math) for math in maths_in(data.records) if math != E5M2),
        Area("8-bit floats with factors", "fp8", CUBLAS, of_records(scaled(data))),
        *random_areas(data),
        Area(
            "decode, up to 64 rows", "decode", CUBLAS, of_records(call_costs.sustained_layers(layers, True))
        ),
        Area("other layers", "decode", CUBLAS, of_records(call_costs.sustained_layers(layers, False))),
        Area("batches", "small", "torch.bmm", of_records(all_of(call_costs.batched(data.runs).values()))),
        Area("groups, as of experts", "grouped", "the fastest peer", of_records(group_tables.in_order(data))),
        Area("emulated float32", "emulated", "cuBLAS' float32", of_records(emulated_tables.ours(data))),
        Area("complex numbers", "complex", CUBLAS, of_records(complex_tables.ours(data))),
        Area("weights of few bits", "few-bits", "the fastest peer", of_records(few_bits_tables.ours(data))),
        Area("symmetric products", "symmetric", CUBLAS, of_records(symmetric_tables.ours(data))),
        Area("several cards", "several-cards", "another way", of_records(parallel_tables.ours(data))),
        Area("rows that keep their bits", "invariant", "our free choice", invariant_shares(data)),
        Area("epilogues", "epilogues", TORCH, of_records(data.ours(EPILOGUE))),
        Area("whole models", "models", "the stock model", of_records(models(data))),
        Area("mma.sync", "mma", "CUTLASS", of_records(study_tables.cutlass_rows(data))),
    ]
    return [area for area in rows if area.ratios]


def squares_area(records: Sequence[Record], math: str) -> Area:
    in_modes = ([row for row in in_math(records, math) if row.mode == mode] for mode in TIMED_MODES)
    lines = (line for rows in in_modes for line in squares(rows) if line.kernel == LIBRARY)
    page = "fp8" if math in FP8 else short_name(math)
    return Area(
        f"squares, {short_name(math)}", page, CUBLAS, of_records(all_of(row.records for row in lines))
    )


def random_areas(data: Data) -> list[Area]:
    """All ragged corpora of a type together, and all aligned ones: no seed is picked."""
    ragged: dict[str, list[float]] = {}
    aligned: dict[str, list[float]] = {}
    for corpus, modes in corpora(data.runs).items():
        ratios = ragged if corpus.multiple == 1 else aligned
        ratios.setdefault(corpus.kind, []).extend(corpus_gains(modes.values()))
    names = (("ragged products", ragged), ("multiples of 16", aligned))
    return [
        Area(f"{name}, {short_name(math)}", "ragged", CUBLAS, ratios)
        for name, by_math in names
        for math, ratios in by_math.items()
    ]


def corpus_gains(modes: Iterable[Any]) -> list[float]:
    return [ratio for rows in modes for ratio in gains(grouped(rows), LIBRARY, "cublas")]


def scaled(data: Data) -> list[Record]:
    prefix = f"{LIBRARY}, "
    return [
        row for mode in study_tables.SCALED_WORDS for row in data.of(mode) if row.kernel.startswith(prefix)
    ]


def models(data: Data) -> list[Record]:
    return [record for record in data.ours(study_tables.MODEL) if record.ok]


def invariant_shares(data: Data) -> list[float]:
    """Of all types that are served."""
    records = (record for mode in SERVED_TYPES for record in invariant_tables.ours(data, mode))
    return [share for record in records if (share := invariant_tables.share(record, data))]


def of_records(records: Iterable[Record]) -> list[float]:
    return [record.ratio for record in records if record.ratio]


def all_of(groups: Iterable[Sequence[Record]]) -> list[Record]:
    return [record for group in groups for record in group]


# ---- shown ----


def areas_table(data: Data, folder: str = "") -> str:
    """The areas in Markdown; `folder` leads to the pages."""
    rows = [
        [
            f"[{area.name}]({folder}{area.page}.md)",
            area.peer,
            f"{area.mean:.2f}x",
            f"{area.worst:.2f}x",
            f"{max(area.ratios):.2f}x",
            str(len(area.ratios)),
        ]
        for area in areas(data)
    ]
    heads = ["area", "beside", "in the mean", "worst", "best", "cases"]
    return Table(heads, rows, ("beside",)).markdown() if rows else "Not measured yet.\n"


def areas_chart(data: Data) -> Chart | None:
    """A bar for each area's mean, and a point for its worst case: red where that is a loss."""
    words = "For each area the mean speed beside its peer, and the worst case; losses are red"
    lines = {area.name: area.ratios for area in areas(data)}
    return mean_and_worst("areas", lines, words, "the peer") if lines else None
