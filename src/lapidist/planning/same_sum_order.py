"""Which configs sum k in the same order as a given candidate, found for a hundred configs at once.

It agrees with sum_orders.py, but misses some: of tiles that are cut at different places, only the candidate's
own config is found.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lapidist.config import Knobs
from lapidist.device import Device
from lapidist.kernels.kernel import Kernel
from lapidist.kernels.kernel_table import Rows
from lapidist.planning.cost_table import Candidate, Weighed, as_computed
from lapidist.planning.sum_orders import Cuts, SumOrder, ends_in_zeros, has_own_epilogue, sum_order, unit_of
from lapidist.problems.problem import Problem
from lapidist.schedule.schedule_options import CODES, Way


def sum_order_of(candidate: Candidate, problem: Problem, device: Device) -> SumOrder:
    """`problem`: as it was asked, before a config exchanges A and B."""
    computed = as_computed(problem, candidate.config)
    return sum_order(computed, device, candidate.kernel, candidate.config, candidate.schedule)


def may_be_alike(rows: Rows, order: SumOrder) -> bool:
    """Whether any of these configs may have this order: a cheap test before they are weighed."""
    return order.unit == "exact" or order.unit in units_of(rows)


def units_of(rows: Rows) -> frozenset[str]:
    if "units" not in rows.kept:
        rows.kept["units"] = frozenset(map(unit_of, rows.kernels))
    found: frozenset[str] = rows.kept["units"]
    return found


def alike(group: Weighed, like: Candidate, order: SumOrder) -> Any:
    """For each schedule of each config, whether it sums in `order`, which is that of `like`."""
    if order.unit == "exact":
        return np.ones_like(group.ways.taken)
    same = np.zeros(len(group.rows.configs), bool)
    for kernel, span, configs in group.rows.spans:
        same[span] = sums_within_tile(kernel, configs, group.problem, order)
    return same & cuts_alike(group, like, order)


def sums_within_tile(kernel: Kernel, configs: Knobs, problem: Problem, order: SumOrder) -> Any:
    """Whether these configs sum in this order within a tile."""
    if unit_of(kernel) != order.unit:  # the unit decides how many elements of k are added at once
        return False
    if has_own_epilogue(problem, kernel) or order.way_out:
        return False
    slices, step = order.slices
    sliced = (configs.slices == slices) & ((slices == 1) | (configs.bk == step))
    promoted = configs.bk == order.promoted if problem.scaling.promoted else True
    return sliced & promoted & (ends_in_zeros(problem, kernel, configs) == order.zeros)


def cuts_alike(group: Weighed, like: Candidate, order: SumOrder) -> Any:
    """Whether k is cut at the same places, and parts are added in the same way."""
    ways, rows = group.ways, group.rows
    if order.cuts is None:
        return ~ways.shares_tiles
    wanted = Way.of(like.schedule)
    if isinstance(order.cuts, Cuts):
        everywhere = (ways.regions == ways.sk_tiles) & (ways.sk_tiles == ways.grid.tiles)
        peers = ways.blocks_per_region == len(order.cuts.cuts) + 1
        return (
            everywhere & peers & (ways.reduction == CODES[order.cuts.reduction]) & (rows.bk == like.config.bk)
        )
    own = zip(rows.kernels, rows.configs, strict=True)
    same = np.array([each == (like.kernel, like.config) for each in own])
    counts = (ways.sk_tiles == wanted.sk_tiles) & (ways.sk_blocks == wanted.sk_blocks)
    return same & counts & (ways.regions == wanted.regions) & (ways.reduction == wanted.reduction)
