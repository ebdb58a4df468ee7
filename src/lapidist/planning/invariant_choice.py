"""The kernel and config of a product whose rows have the same bits in every product: the fastest that sums in
the one order.
"""

from __future__ import annotations

from dataclasses import replace

from lapidist.config import Config
from lapidist.device import Device
from lapidist.errors import RefusalError
from lapidist.kernels.kernel import Kernel
from lapidist.kernels.kernel_table import config_alone
from lapidist.planning.cost_table import Candidate
from lapidist.planning.covering_sets import candidates_by_price
from lapidist.planning.invariant_orders import Way, groups_of, ways_of
from lapidist.planning.planner import best_of, exactly, grouped, narrow, weigh
from lapidist.planning.same_sum_order import may_sum_alike, sum_order_of
from lapidist.problems.problem import Problem
from lapidist.schedule.sharing_choice import PLANNED, Sharing


def invariant_choice(
    problem: Problem, device: Device, kernel: Kernel | None, config: Config | None, sharing: Sharing = PLANNED
) -> tuple[Candidate, Sharing]:
    """The best candidate of the one order, and how its blocks share tiles. Of `sharing` only the number of
    SMs counts.
    """
    ways, groups_of_rows = ways_of(problem, device), problem.modes.ragged is not None
    groups = groups_of(problem) if kernel is None else grouped((kernel,), problem.math)
    if config is not None:
        groups = (config_alone(exactly(problem, device, kernel, config).kernel, config, problem.math),)
    best = None
    for way in ways:
        shared = replace(PLANNED if groups_of_rows else way.sharing, avail_sms=sharing.avail_sms)
        tables = weigh(problem, device, [rows for rows in groups if may_sum_alike(rows, way.order)], shared)
        narrow(tables, way.like, way.order)
        candidate = best_of(tables)
        if candidate is not None and (best is None or candidate.seconds < best[0].seconds):
            best = candidate, shared
    if best is None:
        raise RefusalError(why_none(problem, device, ways[0], kernel, config))
    return best


def why_none(problem: Problem, device: Device, way: Way, kernel: Kernel | None, config: Config | None) -> str:
    order = f"in the order of every number of rows: {way.order}"
    if config is not None and kernel is not None:
        who, way_out = f"config: {kernel.name} {config} does not sum", "Leave it out"
    elif kernel is not None:
        who, way_out = f"kernel: {kernel.name} does not sum", "Leave it out"
    elif problem.fused is not None:
        who = "epilogue: no kernel rounds each step of it and sums"
        way_out = "Apply it to the result (a bias alone is taken, and on tensor cores any function without c)"
    elif problem.modes.ragged is not None:
        who = "invariant: no kernel of groups sums"
        way_out = (
            "Let lines of A, B and D start on multiples of 16 bytes, those of 8-bit floats and tf32 run along"
            " k, and gather rows of tf32 before"
        )
    elif problem.modes.arrays:
        who, way_out = "invariant: no kernel of Pointers sums", "Pass lists of arrays"
    else:
        who, way_out = "invariant: no kernel sums", "Pass contiguous arrays"
    return f"{who} {problem} on {device.name} {order}. {way_out}, or pass invariant=False"


def invariant_at_once(problem: Problem, device: Device) -> Candidate | None:
    """The best binary of the problem's class that sums in the one order; None: there is none."""
    orders = {way.order for way in ways_of(problem, device)}
    candidates = candidates_by_price(problem, device)
    return next((best for best in candidates if sum_order_of(best, problem, device) in orders), None)


def is_invariant(candidate: Candidate, problem: Problem, device: Device) -> bool:
    """Whether it sums in the one order."""
    order = sum_order_of(candidate, problem, device)
    return order.unit == "exact" or order in {way.order for way in ways_of(problem, device)}
