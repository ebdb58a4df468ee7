"""The family on mma.sync beside CUTLASS's kernel for it: what chips without wgmma have, on the same data.

`ratio` of a row of kernel mma is CUTLASS's time over ours, and its `peer` says so; other rows have the
vendor's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lapidist.commands.progress import progress
from lapidist.errors import DeviceError
from lapidist.kernels.mma.family import MMA_FAMILY
from lapidist.planning.plans import make_plan
from lapidist.planning.warm import build_all, builds_of
from lapidist_lab.bench.protocol.cases import EVERY_CASE, Case, Part
from lapidist_lab.bench.protocol.conditions import gather
from lapidist_lab.bench.protocol.contenders import Contender, KernelContender, problem_of
from lapidist_lab.bench.protocol.cutlass_47 import NAME, Cutlass47
from lapidist_lab.bench.protocol.measure import Stage
from lapidist_lab.bench.protocol.peers import Vendor, find_cutlass
from lapidist_lab.bench.protocol.record import Conditions, Record
from lapidist_lab.bench.protocol.timing import BURST, SUSTAINED, steps
from lapidist_lab.bench.studies.ladder_runs import Keep, sensor_range

MODES = ("mma burst", "mma sustained")
PROTOCOLS = (replace(BURST, mode=MODES[0], rounds=5), replace(SUSTAINED, mode=MODES[1]))
SHAPES = ((2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 4096), (3456, 4096, 8192), (1024, 1152, 4096))
LAYOUT_CASES = (("float16", "rc"), ("float16", "cr"), ("float16", "cc"), ("bfloat16", "rr"))
LAYOUT_SHAPE = (4096, 4096, 4096)


def cases(part: Part = EVERY_CASE) -> list[Case]:
    """All shapes by rows in half; other layouts, and bfloat16, at one shape."""
    every = [Case(*shape, "float16") for shape in SHAPES]
    every += [Case(*LAYOUT_SHAPE, math, layout) for math, layout in LAYOUT_CASES]
    return every[part.skip :][: part.count]


def with_cutlass_ratio(records: Sequence[Record]) -> list[Record]:
    """The rows, with our kernel's ratio to CUTLASS; without one where that did not run."""
    peer = next((row for row in records if row.kernel == NAME), None)
    theirs = peer.seconds if peer is not None and peer.ok else None
    return [
        replace(
            row,
            peer=NAME,
            ratio=theirs / row.seconds if theirs and row.seconds else None,
            note=f"its ratio is to {NAME}",
        )
        if row.kernel == MMA_FAMILY.name
        else row
        for row in records
    ]


def rivals_of(math: str, stage: Stage, peer: Contender) -> list[Contender]:
    return [Vendor(stage.framework, math), peer, KernelContender(MMA_FAMILY, math)]


def measure(ordinal: int, keep: Keep, part: Part = EVERY_CASE) -> tuple[Conditions, list[Record]]:
    include, words = find_cutlass()
    if include is None:
        raise DeviceError(
            f"bench mma: {words.removeprefix('not measured: ')}. It is the peer: there is no other"
        )
    records: list[Record] = []
    with Stage(ordinal, PROTOCOLS[0]) as stage:
        before, vendor = stage.gauge.look(), stage.framework.vendor(cases()[0].math)
        how = "; ".join(f"{protocol.mode}: {protocol}" for protocol in PROTOCOLS)
        details = {
            "vendor": vendor,
            "cutlass": f"{words}, its example 47's kernel, the faster of two schedules",
        }
        conditions = gather(stage.device, stage.device.name, MODES[0], how, **details)
        peer, chosen = Cutlass47(include, stage.device), cases(part)
        build_all(
            builds_of([make_plan(problem_of(case, False), stage.device, MMA_FAMILY) for case in chosen])
        )
        rivals = {case.math: rivals_of(case.math, stage, peer) for case in chosen}
        total = sum(steps(rivals[case.math], protocol) for case in chosen for protocol in PROTOCOLS)
        with progress(total, "mma") as step:
            for case in chosen:
                for protocol in PROTOCOLS:
                    stage.protocol = protocol
                    records += with_cutlass_ratio(stage.measure(case, rivals[case.math], step))
                    conditions = replace(conditions, seen=sensor_range(before, stage.gauge.look()))
                    keep(conditions, records)
        return conditions, records
