"""Products of complex numbers, and of complex64 emulated, beside cuBLAS's cgemm and zgemm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import lapidist
from lapidist.commands.progress import progress
from lapidist.device import Device
from lapidist.dtypes import EMULATED, IEEE, Precision
from lapidist_lab.bench.protocol.cases import EVERY_CASE, Case, Part, corpus
from lapidist_lab.bench.protocol.conditions import gather
from lapidist_lab.bench.protocol.contenders import LIBRARY, Call, Contender, Facts
from lapidist_lab.bench.protocol.measure import Stage
from lapidist_lab.bench.protocol.peers import Vendor
from lapidist_lab.bench.protocol.record import Conditions, Record
from lapidist_lab.bench.protocol.timing import SUSTAINED, steps
from lapidist_lab.bench.studies.ladder_runs import Keep, sensor_range

MODE, NAMES = "complex", {IEEE: LIBRARY, EMULATED: "lapidist, emulated"}
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


def contenders_of(stage: Stage, case: Case) -> tuple[Contender, ...]:
    emulated = case.math == MATHS[0] and min(case.extents) >= LEAST_EMULATED
    ours: tuple[Precision, ...] = (IEEE, EMULATED) if emulated else (IEEE,)
    return Vendor(stage.framework, case.math), *(ComplexCalls(precision) for precision in ours)


def measure(ordinal: int, keep: Keep, part: Part = EVERY_CASE) -> tuple[Conditions, list[Record]]:
    records: list[Record] = []
    cases = cases_of_each_type()[part.skip :][: part.count]
    with Stage(ordinal, PROTOCOL) as stage:
        before, vendor = stage.gauge.look(), stage.framework.vendor(MATHS[0])
        conditions = gather(stage.device, stage.device.name, MODE, str(PROTOCOL), vendor=vendor)
        count = sum(steps(contenders_of(stage, case), PROTOCOL) for case in cases)
        with progress(count, MODE) as step:
            for case in cases:
                rows = stage.measure(case, contenders_of(stage, case), step)
                records += [replace(row, mode=MODE) for row in rows]
                conditions = replace(conditions, seen=sensor_range(before, stage.gauge.look()))
                keep(conditions, records)
        return conditions, records
