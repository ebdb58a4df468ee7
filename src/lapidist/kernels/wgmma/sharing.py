"""How the blocks of gemm/wgmma.cu share tiles: the schedules that are worth weighing, and what sharing costs.

Blocks are persistent, one an SM. What is left over full waves of tiles is shared evenly (Stream-K, sums meet
in the workspace). Where there are few tiles and k is long, the peers of a tile are a cluster and their sums
meet in its shared memory. To a schedule the blocks of a config with clusters are one block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lapidist.config import Config
from lapidist.device import Device
from lapidist.errors import ArgumentError
from lapidist.schedule import Raster, Schedule, TileGrid, data_parallel, split_k, stream_k
from lapidist.schedule.grid import ceil_div, most_peers
from lapidist.schedule.sharing import Sharing, fitting

BAND = 8  # rows of clusters that the kernel itself visits together
WEIGHED = 2, 3, 4, 8  # each is a build; 5 and 6 peers were within a few percent of these
LEAST_STEPS = 2  # of a block that hands its sums on through memory: fewer do not pay
WAVES = 6  # of whole tiles: after so many the last one does not matter
# Bringing a tile's sums together: seconds for two peers, for each byte of the tile, and both for each further
# peer. Few: clusters share fewer tiles than there are of them.
HANDED = {
    "turnstile": (3.3e-6, 23e-12, 0.7e-6, 28e-12),
    "turnstile, few": (2.0e-6, 22e-12, 0.8e-6, 22e-12),
    "cluster": (0.42e-6, 31e-12, 0.24e-6, 3.3e-12),
}
# Blocks that walk k at different places do not find each other's lines on their way from the L2: what a
# shared step costs more, with the largest tile and with a small one; and of such few tiles, whose lines come
# for whole clusters.
OUT_OF_STEP, FEW_OUT_OF_STEP = (1.14, 1.59), (1.14, 1.28)
CROWDED = 0.5
LARGEST = 128 * 256


def schedules(
    grid: TileGrid, config: Config, device: Device, sharing: Sharing, packs: bool
) -> Iterator[Schedule | None]:
    """What the caller asks for, or what the planner may choose from. None: each block takes whole tiles,
    every so many-th.
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
    for schedule in wanted(grid, config, device, sharing, reduction):
        yield all_at_once(schedule, config, device) if schedule and packs else schedule


def wanted(
    grid: TileGrid, config: Config, device: Device, sharing: Sharing, reduction: str | None
) -> Iterator[Schedule | None]:
    blocks = max(
        1, min((sharing.avail_sms or device.sms) // config.cluster, device.clusters_resident(config.cluster))
    )
    if isinstance(sharing.schedule, Schedule):
        require_cluster(sharing.schedule, config)
        yield fitting(sharing.schedule, grid)
        return
    if isinstance(sharing.split_k, int) and sharing.split_k > 1:
        yield from splits_asked(grid, sharing.split_k, reduction, config, device)
        return
    # Stream-K over one SM is the data-parallel kernel
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
    # Of all kernels, those that shift rows and share tiles by turnstile take longest to compile, and hardly
    # one is the fastest.
    if reduction in (None, "turnstile") and (sharing.schedule == "stream_k" or not config.skewed):
        yield from streams(grid, blocks, raster(config))
    if reduction in (None, "cluster") and takes_clusters(config):
        # whose blocks are a multiple of the tiles
        kind = "Stream-K" if sharing.schedule == "stream_k" else "split-K"
        yield from (replace(schedule, kind=kind) for schedule in clustered(grid, blocks, device))


def streamed_schedules(
    grid: TileGrid, config: Config, device: Device, sharing: Sharing, packs: bool
) -> Iterator[Schedule | None]:
    """For a kernel that takes its tiles from schedules only, and shares them by turnstile."""
    blocks = max(1, device.clusters_resident(config.cluster))
    turnstile = replace(sharing, reduction="turnstile") if sharing.reduction is None else sharing
    for schedule in schedules(grid, config, device, turnstile, packs):
        if schedule is not None and schedule.cluster > 1:
            raise ArgumentError(
                "reduction: this kernel's blocks share tiles by 'turnstile'; got 'cluster'. Take that"
            )
        yield schedule or data_parallel(grid, raster=raster(config), persistent_blocks=blocks)


def all_at_once(schedule: Schedule, config: Config, device: Device) -> Schedule:
    """Blocks that pack operands wait for each other: those of a split into more than the chip holds take
    turns.
    """
    at_once = schedule.cluster * config.cluster  # of one of them, blocks have no cluster
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
    grid: TileGrid, splits: int, reduction: str | None, config: Config, device: Device
) -> Iterator[Schedule]:
    find_room = takes_clusters(config) and grid.tiles <= device.clusters_resident(splits)
    if reduction == "cluster" or (reduction is None and find_room):
        clusters = split_k(grid, splits, reduction="cluster")
        require_cluster(clusters, config)
        yield clusters
    if reduction in (None, "turnstile"):
        yield split_k(grid, splits, raster=raster(config))


def takes_clusters(config: Config) -> bool:
    """Whether the peers of a tile may be a cluster: the blocks are not in one already, and a tile of sums
    fits in the stages.
    """
    return config.cluster == 1 and config.bm * config.bn * 4 <= config.stages * (config.bm + config.bn) * 128


def require_cluster(schedule: Schedule, config: Config) -> None:
    if schedule.cluster > 1 and not takes_clusters(config):
        raise ArgumentError(
            "reduction: 'cluster' makes a cluster of a tile's peers, whose sums must fit in the stages; this"
            f" config, {config}, has clusters of its own or too few stages. Take 'turnstile', or another"
            " config"
        )


def streams(grid: TileGrid, blocks: int, order: Raster) -> Iterator[Schedule]:
    """The last wave shared, alone or with the full one before it: then blocks have more than a tile, and two
    peers at most.
    """
    full, partial = divmod(grid.tiles, blocks)
    if not partial or full > WAVES:
        return
    for tiles in (partial, partial + blocks) if full else (partial,):
        shared = min(blocks, tiles * grid.iterations // LEAST_STEPS)
        if shared > tiles or full:
            yield because(
                stream_k(
                    grid, sms=blocks, sk_tiles=tiles, sk_blocks=max(1, shared), persistent=True, raster=order
                ),
                partial,
            )


def clustered(grid: TileGrid, blocks: int, device: Device) -> Iterator[Schedule]:
    for splits in WEIGHED:
        if (
            grid.tiles <= min(blocks // splits, device.clusters_resident(splits))
            and grid.iterations >= splits
        ):
            yield because(split_k(grid, splits, reduction="cluster"), grid.tiles)


def because(schedule: Schedule, partial: int) -> Schedule:
    return replace(schedule, reason=f"{partial} tiles are left over full waves")


def raster(config: Config) -> Raster:
    """The order in which the kernel visits tiles."""
    return Raster("m" if config.along_m else "n", config.raster or BAND)


# ---- what it costs ----


def rounds(grid: TileGrid, config: Config, device: Device, schedule: Schedule | None) -> float:
    """Tiles' worth of steps of the busiest block."""
    blocks = device.clusters_resident(config.cluster)
    if schedule is None or not schedule.sk_blocks:
        return ceil_div(grid.tiles, schedule.launched if schedule and schedule.launched else blocks)
    longest = schedule.normal_iterations + (schedule.big_blocks > 0)
    shared = ceil_div(schedule.sk_blocks, blocks) * longest / max(1, grid.iterations)
    few = few_of_clusters(grid, config, device)
    return ceil_div(schedule.dp_tiles, blocks) + shared * out_of_step(config, schedule, blocks, few)


def out_of_step(config: Config, schedule: Schedule, blocks: int, few: bool) -> float:
    """Peers in clusters are in step with those of other tiles; it tells when they fill the chip."""
    least, most = FEW_OUT_OF_STEP if few else OUT_OF_STEP
    small = max(0.0, 1 - config.bm * config.bn * config.cluster / LARGEST)
    if schedule.cluster > 1:
        return 1 + CROWDED * small * min(1.0, schedule.sk_blocks / blocks) ** 2
    return least + (most - least) * small


def few_of_clusters(grid: TileGrid, config: Config, device: Device) -> bool:
    """Whether blocks are clusters, and more of them than tiles."""
    return config.cluster > 1 and grid.tiles < device.clusters_resident(config.cluster)


def handing_on(grid: TileGrid, config: Config, device: Device, schedule: Schedule | None) -> float:
    """Seconds that sharing adds to the busiest block's work."""
    if schedule is None or not schedule.shares_tiles:
        return 0.0
    first, further = cost_of(schedule.reduction, config, few_of_clusters(grid, config, device))
    peers = most_peers(schedule.sk_tiles // schedule.regions, schedule.blocks_per_region, grid.iterations)
    return first + (peers - 2) * further


def cost_of(reduction: str, config: Config, few: bool) -> tuple[float, float]:
    """Seconds for the first two peers of a tile, and for each further one."""
    first, by_byte, further, further_by_byte = HANDED[
        "turnstile, few" if few and reduction == "turnstile" else reduction
    ]
    tile_bytes = config.bm * config.bn * 4
    return first + by_byte * tile_bytes, further + further_by_byte * tile_bytes
