"""Families of persistent clusters with wgmma: how they share tiles, by turnstile or as peers in a cluster."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from lapidist.config import Config
from lapidist.device import Device
from lapidist.kernels.config_table import grids_of
from lapidist.kernels.family import Family, ScalarSchedules
from lapidist.kernels.kernel import Kernel
from lapidist.kernels.kernel_table import Rows
from lapidist.kernels.wgmma.operands import grouped_columns, quantises
from lapidist.kernels.wgmma.sharing import (
    clustered_of_one,
    has_room,
    options,
    schedule_of,
    schedules,
    streamed_schedules,
    streams_of_one,
    takes_clusters,
    whole_eighths,
)
from lapidist.kernels.wgmma.time import block_costs, seconds
from lapidist.problems.problem import Problem
from lapidist.schedule import CostModel, Schedule
from lapidist.schedule.schedule_options import CLUSTER, NONE, TURNSTILE, ScheduleOption, ScheduleOptions
from lapidist.schedule.sharing_choice import Sharing


class Warpgroups(Family, ScalarSchedules):
    """Its ways are also found in plain numbers; their times in columns alone."""

    @property
    def scalar_schedules(self) -> ScalarSchedules:  # type: ignore[override]
        return self

    def data_parallel_option(self, kernel: Kernel, config: Config, device: Device) -> ScheduleOption:
        """Kernels that share by turnstile alone read a schedule for whole tiles too."""
        if "turnstile" not in kernel.reductions or "cluster" in kernel.reductions:
            return ScheduleOption(True, scheduled=False)
        return ScheduleOption(True, launched=max(1, device.clusters_resident(config.cluster)))

    def options(self, problem: Problem, rows: Rows, device: Device, accepted: Any) -> ScheduleOptions:
        supported, room = rows.supports("turnstile", "cluster"), takes_clusters(problem, rows)
        return options(grids_of(problem, rows), rows, device, accepted, supported, room)

    def options_of_config(
        self, problem: Problem, kernel: Kernel, config: Config, device: Device, reductions: Collection[int]
    ) -> list[ScheduleOption]:
        grid, blocks = grids_of(problem, config), max(1, device.clusters_resident(config.cluster))
        options = [self.data_parallel_option(kernel, config, device)] if NONE in reductions else []
        whole_tiles = config.ping_pong or not whole_eighths(config)
        if whole_tiles or not grid.tiles or not grid.iterations:
            return options
        if TURNSTILE in reductions and "turnstile" in kernel.reductions and not config.skewed:
            options += streams_of_one(grid, blocks)
        if CLUSTER in reductions and "cluster" in kernel.reductions and has_room(problem, config):
            options += clustered_of_one(grid, blocks, device)
        return options

    def seconds(self, problem: Problem, rows: Rows, device: Device, options: ScheduleOptions) -> Any:
        return seconds(problem, rows, device, options)

    def quantising_seconds(
        self, problem: Problem, rows: Rows, device: Device, options: ScheduleOptions
    ) -> Any:
        seconds: Any = super().quantising_seconds(problem, rows, device, options)
        if not quantises(problem):
            return seconds
        in_kernel = (rows.bn % grouped_columns(problem) == 0) & (options.cluster == 1) & ~rows.lesson
        return np.where(in_kernel, 0.0, seconds)

    def schedule_of(
        self, problem: Problem, kernel: Kernel, config: Config, device: Device, option: ScheduleOption
    ) -> Schedule | None:
        if not option.scheduled:
            return None
        return schedule_of(option, kernel.tile_grid(problem, config), config)

    def schedules(
        self, problem: Problem, kernel: Kernel, config: Config, device: Device, sharing: Sharing
    ) -> list[Schedule | None]:
        if not kernel.reductions:
            return [None]
        make, grid = schedules if "cluster" in kernel.reductions else streamed_schedules, kernel.tile_grid
        packs, room = kernel.packs(problem), bool(takes_clusters(problem, config))
        return list(make(grid(problem, config), config, device, sharing, packs, room))

    def costs(
        self, problem: Problem, kernel: Kernel, config: Config, device: Device
    ) -> tuple[int, CostModel]:
        return kernel.persistent, block_costs(problem, config, device)
