"""Makers of Schedules: data-parallel, split-K, and Stream-K with a cost model that chooses its blocks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lapidist.errors import ArgumentError, shown
from lapidist.schedule.costs import CostModel, load_of
from lapidist.schedule.grid import ROW_MAJOR, Raster, TileGrid, at_least, ceil_div, most_peers
from lapidist.schedule.schedule_rules import REDUCTIONS
from lapidist.schedule.units import Schedule

MIN_ITERATIONS = 2  # a block with fewer spends its time on filling its pipeline


def data_parallel(
    grid: TileGrid, *, raster: Raster | None = None, persistent_blocks: int = 0, reason: str = ""
) -> Schedule:
    """One block for each tile. `persistent_blocks`: so many blocks compute all tiles, each of them every so
    many-th tile.
    """
    at_least("persistent_blocks", persistent_blocks, 0)
    return Schedule("data-parallel", grid, raster or ROW_MAJOR, launched=persistent_blocks, reason=reason)


def split_k(
    grid: TileGrid,
    splits: int,
    *,
    reduction: str = "turnstile",
    fragments: int = 1,
    raster: Raster | None = None,
) -> Schedule:
    """`splits` blocks for each tile. They add their sums one after another (`turnstile` or `atomic`), or at
    once in `separate` blocks or in a `cluster`.
    """
    at_least("split_k", splits, 1)
    if splits == 1:
        return data_parallel(grid, raster=raster, reason="split_k = 1")
    if splits > grid.iterations:
        raise ArgumentError(
            f"split_k: must not be larger than the iterations along k, {grid.iterations}; got {splits}"
        )
    require_reduction(reduction)
    if not grid.tiles:
        return data_parallel(grid, raster=raster, reason="there are no tiles")
    return Schedule(
        "split-K",
        grid,
        raster or ROW_MAJOR,
        sk_tiles=grid.tiles,
        sk_blocks=grid.tiles * splits,
        regions=grid.tiles,
        reduction=reduction,
        fragments=fragments,
        reason=f"split_k = {splits}",
    )


def stream_k(
    grid: TileGrid,
    *,
    sms: int,
    avail_sms: int | None = None,
    occupancy: int = 1,
    reduction: str = "turnstile",
    fragments: int = 1,
    raster: Raster | None = None,
    dp_first: bool = False,
    sk_tiles: int | None = None,
    sk_blocks: int | None = None,
    regions: int | None = None,
    min_iterations: int = MIN_ITERATIONS,
    semi_persistent: bool = True,
    remap: bool = False,
    persistent: bool = False,
    costs: CostModel | None = None,
    worth: float = 1.0,
) -> Schedule:
    """Full waves data-parallel, the remainder shared evenly by Stream-K blocks.

    `avail_sms`: SMs over which the load is balanced (1: the data-parallel kernel). `occupancy`: blocks that
    an SM holds. `sk_tiles` and `sk_blocks` replace the cost model's choice; with one of them given, the other
    is still chosen. Otherwise tiles are shared if that is predicted to take less than `worth` of
    data-parallel's time.

    `remap` pairs Stream-K blocks with data-parallel ones. It needs an occupancy above one and the whole chip:
    two such launches at once could each hold the SMs that the other waits for. `persistent` launches as many
    blocks as are resident, with the same hazard.
    """
    for name, value in (("sms", sms), ("occupancy", occupancy), ("min_iterations", min_iterations)):
        at_least(name, value, 1)
    wave = sms if avail_sms is None else min(avail_sms, sms)
    at_least("avail_sms", wave, 1, "Leave it out to balance over the whole chip")
    launched = wave * occupancy if persistent else 0
    require_reduction(reduction)
    search = Search(grid, wave, occupancy, min_iterations, costs or CostModel(), worth, sk_tiles, sk_blocks)
    split = search.best()
    if split is None:
        return data_parallel(grid, raster=raster, persistent_blocks=launched, reason=search.why_not())
    waves = ceil_div(split.blocks, wave)
    semi_persistent = semi_persistent and not persistent
    deep = first_wave_depth(grid.tiles - split.tiles, waves, wave, occupancy) if semi_persistent else 1
    schedule = Schedule(
        "Stream-K",
        grid,
        raster or ROW_MAJOR,
        sk_tiles=split.tiles,
        sk_blocks=split.blocks,
        regions=regions if regions is not None else natural_regions(split.tiles, split.blocks),
        wave=wave,
        dp_first=dp_first,
        first_wave_tiles=deep,
        reduction=reduction,
        fragments=fragments,
        launched=launched,
        reason=search.why(split),
    )
    return remapped(schedule, sms, occupancy) if remap else schedule


def shared_waves(
    grid: TileGrid,
    launched: int,
    sk_tiles: int,
    sk_blocks: int,
    *,
    reduction: str = "turnstile",
    fragments: int = 1,
    raster: Raster | None = None,
) -> Schedule:
    """`sk_tiles` shared by `sk_blocks` of the persistent blocks: a choice that was weighed elsewhere."""
    return Schedule(
        "Stream-K",
        grid,
        raster or ROW_MAJOR,
        sk_tiles=sk_tiles,
        sk_blocks=sk_blocks,
        regions=natural_regions(sk_tiles, sk_blocks),
        wave=launched,
        reduction=reduction,
        fragments=fragments,
        launched=launched,
        reason=f"{grid.tiles % launched} tiles are left over full waves",
    )


def require_reduction(reduction: str) -> None:
    shared = [name for name in REDUCTIONS if name != "none"]
    if reduction not in shared:
        raise ArgumentError(
            f"reduction: must be one of {', '.join(shared)} where blocks share tiles; got"
            f" {shown(reduction)}. Name"
            " one of them"
        )


def natural_regions(tiles: int, blocks: int) -> int:
    """If blocks divide evenly over fewer tiles, it is a split-K: no block straddles two tiles."""
    return tiles if blocks > tiles and blocks % tiles == 0 else 1


def first_wave_depth(dp_tiles: int, sk_waves: int, wave: int, occupancy: int) -> int:
    """Tiles for each block of the first data-parallel wave, such that all waves together are a multiple of
    the occupancy.
    """
    excess = (sk_waves + ceil_div(dp_tiles, wave)) % occupancy
    return 1 + excess if 1 + excess <= dp_tiles // wave else 1


def remapped(schedule: Schedule, sms: int, occupancy: int) -> Schedule:
    """Remap only if it helps: several blocks on an SM, the whole chip, and work for more than two waves."""
    useful = occupancy > 1 and schedule.wave == sms and schedule.blocks > 2 * schedule.wave
    return replace(schedule, remap=True) if useful and not schedule.launched else schedule


# ---- how many tiles and blocks ----


@dataclass(frozen=True, slots=True)
class Split:
    """Tiles given to Stream-K and the blocks that share them. `cost`: the model's, for the whole product."""

    tiles: int
    blocks: int
    peers: int
    cost: float


@dataclass(frozen=True, slots=True)
class Search:
    """All splits worth weighing, by the work of the busiest SM."""

    grid: TileGrid
    wave: int
    occupancy: int
    min_iterations: int
    costs: CostModel
    worth: float = 1.0
    sk_tiles: int | None = None
    sk_blocks: int | None = None

    @property
    def forced(self) -> bool:
        return self.sk_tiles is not None or self.sk_blocks is not None

    @property
    def data_parallel_cost(self) -> float:
        load = load_of(self.wave, self.occupancy, (self.grid.tiles, self.grid.iterations))
        return float(self.costs.launch(load, 1))

    def best(self) -> Split | None:
        """The cheapest split; of equal ones that with the fewest blocks, which hand on least. None:
        data-parallel is as good.
        """
        if self.wave == 1 or not self.grid.tiles or not self.grid.iterations:
            return None
        counted = [(tiles, self.block_counts(tiles)) for tiles in self.tile_counts()]
        blocks = np.concatenate([counts for _, counts in counted]) if counted else np.empty(0, np.int64)
        if not len(blocks):
            return None
        tiles = np.repeat([tile_count for tile_count, _ in counted], [len(counts) for _, counts in counted])
        peers, cost = self.weighed(tiles, blocks)
        best = np.lexsort((blocks, cost))[0]
        split = Split(int(tiles[best]), int(blocks[best]), int(peers[best]), float(cost[best]))
        return split if self.forced or split.cost < self.worth * self.data_parallel_cost else None

    def tile_counts(self) -> list[int]:
        """The partial wave, alone or with the last full one. In the second case each block has more than a
        tile, and tiles have few peers.

        A wave has one block on each SM, or as many as an SM holds.
        """
        if self.sk_tiles is not None:
            if not 1 <= self.sk_tiles <= self.grid.tiles:
                raise ArgumentError(
                    f"sk_tiles: must be between 1 and {self.grid.tiles}, the tiles; got {self.sk_tiles}"
                )
            return [self.sk_tiles]
        counts = set()
        for wave in (self.wave, self.wave * self.occupancy):
            full, partial = divmod(self.grid.tiles, wave)
            if partial:
                counts |= {partial, partial + wave if full else partial}
        return sorted(counts) or ([self.grid.tiles] if self.forced else [])

    def block_counts(self, tiles: int) -> np.ndarray:
        """Equally many blocks on each SM, or for each tile; at most as many as the data-parallel waves leave
        room for.

        Not so few that each computes whole tiles.
        """
        iterations = tiles * self.grid.iterations
        if self.sk_blocks is not None:
            if not 1 <= self.sk_blocks <= iterations:
                raise ArgumentError(
                    f"sk_blocks: must be between 1 and {iterations}, the iterations; got {self.sk_blocks}"
                )
            return np.array([self.sk_blocks])
        room = self.occupancy - (self.grid.tiles - tiles) // self.wave % self.occupancy
        most = min(self.wave * room, iterations // self.min_iterations)
        multiples = (np.arange(self.wave, most + 1, self.wave), np.arange(2 * tiles, most + 1, tiles), [most])
        counts = np.unique(np.concatenate(multiples))
        return counts[(counts >= min(self.wave, tiles + 1)) & (tiles % np.maximum(1, counts) != 0)]

    def weighed(self, tiles: Any, blocks: Any) -> tuple[Any, Any]:
        """For so many tiles shared by so many blocks: the most peers of a tile, and the cost of the
        launch.
        """
        iterations = self.grid.iterations
        peers = most_peers(tiles, blocks, iterations)
        shared, unshared = (
            (blocks, ceil_div(tiles * iterations, blocks)),
            (self.grid.tiles - tiles, iterations),
        )
        return peers, self.costs.launch(load_of(self.wave, self.occupancy, shared, unshared), peers)

    def why(self, split: Split) -> str:
        if self.forced:
            cause = "the caller chose it"
        else:
            cause = (
                f"{self.grid.tiles} tiles leave {self.grid.tiles % self.wave} over in waves of {self.wave}"
            )
        return (
            f"{cause}; {self.costs.amount(split.cost)} by the model, with at most {split.peers} peers a tile,"
            f" data-parallel {self.costs.amount(self.data_parallel_cost)}"
        )

    def why_not(self) -> str:
        if self.wave == 1:
            return "avail_sms = 1"
        if not self.grid.tiles or not self.grid.iterations:
            return "there is nothing to share"
        if self.grid.tiles % self.wave == 0:
            return f"{self.grid.tiles} tiles fill waves of {self.wave}"
        return (
            "no split is predicted to be faster than data-parallel,"
            f" {self.costs.amount(self.data_parallel_cost)}"
        )
