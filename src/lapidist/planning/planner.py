"""From Problem and Device to the best candidate: refusals, predicted times, choice.

All configs of a family are weighed at once, as columns (cost_table.py). Candidates, with schedules and words
of refusals, are made only on demand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from lapidist.config import Config
from lapidist.device import Device
from lapidist.errors import ArgumentError, RefusalError
from lapidist.kernels.kernel import Kernel
from lapidist.kernels.kernel_table import Rows, config_alone
from lapidist.kernels.production import every_kernel
from lapidist.planning.cost_table import Candidate, Weighed
from lapidist.planning.same_sum_order import alike, may_be_alike, sum_order_of
from lapidist.planning.sum_orders import SharedTiles, SumOrder
from lapidist.problems.problem import Problem
from lapidist.schedule.sharing_choice import PLANNED, Sharing

TIE = 1.0025  # times of one kernel's configs that differ by less count as equal: the model is no better
OTHER_WAYS = "Ask for what one of them takes: convert a and b (.astype or .to), or leave choices out"
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
    every = grouped(kernels, problem.math)
    if like is None:
        found = best_of(weigh(problem, device, every, sharing))
    else:
        order = sum_order_of(like, problem, device)
        if isinstance(order.cuts, SharedTiles):
            every = (config_alone(like.kernel, like.config, problem.math),)
        groups = weigh(problem, device, [rows for rows in every if may_be_alike(rows, order)], sharing)
        narrow(groups, like, order)
        found = best_of(groups)
    if found is not None:
        return found
    weighed = candidates(problem, device, kernels, sharing)
    who = f"kernel: {kernel.name} does not take" if kernel else "no kernel takes"
    way_out = "Name another kernel, or leave it to the planner" if kernel else OTHER_WAYS
    raise RefusalError(f"{who} {problem} on {device.name}:\n{reasons_of(weighed)}\n  {way_out}")


def narrow(groups: Sequence[Weighed], like: Candidate, order: SumOrder) -> None:
    """Keep only schedules that sum in `order`, which is that of `like`."""
    for group in groups:
        if group.any:
            group.narrow(alike(group, like, order))


def weigh(
    problem: Problem, device: Device, groups: Sequence[Rows], sharing: Sharing = PLANNED
) -> list[Weighed]:
    with np.errstate(all="ignore"):
        return [Weighed(problem, rows, device, sharing) for rows in groups]


def best_of(groups: Sequence[Weighed]) -> Candidate | None:
    """The quickest; or the first of the same kernel whose predicted time the model cannot tell from it. A
    kernel's list has large tiles first.
    """
    least = [(*found, group) for group in groups if (found := group.quickest()) is not None]
    if not least:
        return None
    _, place, group = min(least, key=lambda each: each[:2])
    good = [(group.as_good_as(place, other, TIE), other) for other in groups]
    first, where = min(((at, other) for at, other in good if at is not None), key=lambda each: each[0])
    return where.candidate(first)


def fastest_first(groups: Sequence[Weighed]) -> list[tuple[int, Weighed]]:
    """The position of each config that is taken, and the group that it is in."""
    found = [
        (float(group.seconds[at]), group.rows.positions[at], group)
        for group in groups
        if group.any
        for at in np.flatnonzero(group.taken).tolist()
    ]
    return [(place, group) for _, place, group in sorted(found, key=lambda each: each[:2])]


@lru_cache(maxsize=512)
def grouped(kernels: tuple[Kernel, ...], math_name: str) -> tuple[Rows, ...]:
    """The configs of these kernels for a type, in groups that share one formula for time and one form of the
    problem.
    """
    found: dict[object, list[Listed]] = {}
    for each in listed(kernels, math_name):
        _, kernel, config, _ = each
        if math_name in kernel.types.maths:
            found.setdefault((kernel.family.weighed_by, config.exchanged, config.skewed), []).append(each)
    return tuple(Rows(math_name, rows) for rows in found.values())


def listed(kernels: Sequence[Kernel], math_name: str) -> list[Listed]:
    every = [(kernel, *each) for kernel in kernels for each in kernel.configs_for(math_name)]
    return [(place, *each) for place, each in enumerate(every)]


def reasons_of(refused: Sequence[Candidate]) -> str:
    """Each reason once, with the kernels that gave it; production kernels first."""
    by_reason: dict[str, dict[str, None]] = {}
    for candidate in sorted(refused, key=lambda each: each.kernel.kind != "production"):
        by_reason.setdefault(candidate.refusal or "", {})[candidate.kernel.name] = None
    return "\n".join(f"  {', '.join(names)}: {reason}" for reason, names in by_reason.items())


def candidates(
    problem: Problem, device: Device, kernels: tuple[Kernel, ...] | None = None, sharing: Sharing = PLANNED
) -> list[Candidate]:
    """All candidates that the planner weighs, refused ones too."""
    kernels = every_kernel() if kernels is None else kernels
    groups = weigh(problem, device, grouped(kernels, problem.math), sharing)
    where = {place: group for group in groups for place in group.rows.positions}
    return [
        where[place].candidate(place)
        if place in where
        else Candidate(kernel, config, None, math.inf, kernel.refuse(problem, config, device))
        for place, kernel, config, _ in listed(kernels, problem.math)
    ]


def exactly(
    problem: Problem, device: Device, kernel: Kernel | None, config: Config, sharing: Sharing = PLANNED
) -> Candidate:
    """The caller's own choice, which must pass the same rules."""
    if kernel is None:
        raise ArgumentError(
            f"config: belongs to one kernel; got {config} and no kernel. Name it with kernel="
        )
    chosen = weigh_one(problem, device, kernel, config, sharing)
    if chosen.refusal is not None:
        raise RefusalError(
            f"config: {kernel.name} does not take {problem} on {device.name} with it:\n  {chosen}"
        )
    return chosen


def weigh_one(
    problem: Problem, device: Device, kernel: Kernel, config: Config, sharing: Sharing = PLANNED
) -> Candidate:
    wrong_types = kernel.types.refuse(problem)
    if wrong_types:
        return Candidate(kernel, config, None, math.inf, wrong_types)
    (weighed,) = weigh(problem, device, [config_alone(kernel, config, problem.math)], sharing)
    return weighed.candidate(0)
