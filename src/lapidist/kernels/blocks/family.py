"""Kernels whose blocks have a tile each: how some of them share tiles, in every way that schedules know."""

from __future__ import annotations

from typing import Any

import numpy as np

from lapidist.config import Config
from lapidist.device import Device
from lapidist.errors import ArgumentError
from lapidist.kernels.blocks.splits import FULL, refuse_cluster, splits_of, worth
from lapidist.kernels.blocks.time import seconds, sharing_costs, standing, stream_of
from lapidist.kernels.columns import grids_of
from lapidist.kernels.family import Family
from lapidist.kernels.row import Kernel
from lapidist.kernels.rows import Rows
from lapidist.problems.problem import Problem
from lapidist.schedule import CostModel, Schedule, data_parallel, split_k, stream_k
from lapidist.schedule.sharing import Sharing
from lapidist.schedule.units import REDUCTIONS
from lapidist.schedule.ways import Way, Ways


class Blocks(Family):
    """The planner weighs splits of few tiles, and Stream-K."""

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
        splits, ended = splits_of(grid, few, device.sms, rows.threads, here.fits, here.sum_rows)
        streamed = stream_of(problem, rows, device, grid, free & ~(few & ended))
        return Ways(grid, [*found, splits, streamed])

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
