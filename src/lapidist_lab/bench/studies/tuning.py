"""`lapidist tune`: time the planner's candidates for a product and remember the fastest, if it is right."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import cast

from lapidist.commands.progress import progress
from lapidist.device import Device
from lapidist.errors import LapidistError
from lapidist.planning.cost_table import Candidate
from lapidist.planning.modelled_choice import modelled_choice
from lapidist.planning.planner import candidates
from lapidist.planning.tuned import Winner, keep, problem_key
from lapidist.planning.warm import build_all, builds_of
from lapidist.schedule import Schedule
from lapidist.schedule.sharing_choice import PLANNED, Reduction, Sharing
from lapidist_lab.bench.protocol.cases import Case
from lapidist_lab.bench.protocol.conditions import gather
from lapidist_lab.bench.protocol.contenders import KernelContender, problem_of
from lapidist_lab.bench.protocol.measure import Stage
from lapidist_lab.bench.protocol.peers import find_peers
from lapidist_lab.bench.protocol.record import Conditions, Record
from lapidist_lab.bench.protocol.timing import TUNE, steps

REACH = 4.0  # not measured: what takes more than this many times the planner's choice, by the model
PER_KERNEL = 2  # so many candidates of each production kernel are measured whatever the model says
MARGIN = 0.98  # a winner must take less than this share of the planner's choice: smaller gains may be noise


@dataclass(frozen=True, slots=True)
class TuningResult:
    """The result of tuning one product."""

    case: Case
    planned: Record
    best: Record | None  # None: the planner's own choice stands

    def __str__(self) -> str:
        words = f"{self.case.shape} {self.case.math} {self.case.layout}"
        if self.planned.error:
            return f"{words}: not tuned: {self.planned.error.splitlines()[0]}"
        planner_words = (
            f"{(self.planned.seconds or 0) * 1e6:.4g} us by {self.planned.kernel}, the planner's own choice"
        )
        best = f"{(self.best.seconds or 0) * 1e6:.4g} us by {self.best.kernel}; " if self.best else ""
        return f"{words}: {best}{planner_words}{'' if self.best else ', is the fastest'}"


def regret_words(results: Sequence[TuningResult]) -> str:
    """How much longer the planner's own choices took than the fastest."""
    lost = [
        regret(result.planned, result.best or result.planned) for result in results if result.planned.seconds
    ]
    if not lost:
        return "nothing was timed"
    mean = math.exp(math.fsum(math.log1p(result) for result in lost) / len(lost)) - 1.0
    return (
        f"the planner's own choices took {mean:.1%} longer than the fastest in the geometric mean,"
        f" {max(lost):.1%} at worst"
    )


def regret(planned: Record, best: Record) -> float:
    return (planned.seconds or 0.0) / (best.seconds or 1.0) - 1.0


def worth_measuring(case: Case, device: Device, most: int, reach: float = REACH) -> list[KernelContender]:
    """What to time: the planner's choice, the best of each production kernel, then others within `reach`."""
    problem = problem_of(case, KernelContender(None, case.math).columns)
    planned, weighed = modelled_choice(problem, device), candidates(problem, device)
    rivals = sorted(
        (candidate for candidate in weighed if candidate.refusal is None and candidate != planned),
        key=lambda candidate: candidate.seconds,
    )
    counts = Counter({planned.kernel.name: 1})
    firsts, more = [planned], []
    for candidate in rivals:
        counts[candidate.kernel.name] += 1
        if candidate.kernel.kind == "production" and counts[candidate.kernel.name] <= PER_KERNEL:
            firsts.append(candidate)
        elif candidate.kernel.kind != "detour" and candidate.seconds <= reach * planned.seconds:
            more.append(candidate)
    return [way for candidate in (*firsts, *more) for way in ways_of(candidate, case)][:most]


def ways_of(candidate: Candidate, case: Case) -> list[KernelContender]:
    """The candidate with its schedule and, if that shares tiles, without sharing."""
    sharings = [sharing_of(candidate.schedule)]
    if sharings[0] not in (PLANNED, UNSHARED):
        sharings.append(UNSHARED)
    kernel, config = candidate.kernel, candidate.config
    return [
        KernelContender(
            kernel,
            case.math,
            config,
            sharing,
            f"{kernel.name} {config}{words_of(sharing)}",
            disassembled=False,
        )
        for sharing in sharings
    ]


UNSHARED = Sharing("data_parallel")


def sharing_of(schedule: Schedule | None) -> Sharing:
    """The request that gives this schedule, even if the model changes."""
    if schedule is None:
        return PLANNED
    if schedule.kind == "split-K":
        return Sharing(
            split_k=schedule.sk_blocks // schedule.sk_tiles, reduction=cast("Reduction", schedule.reduction)
        )
    return Sharing("stream_k") if schedule.sk_blocks else UNSHARED


def words_of(sharing: Sharing) -> str:
    if sharing == PLANNED:
        return ""
    return (
        f", {sharing.schedule}"
        if sharing.schedule != PLANNED.schedule
        else f", split {sharing.split_k} ({sharing.reduction})"
    )


def run(
    cases: Sequence[Case], ordinal: int, most: int, reach: float = REACH
) -> tuple[Conditions, list[Record], list[TuningResult]]:
    """Measure, and store the winners. Records have cuBLAS' row first, then all candidates. Ctrl-C stops after
    a product."""
    records: list[Record] = []
    results, winners = [], {}
    with Stage(ordinal, TUNE) as stage:
        work = [(case, worth_measuring(case, stage.device, most, reach)) for case in cases]
        build_all(builds_of(way.planned(case, stage.device) for case, ways in work for way in ways))
        vendor = "; ".join(dict.fromkeys(stage.framework.vendor(case.math) for case in cases))
        conditions = gather(stage.device, stage.device.name, TUNE.mode, str(TUNE), vendor=vendor)
        peers = {case.math: find_peers(stage.framework, stage.device, case.math)[0][:1] for case in cases}
        total = sum(steps([*peers[case.math], *ways], TUNE) for case, ways in work)
        with progress(total, "tuning") as step, suppress(KeyboardInterrupt):
            for case, ways in work:
                rows = stage.measure(case, [*peers[case.math], *ways], step)
                rows = rows[:1] + [with_prediction(row, way) for row, way in zip(rows[1:], ways, strict=True)]
                records += rows
                best = fastest(rows[1:])
                results.append(TuningResult(case, rows[1], None if best is rows[1] else best))
                for way, row in zip(ways, rows[1:], strict=True):
                    if row is best and way.plan is not None:
                        winners[problem_key(way.plan.callers_problem)] = winner_of(
                            way, row, rows[1], conditions.date
                        )
    keep(stage.device, winners)
    return conditions, records, results


def with_prediction(row: Record, way: KernelContender) -> Record:
    return (
        row if way.plan is None else replace(row, note=f"predicted {way.plan.predicted_seconds * 1e6:.4g} us")
    )


def fastest(rows: Sequence[Record]) -> Record | None:
    """The fastest right row; the planner's, which is the first, where that is as good."""
    timed = [row for row in rows if row.ok and row.seconds]
    if not timed:
        return None
    best, planned = min(timed, key=lambda row: row.seconds or 0.0), rows[0]
    return planned if planned in timed and (best.seconds or 0.0) > MARGIN * (planned.seconds or 0.0) else best


def winner_of(way: KernelContender, row: Record, planned: Record, date: str) -> Winner:
    if way.kernel is None or way.config is None:
        raise LapidistError(f"tune: {way.name} is no kernel with a config")
    planned_seconds = planned.seconds if planned.seconds else row.seconds
    return Winner(
        way.kernel.name, way.config, way.sharing, row.seconds or 0.0, planned_seconds or 0.0, date[:10]
    )
