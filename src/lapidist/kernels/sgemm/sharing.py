"""How the blocks of gemm/sgemm.cu share tiles: the schedules that are worth weighing, and the time that each
takes.

Blocks are persistent, one an SM, and tiles are large: most products leave SMs without one. What is left over
full waves is shared evenly (Stream-K), by turnstile where a tile has few peers. Of many, all leave their sums
in the workspace at once, and then bring them together, a row of each thread's sums at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import inf, prod

from lapidist.config import Config
from lapidist.device import Device
from lapidist.errors import ArgumentError
from lapidist.kernels.row import Schedules
from lapidist.kernels.sgemm.operands import packed, packed_bytes
from lapidist.kernels.signatures import vector_width
from lapidist.problems.problem import Problem
from lapidist.schedule import Schedule, TileGrid, data_parallel, split_k, stream_k
from lapidist.schedule.grid import ceil_div, most_peers
from lapidist.schedule.sharing import Sharing, fitting

MOST_TURNS = 4
PEERS = (2, 3, 4, 6, 8, 11, 16, 22, 32, 44)  # of a tile, that are weighed
LEAST_STEPS = 2  # of a block
WAVES = 32  # of whole tiles: after so many the last one does not matter


def shared_by(*known: str) -> Schedules:
    """Of a kernel that brings partial sums together in these ways: what the caller asks for, or the planner
    may choose from.
    """

    def schedules(
        grid: TileGrid, config: Config, device: Device, sharing: Sharing, packs: bool
    ) -> Iterator[Schedule]:
        reduction = (
            sharing.schedule.reduction if isinstance(sharing.schedule, Schedule) else sharing.reduction
        )
        if reduction not in (None, "none", *known):
            ways = " or ".join(repr(way) for way in known)
            raise ArgumentError(
                f"reduction: this kernel's blocks share tiles by {ways}; got {reduction!r}. Take that, or"
                " another kernel"
            )
        if sharing.schedule == "stream_k" and sharing.avail_sms == 1:  # the data-parallel kernel
            sharing = replace(sharing, schedule="data_parallel", avail_sms=None)
        blocks = min(sharing.avail_sms or device.sms, device.sms)
        for schedule in wanted(
            grid, config.tm, blocks, sharing, (reduction,) if reduction in known else known
        ):
            # Blocks that pack operands wait for each other, and so do those that take part in a separate
            # reduction when they are done with their own tiles: all must be on the chip at once.
            together = packs or schedule.reduction_blocks > 0
            yield (
                replace(schedule, launched=device.sms)
                if together and schedule.launch_blocks > device.sms
                else schedule
            )

    return schedules


def wanted(
    grid: TileGrid, rows: int, blocks: int, sharing: Sharing, reductions: tuple[str, ...]
) -> Iterator[Schedule]:
    if isinstance(sharing.schedule, Schedule):
        yield fitting(sharing.schedule, grid)
        return
    if isinstance(sharing.split_k, int) and sharing.split_k > 1:
        for reduction in reductions:
            yield split_k(
                grid, sharing.split_k, reduction=reduction, fragments=fragments(rows, grid.tiles, blocks)
            )
        return
    yield data_parallel(grid, persistent_blocks=blocks)
    if sharing.schedule != "data_parallel" and sharing.split_k != 1 and grid.tiles and grid.iterations:
        for reduction in reductions:
            yield from streams(grid, rows, blocks, reduction)


def streams(grid: TileGrid, rows: int, blocks: int, reduction: str) -> Iterator[Schedule]:
    """The last wave shared by all blocks, alone or with the full one before it: then blocks have more than a
    tile, and two peers at most. Few tiles: by as many blocks for each."""
    full, partial = divmod(grid.tiles, blocks)
    if not partial or full > WAVES:
        return
    shares = {(partial, blocks), (partial + blocks, blocks)} if full else {(partial, blocks)}
    if not full:
        shares |= {(partial, partial * peers) for peers in PEERS if partial * peers < blocks}
    for tiles, shared in sorted(shares):
        if shared * LEAST_STEPS > tiles * grid.iterations or not (full or shared > tiles):
            continue
        if (
            turns(tiles, shared) <= MOST_TURNS
            if reduction == "turnstile"
            else not full and shared > 2 * tiles
        ):
            form = {"persistent": True, "reduction": reduction, "fragments": fragments(rows, tiles, blocks)}
            schedule = stream_k(grid, sms=blocks, sk_tiles=tiles, sk_blocks=shared, **form)  # type: ignore[arg-type]
            yield replace(schedule, reason=f"{partial} tiles are left over full waves")


def turns(tiles: int, blocks: int) -> int:
    """How often sums are handed on while others wait. A block whose stretch ends inside a tile leaves its
    part of that first, so only blocks that lie within the tile hold up the one that finishes it."""
    return blocks // tiles if blocks % tiles else blocks // tiles - 1


def fragments(rows: int, tiles: int, blocks: int) -> int:
    """Of each tile in a separate reduction: one for each block, since beginning another takes longer than a
    row more.
    """
    return max(1, min(rows, blocks // max(1, tiles)))


# ---- what it costs, in seconds on an H200 ----


EFFICIENCY = 0.84  # of an SM's limit, in the main loop
FIRST = 2.0e-6  # until the first products: barriers, maps, the way of the first stage
# a tile on its way out; if all SMs have one; by hand
STORED, STORED_TOGETHER, STORED_ALONG = (1.0e-6, 2.7e-6, 1.5e-6)
PACKING, PACKED_BYTES_PER_SECOND = 4.5e-6, 1.2e12  # until all blocks have met, and what they copy
DRAM_SHARE = 0.65
HANDED, IN_TURN = 5.5e-6, 4.6e-6  # sums from one peer to the next; for each further turn
LEFT, BROUGHT = 6.0e-6, 2.5e-6  # sums left for all; a fragment of them brought together
BY_ROW, BY_PEER = 0.6e-6, 0.2e-6  # the same for each row of a thread's sums, and for each peer of that


def seconds(problem: Problem, config: Config, device: Device, schedule: Schedule | None) -> float:
    """The larger of arithmetic, on the busiest SM, and memory traffic; after the packing."""
    if schedule is None:  # it was refused before it was scheduled
        return inf
    packing = PACKING + sum(packed_bytes(problem)) / PACKED_BYTES_PER_SECOND if any(packed(problem)) else 0.0
    a, b, _, d = problem.element_bytes
    elements = (
        problem.m * problem.k * a
        + problem.k * problem.n * b
        + problem.m * problem.n * d * (1 + bool(problem.c))
    )
    memory = prod(problem.batch) * elements / (device.dram_gbps * 1e9 * DRAM_SHARE)
    return packing + max(FIRST + computing(problem, config, device, schedule), memory)


def computing(problem: Problem, config: Config, device: Device, schedule: Schedule) -> float:
    """Of the busiest SM."""
    rate = device.unit_limit("fma", problem.math) * 1e12 * EFFICIENCY / device.sms
    if not rate:
        return inf
    grid, blocks, step = (
        schedule.grid,
        schedule.launched or device.sms,
        2.0 * config.bm * config.bn * config.bk / rate,
    )
    busy = min(1.0, (schedule.sk_tiles or grid.tiles) / device.sms)
    along = STORED_ALONG if vector_width(problem.d, problem.out_dtype) < 4 else 0.0
    stored = STORED + STORED_TOGETHER * busy + along
    whole = ceil_div(schedule.dp_tiles, blocks) * (grid.iterations * step + stored)
    if not schedule.sk_blocks:
        return whole
    longest = schedule.normal_iterations + (schedule.big_blocks > 0)
    tiles = max(1, ceil_div(longest, max(1, grid.iterations)))  # of a block
    peers = most_peers(schedule.sk_tiles // schedule.regions, schedule.blocks_per_region, grid.iterations)
    rounds = ceil_div(schedule.sk_blocks, blocks)
    if not schedule.shares_tiles:
        handing = 0.0
    elif schedule.reduction == "separate":
        each = BROUGHT + ceil_div(config.tm, schedule.fragments) * (BY_ROW + BY_PEER * peers)
        handing = rounds * LEFT + ceil_div(schedule.reduction_blocks, blocks) * each - stored
    else:
        handing = HANDED + IN_TURN * (max(1, turns(schedule.sk_tiles, schedule.sk_blocks)) - 1)
    return whole + rounds * longest * step + tiles * stored + handing
