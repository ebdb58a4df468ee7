"""Batches of products, one launch each, beside cuBLAS on the same data: many small ones, and those of
attention.
"""

from __future__ import annotations

from dataclasses import replace

from lapidist.commands.progress import progress
from lapidist.errors import ArgumentError
from lapidist.planning.warm import build_all, builds_of, plans_of
from lapidist_lab.bench.protocol.cases import EVERY_CASE, Case, Part
from lapidist_lab.bench.protocol.conditions import gather
from lapidist_lab.bench.protocol.contenders import Contender, KernelContender, problem_of
from lapidist_lab.bench.protocol.measure import Stage
from lapidist_lab.bench.protocol.peers import Vendor
from lapidist_lab.bench.protocol.record import Conditions, Record
from lapidist_lab.bench.protocol.timing import BURST, steps
from lapidist_lab.bench.studies.ladder_runs import Keep, sensor_range

MODE = "batches"
SMALL = ((10000, 16, 16, 16), (4096, 32, 32, 32), (256, 100, 100, 100))
LARGE = ((96, 1024, 1024, 64), (12, 4096, 4096, 128), (748, 464, 288, 128), (171, 1264, 464, 128))
TINY = (1000000, 4, 4, 4)
LISTS = {"float32": (TINY, *SMALL), "float64": (TINY, *SMALL), "bfloat16": (TINY, *LARGE), "float16": LARGE}


def cases_of(part: Part) -> list[Case]:
    """Every batch of every type, or some of them."""
    every = [Case(m, n, k, math, batch=batch) for math, shapes in LISTS.items() for batch, m, n, k in shapes]
    cases = every[part.skip :][: part.count]
    if not cases:
        raise ArgumentError(
            f"--skip: must leave something of {len(every)} batches; got {part.skip}. Skip less"
        )
    return cases


def pair_of(math: str, stage: Stage) -> tuple[Contender, Contender]:
    return Vendor(stage.framework, math), KernelContender(None, math)


def measure(ordinal: int, keep: Keep, part: Part = EVERY_CASE) -> tuple[Conditions, list[Record]]:
    records: list[Record] = []
    cases = cases_of(part)
    with Stage(ordinal, BURST) as stage:
        before, vendor = stage.gauge.look(), stage.framework.vendor(cases[0].math)
        vendor = vendor.replace("torch.mm", "torch.bmm")
        conditions = gather(stage.device, stage.device.name, MODE, str(BURST), vendor=vendor)
        build_all(builds_of(plans_of([problem_of(case, False) for case in cases], stage.device)))
        with progress(len(cases) * steps(pair_of(cases[0].math, stage), BURST), MODE) as step:
            for case in cases:
                records += [
                    replace(row, mode=MODE) for row in stage.measure(case, pair_of(case.math, stage), step)
                ]
                conditions = replace(conditions, seen=sensor_range(before, stage.gauge.look()))
                keep(conditions, records)
        return conditions, records
