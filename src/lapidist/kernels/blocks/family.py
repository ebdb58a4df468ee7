"""Families with one block for each tile. Some of their kernels share tiles, in every way that
schedules know.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from lapidist.config import Config
from lapidist.device import Device
from lapidist.errors import ArgumentError
from lapidist.kernels.blocks.splits import FULL, Peers, refuse_cluster, splits_of, splits_of_one, worth
from lapidist.kernels.blocks.time import seconds, sharing_costs, standing, stream_of, streamed
from lapidist.kernels.config_table import grids_of
from lapidist.kernels.family import Family, InNumbers
from lapidist.kernels.kernel import Kernel
from lapidist.kernels.kernel_table import Rows, config_alone
from lapidist.problems.problem import Problem
from lapidist.schedule import CostModel, Schedule, data_parallel, split_k, stream_k
from lapidist.schedule.schedule_options import CLUSTER, NONE, SEPARATE, TURNSTILE, OneWay, Way, Ways
from lapidist.schedule.sharing_choice import Sharing
from lapidist.schedule.units import REDUCTIONS

SHARED = frozenset((TURNSTILE, SEPARATE, CLUSTER))


class Blocks(Family, InNumbers):
    """The planner weighs split-K for few tiles, and Stream-K."""

    @property
    def in_numbers(self) -> InNumbers:  # type: ignore[override]
        return self

    ways_in_numbers = in_numbers  # type: ignore[assignment]

    def whole(self, kernel: Kernel, config: Config, device: Device) -> Way:
        return Way(True, scheduled=self.scheduled)

    def ways(self, problem: Problem, rows: Rows, device: Device, taken: Any) -> Ways:
        grid, here = grids_of(problem, rows), standing(problem, rows, device)
        slots = device.sms * here.per_sm
        waves = np.maximum(1, -(-grid.tiles // slots)) * slots
        free = taken & rows.scheduled & (grid.tiles > 0) & (grid.iterations > 0)
        free = free & (grid.tiles / waves <= FULL)
        found = [Way(taken, scheduled=rows.scheduled)]
        if not np.count_nonzero(free):
            return Ways(grid, found)
        few = free & (grid.tiles < slots)
        peers = Peers(device.sms, here.per_sm, here.tile_bytes, here.fits)
        splits, ended = splits_of(grid, few, peers, here.sum_rows)
        streamed = stream_of(problem, rows, device, grid, free & ~(few & ended))
        return Ways(grid, [*found, splits, streamed])

    def ways_of_one(
        self, problem: Problem, kernel: Kernel, config: Config, device: Device, asked: Collection[int]
    ) -> list[Way]:
        row = config_alone(kernel, config, problem.math).in_numbers
        grid, here = grids_of(problem, config), standing(problem, row, device)
        found, slots = [Way(True, scheduled=row.scheduled)] if NONE in asked else [], device.sms * here.per_sm
        waves = max(1, -(-grid.tiles // slots)) * slots
        free = row.scheduled and grid.tiles > 0 and grid.iterations > 0 and grid.tiles / waves <= FULL
        if not free or not (SHARED & set(asked)):
            return found
        ended = False
        if grid.tiles < slots:
            peers = Peers(device.sms, here.per_sm, here.tile_bytes, here.fits)
            splits, ended = splits_of_one(grid, peers, here.sum_rows, asked)
            found += splits
        split = None if ended or TURNSTILE not in asked else streamed(problem, kernel, config, device)
        return found + ([] if split is None else [Way.stream(True, split.tiles, split.blocks, TURNSTILE, 0)])

    def seconds_of_one(
        self, problem: Problem, kernel: Kernel, config: Config, device: Device, ways: Sequence[OneWay]
    ) -> list[float]:
        row = config_alone(kernel, config, problem.math).in_numbers
        return [seconds(problem, row, device, way) for way in ways]

    def worth_of_one(self, problem: Problem, kernel: Kernel, way: OneWay) -> float:
        return worth(problem) if way.sk_blocks > 0 else 1.0

    def seconds(self, problem: Problem, rows: Rows, device: Device, ways: Ways) -> Any:
        return seconds(problem, rows, device, ways)

    def worth(self, problem: Problem, rows: Rows, ways: Ways) -> Any:
        return np.where(ways.sk_blocks > 0, worth(problem), 1.0)

    def schedule_of(
        self, problem: Problem, kernel: Kernel, config: Config, device: Device, way: Way
    ) -> Schedule | None:
        if not way.scheduled:
            return None
        grid, rows, raster = kernel.tile_grid(problem, config), kernel.sum_rows(config), kernel.raster
        if not way.sk_blocks:
            return data_parallel(grid, raster=raster)
        if way.fragments:
            splits = way.sk_blocks // way.sk_tiles
            return split_k(grid, splits, reduction=REDUCTIONS[way.reduction], fragments=rows, raster=raster)
        per_sm, costs = sharing_costs(problem, device, kernel, config)
        return stream_k(grid, sms=device.sms, occupancy=per_sm, fragments=rows, raster=raster, costs=costs)

    def schedules(
        self, problem: Problem, kernel: Kernel, config: Config, device: Device, sharing: Sharing
    ) -> list[Schedule | None]:
        if not self.scheduled:
            return [None]
        tiles, rows = kernel.tile_grid(problem, config), kernel.sum_rows(config)
        per_sm, costs = sharing_costs(problem, device, kernel, config)
        schedule = sharing.schedule_of(tiles, device.sms, per_sm, rows, costs, worth(problem), kernel.raster)
        if schedule.cluster > 1 and (refusal := refuse_cluster(kernel, config, problem, device)):
            raise ArgumentError(refusal)
        return [schedule]

    def costs(
        self, problem: Problem, kernel: Kernel, config: Config, device: Device
    ) -> tuple[int, CostModel]:
        return sharing_costs(problem, device, kernel, config)
