"""The predicted times of all configs of one family with all their schedules, computed at once. They say which
configs take the problem, and which schedule is the best of each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from lapidist.config import Config
from lapidist.device import Device
from lapidist.errors import ArgumentError
from lapidist.kernels.config_table import grids_of
from lapidist.kernels.kernel import Kernel
from lapidist.kernels.kernel_table import Rows
from lapidist.launch import INT_LIMIT
from lapidist.planning.fitted_times import corrected, effects
from lapidist.planning.group_samples import EXCHANGED, samples
from lapidist.problems.cached_fact import fact
from lapidist.problems.problem import Problem
from lapidist.schedule import Schedule
from lapidist.schedule.schedule_options import ScheduleOption, ScheduleOptions
from lapidist.schedule.sharing_choice import Sharing

# Rungs and detours were not measured on every shape, so the planner multiplies their times by this.
LESSON = 1.2
LAUNCH_SECONDS = 2.2e-6  # of an empty kernel in a graph of many, on an H200
WHOLE_TILES = 0  # the first row of options: each block computes whole tiles
NO_SCHEDULE = "each of its blocks computes whole tiles: it takes neither split_k nor a schedule"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A kernel with a config and a schedule, and its predicted time or the reason of its refusal."""

    kernel: Kernel
    config: Config
    schedule: Schedule | None
    seconds: float
    refusal: str | None
    unshared: str = ""  # why tiles are whole although the caller asked for Stream-K

    @property
    def shares_tiles(self) -> bool:
        return self.schedule is not None and self.schedule.shares_tiles

    def __str__(self) -> str:
        verdict = f"refused: {self.refusal}" if self.refusal else f"{self.seconds * 1e6:.1f} us predicted"
        shared = f", {self.schedule.kind}" if self.schedule and self.schedule.kind != "data-parallel" else ""
        return f"{self.kernel.name} ({self.config}{shared}): {verdict}"


class CostTable:
    """Predicted seconds: a row for each schedule, a column for each config. A caller's schedule is built
    config by config, since it may be wrong for some.
    """

    def __init__(
        self,
        problem: Problem,
        rows: Rows,
        device: Device,
        sharing: Sharing,
        accepted: Any = None,
        fitted: bool = True,
    ) -> None:
        """`accepted`: which configs take the problem; None: find out. `fitted`: with the chip's factors."""
        self.rows, self.device, self.sharing, self.fitted = rows, device, sharing, fitted
        self.problem, self.family = as_computed(problem, rows.configs[0]), rows.kernels[0].family
        self.schedules: dict[int, Sequence[Schedule | None]] = {}  # of each config, by the caller's choices
        self.wrong: dict[int, str] = {}  # by config, why the caller's schedule does not fit it
        self.accepted = rows.accepted(self.problem, device) if accepted is None else accepted
        self.any = bool(np.count_nonzero(self.accepted))
        if self.any:
            self._read_options()

    def _read_options(self) -> None:
        rows, grid = self.rows, grids_of(self.problem, self.rows, self.rows.walks)
        self.accepted &= grid.tiles <= INT_LIMIT
        self.any = bool(np.count_nonzero(self.accepted))
        if not self.any:
            return
        if self.sharing.open:
            self.options = self.family.options(self.problem, rows, self.device, self.accepted)
        else:
            self.options = ScheduleOptions.of_schedules(grid, self._callers_schedules())
        self.allowed = self.options.countable
        if self.problem.modes.ragged is not None:  # no block knows how much work another one has
            self.allowed = self.allowed & (np.arange(len(self.allowed)) == WHOLE_TILES)[:, None]

    @cached_property
    def schedule_seconds(self) -> Any:
        """Seconds of each schedule of each config. Of a grouped product, the mean over samples of lengths."""
        if self.problem.modes.ragged is None:
            return np.where(self.allowed, self._seconds_of(self.problem, self.options), np.inf)
        seconds = []
        for sample, weight in samples(self.problem):
            whole = ScheduleOptions(grids_of(sample, self.rows), [self._whole_tiles()])
            seconds.append(weight * self._seconds_of(sample, whole))
        longer = EXCHANGED if self.rows.configs[0].exchanged else 1.0
        return np.where(self.allowed, longer * np.sum(seconds, axis=0), np.inf)

    def _whole_tiles(self) -> ScheduleOption:
        """The first option, by itself."""
        return ScheduleOption(self.accepted, scheduled=self.options.scheduled[WHOLE_TILES])

    def _seconds_of(self, problem: Problem, options: ScheduleOptions) -> Any:
        with np.errstate(all="ignore"):  # refused configs may divide by zero
            inputs = problem, self.rows, self.device, options
            seconds = self.family.seconds(*inputs) + self.family.second_pass_seconds(*inputs)
            seconds = LAUNCH_SECONDS + self.rows.longer * seconds
            if not self.fitted:
                return seconds
            factors = effects(problem, self.rows, self.device)
            return corrected(seconds, factors, problem, self.device, options)

    @cached_property
    def best_options(self) -> Any:
        """The index of each config's best schedule."""
        return self.counted().argmin(axis=0)

    @cached_property
    def seconds(self) -> Any:
        return self.schedule_seconds[self.best_options, np.arange(len(self.best_options))]

    def narrow(self, allowed: Any) -> None:
        """Allow only some schedules from now on."""
        self.allowed = self.allowed & allowed
        self.accepted = self.accepted & self.allowed.any(axis=0)
        self.any = bool(np.count_nonzero(self.accepted))
        for name in ("schedule_seconds", "best_options", "seconds"):
            self.__dict__.pop(name, None)

    def counted(self) -> Any:
        """The seconds by which schedules are chosen: those of shared tiles count longer."""
        return self.schedule_seconds / self.family.worth(self.problem, self.rows, self.options)

    def _callers_schedules(self) -> list[Sequence[Schedule | None]]:
        """The schedules that the caller's choices leave for each config."""
        for at in np.flatnonzero(self.accepted).tolist():
            kernel, config = self.rows.kernels[at], self.rows.configs[at]
            try:
                if self.sharing.asked_for and not kernel.family.scheduled:
                    raise ArgumentError(NO_SCHEDULE)
                self.schedules[at] = kernel.family.schedules(
                    self.problem, kernel, config, self.device, self.sharing
                )
            except ArgumentError as error:  # it may fit other tiles
                self.accepted[at], self.wrong[at] = False, str(error)
        self.any = bool(self.schedules)
        return [self.schedules.get(at, ()) for at in range(len(self.rows.configs))]

    # ---- the best config ----

    def quickest(self) -> tuple[float, int] | None:
        """The least time, in which rungs count longer, and the first position that has it."""
        if not self.any:
            return None
        times = np.where(self.accepted, self.seconds * np.where(self.rows.lesson, LESSON, 1.0), np.inf)
        at = int(times.argmin()) if times.min() < np.inf else int(self.accepted.argmax())
        return float(times[at]), self.rows.positions[at]

    def as_good_as(self, place: int, other: CostTable, tie: float) -> int | None:
        """The first position in `other` of the same kernel, scheduled if this one is, whose time is hardly
        longer.
        """
        at = self.rows.positions.index(place)
        kernel, scheduled = self.rows.kernels[at], self._scheduled()[at]
        if not other.any or kernel not in other.rows.kernels:
            return None
        alike = other.accepted & (other._scheduled() == scheduled) & (other.seconds <= tie * self.seconds[at])
        columns = np.flatnonzero(alike).tolist()
        first = next((column for column in columns if other.rows.kernels[column] is kernel), None)
        return None if first is None else other.rows.positions[first]

    def _scheduled(self) -> Any:
        return self.options.scheduled[self.best_options, np.arange(len(self.best_options))]

    # ---- one config ----

    def binary(self, place: int) -> tuple[Kernel, Config]:
        at = self.rows.positions.index(place)
        return self.rows.kernels[at], self.rows.configs[at]

    def candidate(self, place: int) -> Candidate:
        at = self.rows.positions.index(place)
        kernel, config = self.rows.kernels[at], self.rows.configs[at]
        if not self.accepted[at]:
            return Candidate(kernel, config, None, math.inf, self._refusal(at))
        best = Candidate(kernel, config, self._schedule(at), float(self.seconds[at]), None)
        says_why = best.schedule is not None and best.schedule.reason
        if self.sharing.schedule != "stream_k" or best.shares_tiles or says_why:
            return best
        shared = self.options.shares_tiles[:, at] & self.options.possible[:, at]
        return replace(best, unshared=why_unshared(best, self.schedule_seconds[shared, at].tolist()))

    def _schedule(self, at: int) -> Schedule | None:
        kernel, config, row = self.rows.kernels[at], self.rows.configs[at], int(self.best_options[at])
        if at in self.schedules:
            return self.schedules[at][row]
        option = self.options.at(row, at)
        return kernel.family.schedule_of(self.problem, kernel, config, self.device, option)

    def _refusal(self, at: int) -> str:
        kernel, config = self.rows.kernels[at], self.rows.configs[at]
        refusal = kernel.refuse(self.problem, config, self.device) or self.wrong.get(at)
        return refusal or f"blocks count its tiles with 32 bits; {config} has more"


def why_unshared(best: Candidate, shared: Sequence[float]) -> str:
    if not shared:
        return "no tiles are left over full waves whose sharing would pay"
    seconds = min(shared)
    times = f"Stream-K is predicted to take {seconds * 1e6:.1f} us, whole tiles {best.seconds * 1e6:.1f} us"
    return (
        f"{times}: it must promise less than {best.kernel.worth:.0%} of that"
        if seconds < best.seconds
        else times
    )


def as_computed(problem: Problem, config: Config) -> Problem:
    """The problem as a kernel with this config computes it."""
    if config.exchanged:
        problem = exchanged(problem)
    return shifted(problem) if config.skewed else problem


@fact
def exchanged(problem: Problem) -> Problem:
    return problem.exchanged()


@fact
def shifted(problem: Problem) -> Problem:
    return replace(problem, skewed=True)
