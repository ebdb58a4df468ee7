"""Which configs sum k in the same order as a candidate, for a hundred configs at once.

All of them have that order by sum_orders.py, but some are missed. Where tiles are cut at different places, no
config but the candidate's is compared.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lapidist.config import Config, Knobs
from lapidist.device import Device
from lapidist.kernels.kernel import Kernel
from lapidist.kernels.kernel_table import Rows
from lapidist.planning.cost_table import Candidate, CostTable, as_computed
from lapidist.planning.sum_orders import (
    Cuts,
    CutsOfGroups,
    SumOrder,
    compiler_rounds_epilogue,
    ends_in_zeros,
    sum_order,
    unit_of,
)
from lapidist.problems.problem import Problem
from lapidist.schedule.schedule_options import CODES, ScheduleOption


def sum_order_of(candidate: Candidate, problem: Problem, device: Device) -> SumOrder:
    """`problem`: as it was asked, before a config exchanges A and B."""
    computed = as_computed(problem, candidate.config)
    return sum_order(computed, device, candidate.kernel, candidate.config, candidate.schedule)


def may_sum_alike(rows: Rows, order: SumOrder) -> bool:
    """Whether any of these configs may have this order: a cheap test before times are predicted."""
    return order.unit == "exact" or order.unit in units_of(rows)


def units_of(rows: Rows) -> frozenset[str]:
    if "units" not in rows.cached:
        rows.cached["units"] = frozenset(map(unit_of, rows.kernels))
    units: frozenset[str] = rows.cached["units"]
    return units


def sums_alike(table: CostTable, like: Candidate, order: SumOrder) -> Any:
    """For each schedule of each config, whether it sums in `order`, which is that of `like`."""
    if order.unit == "exact":
        return np.full_like(table.options.possible, True)
    same = np.zeros(len(table.rows.configs), bool)
    for kernel, span, configs in table.rows.spans:
        same[span] = sums_within_tile(kernel, configs, table.problem, order)
    return same & cuts_alike(table, like, order)


def sums_within_tile(kernel: Kernel, configs: Knobs, problem: Problem, order: SumOrder) -> Any:
    """Whether these configs sum in this order within a tile."""
    if unit_of(kernel) != order.unit:  # the unit decides how many elements of k are added at once
        return False
    if compiler_rounds_epilogue(problem, kernel) or order.epilogue:
        return False
    slices, step, short_first = order.slices
    divided = (configs.bk == step) & (kernel.family.short_tile_first(configs) == short_first)
    sliced = (configs.slices == slices) & ((slices == 1) | divided)
    promoted = configs.bk == order.promoted if problem.scaling.promoted else True
    return sliced & promoted & (ends_in_zeros(problem, kernel, configs) == order.zeros)


def cuts_alike(table: CostTable, like: Candidate, order: SumOrder) -> Any:
    """Whether k is cut at the same places, and parts are added in the same way."""
    options, rows = table.options, table.rows
    binaries = list(zip(rows.kernels, rows.configs, strict=True))
    same = np.array([binary == (like.kernel, like.config) for binary in binaries])
    if isinstance(order.cuts, CutsOfGroups):
        return same
    fixed = table.problem.modes.fixed_cuts
    if fixed is not None:  # steps as long as those of the dense product
        return ~options.shares_tiles & (rows.bk == fixed.step)
    if order.cuts is None:
        return ~options.shares_tiles & ~cut_by_device(table.problem, binaries)
    option = ScheduleOption.of(like.schedule)
    if isinstance(order.cuts, Cuts):
        everywhere = (options.regions == options.sk_tiles) & (options.sk_tiles == options.grid.tiles)
        peers = options.blocks_per_region == len(order.cuts.cuts) + 1
        return (
            everywhere
            & peers
            & (options.reduction == CODES[order.cuts.reduction])
            & (rows.bk == like.config.bk)
        )
    counts = (options.sk_tiles == option.sk_tiles) & (options.sk_blocks == option.sk_blocks)
    return same & counts & (options.regions == option.regions) & (options.reduction == option.reduction)


def cut_by_device(problem: Problem, binaries: list[tuple[Kernel, Config]]) -> Any:
    """For each config, whether the device cuts tiles of groups along k."""
    if problem.modes.ragged is None:
        return np.zeros(len(binaries), bool)
    return np.array([kernel.family.parts_of_tiles(problem, config) > 1 for kernel, config in binaries])
