"""Products of a matrix with its transpose by half of their tiles, beside cuBLAS's and our whole products."""

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

MODE, NAME = "symmetric", "lapidist, symmetric"
MATHS = "bfloat16", "tf32", "float32"
SIDES, PARTS_OF_K = (512, 1024, 2048, 4096, 8192), (1, 4)
PROTOCOL = replace(SUSTAINED, rounds=1, turn_seconds=0.2)  # thirty cases of three ways
CASES = [Case(n, n, n // part, math, "rc") for math in MATHS for part in PARTS_OF_K for n in SIDES]


class WholeProduct(Vendor):
    """The library's product. It comes first, and makes each B the transpose of its A."""

    def prepare(self, case: Case, a: Sequence[Any], b: Sequence[Any], c: Sequence[Any]) -> Call:
        b[:] = [matrix.T for matrix in a]  # type: ignore[index]
        return super().prepare(case, a, b, c)


class Gram:
    """Calls: what mirrors a half is a launch of its own, which no plan holds."""

    name, kind, columns, capturable = NAME, "production", False, True

    def prepare(self, case: Case, a: Sequence[Any], b: Sequence[Any], c: Sequence[Any]) -> Call:
        precision: Any = "tf32" if case.math == "tf32" else "ieee"
        return lambda i: lapidist.gram(a[i], out=c[i], precision=precision, compile="wait")

    def facts(self, device: Device) -> Facts:
        return Facts(config="one triangle, and its mirror")


def contenders_of(stage: Stage, math: str) -> tuple[Contender, ...]:
    return WholeProduct(stage.framework, math), Gram(), KernelContender(None, math)


def measure(ordinal: int, keep: Keep, part: Part = EVERY_CASE) -> tuple[Conditions, list[Record]]:
    records: list[Record] = []
    cases = CASES[part.skip :][: part.count]
    with Stage(ordinal, PROTOCOL) as stage:
        before, vendor = stage.gauge.look(), stage.framework.vendor(MATHS[0])
        conditions = gather(stage.device, stage.device.name, MODE, str(PROTOCOL), vendor=vendor)
        count = sum(steps(contenders_of(stage, case.math), PROTOCOL) for case in cases)
        with progress(count, MODE) as step:
            for case in cases:
                rows = stage.measure(case, contenders_of(stage, case.math), step)
                records += [replace(row, mode=MODE) for row in rows]
                conditions = replace(conditions, seen=sensor_range(before, stage.gauge.look()))
                keep(conditions, records)
        return conditions, records
