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
from lapidist.kernels.blocks.splits import (
    FULL,
    Peers,
    refuse_cluster,
    resident,
    splits_of,
    splits_of_one,
    worth,
)
from lapidist.kernels.blocks.time import seconds, sharing_costs, standing, stream_of, streamed
from lapidist.kernels.config_table import grids_of
from lapidist.kernels.family import Family, ScalarModel
from lapidist.kernels.kernel import Kernel
from lapidist.kernels.kernel_table import Rows, config_alone
from lapidist.problems.problem import Problem
from lapidist.schedule import CostModel, Schedule, data_parallel, split_k, stream_k
from lapidist.schedule.schedule_options import (
    CLUSTER,
    NONE,
    SEPARATE,
    TURNSTILE,
    ScalarOption,
    ScheduleOption,
    ScheduleOptions,
)
from lapidist.schedule.schedule_rules import REDUCTIONS
from lapidist.schedule.sharing_choice import Sharing

SHARED = frozenset((TURNSTILE, SEPARATE, CLUSTER))


class Blocks(Family, ScalarModel):
    """The planner weighs split-K for few tiles, and Stream-K."""

    @property
    def scalar_model(self) -> ScalarModel:  # type: ignore[override]
        return self

    scalar_schedules = scalar_model  # type: ignore[assignment]

    def data_parallel_option(self, kernel: Kernel, config: Config, device: Device) -> ScheduleOption:
        return ScheduleOption(True, scheduled=self.scheduled)

    def options(self, problem: Problem, rows: Rows, device: Device, accepted: Any) -> ScheduleOptions:
        grid, residency = grids_of(problem, rows, rows.walks), standing(problem, rows, device)
        slots = device.sms * residency.per_sm
        waves = np.maximum(1, -(-grid.tiles // slots)) * slots
        free = accepted & rows.scheduled & (grid.tiles > 0) & (grid.iterations > 0)
        free = free & (grid.tiles / waves <= FULL)
        options = [ScheduleOption(accepted, scheduled=rows.scheduled)]
        if not np.count_nonzero(free):
            return ScheduleOptions(grid, options)
        few = free & (grid.tiles < slots)
        peers = Peers(device.sms, residency.per_sm, residency.tile_bytes, residency.fits)
        splits, ended = splits_of(grid, few, peers, residency.sum_rows)
        streamed = stream_of(problem, rows, device, grid, free & ~(few & ended))
        return ScheduleOptions(grid, [*options, splits, streamed])

    def options_of_config(
        self, problem: Problem, kernel: Kernel, config: Config, device: Device, reductions: Collection[int]
    ) -> list[ScheduleOption]:
        row = config_alone(kernel, config, problem.math).scalar_row
        grid, residency = grids_of(problem, config, row.walks), standing(problem, row, device)
        options, slots = (
            [ScheduleOption(True, scheduled=row.scheduled)] if NONE in reductions else [],
            device.sms * residency.per_sm,
        )
        waves = max(1, -(-grid.tiles // slots)) * slots
        free = row.scheduled and grid.tiles > 0 and grid.iterations > 0 and grid.tiles / waves <= FULL
        if not free or not (SHARED & set(reductions)):
            return options
        ended = False
        if grid.tiles < slots:
            peers = Peers(device.sms, residency.per_sm, residency.tile_bytes, residency.fits)
            splits, ended = splits_of_one(grid, peers, residency.sum_rows, reductions)
            options += splits
        split = None if ended or TURNSTILE not in reductions else streamed(problem, kernel, config, device)
        return options + (
            [] if split is None else [ScheduleOption.stream(True, split.tiles, split.blocks, TURNSTILE, 0)]
        )

    def seconds_of_config(
        self,
        problem: Problem,
        kernel: Kernel,
        config: Config,
        device: Device,
        options: Sequence[ScalarOption],
    ) -> list[float]:
        row = config_alone(kernel, config, problem.math).scalar_row
        return [seconds(problem, row, device, option) for option in options]

    def worth_of_config(self, problem: Problem, kernel: Kernel, option: ScalarOption) -> float:
        return worth(problem) if option.sk_blocks > 0 else 1.0

    def blocks_of_sm(self, problem: Problem, kernel: Kernel, config: Config, device: Device) -> int:
        return resident(kernel, config, problem, device)

    def seconds(self, problem: Problem, rows: Rows, device: Device, options: ScheduleOptions) -> Any:
        return seconds(problem, rows, device, options)

    def worth(self, problem: Problem, rows: Rows, options: ScheduleOptions) -> Any:
        return np.where(options.sk_blocks > 0, worth(problem), 1.0)

    def schedule_of(
        self, problem: Problem, kernel: Kernel, config: Config, device: Device, option: ScheduleOption
    ) -> Schedule | None:
        if not option.scheduled or problem.modes.ragged is not None:  # blocks find tiles of groups themselves
            return None
        grid, rows, raster = kernel.tile_grid(problem, config), kernel.sum_rows(config), kernel.raster
        if not option.sk_blocks:
            return data_parallel(grid, raster=raster)
        if option.fragments:
            splits = option.sk_blocks // option.sk_tiles
            return split_k(
                grid, splits, reduction=REDUCTIONS[option.reduction], fragments=rows, raster=raster
            )
        per_sm, costs = sharing_costs(problem, device, kernel, config)
        return stream_k(grid, sms=device.sms, occupancy=per_sm, fragments=rows, raster=raster, costs=costs)

    def schedules(
        self, problem: Problem, kernel: Kernel, config: Config, device: Device, sharing: Sharing
    ) -> list[Schedule | None]:
        if not self.scheduled or problem.modes.ragged is not None:
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
