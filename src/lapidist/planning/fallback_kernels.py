"""Stand-ins: while a plan's kernel is not compiled, another plan of the same SumOrder runs, and so gives the
same bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache, partial
from typing import NamedTuple

from lapidist.build.compile_policy import BACKGROUND, NEVER, VARIABLE, WAIT, Compiling
from lapidist.build.folder import log
from lapidist.device import Device
from lapidist.errors import CompileError
from lapidist.kernels.production import every_kernel
from lapidist.planning.binaries import (
    Build,
    at_hand,
    in_memory,
    may_be_in_memory,
    nothing_is_there,
    order_of,
    remember,
)
from lapidist.planning.cost_table import Candidate, Weighed
from lapidist.planning.covering_sets import best_at_hand, cheapest_at_hand
from lapidist.planning.planner import fastest_first, grouped, narrow, weigh
from lapidist.planning.plans import Plan, make_plan, plan_of
from lapidist.planning.tuned import look_up
from lapidist.problems.problem import Problem
from lapidist.schedule.sharing_choice import PLANNED

LOOKS = 16  # candidates that are looked for on disk
CALLS_BETWEEN = 64  # calls between two looks whether a kernel is compiled


class Awaited(NamedTuple):
    """Better plans, and those of their kernels that were not compiled."""

    plans: dict[Problem, Plan]
    missing: list[Build]

    @property
    def have_come(self) -> bool:
        return all(in_memory(*build) for build in self.missing)

    @property
    def will_not_come(self) -> bool:
        """Whether some kernel is missing and none is being compiled. In this order: one may be finished in
        between.
        """
        return not any(is_under_way(build) for build in self.missing) and not self.have_come


def running(plan: Plan, way: Compiling, final: bool = True) -> Plan:
    """The plan itself, if its kernel is there or the call shall wait for it; else a stand-in. A plan that is
    not `final` was made without weighing all: no kernel is compiled for it, as the best one is soon known.
    """
    if plan.is_empty or way == WAIT or at_hand(*plan.build):
        return plan
    other = None if nothing_is_there() else stand_in(plan, way)
    if other is None and way == NEVER:
        raise CompileError(
            f"compile: nothing is compiled that sums as {plan.sum_order} for {plan.problem}, and nothing"
            f' shall be; got {VARIABLE} or compile="never". Run lapidist warm, or pass compile="wait"'
        )
    if other is None:
        best = plan if final else better_than(plan) or plan
        log.info(
            "compile: waiting for %s %s: nothing that sums alike is there", best.kernel.name, best.config
        )
        return best
    tell_of_fallbacks()
    if way == BACKGROUND and final:
        compile_behind(plan)
    return other


@cache
def tell_of_fallbacks() -> None:
    """A log line, once in a process."""
    log.info(
        "compile: calls run on kernels that are at hand until their own are compiled."
        " Run lapidist warm once, and they begin with good ones"
    )


def stand_in(plan: Plan, way: Compiling) -> Plan | None:
    """A plan whose kernel this process has, whatever its time. Else the best of those on disk, where each
    look takes a tenth of a millisecond.
    """
    found = next((each for each in of_its_class(plan) if in_memory(*each.build)), None)
    if found is not None:
        return found
    ranked = same_sums(plan)
    here = (each for each in ranked if may_be_in_memory(*each[1].named(each[0])))
    found = next((each for each in plans_ranked(plan, here) if in_memory(*each.build)), None)
    looked_at = ranked if way == NEVER else ranked[:LOOKS]
    return found or next((each for each in plans_ranked(plan, looked_at) if at_hand(*each.build)), None)


def of_its_class(plan: Plan) -> Iterator[Plan]:
    """Plans of the same order by binaries of its class that are in memory: few need to be weighed."""
    if plan.own or plan.named or plan.sharing != PLANNED:
        return
    for best in cheapest_at_hand(plan.asked, plan.device, may_be_in_memory):
        other = plan_of(best, plan.asked, plan.device)
        if other.sum_order == plan.sum_order:
            yield other


def compile_behind(plan: Plan) -> None:
    from lapidist.build import background_compile

    background_compile.ask(order_of(*plan.build), partial(kept_as, plan))


def better_than(plan: Plan) -> Plan | None:
    """The plan that compile="wait" would take, if it is another one than this, for which not all configs were
    weighed.
    """
    free = make_plan(plan.asked, plan.device)
    return free if free.build != plan.build else None


def kept_as(plan: Plan, binary: object) -> None:
    remember(binary, *plan.build)  # type: ignore[arg-type]


def is_under_way(build: Build) -> bool:
    from lapidist.build import background_compile

    return background_compile.is_under_way(order_of(*build))


def same_sums(plan: Plan) -> list[tuple[int, Weighed]]:
    """Production candidates that sum in the same order, the fastest first."""
    if plan.own:
        return []
    kernels = (plan.named,) if plan.named else every_kernel()
    produce = tuple(kernel for kernel in kernels if kernel.kind == "production")
    groups = weigh(plan.asked, plan.device, grouped(produce, plan.problem.math), plan.sharing)
    own = Candidate(plan.kernel, plan.config, plan.schedule, plan.predicted_seconds, None)
    narrow(groups, own, plan.sum_order)
    return fastest_first(groups)


def plans_ranked(plan: Plan, ranked: Iterable[tuple[int, Weighed]]) -> Iterator[Plan]:
    """Their plans, in order."""
    for place, group in ranked:
        best = replace(group.candidate(place), unshared="")
        yield plan_of(best, plan.asked, plan.device, named=plan.named, sharing=plan.sharing)


def planned_at_once(problem: Problem, device: Device) -> Plan | None:
    """A plan by one of the binaries that serve its class: the order in which k is summed follows without
    weighing the rest. None: no set serves it, or a measurement says what is fastest.
    """
    best = best_at_hand(problem, device)
    if best is None or look_up(problem, device)[0] is not None:
        return None
    return plan_of(best, problem, device)
