"""What it costs that rows keep their bits: products of two models' layers, with the one order of sums and
with the free choice, beside cuBLAS.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lapidist.commands.progress import progress
from lapidist.device import Device
from lapidist.planning.plans import Plan, make_plan
from lapidist_lab.bench.protocol.cases import EVERY_CASE, Case, Part
from lapidist_lab.bench.protocol.conditions import gather
from lapidist_lab.bench.protocol.contenders import Call, Contender, KernelContender, problem_of
from lapidist_lab.bench.protocol.measure import Stage
from lapidist_lab.bench.protocol.peers import Vendor
from lapidist_lab.bench.protocol.record import Conditions, Record
from lapidist_lab.bench.protocol.timing import SUSTAINED, steps
from lapidist_lab.bench.studies.ladder_runs import Keep, Work, compile_first, sensor_range

MODE, MATH, NAME = "invariant", "bfloat16", "lapidist, invariant"
PROTOCOL = replace(SUSTAINED, rounds=1, turn_seconds=0.15)  # some fifty cases of three ways
ROWS = (1, 16, 64, 256, 1024, 4096)
# n and k: query, key and value, what follows attention, and both halves of what follows that
LAYERS = {
    "8B": ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)),
    "70B": ((10240, 8192), (8192, 8192), (57344, 8192), (8192, 28672)),
}
CASES = [Case(m, n, k, MATH, "rc") for layers in LAYERS.values() for n, k in layers for m in ROWS]


class Invariant(KernelContender):
    """The plan whose order of sums is the same for every number of rows."""

    def __init__(self, math: str) -> None:
        super().__init__(None, math, name=NAME)

    def prepare(self, case: Case, a: Sequence[Any], b: Sequence[Any], c: Sequence[Any]) -> Call:
        from lapidist.calls import planned_call

        gemm = planned_call.plan(a[0], b[0], out=c[0], invariant=True)
        self.plan = gemm.plan
        return lambda i: gemm.execute(a[i], b[i], None, c[i])

    def planned(self, case: Case, device: Device) -> Plan:
        return make_plan(replace(problem_of(case, self.columns), invariant=True), device)


def contenders_of(stage: Stage) -> tuple[Contender, ...]:
    return Vendor(stage.framework, MATH), Invariant(MATH), KernelContender(None, MATH)


def measure(ordinal: int, keep: Keep, part: Part = EVERY_CASE) -> tuple[Conditions, list[Record]]:
    records: list[Record] = []
    cases = CASES[part.skip :][: part.count]
    with Stage(ordinal, PROTOCOL) as stage:
        before, vendor = stage.gauge.look(), stage.framework.vendor(MATH)
        conditions = gather(stage.device, stage.device.name, MODE, str(PROTOCOL), vendor=vendor)
        compile_first([Work(case, contenders_of(stage)) for case in cases], stage.device)
        with progress(len(cases) * steps(contenders_of(stage), PROTOCOL), MODE) as step:
            for case in cases:
                records += [
                    replace(row, mode=MODE) for row in stage.measure(case, contenders_of(stage), step)
                ]
                conditions = replace(conditions, seen=sensor_range(before, stage.gauge.look()))
                keep(conditions, records)
        return conditions, records
