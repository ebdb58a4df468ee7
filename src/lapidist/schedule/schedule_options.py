"""Ways to share tiles, for many configs at once: a row for each way, a column for each config.

A `Schedule` describes one product, `Ways` a hundred candidates for it; both take their counts from shares.py.
Only the chosen way becomes a Schedule.
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
from lapidist.schedule.shares import Shared
from lapidist.schedule.units import REDUCTIONS, Schedule

CODES = {name: code for code, name in enumerate(REDUCTIONS)}
NONE, TURNSTILE, SEPARATE, CLUSTER = (CODES[each] for each in ("none", "turnstile", "separate", "cluster"))


class Grids(NamedTuple):
    """The tiles of each config, with the same numbers as a TileGrid."""

    tiles_m: Any
    tiles_n: Any
    iterations: Any
    tiles: Any

    @staticmethod
    def of(m: int, n: int, k: int, bm: Any, bn: Any, bk: Any, batches: int) -> Grids:
        tiles_m, tiles_n = ceil_div(m, bm), ceil_div(n, bn)
        return Grids(tiles_m, tiles_n, ceil_div(k, larger(1, bk)), tiles_m * tiles_n * batches)

    @staticmethod
    def one(grid: TileGrid) -> Grids:
        return Grids(
            *(np.array([each]) for each in (grid.tiles_m, grid.tiles_n, grid.iterations, grid.tiles))
        )


class Way(NamedTuple):
    """One way for each config: whether it is possible, and the numbers of its Schedule. Or several ways, as
    many as `taken` has rows.
    """

    taken: Any
    sk_tiles: Any = 0
    sk_blocks: Any = 0
    regions: Any = 1
    reduction: Any = NONE
    fragments: Any = 1
    launched: Any = 0
    scheduled: Any = True  # False: blocks find their tiles without a Schedule

    @staticmethod
    def split(taken: Any, tiles: Any, peers: Any, reduction: Any, fragments: Any = 1) -> Way:
        """All tiles, with equally many blocks for each."""
        return Way(taken, tiles, tiles * peers, tiles, reduction, fragments)

    @staticmethod
    def stream(taken: Any, tiles: Any, blocks: Any, *more: Any) -> Way:
        """So many tiles shared by so many blocks; `more`: the reduction, fragments, launched blocks."""
        even = (blocks > tiles) & (blocks % larger(1, tiles) == 0)
        return Way(taken, tiles, blocks, where(even, tiles, 1), *more)

    @staticmethod
    def of(schedule: Schedule | None) -> Way:
        if schedule is None:
            return Way(True, scheduled=False)
        counts = schedule.sk_tiles, schedule.sk_blocks, schedule.regions
        return Way(True, *counts, CODES[schedule.reduction], schedule.fragments, schedule.launched)


DEFAULTS = [(name, Way._field_defaults.get(name, False)) for name in Way._fields]


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


class OneWay(Shared):
    """One way of one config in plain numbers, with the properties of Shared computed at once."""

    __slots__ = (*Way._fields, *COUNTS, "grid")
    dp_tiles: Any
    blocks_per_region: Any
    region_iterations: Any
    normal_iterations: Any
    big_blocks: Any
    longest: Any
    shares_tiles: Any
    cluster: Any

    def __init__(self, grid: Grids, way: Way) -> None:
        self.grid = grid
        (
            self.taken,
            self.sk_tiles,
            self.sk_blocks,
            self.regions,
            self.reduction,
            self.fragments,
            self.launched,
            self.scheduled,
        ) = way
        tiles, blocks, regions, steps = self.sk_tiles, self.sk_blocks, self.regions, grid.iterations
        self.dp_tiles, self.blocks_per_region = grid.tiles - tiles, blocks // regions
        self.region_iterations = tiles // regions * steps
        each = self.blocks_per_region or 1
        self.normal_iterations, self.big_blocks = divmod(self.region_iterations, each)
        uneven = self.big_blocks > 0
        self.longest = self.normal_iterations + uneven
        self.shares_tiles = blocks > 0 and (uneven or self.normal_iterations % (steps or 1) != 0)
        self.cluster = self.blocks_per_region if blocks > 0 and self.reduction == CLUSTER else 1

    def reduces_by(self, way: str) -> bool:
        return bool(self.reduction == CODES[way])


def kept(name: str) -> Any:
    """A property of Shared, computed once."""
    found = cached_property(getattr(Shared, name).fget)
    found.__set_name__(Shared, name)
    return found


class Ways(Shared):
    """The ways of all configs. Where one is not possible, its numbers are those of whole tiles."""

    taken: Any
    reduction: Any
    launched: Any
    scheduled: Any

    def __init__(self, grid: Grids, ways: Sequence[Way]) -> None:
        self.grid = grid
        ways = ways or [Way(False)]
        ends = list(accumulate([len(way.taken) if np.ndim(way.taken) == 2 else 1 for way in ways]))
        spans = list(map(slice, [0, *ends], ends))
        for (name, default), values in zip(DEFAULTS, zip(*ways, strict=True), strict=True):
            column = np.zeros((ends[-1], grid.tiles.size), type(default))
            for span, value in zip(spans, values, strict=True):
                column[span] = value
            self.__dict__[name] = column if name == "taken" else np.where(self.taken, column, default)

    @classmethod
    def given(cls, grid: Grids, listed: Sequence[Sequence[Schedule | None]]) -> Ways:
        """The schedules that are listed for each config."""
        most = max(map(len, listed), default=0)
        nothing = Way(False)
        table = [[Way.of(each) for each in ways] + [nothing] * (most - len(ways)) for ways in listed]
        return cls(grid, [Way(*map(np.array, zip(*row, strict=True))) for row in zip(*table, strict=True)])

    def reduces_by(self, way: str) -> Any:
        return self.reduction == CODES[way]

    def at(self, row: int, column: int) -> Way:
        """The way of one config."""
        return Way(*[self.__dict__[name][row, column].item() for name in Way._fields])

    # arrays, which are needed several times
    dp_tiles = kept("dp_tiles")
    blocks_per_region = kept("blocks_per_region")
    region_iterations = kept("region_iterations")
    normal_iterations = kept("normal_iterations")
    big_blocks = kept("big_blocks")
    longest = kept("longest")
    shares_tiles = kept("shares_tiles")
    cluster = kept("cluster")
    reduction_blocks = kept("reduction_blocks")

    @property
    def countable(self) -> Any:
        """The possible ways whose tiles and iterations blocks can count with 32 bits."""
        return self.taken & (self.grid.tiles <= INT_LIMIT) & (self.region_iterations <= INT_LIMIT)
