"""What it costs that rows keep their bits: products of two models' layers, with the one order of sums and
with the free choice, beside cuBLAS. Of each type that models serve, 8-bit floats with factors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from lapidist.commands.progress import progress
from lapidist.device import Device
from lapidist.planning.plans import Plan, make_plan
from lapidist_lab.bench.protocol.cases import EVERY_CASE, Case, Part
from lapidist_lab.bench.protocol.conditions import gather
from lapidist_lab.bench.protocol.contenders import LIBRARY, Call, Contender, KernelContender, problem_of
from lapidist_lab.bench.protocol.measure import Entry, Inputs, Stage
from lapidist_lab.bench.protocol.peers import Vendor
from lapidist_lab.bench.protocol.record import Conditions, Record
from lapidist_lab.bench.protocol.timing import SUSTAINED, steps
from lapidist_lab.bench.studies.ladder_runs import Keep, Work, compile_first, sensor_range
from lapidist_lab.bench.studies.scaled_products import (
    SCHEMES,
    OursScaled,
    ScaledCase,
    ScaledStage,
    Scheme,
    VendorScaled,
)

MODE, MATH, NAME = "invariant", "bfloat16", "lapidist, invariant"
PROTOCOL = replace(SUSTAINED, rounds=1, turn_seconds=0.15)  # some fifty cases of three ways, of each type
ROWS = (1, 16, 64, 256, 1024, 4096)
# n and k: query, key and value, what follows attention, and both halves of what follows that
LAYERS = {
    "8B": ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)),
    "70B": ((10240, 8192), (8192, 8192), (57344, 8192), (8192, 28672)),
}


class ServedType(NamedTuple):
    """What is multiplied. `scheme`: its factors."""

    words: str
    math: str
    scheme: Scheme | None = None

    def cases(self) -> Iterator[Case]:
        for n, k in (layer for layers in LAYERS.values() for layer in layers):
            for m in ROWS:
                yield (
                    Case(m, n, k, self.math, "rc")
                    if self.scheme is None
                    else ScaledCase(m, n, k, self.math, "rc")
                )


SERVED_TYPES = {
    MODE: ServedType("bf16", MATH),
    "invariant fp16": ServedType("fp16", "float16"),
    "invariant lines": ServedType("e4m3 with factors of rows and columns", "float8_e4m3fn", SCHEMES[2]),
    "invariant blocks": ServedType("e4m3 with factors of 1 x 128 and 128 x 128", "float8_e4m3fn", SCHEMES[4]),
}


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


class FactorStage(ScaledStage):
    """Judges with factors where there are some."""

    def judge(self, entry: Entry, case: Case, inputs: Inputs, index: int) -> None:
        if isinstance(entry.contender, (OursScaled, VendorScaled)):
            super().judge(entry, case, inputs, index)
        else:
            Stage.judge(self, entry, case, inputs, index)


def ours(
    served: ServedType, factors: tuple[Any, Any] = (None, None)
) -> tuple[KernelContender, KernelContender]:
    """With one order of sums, and with the free choice."""
    if served.scheme is None:
        return Invariant(served.math), KernelContender(None, served.math)
    return (
        OursScaled(served.scheme, factors, NAME, invariant=True),
        OursScaled(served.scheme, factors, LIBRARY),
    )


def contenders_of(served: ServedType, case: Case, stage: Stage) -> tuple[Contender, ...]:
    if served.scheme is None:
        return Vendor(stage.framework, served.math), *ours(served)
    torch = stage.framework.torch  # type: ignore[attr-defined]
    factors = served.scheme.factors(torch, case)
    return VendorScaled(served.scheme, factors, torch), *ours(served, factors)


def works_of(framework: str) -> list[tuple[str, Case]]:
    """The modes and cases. cuBLAS with factors is torch's alone."""
    served_types = {
        mode: served for mode, served in SERVED_TYPES.items() if served.scheme is None or framework == "torch"
    }
    return [(mode, case) for mode, served in served_types.items() for case in served.cases()]


def measure(ordinal: int, keep: Keep, part: Part = EVERY_CASE) -> tuple[Conditions, list[Record]]:
    records: list[Record] = []
    with FactorStage(ordinal, PROTOCOL) as stage:
        works = works_of(stage.framework.name)[part.skip :][: part.count]
        before, vendor = stage.gauge.look(), stage.framework.vendor(MATH)
        conditions = gather(stage.device, stage.device.name, MODE, str(PROTOCOL), vendor=vendor)
        compile_first([Work(case, ours(SERVED_TYPES[mode])) for mode, case in works], stage.device)
        three = Vendor(stage.framework, MATH), *ours(SERVED_TYPES[MODE])
        with progress(len(works) * steps(three, PROTOCOL), MODE) as step:
            for mode, case in works:
                contenders = contenders_of(SERVED_TYPES[mode], case, stage)
                records += [replace(row, mode=mode) for row in stage.measure(case, contenders, step)]
                conditions = replace(conditions, seen=sensor_range(before, stage.gauge.look()))
                keep(conditions, records)
        return conditions, records
