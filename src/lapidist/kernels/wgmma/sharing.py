"""How blocks of gemm/wgmma.cu share tiles: the ways that are worth weighing, and the costs of sharing.

Blocks are persistent, one on an SM. What is left over full waves of tiles is shared evenly (Stream-K, with
sums in the workspace). With few tiles and a long k, the peers of a tile form a cluster, and their sums meet
in shared memory. A schedule counts the blocks of a config's cluster as one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any

import numpy as np

from lapidist.config import Config, Knobs
from lapidist.device import Device
from lapidist.errors import ArgumentError
from lapidist.kernels.wgmma.tiles import ROW_BYTES, rows_of_stage, sums_of_thread
from lapidist.knobs.shared_knobs import BAND
from lapidist.problems.compile_key import of_kind
from lapidist.problems.problem import Problem
from lapidist.schedule import Raster, Schedule, TileGrid, data_parallel, shared_waves, split_k
from lapidist.schedule.grid import ceil_div, most_peers
from lapidist.schedule.schedule_options import CLUSTER, TURNSTILE, Grids, ScheduleOption, ScheduleOptions
from lapidist.schedule.sharing_choice import Sharing, fitting

WEIGHED = 2, 3, 4, 8  # peers in a cluster: each number is a build, and 5 and 6 were within a few percent
LEAST_STEPS = 2  # iterations of a block that hands on sums through memory: fewer do not pay
WAVES = 6  # after so many full waves the last one does not matter
# Time of a reduction: seconds for two peers, and for each byte of the tile; then both for each further peer.
# "few": there are fewer shared tiles than clusters.
HANDED = np.array(
    [
        (3.3e-6, 23e-12, 0.7e-6, 28e-12),  # turnstile
        (2.0e-6, 22e-12, 0.8e-6, 22e-12),  # turnstile, few
        (0.42e-6, 31e-12, 0.24e-6, 3.3e-12),  # cluster
    ]
).T
# Blocks at different places of k do not load the same lines at the same time, so the L2 answers each of them.
# How much longer their iterations are, with the largest tile and with a small one; then for few tiles, whose
# lines are loaded for whole clusters.
OUT_OF_STEP, FEW_OUT_OF_STEP = (1.14, 1.59), (1.14, 1.28)
CROWDED = 0.5  # the same for small tiles of clusters that fill the chip
LARGEST = 128 * 256


def options(
    grid: Grids, config: Knobs, device: Device, accepted: Any, reductions: Any, room: Any
) -> ScheduleOptions:
    """The schedules that the planner may choose among. `reductions`: which kernels share by turnstile, and
    which in clusters; `room`: the value of takes_clusters. In the first each block computes whole tiles; some
    kernels read a schedule for that too.
    """
    turnstile, cluster = reductions
    always = turnstile & ~cluster
    blocks = np.maximum(1, clusters_at_once(device)[config.cluster])
    data_parallel = ScheduleOption(accepted, launched=np.where(always, blocks, 0), scheduled=always)
    free = (
        accepted & whole_eighths(config) & (config.ping_pong == 0) & (grid.tiles > 0) & (grid.iterations > 0)
    )
    # Kernels that shift rows and share tiles by turnstile take longest of all to compile, and are hardly ever
    # the fastest.
    streamed = streams(grid, blocks, free & turnstile & (config.skewed == 0))
    return ScheduleOptions(
        grid, [data_parallel, *streamed, *clustered(grid, blocks, device, free & cluster & room)]
    )


def whole_eighths(config: Knobs) -> Any:
    """Whether a thread's sums fill the eights in which they are handed on (share/partial_sums.cuh)."""
    return sums_of_thread(config) % 8 == 0


def streams(grid: Grids, blocks: Any, free: Any) -> list[ScheduleOption]:
    """The last wave shared, alone or with the full wave before it, in which case tiles have at most two
    peers.
    """
    full, partial = grid.tiles // blocks, grid.tiles % blocks
    free = free & (partial > 0) & (full <= WAVES)
    if not np.count_nonzero(free):
        return []
    tiles = np.array([partial, partial + blocks])
    shared = np.minimum(blocks, tiles * grid.iterations // LEAST_STEPS)
    possible = free & ((full > 0) | ((tiles == partial) & (shared > tiles)))
    return [ScheduleOption.stream(possible, tiles, np.maximum(1, shared), TURNSTILE, 1, blocks)]


def clustered(grid: Grids, blocks: Any, device: Device, free: Any) -> list[ScheduleOption]:
    splits = np.array(WEIGHED)[:, None]
    resident = np.array([[device.clusters_resident(peers)] for peers in WEIGHED])
    fits = grid.tiles <= np.minimum(blocks // splits, resident)
    possible = free & fits & (grid.iterations >= splits)
    return [ScheduleOption.split(possible, grid.tiles, splits, CLUSTER)]


def streams_of_one(grid: Grids, blocks: int) -> list[ScheduleOption]:
    """The same for one config: the ways that are possible, in order."""
    full, partial = divmod(grid.tiles, blocks)
    if not partial or full > WAVES:
        return []
    streams = []
    for tiles in (partial, partial + blocks):
        shared = min(blocks, tiles * grid.iterations // LEAST_STEPS)
        if full or (tiles == partial and shared > tiles):
            streams.append(ScheduleOption.stream(True, tiles, max(1, shared), TURNSTILE, 1, blocks))
    return streams


def clustered_of_one(grid: Grids, blocks: int, device: Device) -> list[ScheduleOption]:
    return [
        ScheduleOption.split(True, grid.tiles, splits, CLUSTER)
        for splits in WEIGHED
        if splits <= grid.iterations and grid.tiles <= min(blocks // splits, device.clusters_resident(splits))
    ]


@lru_cache(maxsize=1024)
def schedule_of(option: ScheduleOption, grid: TileGrid, config: Config) -> Schedule:
    """The Schedule of a way whose blocks read one. Products of many numbers of rows share it."""
    if not option.sk_blocks:
        return data_parallel(grid, raster=raster(config), persistent_blocks=option.launched)
    if option.reduction == CLUSTER:
        schedule = split_k(grid, option.sk_blocks // option.sk_tiles, reduction="cluster")
        return replace(schedule, reason=f"{grid.tiles} tiles are left over full waves")
    return shared_waves(grid, option.launched, option.sk_tiles, option.sk_blocks, raster=raster(config))


# ---- the caller's choices ----


def schedules(
    grid: TileGrid, config: Config, device: Device, sharing: Sharing, packs: bool, room: bool
) -> Iterator[Schedule | None]:
    """The schedules that the caller's choices allow. None: blocks compute whole tiles and read no schedule.
    `room`: the value of takes_clusters.
    """
    reduction = sharing.schedule.reduction if isinstance(sharing.schedule, Schedule) else sharing.reduction
    if reduction not in (None, "none", "turnstile", "cluster"):
        raise ArgumentError(
            "reduction: this kernel's blocks share tiles by 'turnstile' or in a 'cluster'; got"
            f" {reduction!r}. Take one of these"
        )
    if config.ping_pong:
        if sharing.asked_for or sharing.avail_sms:
            raise ArgumentError(
                f"schedule: in ping-pong blocks take whole tiles, every so many-th; got {sharing}. Take"
                " another config"
            )
        yield None
        return
    if not whole_eighths(config):
        if sharing.asked_for or sharing.avail_sms:
            raise ArgumentError(
                "schedule: a thread hands on its sums eight at a time; this tile gives it"
                f" {sums_of_thread(config)}. Take another config"
            )
        yield None
        return
    for schedule in wanted(grid, config, device, sharing, reduction, room):
        yield all_at_once(schedule, config, device) if schedule and packs else schedule


def wanted(
    grid: TileGrid, config: Config, device: Device, sharing: Sharing, reduction: str | None, room: bool
) -> Iterator[Schedule | None]:
    blocks = max(
        1, min((sharing.avail_sms or device.sms) // config.cluster, device.clusters_resident(config.cluster))
    )
    if isinstance(sharing.schedule, Schedule):
        require_cluster(sharing.schedule, config, room)
        yield fitting(sharing.schedule, grid)
        return
    if isinstance(sharing.split_k, int) and sharing.split_k > 1:
        yield from splits_asked(grid, sharing.split_k, reduction, config, device, room)
        return
    # Stream-K on one SM is the data-parallel schedule.
    one = sharing.schedule == "stream_k" and sharing.avail_sms == 1
    yield (
        data_parallel(grid, raster=raster(config), persistent_blocks=blocks)
        if sharing.avail_sms and not one
        else None
    )
    if (
        one
        or sharing.schedule == "data_parallel"
        or sharing.split_k == 1
        or not grid.tiles
        or not grid.iterations
    ):
        return
    free, tiles = config.skewed == 0 or sharing.schedule == "stream_k", Grids.one(grid)
    listed = [*streams(tiles, blocks, free)] if reduction in (None, "turnstile") else []
    listed += [*clustered(tiles, blocks, device, room)] if reduction in (None, "cluster") else []
    options = ScheduleOptions(tiles, listed)
    for row in np.flatnonzero(options.possible).tolist():
        schedule = schedule_of(options.at(row, 0), grid, config)
        # named Stream-K even if each tile has equally many blocks
        yield replace(schedule, kind="Stream-K") if sharing.schedule == "stream_k" else schedule


def streamed_schedules(
    grid: TileGrid, config: Config, device: Device, sharing: Sharing, packs: bool, room: bool
) -> Iterator[Schedule | None]:
    """For a kernel whose blocks always read a schedule, and share tiles by turnstile."""
    blocks = max(1, device.clusters_resident(config.cluster))
    turnstile = replace(sharing, reduction="turnstile") if sharing.reduction is None else sharing
    for schedule in schedules(grid, config, device, turnstile, packs, room):
        if schedule is not None and schedule.cluster > 1:
            raise ArgumentError(
                "reduction: this kernel's blocks share tiles by 'turnstile'; got 'cluster'. Take that"
            )
        yield schedule or data_parallel(grid, raster=raster(config), persistent_blocks=blocks)


def all_at_once(schedule: Schedule, config: Config, device: Device) -> Schedule:
    """Blocks that pack operands wait for each other. If a split has more blocks than the chip holds, each
    takes several of its parts.
    """
    at_once = schedule.cluster * config.cluster  # one of the two is 1
    most = device.clusters_resident(at_once) * schedule.cluster
    if schedule.launch_blocks <= most:
        return schedule
    if schedule.cluster > 1:
        raise ArgumentError(
            f"reduction: 'cluster' takes {most} blocks where operands are packed first, all on the chip at"
            f" once; got {schedule.launch_blocks}. Take 'turnstile', split less, or align the operands"
        )
    return replace(schedule, launched=most)


def splits_asked(
    grid: TileGrid, splits: int, reduction: str | None, config: Config, device: Device, room: bool
) -> Iterator[Schedule]:
    find_room = room and grid.tiles <= device.clusters_resident(splits)
    if reduction == "cluster" or (reduction is None and find_room):
        clusters = split_k(grid, splits, reduction="cluster")
        require_cluster(clusters, config, room)
        yield clusters
    if reduction in (None, "turnstile"):
        yield split_k(grid, splits, raster=raster(config))


def takes_clusters(problem: Problem, config: Knobs) -> Any:
    """Whether the peers of a tile may form a cluster: the config has none, and a tile of sums fits in the
    stages.
    """
    lines = rows_of_stage(problem, config) + config.bn
    fits = config.bm * config.bn * 4 <= config.stages * lines * ROW_BYTES
    return (config.cluster == 1) & fits


@of_kind
def has_room(problem: Problem, config: Config) -> bool:
    """The same for one config."""
    return bool(takes_clusters(problem, config))


def require_cluster(schedule: Schedule, config: Config, room: bool) -> None:
    if schedule.cluster > 1 and not room:
        raise ArgumentError(
            "reduction: 'cluster' makes a cluster of a tile's peers, whose sums must fit in the stages; this"
            f" config, {config}, has clusters of its own or too few stages. Take 'turnstile', or another"
            " config"
        )


def raster(config: Config) -> Raster:
    """The order in which the kernel computes tiles."""
    return Raster("m" if config.along_m else "n", config.raster or BAND)


# ---- predicted time ----


def rounds(options: ScheduleOptions, config: Knobs, device: Device) -> Any:
    """Tiles that the busiest block computes, parts of tiles included."""
    blocks, grid = clusters_at_once(device)[config.cluster], options.grid
    unshared = ceil_div(grid.tiles, np.where(options.launched > 0, options.launched, blocks))
    if not np.count_nonzero(options.sk_blocks):
        return unshared
    at_once = np.where(options.cluster > 1, peers_at_once(options, device), blocks)
    shared = ceil_div(options.sk_blocks, at_once) * options.longest / np.maximum(1, grid.iterations)
    longer = shared * out_of_step(config, options, blocks, few_of_clusters(grid, config, device))
    return np.where(options.sk_blocks > 0, ceil_div(options.dp_tiles, blocks) + longer, unshared)


def peers_at_once(options: ScheduleOptions, device: Device) -> Any:
    """Blocks that run at once where a tile's peers are a cluster, whose SMs lie in one GPC: with four peers
    120 of 132, so 32 tiles take two rounds.
    """
    return clusters_at_once(device)[options.cluster] * options.cluster


def out_of_step(config: Knobs, options: ScheduleOptions, blocks: Any, few: Any) -> Any:
    """How much longer the iterations of shared tiles are. Peers in clusters are in step with those of other
    tiles; that only matters if they fill the chip.
    """
    small = np.maximum(0.0, 1 - config.bm * config.bn * config.cluster / LARGEST)
    least, most = (
        np.where(few, FEW_OUT_OF_STEP[0], OUT_OF_STEP[0]),
        np.where(few, FEW_OUT_OF_STEP[1], OUT_OF_STEP[1]),
    )
    crowded = 1 + CROWDED * small * np.minimum(1.0, options.sk_blocks / blocks) ** 2
    return np.where(options.cluster > 1, crowded, least + (most - least) * small)


def few_of_clusters(grid: Grids, config: Knobs, device: Device) -> Any:
    """Whether the config has clusters, and there are more of them than tiles."""
    return (config.cluster > 1) & (grid.tiles < clusters_at_once(device)[config.cluster])


def handing_on(options: ScheduleOptions, config: Knobs, device: Device) -> Any:
    """Seconds that the reduction adds to the busiest block's work."""
    shares = options.shares_tiles
    if not np.count_nonzero(shares):
        return 0.0
    first, further = cost_of(options.reduction, config, few_of_clusters(options.grid, config, device))
    peers = most_peers(
        np.maximum(1, options.sk_tiles // options.regions), options.blocks_per_region, options.grid.iterations
    )
    turns = np.where(options.cluster > 1, ceil_div(options.sk_blocks, peers_at_once(options, device)), 1)
    return np.where(shares, turns * (first + (peers - 2) * further), 0.0)


def cost_of(reduction: Any, config: Knobs, few: Any) -> tuple[Any, Any]:
    """Seconds for the first two peers of a tile, and for each further one."""
    of_streams = np.where(few, 1, 0)
    first, by_byte, further, further_by_byte = HANDED[:, np.where(reduction == CLUSTER, 2, of_streams)]
    tile_bytes = config.bm * config.bn * 4
    return first + by_byte * tile_bytes, further + further_by_byte * tile_bytes


@cache
def clusters_at_once(device: Device) -> np.ndarray:
    """Clusters that the chip holds, by their number of blocks."""
    return np.array([0, *(device.clusters_resident(blocks) for blocks in range(1, 17))])
