"""Emulated float32 products, beside cuBLAS and our own in float32. Numbers are standard normal, which slices
hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import lapidist
from lapidist.commands.progress import progress
from lapidist.device import Device
from lapidist.dtypes import ANY_RANGE, EMULATED, Precision
from lapidist_lab.bench.protocol.cases import EVERY_CASE, RAGGED, Case, Part
from lapidist_lab.bench.protocol.conditions import gather
from lapidist_lab.bench.protocol.contenders import Call, Contender, Facts, KernelContender
from lapidist_lab.bench.protocol.measure import Stage
from lapidist_lab.bench.protocol.peers import Vendor
from lapidist_lab.bench.protocol.record import Conditions, Record
from lapidist_lab.bench.protocol.timing import SUSTAINED, steps
from lapidist_lab.bench.studies.emulated_errors import NAMES, errors
from lapidist_lab.bench.studies.ladder_runs import Keep, sensor_range

MODE, MATH = "emulated", "float32"
PARTS = {EMULATED: "three slices of 8 bits", ANY_RANGE: "two fp16"}
PROTOCOL = replace(SUSTAINED, rounds=1)  # each product stands for itself
SHAPES = (
    (1024, 1024, 1024),
    (2048, 2048, 2048),
    (4096, 4096, 4096),
    (8192, 8192, 8192),
    (8192, 8192, 1024),
    (1024, 1024, 8192),
    *RAGGED,
)


class Emulated:
    """Calls: what is emulated is several launches, which no plan holds."""

    kind, columns, capturable = "production", False, True

    def __init__(self, precision: Precision) -> None:
        self.precision, self.name = precision, NAMES[precision]

    def prepare(self, case: Case, a: Sequence[Any], b: Sequence[Any], c: Sequence[Any]) -> Call:
        return lambda i: lapidist.matmul(a[i], b[i], out=c[i], precision=self.precision, compile="wait")

    def facts(self, device: Device) -> Facts:
        return Facts(config=PARTS[self.precision], unit="wgmma")


def contenders_of(stage: Stage) -> tuple[Contender, ...]:
    emulated = (Emulated(precision) for precision in (EMULATED, ANY_RANGE))
    return Vendor(stage.framework, MATH), *emulated, KernelContender(None, MATH)


def measure(ordinal: int, keep: Keep, part: Part = EVERY_CASE) -> tuple[Conditions, list[Record]]:
    records: list[Record] = []
    cases = [Case(*shape, MATH) for shape in SHAPES][part.skip :][: part.count]
    with Stage(ordinal, PROTOCOL) as stage:
        before, vendor = stage.gauge.look(), stage.framework.vendor(MATH)
        conditions = gather(stage.device, stage.device.name, MODE, str(PROTOCOL), vendor=vendor)
        with progress(len(cases) * steps(contenders_of(stage), PROTOCOL), MODE) as step:
            for case in cases:
                records += [
                    replace(row, mode=MODE) for row in stage.measure(case, contenders_of(stage), step)
                ]
                conditions = replace(conditions, seen=sensor_range(before, stage.gauge.look()))
                keep(conditions, records)
        if part.skip == 0:  # of a study in several runs, the first one
            records += errors(stage)
            keep(conditions, records)
        return conditions, records
