"""From Problem and Device to the best candidate: refusals, predicted times, choice.

The times of all configs of a family are predicted at once, as columns (cost_table.py). Candidates, with
schedules and words of refusals, are made only on demand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from operator import itemgetter

import numpy as np

from lapidist.config import Config
from lapidist.device import Device
from lapidist.errors import ArgumentError, RefusalError
from lapidist.kernels.kernel import Kernel
from lapidist.kernels.kernel_table import Rows, config_alone
from lapidist.kernels.production import every_kernel
from lapidist.planning.cost_table import Candidate, CostTable
from lapidist.planning.same_sum_order import may_sum_alike, sum_order_of, sums_alike
from lapidist.planning.sum_orders import SharedTiles, SumOrder
from lapidist.problems.problem import Problem
from lapidist.schedule.sharing_choice import PLANNED, Sharing

TIE = 1.0025  # times of one kernel's configs that differ by less count as equal: the model is no better
OLDEST = 7, 5  # compute capability of all kernels
WAY_OUT = "Ask for what one of them takes: convert a and b (.astype or .to), or leave choices out"
Listed = tuple[int, Kernel, Config, float]  # position in the list of all, kernel, config, efficiency


def choose(
    problem: Problem,
    device: Device,
    kernel: Kernel | None = None,
    sharing: Sharing = PLANNED,
    like: Candidate | None = None,
) -> Candidate:
    """The best candidate. `kernel` narrows the choice to one row of the registry, `like` to plans of the same
    bits.
    """
    kernels = (kernel,) if kernel else every_kernel()
    groups = grouped(kernels, problem.math)
    if like is None:
        best = best_of(weigh(problem, device, groups, sharing))
    else:
        order = sum_order_of(like, problem, device)
        if isinstance(order.cuts, SharedTiles):
            groups = (config_alone(like.kernel, like.config, problem.math),)
        tables = weigh(problem, device, [rows for rows in groups if may_sum_alike(rows, order)], sharing)
        narrow(tables, like, order)
        best = best_of(tables)
    if best is not None:
        return best
    refused = candidates(problem, device, kernels, sharing)
    who = f"kernel: {kernel.name} does not take" if kernel else "no kernel takes"
    way_out = "Name another kernel, or leave it to the planner" if kernel else WAY_OUT
    if device.capability < OLDEST:
        way_out = "No kernel is for so old a GPU: multiply by NumPy or torch there"
    raise RefusalError(f"{who} {problem} on {device.name}:\n{reasons_of(refused)}\n  {way_out}")


def narrow(tables: Sequence[CostTable], like: Candidate, order: SumOrder) -> None:
    """Keep only schedules that sum in `order`, which is that of `like`."""
    for table in tables:
        if table.any:
            table.narrow(sums_alike(table, like, order))


def weigh(
    problem: Problem, device: Device, groups: Sequence[Rows], sharing: Sharing = PLANNED, fitted: bool = True
) -> list[CostTable]:
    with np.errstate(all="ignore"):
        return [CostTable(problem, rows, device, sharing, fitted=fitted) for rows in groups]


def best_of(tables: Sequence[CostTable]) -> Candidate | None:
    """The quickest candidate, or the first of its kernel whose predicted time the model cannot tell from it.
    A kernel's list has large tiles first.
    """
    least = [(*quickest, table) for table in tables if (quickest := table.quickest()) is not None]
    if not least:
        return None
    _, place, table = min(least, key=itemgetter(0, 1))
    ties = [(table.as_good_as(place, other, TIE), other) for other in tables]
    first, table = min(((at, other) for at, other in ties if at is not None), key=itemgetter(0))
    return table.candidate(first)


def fastest_first(tables: Sequence[CostTable]) -> list[tuple[int, CostTable]]:
    """The position of each config that takes the problem, and its table."""
    ranking = [
        (float(table.seconds[at]), table.rows.positions[at], table)
        for table in tables
        if table.any
        for at in np.flatnonzero(table.accepted).tolist()
    ]
    return [(place, table) for _, place, table in sorted(ranking, key=itemgetter(0, 1))]


@lru_cache(maxsize=512)
def grouped(kernels: tuple[Kernel, ...], math_name: str) -> tuple[Rows, ...]:
    """The configs of these kernels for a type. A group shares one formula for time and one form of the
    problem.
    """
    groups: dict[object, list[Listed]] = {}
    for row in listed(kernels, math_name):
        _, kernel, config, _ = row
        if math_name in kernel.types.maths:
            groups.setdefault((kernel.family.cost_model, config.exchanged, config.skewed), []).append(row)
    return tuple(Rows(math_name, rows) for rows in groups.values())


def listed(kernels: Sequence[Kernel], math_name: str) -> list[Listed]:
    configs = [(kernel, *row) for kernel in kernels for row in kernel.configs_for(math_name)]
    return [(place, *row) for place, row in enumerate(configs)]


def reasons_of(refused: Sequence[Candidate]) -> str:
    """Each reason once, with the kernels that gave it; production kernels first."""
    by_reason: dict[str, dict[str, None]] = {}
    for candidate in sorted(refused, key=lambda refusal: refusal.kernel.kind != "production"):
        by_reason.setdefault(candidate.refusal or "", {})[candidate.kernel.name] = None
    return "\n".join(f"  {', '.join(names)}: {reason}" for reason, names in by_reason.items())


def candidates(
    problem: Problem, device: Device, kernels: tuple[Kernel, ...] | None = None, sharing: Sharing = PLANNED
) -> list[Candidate]:
    """All candidates of these kernels, refused ones too."""
    kernels = every_kernel() if kernels is None else kernels
    tables = weigh(problem, device, grouped(kernels, problem.math), sharing)
    table_of = {place: table for table in tables for place in table.rows.positions}
    return [
        table_of[place].candidate(place)
        if place in table_of
        else Candidate(kernel, config, None, math.inf, kernel.refuse(problem, config, device))
        for place, kernel, config, _ in listed(kernels, problem.math)
    ]


def exactly(
    problem: Problem, device: Device, kernel: Kernel | None, config: Config, sharing: Sharing = PLANNED
) -> Candidate:
    """The candidate that the caller chose, which must pass the same rules."""
    if kernel is None:
        raise ArgumentError(
            f"config: belongs to one kernel; got {config} and no kernel. Name it with kernel="
        )
    chosen = weigh_one(problem, device, kernel, config, sharing)
    if chosen.refusal is not None:
        raise RefusalError(
            f"config: {kernel.name} does not take {problem} on {device.name} with it:\n  {chosen}\n"
            "  Correct it, or leave config= out: `lapidist plan --weighed` lists those that fit"
        )
    return chosen


def weigh_one(
    problem: Problem,
    device: Device,
    kernel: Kernel,
    config: Config,
    sharing: Sharing = PLANNED,
    fitted: bool = True,
) -> Candidate:
    wrong_types = kernel.types.refuse(problem)
    if wrong_types:
        return Candidate(kernel, config, None, math.inf, wrong_types)
    (table,) = weigh(problem, device, [config_alone(kernel, config, problem.math)], sharing, fitted)
    return table.candidate(0)
