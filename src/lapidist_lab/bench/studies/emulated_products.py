"""float32 products by slices on int8 tensor cores, beside cuBLAS and our own in float32. Numbers are standard
normal, which slices hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import lapidist
from lapidist.commands.progress import progress
from lapidist.device import Device
from lapidist_lab.bench.protocol.cases import EVERY_CASE, Case, Part
from lapidist_lab.bench.protocol.conditions import gather
from lapidist_lab.bench.protocol.contenders import Call, Contender, Facts, KernelContender
from lapidist_lab.bench.protocol.measure import Stage
from lapidist_lab.bench.protocol.peers import Vendor
from lapidist_lab.bench.protocol.record import Conditions, Record
from lapidist_lab.bench.protocol.timing import SUSTAINED, steps
from lapidist_lab.bench.studies.ladder_runs import Keep, sensor_range

MODE, MATH, NAME = "emulated", "float32", "lapidist, emulated"
PROTOCOL = replace(SUSTAINED, rounds=1)  # each product stands for itself
SHAPES = (
    (1024, 1024, 1024),
    (2048, 2048, 2048),
    (4096, 4096, 4096),
    (8192, 8192, 8192),
    (8192, 8192, 1024),
    (1024, 1024, 8192),
    (3001, 2999, 3003),
)


class Emulated:
    """Calls: what is emulated is several launches, which no plan holds."""

    name, kind, columns, capturable = NAME, "production", False, True

    def prepare(self, case: Case, a: Sequence[Any], b: Sequence[Any], c: Sequence[Any]) -> Call:
        return lambda i: lapidist.matmul(a[i], b[i], out=c[i], precision="emulated", compile="wait")

    def facts(self, device: Device) -> Facts:
        return Facts(config="three slices of 8 bits", unit="wgmma")


def contenders_of(stage: Stage) -> tuple[Contender, ...]:
    return Vendor(stage.framework, MATH), Emulated(), KernelContender(None, MATH)


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
        return conditions, records
