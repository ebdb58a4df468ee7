"""Ways to share a product's tiles that the planner weighs, and what sharing costs: for few tiles, and for
ragged last waves.

Costs were measured on an H100 and an H200 with the SIMT family and mma, tiles of 4 to 32 KB (`lapidist
streamk costs` measures them again)."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np

from lapidist.config import Config
from lapidist.device import STATIC_SHARED, Device
from lapidist.kernels.budgets import MOST_REGISTERS, mma_registers, simt_registers
from lapidist.kernels.row import Kernel
from lapidist.kernels.rules.facts import facts_of
from lapidist.kernels.rules.fma import MOVED
from lapidist.kernels.vectors import least_alignment
from lapidist.problems.problem import Problem
from lapidist.schedule import CostModel
from lapidist.schedule.costs import Load, load_of
from lapidist.schedule.numbers import larger, where
from lapidist.schedule.units import CLUSTER_MOST
from lapidist.schedule.ways import CLUSTER, CODES, SEPARATE, TURNSTILE, Grids, OneWay, Way, Ways

# Tiles are shared where that is predicted to take less than this part of the time of a block a tile: the
# model errs, and kernels whose elements pass through registers run up to 20 % slower if they ask a schedule.
WORTH, WORTH_HELD = 0.97, 0.8
FULL = 0.9  # a launch whose waves are so full is not shared
# Clusters lie within a GPC of 16 or 18 SMs. Of 132 SMs, those of so many blocks leave some idle where an SM
# has one: with more clusters, another SM has two. Measured on an H200.
GPC_SMS, IDLE = 16, (0, 0, 0, 15, 12, 22, 30, 27, 12)
# Of all clusters that the chip holds: with more, some SMs have more blocks than others, or clusters wait for
# room, and take 10 to 100 % longer than the same blocks by turnstile.
ROOM = 0.75
TURNSTILE_SPLITS = 4  # more were not measured
SEPARATE_BLOCKS = 2  # for an SM: more of them write more partial sums than they save iterations
L2_BYTES_PER_SECOND = 2e12
SPLITS = (2, 3, 4, 5, 6, 7, 8, 12, 16)
WALK_SECONDS = 0.5e-6  # a block asks the schedule what to do
# Bringing a tile's sums together: seconds, seconds for each byte of the tile, and seconds for each peer after
# the second; by turnstile, separately, in a cluster. Fitted to 2,500 times of mma in double and of simt, on
# an H100 and an H200.
HANDED = np.zeros((3, len(CODES)))
HANDED[:] = np.array([[1.8e-6, 0.05e-9, 1.3e-6]]).T
HANDED[:, SEPARATE] = 4.0e-6, 0.0, 0.0
HANDED[:, CLUSTER] = 1.9e-6, 0.03e-9, 0.25e-6
HANDED_BY = HANDED.T.tolist()
IDLE_OF = np.array(IDLE)
# By turnstile each further peer of a larger tile waits for all of its bytes: four peers of 64 KB took 7 us
# longer than two or three (mma on an H100).
LARGE_TILE, FURTHER_OF_LARGE = 32 * 1024, 0.05e-9


def worth(problem: Problem) -> float:
    return WORTH_HELD if least_alignment(problem) < 4 else WORTH


def resident(kernel: Kernel, config: Config, problem: Problem, device: Device) -> int:
    """Blocks that an SM holds, at least."""
    registers = MOST_REGISTERS
    if kernel.unit == "mma" and problem.accumulator == "float64":
        registers = mma_registers(config.wm * config.wn)
    if kernel.unit == "fma" and problem.accumulator != "float64":
        fours = by_fours(kernel, problem) or config.stages > MOVED
        registers = simt_registers(config.tm * config.tn, fours, config.threads)
    return max(1, device.blocks_resident(config.threads, registers, kernel.shared_bytes(config, problem)))


def by_fours(kernel: Kernel, problem: Problem) -> bool:
    """Whether its source is compiled to load four elements of A and of B at once."""
    vectors = facts_of(problem, kernel.family).macros
    return bool(vectors.get("A_VECTOR") == vectors.get("B_VECTOR") == 4)


class Peers(NamedTuple):
    """What decides how the peers of a tile bring their sums together, for each config or of one."""

    sms: int
    per_sm: Any  # blocks that an SM holds
    tile_bytes: Any
    fits: Any  # a tile's sums, where its operands were


def splits_of(grid: Grids, free: Any, peers: Peers, fragments: Any) -> tuple[Way, Any]:
    """All tiles by so many blocks for each, where these are the `free` ones. And where there are more splits
    than iterations, which ends it."""
    splits = np.array(SPLITS)[:, None]
    reduction = reduction_of(splits, grid.tiles, peers)
    ended = np.logical_or.accumulate((reduction > 0) & (splits > grid.iterations))
    return Way.split(free & (reduction > 0) & ~ended, grid.tiles, splits, reduction, fragments), ended[-1]


def splits_of_one(
    grid: Grids, peers: Peers, fragments: int, asked: Collection[int]
) -> tuple[list[Way], bool]:
    """The same of one config: those that bring sums together as asked."""
    found: list[Way] = []
    for splits in SPLITS:
        reduction = reduction_of(splits, grid.tiles, peers)
        if reduction and splits > grid.iterations:
            return found, True
        if reduction and reduction in asked:
            found.append(Way.split(True, grid.tiles, splits, reduction, fragments))
    return found, False


def reduction_of(splits: Any, tiles: Any, peers: Peers) -> Any:
    """The cheapest of those that are possible: in a cluster where all find room at once and their sums fit
    where the operands were. 0: too many blocks for any."""
    blocks, tile_bytes = tiles * splits, peers.tile_bytes
    room = (splits <= CLUSTER_MOST) & (tiles <= ROOM * clusters_at_once(splits, peers.per_sm, peers.sms))
    seconds = where(splits <= TURNSTILE_SPLITS, gathering(TURNSTILE, splits, blocks, tile_bytes), math.inf)
    chosen = where(splits <= TURNSTILE_SPLITS, TURNSTILE, 0)
    for reduction, possible in (
        (SEPARATE, blocks <= SEPARATE_BLOCKS * peers.sms),
        (CLUSTER, peers.fits & room),
    ):
        other = gathering(reduction, splits, blocks, tile_bytes)
        better = possible & (other < seconds)
        chosen, seconds = where(better, reduction, chosen), where(better, other, seconds)
    return chosen


def clusters_at_once(blocks: Any, per_sm: Any, sms: int) -> Any:
    """Clusters of so many blocks that the chip holds, where an SM holds so many blocks."""
    return larger(1, sms // GPC_SMS * (GPC_SMS * per_sm // blocks))


def refuse_cluster(kernel: Kernel, config: Config, problem: Problem, device: Device) -> str | None:
    """Why the peers of a tile cannot be a cluster, or None."""
    if device.capability < (9, 0):
        return (
            f"reduction: 'cluster' needs compute capability 9.0; {device.name} has an older one. Take"
            " 'separate'"
        )
    room, needed = kernel.shared_bytes(config, problem) or STATIC_SHARED, kernel.tile_bytes(problem, config)
    if needed > room:
        return (
            f"reduction: 'cluster' needs {needed} bytes of shared memory for a tile of sums; there are"
            f" {room}. Take 'separate'"
        )
    return None


def cost_of(reduction: Any, tile_bytes: Any) -> tuple[Any, Any]:
    """Seconds for the first two peers of a tile, and for each further one."""
    handed = HANDED[:, reduction] if isinstance(reduction, np.ndarray) else HANDED_BY[reduction]
    first, by_byte, further = handed
    large = where(reduction == TURNSTILE, FURTHER_OF_LARGE * larger(0, tile_bytes - LARGE_TILE), 0.0)
    return first + by_byte * tile_bytes, further + large


def gathering(reduction: Any, peers: Any, blocks: Any, tile_bytes: Any) -> Any:
    """Seconds until so many peers have brought the sums of a tile together, of so many blocks in all."""
    first, further = cost_of(reduction, tile_bytes)
    moved = where(reduction == SEPARATE, 2.0 * blocks * tile_bytes / L2_BYTES_PER_SECOND, 0.0)
    return first + further * larger(0, peers - 2) + moved


def costs_of(tile_bytes: int, iteration: float, alongside: float) -> CostModel:
    """Of Stream-K blocks, in seconds."""
    two, further = cost_of(TURNSTILE, tile_bytes)
    handed = two - further, iteration, further
    return CostModel(WALK_SECONDS, *handed, "seconds", "measured on an H200", alongside)


def busiest(ways: Ways | OneWay, sms: int, per_sm: Any) -> Load:
    """What the busiest SM computes."""
    idle = IDLE_OF[ways.cluster] if isinstance(ways.cluster, np.ndarray) else IDLE[ways.cluster]
    reached = larger(1, sms - idle)
    return load_of(reached, per_sm, (ways.sk_blocks, ways.longest), (ways.dp_tiles, ways.grid.iterations))


def handing_on(ways: Ways | OneWay, tile_bytes: Any) -> Any:
    """Seconds until the peers of a tile have brought their sums together."""
    tiles = larger(1, ways.sk_tiles)
    peers = -(-ways.sk_blocks // tiles) + (ways.regions != ways.sk_tiles)
    handed = WALK_SECONDS + gathering(ways.reduction, peers, ways.sk_blocks, tile_bytes)
    return where(ways.sk_blocks > 0, handed, 0.0)
