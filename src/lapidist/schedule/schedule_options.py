"""The schedules that a planner chooses among, for many configs at once: a row for each option, a column for
each config.

A `Schedule` describes one product, `ScheduleOptions` a hundred candidates for it; both take their counts from
shares.py. Only the chosen option becomes a Schedule.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from lapidist.launch import INT_LIMIT
from lapidist.schedule.grid import TileGrid, ceil_div
from lapidist.schedule.numbers import larger, where
from lapidist.schedule.schedule_rules import REDUCTIONS
from lapidist.schedule.shares import Shared
from lapidist.schedule.units import Schedule

CODES = {name: code for code, name in enumerate(REDUCTIONS)}
NONE, TURNSTILE, SEPARATE, CLUSTER = (CODES[name] for name in ("none", "turnstile", "separate", "cluster"))


class Grids(NamedTuple):
    """The tiles of each config, with the same numbers as a TileGrid."""

    tiles_m: Any
    tiles_n: Any
    iterations: Any
    tiles: Any

    @staticmethod
    def of(m: int, n: int, k: int, bm: Any, bn: Any, bk: Any, batches: int, triangle: Any = None) -> Grids:
        """`triangle`: a function of the tiles along m and n, how many of them are computed."""
        tiles_m, tiles_n = ceil_div(m, bm), ceil_div(n, bn)
        tiles = tiles_m * tiles_n if triangle is None else triangle(tiles_m, tiles_n)
        return Grids(tiles_m, tiles_n, ceil_div(k, larger(1, bk)), tiles * batches)

    @staticmethod
    def one(grid: TileGrid) -> Grids:
        return Grids(
            *(np.array([count]) for count in (grid.tiles_m, grid.tiles_n, grid.iterations, grid.tiles))
        )


class ScheduleOption(NamedTuple):
    """The numbers of a Schedule, and whether it is possible: for one config, or an array for many. `possible`
    may have rows: then there are as many options.
    """

    possible: Any
    sk_tiles: Any = 0
    sk_blocks: Any = 0
    regions: Any = 1
    reduction: Any = NONE
    fragments: Any = 1
    launched: Any = 0
    scheduled: Any = True  # False: blocks find their tiles without a Schedule

    @staticmethod
    def split(possible: Any, tiles: Any, peers: Any, reduction: Any, fragments: Any = 1) -> ScheduleOption:
        """All tiles, with equally many blocks for each."""
        return ScheduleOption(possible, tiles, tiles * peers, tiles, reduction, fragments)

    @staticmethod
    def stream(possible: Any, tiles: Any, blocks: Any, *more: Any) -> ScheduleOption:
        """So many tiles shared by so many blocks; `more`: the reduction, fragments, launched blocks."""
        even = (blocks > tiles) & (blocks % larger(1, tiles) == 0)
        return ScheduleOption(possible, tiles, blocks, where(even, tiles, 1), *more)

    @staticmethod
    def of(schedule: Schedule | None) -> ScheduleOption:
        if schedule is None:
            return ScheduleOption(True, scheduled=False)
        counts = schedule.sk_tiles, schedule.sk_blocks, schedule.regions
        return ScheduleOption(True, *counts, CODES[schedule.reduction], schedule.fragments, schedule.launched)


DEFAULTS = [(name, ScheduleOption._field_defaults.get(name, False)) for name in ScheduleOption._fields]


COUNTS = (
    "dp_tiles",
    "blocks_per_region",
    "region_iterations",
    "normal_iterations",
    "big_blocks",
    "longest",
    "shares_tiles",
    "cluster",
)


class ScalarOption(Shared):
    """An option of one config in plain numbers, with the properties of Shared computed at once."""

    __slots__ = (*ScheduleOption._fields, *COUNTS, "grid", "option")
    dp_tiles: Any
    blocks_per_region: Any
    region_iterations: Any
    normal_iterations: Any
    big_blocks: Any
    longest: Any
    shares_tiles: Any
    cluster: Any

    def __init__(self, grid: Grids, option: ScheduleOption) -> None:
        self.grid, self.option = grid, option
        (
            self.possible,
            self.sk_tiles,
            self.sk_blocks,
            self.regions,
            self.reduction,
            self.fragments,
            self.launched,
            self.scheduled,
        ) = option
        tiles, blocks, regions, steps = self.sk_tiles, self.sk_blocks, self.regions, grid.iterations
        self.dp_tiles, self.blocks_per_region = grid.tiles - tiles, blocks // regions
        self.region_iterations = tiles // regions * steps
        self.normal_iterations, self.big_blocks = divmod(self.region_iterations, self.blocks_per_region or 1)
        uneven = self.big_blocks > 0
        self.longest = self.normal_iterations + uneven
        self.shares_tiles = blocks > 0 and (uneven or self.normal_iterations % (steps or 1) != 0)
        self.cluster = self.blocks_per_region if blocks > 0 and self.reduction == CLUSTER else 1

    def reduces_by(self, reduction: str) -> bool:
        return bool(self.reduction == CODES[reduction])


def computed_once(name: str) -> Any:
    """A property of Shared that keeps its value."""
    count = cached_property(getattr(Shared, name).fget)
    count.__set_name__(Shared, name)
    return count


class ScheduleOptions(Shared):
    """The options of all configs. Where one is not possible, its numbers are those of whole tiles."""

    possible: Any
    reduction: Any
    launched: Any
    scheduled: Any

    def __init__(self, grid: Grids, options: Sequence[ScheduleOption]) -> None:
        self.grid = grid
        options = options or [ScheduleOption(False)]
        counts = [len(option.possible) if np.ndim(option.possible) == 2 else 1 for option in options]
        ends = list(accumulate(counts))
        spans = list(map(slice, [0, *ends], ends))
        for (name, default), values in zip(DEFAULTS, zip(*options, strict=True), strict=True):
            column = np.zeros((ends[-1], grid.tiles.size), type(default))
            for span, value in zip(spans, values, strict=True):
                column[span] = value
            self.__dict__[name] = column if name == "possible" else np.where(self.possible, column, default)

    @classmethod
    def of_schedules(cls, grid: Grids, schedules: Sequence[Sequence[Schedule | None]]) -> ScheduleOptions:
        """The table of schedules that are listed for each config."""
        most = max(map(len, schedules), default=0)
        nothing = ScheduleOption(False)
        table = [
            [*map(ScheduleOption.of, of_config), *[nothing] * (most - len(of_config))]
            for of_config in schedules
        ]
        return cls(
            grid, [ScheduleOption(*map(np.array, zip(*row, strict=True))) for row in zip(*table, strict=True)]
        )

    def reduces_by(self, reduction: str) -> Any:
        return self.reduction == CODES[reduction]

    def at(self, row: int, column: int) -> ScheduleOption:
        """The option of one config."""
        return ScheduleOption(*[self.__dict__[name][row, column].item() for name in ScheduleOption._fields])

    # arrays, which are needed several times
    dp_tiles = computed_once("dp_tiles")
    blocks_per_region = computed_once("blocks_per_region")
    region_iterations = computed_once("region_iterations")
    normal_iterations = computed_once("normal_iterations")
    big_blocks = computed_once("big_blocks")
    longest = computed_once("longest")
    shares_tiles = computed_once("shares_tiles")
    cluster = computed_once("cluster")
    reduction_blocks = computed_once("reduction_blocks")

    @property
    def countable(self) -> Any:
        """Which options are possible and have tiles and iterations that blocks can count with 32 bits."""
        return self.possible & (self.grid.tiles <= INT_LIMIT) & (self.region_iterations <= INT_LIMIT)
