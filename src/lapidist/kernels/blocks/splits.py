"""Ways to share tiles that the planner weighs, and the costs of sharing: for few tiles, and for ragged last
waves.

Costs were measured on an H100 and an H200 with the SIMT family and mma, tiles of 4 to 32 KB. `lapidist
streamk costs` measures them again.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np

from lapidist.config import Config
from lapidist.device import STATIC_SHARED, Device
from lapidist.kernels.budgets import MOST_REGISTERS, mma_registers, simt_registers
from lapidist.kernels.family import Family
from lapidist.kernels.kernel import Kernel
from lapidist.kernels.rules.fma import MOVED
from lapidist.kernels.rules.problem_facts import facts_of
from lapidist.kernels.vector_width import least_alignment
from lapidist.problems.problem import Problem
from lapidist.schedule import CostModel
from lapidist.schedule.costs import Load, load_of
from lapidist.schedule.numbers import larger, where
from lapidist.schedule.schedule_options import (
    CLUSTER,
    CODES,
    SEPARATE,
    TURNSTILE,
    Grids,
    ScalarOption,
    ScheduleOption,
    ScheduleOptions,
)
from lapidist.schedule.schedule_rules import CLUSTER_MOST

# Tiles are shared only if that is predicted to take less than this part of the time without, as the model
# errs. The second number is for elements that pass through registers: such kernels run up to 20 % slower when
# they read a schedule.
WORTH, WORTH_HELD = 0.97, 0.8
FULL = 0.9  # tiles are not shared if the waves are fuller than this
# Clusters lie within a GPC of 16 or 18 SMs, so some of 132 SMs cannot be reached with one block on each. By
# the blocks of a cluster, how many SMs stay idle; measured on an H200.
GPC_SMS, IDLE = 16, (0, 0, 0, 15, 12, 22, 30, 27, 12)
# Use at most this part of the clusters that the chip holds. With more, SMs have unequal numbers of blocks, or
# clusters wait for room: 10 to 100 % slower than the same blocks by turnstile.
ROOM = 0.75
TURNSTILE_SPLITS = 4  # more were not measured
SEPARATE_BLOCKS = 2  # on an SM: more write more partial sums than they save iterations
L2_BYTES_PER_SECOND = 2e12
SPLITS = (2, 3, 4, 5, 6, 7, 8, 12, 16)
WALK_SECONDS = 0.5e-6  # for a block to read the schedule
# Time of a reduction: seconds, seconds for each byte of the tile, and seconds for each peer after the second.
# By reduction; fitted to 2,500 times of mma in double and of simt, on an H100 and an H200.
HANDED = np.zeros((3, len(CODES)))
HANDED[:] = np.array([[1.8e-6, 0.05e-9, 1.3e-6]]).T
HANDED[:, SEPARATE] = 4.0e-6, 0.0, 0.0
HANDED[:, CLUSTER] = 1.9e-6, 0.03e-9, 0.25e-6
HANDED_BY = HANDED.T.tolist()
IDLE_OF = np.array(IDLE)
# In a turnstile each further peer waits for all bytes of a large tile: four peers of 64 KB took 7 us longer
# than two or three (mma on an H100).
LARGE_TILE, FURTHER_OF_LARGE = 32 * 1024, 0.05e-9


def worth(problem: Problem) -> float:
    return WORTH_HELD if least_alignment(problem) < 4 else WORTH


def resident(kernel: Kernel, config: Config, problem: Problem, device: Device) -> int:
    """Blocks that an SM holds at least."""
    return resident_blocks(kernel.family, kernel.unit, config, problem, device)


def resident_blocks(family: Family, unit: str, config: Config, problem: Problem, device: Device) -> int:
    registers = MOST_REGISTERS
    if unit == "mma" and problem.accumulator == "float64":
        registers = mma_registers(config.wm * config.wn)
    if unit == "fma" and problem.accumulator != "float64":
        fours = by_fours(family, problem) or config.stages > MOVED
        registers = simt_registers(config.tm * config.tn, fours, config.threads)
    return max(
        1, device.blocks_resident(config.threads, registers, int(family.shared_bytes(problem, config)))
    )


def by_fours(family: Family, problem: Problem) -> bool:
    """Whether a source is compiled to load four elements of A and of B at once."""
    vectors = facts_of(problem, family).macros
    return bool(vectors.get("A_VECTOR") == vectors.get("B_VECTOR") == 4)


class Peers(NamedTuple):
    """What the choice of a reduction depends on, for one config or for columns of many."""

    sms: int
    per_sm: Any  # blocks that an SM holds
    tile_bytes: Any
    fits: Any  # whether a tile's sums fit in the shared memory of its operands


def splits_of(grid: Grids, free: Any, peers: Peers, fragments: Any) -> tuple[ScheduleOption, Any]:
    """The ways to cut k of all tiles, for `free` configs. The second value: which configs have fewer
    iterations than some split needs, so that more splits are pointless.
    """
    splits = np.array(SPLITS)[:, None]
    reduction = reduction_of(splits, grid.tiles, peers)
    ended = np.logical_or.accumulate((reduction > 0) & (splits > grid.iterations))
    return ScheduleOption.split(
        free & (reduction > 0) & ~ended, grid.tiles, splits, reduction, fragments
    ), ended[-1]


def splits_of_one(
    grid: Grids, peers: Peers, fragments: int, reductions: Collection[int]
) -> tuple[list[ScheduleOption], bool]:
    """The same for one config, with these reductions."""
    options: list[ScheduleOption] = []
    for splits in SPLITS:
        reduction = reduction_of(splits, grid.tiles, peers)
        if reduction and splits > grid.iterations:
            return options, True
        if reduction and reduction in reductions:
            options.append(ScheduleOption.split(True, grid.tiles, splits, reduction, fragments))
    return options, False


def reduction_of(splits: Any, tiles: Any, peers: Peers) -> Any:
    """The cheapest reduction that is possible; 0: too many blocks for any. A cluster must fit on the chip,
    and its sums in the shared memory of the operands.
    """
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
    """Clusters of so many blocks that the chip holds at once."""
    return larger(1, sms // GPC_SMS * (GPC_SMS * per_sm // blocks))


def refuse_cluster(kernel: Kernel, config: Config, problem: Problem, device: Device) -> str | None:
    """Why the peers of a tile cannot form a cluster, or None."""
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
    """Seconds of the reduction of a tile with so many peers, of so many blocks in all."""
    first, further = cost_of(reduction, tile_bytes)
    moved = where(reduction == SEPARATE, 2.0 * blocks * tile_bytes / L2_BYTES_PER_SECOND, 0.0)
    return first + further * larger(0, peers - 2) + moved


def costs_of(tile_bytes: int, iteration: float, alongside: float) -> CostModel:
    """Costs of Stream-K blocks, in seconds."""
    two, further = cost_of(TURNSTILE, tile_bytes)
    handed = two - further, iteration, further
    return CostModel(WALK_SECONDS, *handed, "seconds", "measured on an H200", alongside)


def busiest(options: ScheduleOptions | ScalarOption, sms: int, per_sm: Any) -> Load:
    """The work of the busiest SM."""
    idle = IDLE_OF[options.cluster] if isinstance(options.cluster, np.ndarray) else IDLE[options.cluster]
    reached = larger(1, sms - idle)
    return load_of(
        reached, per_sm, (options.sk_blocks, options.longest), (options.dp_tiles, options.grid.iterations)
    )


def handing_on(options: ScheduleOptions | ScalarOption, tile_bytes: Any) -> Any:
    """Seconds that the reduction of shared tiles adds."""
    tiles = larger(1, options.sk_tiles)
    peers = -(-options.sk_blocks // tiles) + (options.regions != options.sk_tiles)
    handed = WALK_SECONDS + gathering(options.reduction, peers, options.sk_blocks, tile_bytes)
    return where(options.sk_blocks > 0, handed, 0.0)
