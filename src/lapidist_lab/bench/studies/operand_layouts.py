"""What it costs that A or B lies the other way: every type of wgmma in all four layouts, beside cuBLAS in the
same.

wgmma reads 16-bit types either way, others with neighbours along k only (A by rows, B by columns): there an
operand is M-major or N-major."""

from __future__ import annotations

from dataclasses import replace

from lapidist.commands.progress import progress
from lapidist.dtypes import FP8
from lapidist.planning.warm import build_all, builds_of, plans_of
from lapidist_lab.bench.protocol.cases import Case
from lapidist_lab.bench.protocol.conditions import gather
from lapidist_lab.bench.protocol.contenders import Contender, KernelContender, problem_of
from lapidist_lab.bench.protocol.measure import Stage
from lapidist_lab.bench.protocol.peers import Vendor
from lapidist_lab.bench.protocol.record import Conditions, Record
from lapidist_lab.bench.protocol.timing import SUSTAINED, steps
from lapidist_lab.bench.studies.ladder_runs import Keep, sensor_range

MODE = "layouts"
MATHS = ("bfloat16", "float16", "tf32", "int8", FP8[0])
SIZES = (1024, 4096)
# the first: k touches
LAYOUTS = {"rc": "rows, columns", "rr": "rows, rows", "cc": "columns, columns", "cr": "columns, rows"}
VENDOR = "cublas"
PROTOCOL = replace(SUSTAINED, rounds=1, turn_seconds=0.3)  # 40 pairs


def cases() -> list[Case]:
    return [Case(size, size, size, math, layout) for math in MATHS for size in SIZES for layout in LAYOUTS]


def pair_of(math: str, stage: Stage) -> tuple[Contender, Contender]:
    """The contenders, with B as the case has it: also in types that torch multiplies by columns only, or
    slowly."""
    vendor, ours = Vendor(stage.framework, math), KernelContender(None, math)
    vendor.columns = ours.columns = False
    return vendor, ours


def measure(ordinal: int, keep: Keep) -> tuple[Conditions, list[Record]]:
    records: list[Record] = []
    with Stage(ordinal, PROTOCOL) as stage:
        before, vendor = stage.gauge.look(), stage.framework.vendor(MATHS[0])
        conditions = gather(stage.device, stage.device.name, MODE, str(PROTOCOL), vendor=vendor)
        build_all(builds_of(plans_of([problem_of(case, False) for case in cases()], stage.device)))
        with progress(len(cases()) * steps(pair_of(MATHS[0], stage), PROTOCOL), MODE) as step:
            for case in cases():
                records += [
                    replace(row, mode=MODE) for row in stage.measure(case, pair_of(case.math, stage), step)
                ]
                conditions = replace(conditions, seen=sensor_range(before, stage.gauge.look()))
                keep(conditions, records)
        return conditions, records
