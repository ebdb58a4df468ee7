"""What runs while a plan's own kernel is not compiled: another plan of the same SumOrder, and so of the same
bits, whose kernel is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial

from lapidist.build import behind
from lapidist.build.folder import log
from lapidist.build.waiting import BACKGROUND, NEVER, VARIABLE, WAIT, Compiling
from lapidist.errors import CompileError, LapidistError
from lapidist.planning.binaries import Build, at_hand, in_memory, order_of, remember
from lapidist.planning.planner import exactly
from lapidist.planning.plans import Plan
from lapidist.planning.weighed import Candidate, as_computed
from lapidist.schedule.sharing import Sharing

WHOLE_TILES = Sharing(schedule="data_parallel")


def running(plan: Plan, way: Compiling) -> Plan:
    """The plan itself, compiled at the first look at its binary, or one that stands in for it."""
    if plan.is_empty or way == WAIT or at_hand(*plan.build):
        return plan
    other = next((each for each in same_sums(plan) if at_hand(*each.build)), None)
    if other is None and way == NEVER:
        raise CompileError(
            f"compile: nothing is compiled that sums as {plan.sum_order} for {plan.problem}, and nothing"
            f' shall be; got {VARIABLE} or compile="never". Run lapidist warm, or pass compile="wait"'
        )
    if other is None:
        log.info(
            "compile: waiting for %s %s: nothing that sums alike is there", plan.kernel.name, plan.config
        )
        return plan
    if way == BACKGROUND:
        behind.ask(order_of(*plan.build), partial(kept_as, plan))
    return other


def kept_as(plan: Plan, binary: object) -> None:
    remember(binary, *plan.build)  # type: ignore[arg-type]


def may_take_over(build: Build) -> bool:
    return in_memory(*build)


def is_under_way(build: Build) -> bool:
    return behind.is_under_way(order_of(*build))


def same_sums(plan: Plan) -> Iterator[Plan]:
    """Plans of the same order, by production kernels, those predicted to be fastest first. Then those of
    configs that would rather share tiles."""
    weighed = sorted((each for each in plan.considered if suits(each)), key=lambda each: each.seconds)
    for candidate in weighed:
        other = planned(plan, candidate)
        if other.sum_order == plan.sum_order:
            yield other
    for candidate in weighed if plan.sum_order.cuts is None else ():
        if candidate.shares_tiles:
            with suppress(LapidistError):
                whole = exactly(plan.asked, plan.device, candidate.kernel, candidate.config, WHOLE_TILES)
                other = planned(plan, whole)
                if other.sum_order == plan.sum_order:
                    yield other


def suits(candidate: Candidate) -> bool:
    return candidate.refusal is None and candidate.kernel.kind == "production"


def planned(plan: Plan, candidate: Candidate) -> Plan:
    return replace(
        plan,
        problem=as_computed(plan.asked, candidate.config),
        kernel=candidate.kernel,
        config=candidate.config,
        schedule=candidate.schedule,
        predicted_seconds=candidate.seconds,
        tuned="",
        unshared="",
    )
