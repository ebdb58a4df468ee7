"""Families of persistent clusters with wgmma: how they share tiles, by turnstile or as peers in a cluster."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from lapidist.config import Config
from lapidist.device import Device
from lapidist.kernels.config_table import grids_of
from lapidist.kernels.family import Family, WaysInNumbers
from lapidist.kernels.kernel import Kernel
from lapidist.kernels.kernel_table import Rows
from lapidist.kernels.wgmma.operands import grouped_columns, quantises
from lapidist.kernels.wgmma.sharing import (
    clustered_of_one,
    has_room,
    schedule_of,
    schedules,
    streamed_schedules,
    streams_of_one,
    takes_clusters,
    ways,
)
from lapidist.kernels.wgmma.time import block_costs, seconds
from lapidist.problems.problem import Problem
from lapidist.schedule import CostModel, Schedule
from lapidist.schedule.schedule_options import CLUSTER, NONE, TURNSTILE, Way, Ways
from lapidist.schedule.sharing_choice import Sharing


class Warpgroups(Family, WaysInNumbers):
    """Its ways are also found in plain numbers; their times in columns alone."""

    @property
    def ways_in_numbers(self) -> WaysInNumbers:  # type: ignore[override]
        return self

    def whole(self, kernel: Kernel, config: Config, device: Device) -> Way:
        """Kernels that share by turnstile alone read a schedule for whole tiles too."""
        if "turnstile" not in kernel.ways or "cluster" in kernel.ways:
            return Way(True, scheduled=False)
        return Way(True, launched=max(1, device.clusters_resident(config.cluster)))

    def ways(self, problem: Problem, rows: Rows, device: Device, taken: Any) -> Ways:
        known, room = rows.known("turnstile", "cluster"), takes_clusters(problem, rows)
        return ways(grids_of(problem, rows), rows, device, taken, known, room)

    def ways_of_one(
        self, problem: Problem, kernel: Kernel, config: Config, device: Device, asked: Collection[int]
    ) -> list[Way]:
        grid, blocks = grids_of(problem, config), max(1, device.clusters_resident(config.cluster))
        found = [self.whole(kernel, config, device)] if NONE in asked else []
        if config.ping_pong or not grid.tiles or not grid.iterations:
            return found
        if TURNSTILE in asked and "turnstile" in kernel.ways and not config.skewed:
            found += streams_of_one(grid, blocks)
        if CLUSTER in asked and "cluster" in kernel.ways and has_room(problem, config):
            found += clustered_of_one(grid, blocks, device)
        return found

    def seconds(self, problem: Problem, rows: Rows, device: Device, ways: Ways) -> Any:
        return seconds(problem, rows, device, ways)

    def quantising(self, problem: Problem, rows: Rows, device: Device, ways: Ways) -> Any:
        found: Any = super().quantising(problem, rows, device, ways)
        if not quantises(problem):
            return found
        own = (rows.bn % grouped_columns(problem) == 0) & (ways.cluster == 1) & ~rows.lesson
        return np.where(own, 0.0, found)

    def schedule_of(
        self, problem: Problem, kernel: Kernel, config: Config, device: Device, way: Way
    ) -> Schedule | None:
        if not way.scheduled:
            return None
        return schedule_of(way, kernel.tile_grid(problem, config), config)

    def schedules(
        self, problem: Problem, kernel: Kernel, config: Config, device: Device, sharing: Sharing
    ) -> list[Schedule | None]:
        if not kernel.ways:
            return [None]
        found, grid = schedules if "cluster" in kernel.ways else streamed_schedules, kernel.tile_grid
        packs, room = kernel.packs(problem), bool(takes_clusters(problem, config))
        return list(found(grid(problem, config), config, device, sharing, packs, room))

    def costs(
        self, problem: Problem, kernel: Kernel, config: Config, device: Device
    ) -> tuple[int, CostModel]:
        return kernel.persistent, block_costs(problem, config, device)
