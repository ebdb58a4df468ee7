"""What tables and plots show, picked from Records: the ladder on one case, speed against size, the
roofline.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from lapidist.dtypes import MATHS, PART_OF, element_of
from lapidist.kernels.registry import RUNGS
from lapidist_lab.bench.protocol.cases import SQUARES, SWEEP_K
from lapidist_lab.bench.protocol.contenders import LIBRARY
from lapidist_lab.bench.protocol.record import Conditions, Key, Record, Run

RUNG_NUMBER = {kernel.name: place for place, kernel in enumerate(RUNGS, 1)}
KIND_ORDER = {"rung": 0, "production": 1, "peer": 2, "detour": 3, "host": 4, "limit": 5}
NO_PRODUCTS = ("host", "limit")  # kinds of rows that are not a kernel's on a case
TIMED_MODES = ("sustained", "burst")
UNIT_WORDS = {"fma": "CUDA cores", "mma": "mma.sync", "wgmma": "wgmma"}

Shape = tuple[int, int, int]
# how A and B of a product do
LIES = {"rr": "A and B by rows", "rc": "B by columns", "cr": "A by columns", "cc": "A and B by columns"}


def label(kernel: str) -> str:
    """The name of a rung with its number, other names as they are."""
    return f"{RUNG_NUMBER[kernel]:02d} {kernel}" if kernel in RUNG_NUMBER else kernel


def shape_of(record: Record) -> Shape:
    return record.m, record.n, record.k


def in_order(records: Iterable[Record]) -> list[Record]:
    """Rungs from the lowest to the highest, then other kernels by kind and name."""
    return sorted(records, key=lambda r: (KIND_ORDER.get(r.kind, 9), RUNG_NUMBER.get(r.kernel, 99), r.kernel))


RunRecords = Sequence[tuple[Record, Run]]


def newest_by_chip(runs: Sequence[Run]) -> RunRecords:
    """The newest record of each measurement on each chip; runs come oldest first."""
    return newest_of(tuple(runs))


@lru_cache(maxsize=4)
def newest_of(runs: tuple[Run, ...]) -> RunRecords:
    """Most pages ask for those of all runs."""
    newest = {(record.key, record.device): (record, run) for run in runs for record in run.records}
    return tuple(newest.values())


def chips_of(run_records: RunRecords) -> list[str]:
    """The chips, that with most rows first."""
    counts = Counter(record.device for record, _ in run_records)
    return sorted(counts, key=lambda chip: (-counts[chip], chip))


def latest(runs: Sequence[Run]) -> RunRecords:
    """The newest record of each measurement, of limits for each chip. Where several chips have it, that with
    most rows counts: a table then has numbers of one chip wherever it can."""
    return latest_of(tuple(runs))


@lru_cache(maxsize=4)
def latest_of(runs: tuple[Run, ...]) -> RunRecords:
    rows = newest_of(runs)
    place = {chip: number for number, chip in enumerate(chips_of(rows))}
    chosen: dict[tuple[Key, str], tuple[Record, Run]] = {}
    for record, run in rows:
        key = record.key, record.device if record.kind == "limit" else ""
        if key not in chosen or place[record.device] < place[chosen[key][0].device]:
            chosen[key] = record, run
    return tuple(chosen.values())


def short_chip(device: str) -> str:
    """H100 for NVIDIA H100 80GB HBM3; the conditions of runs name the memory."""
    return device.removeprefix("NVIDIA ").split(" ")[0] or device


def ladder_cases(records: Iterable[Record], least: int = 5) -> list[Shape]:
    """Shapes on which at least so many rungs were measured: most rungs first, then most flops."""
    rungs = Counter(shape_of(record) for record in records if record.kind == "rung")
    shapes = [shape for shape, count in rungs.items() if count >= least]
    return sorted(shapes, key=lambda shape: (-rungs[shape], -shape[0] * shape[1] * shape[2], shape))


def main_case(records: Sequence[Record]) -> Shape | None:
    """The shape that the ladder is shown on: 4096^3 when it is there, else the first with the most rungs."""
    shapes = ladder_cases(records, least=1) or [
        shape_of(record) for record in records if record.kind not in NO_PRODUCTS
    ]
    if not shapes:
        return None
    return (4096, 4096, 4096) if (4096, 4096, 4096) in shapes else shapes[0]


def on(records: Iterable[Record], shape: Shape) -> list[Record]:
    return [record for record in records if shape_of(record) == shape and record.kind not in NO_PRODUCTS]


def maths_in(records: Iterable[Record]) -> list[str]:
    """The types that products were measured in, in the order of the table of types; float32 first. Complex
    numbers have a page of their own.
    """
    measured = (record.dtype for record in records if record.kind not in NO_PRODUCTS)
    maths = {math for math in measured if math not in PART_OF}
    return sorted(maths, key=lambda math: (math != "float32", MATHS.index(math)))


def in_math(records: Iterable[Record], math: str) -> list[Record]:
    return [record for record in records if record.dtype == math]


def in_another_layout(record: Record) -> bool:
    """Whether it is a square by our choice or cuBLAS in another layout than its type's usual one."""
    usual = "rcr" if element_of(record.dtype).nbytes == 1 else "rrr"
    square = record.m == record.n == record.k and record.m in SQUARES
    return square and record.kernel in (LIBRARY, "cublas") and record.layout != usual


# ---- speed against size ----


@dataclass(frozen=True, slots=True)
class Series:
    """One kernel's timed records at m = n, by size."""

    kernel: str
    records: tuple[Record, ...]

    @property
    def points(self) -> list[tuple[int, float]]:
        return [(record.m, record.tflops or 0.0) for record in self.records]


def sweep(records: Iterable[Record], least: int = 3) -> list[Series]:
    """Every kernel that was timed at k = 1024 on at least so many sizes m = n; the vendor first."""
    return series_of((record for record in records if record.m == record.n and record.k == SWEEP_K), least)


def squares(records: Iterable[Record], least: int = 2) -> list[Series]:
    """Series at m = n = k, for the sizes of the list of squares."""
    return series_of(
        (record for record in records if record.m == record.n == record.k and record.m in SQUARES), least
    )


def series_of(records: Iterable[Record], least: int) -> list[Series]:
    """A series of each kernel, in the layout that has most sizes: a list of layers has a square in
    another."""
    by_layout: dict[str, dict[str, dict[int, Record]]] = {}
    for record in records:
        if record.tflops is not None and record.mode in TIMED_MODES and record.kind not in NO_PRODUCTS:
            by_layout.setdefault(record.kernel, {}).setdefault(record.layout, {})[record.m] = record
    by_kernel = {kernel: max(layouts.values(), key=len) for kernel, layouts in by_layout.items()}
    names = sorted(by_kernel, key=lambda name: (name != "cublas", RUNG_NUMBER.get(name, 99), name))
    return [
        Series(name, tuple(by_kernel[name][size] for size in sorted(by_kernel[name])))
        for name in names
        if len(by_kernel[name]) >= least
    ]


# ---- roofline ----


def roofs(conditions: Conditions, math: str) -> dict[str, float]:
    """TFLOP/s that each unit of the chip reaches, by the unit's words."""
    limits = conditions.chip.get("unit_tflops", {})
    by_unit = {words: float(limits.get(unit, {}).get(math, 0.0)) for unit, words in UNIT_WORDS.items()}
    if not any(by_unit.values()):
        by_unit = {UNIT_WORDS["fma"]: limit_of(conditions, math)}
    return {words: limit for words, limit in by_unit.items() if limit}


def limit_of(conditions: Conditions, math: str) -> float:
    """The limit of the best unit; 0 if it is not known."""
    return float(conditions.chip.get("limit_tflops", {}).get(math, 0.0))


@dataclass(frozen=True, slots=True)
class Point:
    """flops for each byte that the kernel's blocks ask of global memory, and the speed it reached."""

    kernel: str
    intensity: float
    tflops: float


def roofline(records: Iterable[Record]) -> list[Point]:
    return [
        Point(record.kernel, 1.0 / record.bytes_per_flop, record.tflops)
        for record in in_order(records)
        if record.bytes_per_flop and record.tflops and record.mode in TIMED_MODES
    ]
