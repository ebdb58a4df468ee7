"""Which of all that is weighed sums k in the order of one candidate: decided by columns, of a hundred
configs at once.

What is alike here is alike by sum_orders.py. Not all of that is found: of tiles that are cut at different
places only the candidate's own config is taken."""

from __future__ import annotations

from typing import Any

import numpy as np

from lapidist.config import Knobs
from lapidist.device import Device
from lapidist.kernels.row import Kernel
from lapidist.kernels.rows import Rows
from lapidist.planning.sum_orders import Cuts, SumOrder, ends_in_zeros, has_own_way_out, sum_order, unit_of
from lapidist.planning.weighed import Candidate, Weighed, as_computed
from lapidist.problems.problem import Problem
from lapidist.schedule.ways import CODES, Way


def order_of(candidate: Candidate, problem: Problem, device: Device) -> SumOrder:
    """`problem` as it was asked."""
    computed = as_computed(problem, candidate.config)
    return sum_order(computed, device, candidate.kernel, candidate.config, candidate.schedule)


def may_be_alike(rows: Rows, order: SumOrder) -> bool:
    """Told before anything is weighed."""
    return order.unit == "exact" or order.unit in units_of(rows)


def units_of(rows: Rows) -> frozenset[str]:
    if "units" not in rows.kept:
        rows.kept["units"] = frozenset(map(unit_of, rows.kernels))
    found: frozenset[str] = rows.kept["units"]
    return found


def alike(group: Weighed, like: Candidate, order: SumOrder) -> Any:
    """For each way of each config whether it sums as `like` does, whose order that is."""
    if order.unit == "exact":
        return np.ones_like(group.ways.taken)
    same = np.zeros(len(group.rows.configs), bool)
    for kernel, span, configs in group.rows.spans:
        same[span] = sums_so(kernel, configs, group.problem, order)
    return same & cut_so(group, like, order)


def sums_so(kernel: Kernel, configs: Knobs, problem: Problem, order: SumOrder) -> Any:
    """Within a tile, by these configs."""
    if unit_of(kernel) != order.unit:  # which says how many steps of k it adds at once
        return False
    if has_own_way_out(problem, kernel) or order.way_out:
        return False
    slices, step = order.slices
    sliced = (configs.slices == slices) & ((slices == 1) | (configs.bk == step))
    promoted = configs.bk == order.promoted if problem.scaling.promoted else True
    return sliced & promoted & (ends_in_zeros(problem, kernel, configs) == order.zeros)


def cut_so(group: Weighed, like: Candidate, order: SumOrder) -> Any:
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
