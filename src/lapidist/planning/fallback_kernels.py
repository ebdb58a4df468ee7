"""Fallbacks: while a plan's kernel is not compiled, another plan of the same SumOrder runs, and so gives the
same bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

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
    nothing_is_compiled,
    order_of,
    remember,
)
from lapidist.planning.cost_table import Candidate, CostTable
from lapidist.planning.covering_sets import best_of_class, candidates_by_price
from lapidist.planning.invariant_choice import invariant_at_once
from lapidist.planning.planner import fastest_first, grouped, narrow, weigh
from lapidist.planning.plans import Plan, make_plan, plan_of
from lapidist.planning.tuned import look_up
from lapidist.problems.problem import Problem
from lapidist.schedule.sharing_choice import PLANNED

LOOKS = 16  # candidates whose kernels are looked for on disk
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
        """Whether some kernel is missing and none is being compiled."""
        # In this order: a kernel may be finished in between.
        return not any(is_under_way(build) for build in self.missing) and not self.have_come


def running(plan: Plan, compiling: Compiling, final: bool = True) -> Plan:
    """The plan itself, if its kernel is compiled or the call shall wait for it; else a fallback. A plan that
    is not `final` was made without a table of all costs. No kernel is compiled for it, as the best one is
    soon known.
    """
    if plan.is_empty or compiling == WAIT or at_hand(*plan.build):
        return plan
    fallback = None if nothing_is_compiled() else fallback_of(plan, compiling)
    if fallback is None and compiling == NEVER:
        raise CompileError(
            f"compile: nothing is compiled that sums as {plan.sum_order} for {plan.problem}, and nothing"
            f' shall be; got {VARIABLE} or compile="never". Run lapidist warm, or pass compile="wait"'
        )
    if fallback is None:
        best = plan if final else better_than(plan) or plan
        log.info(
            "compile: waiting for %s %s: nothing that sums alike is there", best.kernel.name, best.config
        )
        if compiling == BACKGROUND:
            be_ready()
        return best
    tell_of_fallbacks()
    if compiling == BACKGROUND and final:
        compile_behind(plan)
    return fallback


@cache
def tell_of_fallbacks() -> None:
    """Log, once in a process, that fallbacks run."""
    log.info(
        "compile: calls run on kernels that are at hand until their own are compiled."
        " Run lapidist warm once, and they begin with good ones. Set LAPIDIST_SHAPES to a file, and it lists"
        " what to compile: lapidist warm --shapes FILE"
    )


def fallback_of(plan: Plan, compiling: Compiling) -> Plan | None:
    """A plan whose kernel this process has, whatever its time. Else the best of those on disk, where each
    look takes a tenth of a millisecond.
    """
    fallback = next((other for other in fallbacks_of_class(plan) if in_memory(*other.build)), None)
    if fallback is not None:
        return fallback
    ranked = same_sums(plan)
    loaded = ((place, table) for place, table in ranked if may_be_in_memory(*table.binary(place)))
    fallback = next((other for other in plans_ranked(plan, loaded) if in_memory(*other.build)), None)
    searched = ranked if compiling == NEVER else ranked[:LOOKS]
    return fallback or next((other for other in plans_ranked(plan, searched) if at_hand(*other.build)), None)


def fallbacks_of_class(plan: Plan) -> Iterator[Plan]:
    """Plans of the same order by binaries of its class that are in memory, which are found without a table
    of all costs.
    """
    if plan.config_named or plan.kernel_named or plan.sharing != PLANNED:
        return
    for best in candidates_by_price(plan.callers_problem, plan.device, may_be_in_memory):
        other = plan_of(best, plan.callers_problem, plan.device)
        if other.sum_order == plan.sum_order:
            yield other


def be_ready() -> None:
    """What one shape lacks others will lack, too."""
    from lapidist.build import background_compile

    background_compile.be_ready()


def compile_behind(plan: Plan) -> None:
    from lapidist.build import background_compile

    background_compile.ask(order_of(*plan.build), partial(remember_kernel, plan))


def better_than(plan: Plan) -> Plan | None:
    """The plan that compile="wait" would take, where it has another kernel than this one; else None."""
    best = make_plan(plan.callers_problem, plan.device)
    return best if best.build != plan.build else None


def remember_kernel(plan: Plan, binary: object) -> None:
    remember(binary, *plan.build)  # type: ignore[arg-type]


def is_under_way(build: Build) -> bool:
    from lapidist.build import background_compile

    return background_compile.is_under_way(order_of(*build))


def same_sums(plan: Plan) -> list[tuple[int, CostTable]]:
    """Production candidates that sum in the same order, the fastest first."""
    if plan.config_named:
        return []
    kernels = (plan.kernel_named,) if plan.kernel_named else every_kernel()
    production = tuple(kernel for kernel in kernels if kernel.kind == "production")
    groups = grouped(production, plan.problem.math)
    tables = weigh(plan.callers_problem, plan.device, groups, plan.sharing)
    like = Candidate(plan.kernel, plan.config, plan.schedule, plan.predicted_seconds, None)
    narrow(tables, like, plan.sum_order)
    return fastest_first(tables)


def plans_ranked(plan: Plan, ranked: Iterable[tuple[int, CostTable]]) -> Iterator[Plan]:
    """The plans of these candidates, in their order."""
    for place, table in ranked:
        best = replace(table.candidate(place), unshared="")
        choices: dict[str, Any] = {"kernel_named": plan.kernel_named, "sharing": plan.sharing}
        yield plan_of(best, plan.callers_problem, plan.device, **choices)


def planned_at_once(problem: Problem, device: Device) -> Plan | None:
    """The plan by the best binary of the problem's class: it has the order in which k is summed, and takes no
    table of all costs. None: no set serves the problem, or a measurement says what is fastest.
    """
    if problem.modes.ragged or problem.triangle or problem.arrivals or problem.owners:
        return None
    best = (invariant_at_once if problem.invariant else best_of_class)(problem, device)
    if best is None or look_up(problem, device)[0] is not None:
        return None
    return plan_of(best, problem, device)
