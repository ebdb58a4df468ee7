"""Products of complex numbers, beside cuBLAS's cgemm and zgemm. complex64 runs emulated, in tf32 and by three
real products besides; tf32 is beside cuBLAS with TF32 allowed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import lapidist
from lapidist.commands.progress import progress
from lapidist.device import Device
from lapidist.dtypes import EMULATED, IEEE, TF32, THREE_PRODUCTS, Precision
from lapidist_lab.bench.protocol.cases import EVERY_CASE, Case, Part, corpus
from lapidist_lab.bench.protocol.conditions import gather
from lapidist_lab.bench.protocol.contenders import LIBRARY, Call, Contender, Facts
from lapidist_lab.bench.protocol.measure import Stage
from lapidist_lab.bench.protocol.peers import Vendor
from lapidist_lab.bench.protocol.record import Conditions, Record
from lapidist_lab.bench.protocol.timing import SUSTAINED, steps
from lapidist_lab.bench.studies.ladder_runs import Keep, sensor_range

MODE = "complex"
NAMES = {
    IEEE: LIBRARY,
    EMULATED: f"{LIBRARY}, emulated",
    THREE_PRODUCTS: f"{LIBRARY}, three products",
    TF32: f"{LIBRARY}, tf32",
}
MATHS = "complex64", "complex128"
SIDES, BATCH, RAGGED = (512, 1024, 2048, 4096, 8192), (4096, 32), 100
LEAST_EMULATED = 2048  # sides from which on emulation is faster
PROTOCOL = replace(SUSTAINED, rounds=1, turn_seconds=0.1)


def cases_of_each_type() -> list[Case]:
    """Squares and a batch of every type, then random products of the first."""
    count, side = BATCH
    every = [
        case
        for math in MATHS
        for case in (*(Case(n, n, n, math) for n in SIDES), Case(side, side, side, math, batch=count))
    ]
    return [*every, *corpus(RAGGED, EVERY_CASE.seed, MATHS[0])]


class ComplexCalls:
    """Calls: a product may take several launches."""

    kind, columns, capturable = "production", False, True

    def __init__(self, precision: Precision) -> None:
        self.precision, self.name = precision, NAMES[precision]

    def prepare(self, case: Case, a: Sequence[Any], b: Sequence[Any], c: Sequence[Any]) -> Call:
        return lambda i: lapidist.matmul(a[i], b[i], out=c[i], precision=self.precision, compile="wait")

    def facts(self, device: Device) -> Facts:
        return Facts()


@dataclass(frozen=True)
class RoundedCase(Case):
    """A case whose numbers are rounded as `asked` says, which its bound knows."""

    asked: Precision = IEEE

    @property
    def precision(self) -> Precision:
        return self.asked


class RoundedVendor(Vendor):
    """cuBLAS with TF32 allowed inside of complex64."""

    def prepare(self, case: Case, a: Sequence[Any], b: Sequence[Any], c: Sequence[Any]) -> Call:
        return self.framework.multiply(TF32, a, b, c)


def turns_of(stage: Stage, case: Case) -> Iterator[tuple[Case, tuple[Contender, ...]]]:
    """The contenders that take turns, first those whose results have the bound of plain sums."""
    vendor, plain = Vendor(stage.framework, case.math), ComplexCalls(IEEE)
    if case.math != MATHS[0] or case.batch > 1 or min(case.extents) < LEAST_EMULATED:
        yield case, (vendor, plain)
        return
    yield case, (vendor, plain, ComplexCalls(EMULATED))
    extents = case.m, case.n, case.k
    others: tuple[tuple[Precision, Vendor], ...] = (
        (THREE_PRODUCTS, vendor),
        (TF32, RoundedVendor(stage.framework, case.math)),
    )
    for asked, peer in others:
        yield RoundedCase(*extents, case.math, case.layout, asked=asked), (peer, ComplexCalls(asked))


def measure(ordinal: int, keep: Keep, part: Part = EVERY_CASE) -> tuple[Conditions, list[Record]]:
    records: list[Record] = []
    cases = cases_of_each_type()[part.skip :][: part.count]
    with Stage(ordinal, PROTOCOL) as stage:
        before, vendor = stage.gauge.look(), stage.framework.vendor(MATHS[0])
        conditions = gather(stage.device, stage.device.name, MODE, str(PROTOCOL), vendor=vendor)
        turns = [turn for case in cases for turn in turns_of(stage, case)]
        with progress(sum(steps(contenders, PROTOCOL) for _, contenders in turns), MODE) as step:
            for case, contenders in turns:
                rows = stage.measure(case, contenders, step)
                records += [replace(row, mode=MODE) for row in rows]
                conditions = replace(conditions, seen=sensor_range(before, stage.gauge.look()))
                keep(conditions, records)
        return conditions, records
