"""How blocks of gemm/sgemm.cu share tiles: the ways that are worth weighing, and their predicted times.

Blocks are persistent, one on an SM, and tiles are large, so most products leave SMs without a tile. What is
left over full waves is shared evenly (Stream-K). Where a tile has few peers, they add by turnstile. Where it
has many, all leave their sums in the workspace, and then reduce a row of each thread's sums at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from math import inf, prod
from typing import Any

import numpy as np

from lapidist.config import Config, Knobs
from lapidist.device import Device
from lapidist.errors import ArgumentError, shown
from lapidist.kernels.blocks.time import sharing_costs
from lapidist.kernels.config_table import grids_of
from lapidist.kernels.family import Family, ScalarModel
from lapidist.kernels.halves import stores_twice
from lapidist.kernels.kernel import Kernel
from lapidist.kernels.kernel_table import Rows, config_alone
from lapidist.kernels.sgemm.operands import packed, packed_bytes
from lapidist.problems.problem import Problem
from lapidist.schedule import CostModel, Schedule, TileGrid, data_parallel, shared_waves, split_k
from lapidist.schedule.grid import ceil_div, most_peers
from lapidist.schedule.numbers import larger, smaller, some, where
from lapidist.schedule.schedule_options import (
    CODES,
    NONE,
    SEPARATE,
    TURNSTILE,
    Grids,
    ScalarOption,
    ScheduleOption,
    ScheduleOptions,
)
from lapidist.schedule.schedule_rules import REDUCTIONS
from lapidist.schedule.sharing_choice import Sharing, fitting

MOST_TURNS = 4
# Numbers of peers that are weighed. 0: all blocks share the last wave; in the second case also the full wave
# before it.
EACH = 2, 3, 4, 6, 8, 11, 16, 22, 32, 44
PEERS = np.array([[*EACH, 0, 0]]).T
FULL_WAVES = np.array([[0] * 11 + [1]]).T  # for each of PEERS, full waves that are shared too
LEAST_STEPS = 2  # iterations of a block
WAVES = 32  # after so many full waves the last one hardly matters


class Fed(Family, ScalarModel):
    """Persistent blocks that share tiles by turnstile or by a separate reduction."""

    @property
    def scalar_model(self) -> ScalarModel:  # type: ignore[override]
        return self

    scalar_schedules = scalar_model  # type: ignore[assignment]

    def data_parallel_option(self, kernel: Kernel, config: Config, device: Device) -> ScheduleOption:
        return ScheduleOption(True, launched=device.sms)

    def options(self, problem: Problem, rows: Rows, device: Device, accepted: Any) -> ScheduleOptions:
        grid = grids_of(problem, rows, rows.walks)
        data_parallel, free = (
            ScheduleOption(accepted, launched=device.sms),
            accepted & (grid.tiles > 0) & (grid.iterations > 0),
        )
        turnstile, separate = rows.supports("turnstile", "separate")
        sum_rows = rows.tm // rows.slices
        by_turnstile = streams(grid, sum_rows, device.sms, TURNSTILE, free & turnstile)
        separately = streams(grid, sum_rows, device.sms, SEPARATE, free & separate)
        return ScheduleOptions(grid, [data_parallel, *by_turnstile, *separately])

    def seconds(self, problem: Problem, rows: Rows, device: Device, options: ScheduleOptions) -> Any:
        return seconds(problem, rows, device, options)

    def options_of_config(
        self, problem: Problem, kernel: Kernel, config: Config, device: Device, reductions: Collection[int]
    ) -> list[ScheduleOption]:
        grid, rows = grids_of(problem, config, self.walks_triangles), config.tm // config.slices
        options = [self.data_parallel_option(kernel, config, device)] if NONE in reductions else []
        if grid.tiles and grid.iterations:
            for reduction in (TURNSTILE, SEPARATE):
                if reduction in reductions and REDUCTIONS[reduction] in kernel.reductions:
                    options += streams_of_one(grid, rows, device.sms, reduction)
        return options

    def seconds_of_config(
        self,
        problem: Problem,
        kernel: Kernel,
        config: Config,
        device: Device,
        options: Sequence[ScalarOption],
    ) -> list[float]:
        efficiency = float(config_alone(kernel, config, problem.math).efficiency[0])
        rate, (before, memory) = rate_of(problem, efficiency, device), apart_from_arithmetic(problem, device)
        if not rate:
            return [inf for _ in options]
        shorter = 1 - last_step(config, chunks_of(problem.k))
        return [
            before + larger(FIRST + computing(config, device, option, rate, shorter), memory)
            for option in options
        ]

    def worth_of_config(self, problem: Problem, kernel: Kernel, option: ScalarOption) -> float:
        return kernel.worth if option.shares_tiles else 1.0

    def schedule_of(
        self, problem: Problem, kernel: Kernel, config: Config, device: Device, option: ScheduleOption
    ) -> Schedule | None:
        if problem.modes.ragged is not None:  # blocks find their tiles themselves
            return None
        return schedule_of(option, kernel.tile_grid(problem, config), device.sms)

    def schedules(
        self, problem: Problem, kernel: Kernel, config: Config, device: Device, sharing: Sharing
    ) -> list[Schedule | None]:
        if problem.modes.ragged is not None:
            return [None]
        grid, packs = kernel.tile_grid(problem, config), kernel.packs(problem)
        return list(schedules(grid, config, device, sharing, packs, kernel.reductions))

    def costs(
        self, problem: Problem, kernel: Kernel, config: Config, device: Device
    ) -> tuple[int, CostModel]:
        return sharing_costs(problem, device, kernel, config)


def schedule_of(option: ScheduleOption, grid: TileGrid, blocks: int) -> Schedule:
    """The Schedule of a way, with so many blocks."""
    if not option.sk_blocks:
        return data_parallel(grid, persistent_blocks=option.launched)
    reduction, fragments = REDUCTIONS[option.reduction], option.fragments
    return shared_waves(
        grid, blocks, option.sk_tiles, option.sk_blocks, reduction=reduction, fragments=fragments
    )


def schedules(
    grid: TileGrid, config: Config, device: Device, sharing: Sharing, packs: bool, supported: tuple[str, ...]
) -> Iterator[Schedule]:
    """The schedules that the caller's choices allow. `supported`: the reductions that the kernel knows."""
    reduction = sharing.schedule.reduction if isinstance(sharing.schedule, Schedule) else sharing.reduction
    if reduction not in (None, "none", *supported):
        names = " or ".join(map(repr, supported))
        raise ArgumentError(
            f"reduction: this kernel's blocks share tiles by {names}; got {shown(reduction)}. Take that, or"
            " another kernel"
        )
    if sharing.schedule == "stream_k" and sharing.avail_sms == 1:  # the data-parallel kernel
        sharing = replace(sharing, schedule="data_parallel", avail_sms=None)
    blocks = min(sharing.avail_sms or device.sms, device.sms)
    reductions = (reduction,) if reduction in supported else supported
    for schedule in wanted(grid, config.tm // config.slices, blocks, sharing, reductions):
        # Blocks that pack operands wait for each other. So do those of a separate reduction, after their own
        # tiles. All of them must be on the chip at once.
        together = packs or schedule.reduction_blocks > 0
        yield (
            replace(schedule, launched=device.sms)
            if together and schedule.launch_blocks > device.sms
            else schedule
        )


def wanted(
    grid: TileGrid, rows: int, blocks: int, sharing: Sharing, reductions: tuple[str, ...]
) -> Iterator[Schedule]:
    if isinstance(sharing.schedule, Schedule):
        yield fitting(sharing.schedule, grid)
        return
    if isinstance(sharing.split_k, int) and sharing.split_k > 1:
        for reduction in reductions:
            yield split_k(
                grid, sharing.split_k, reduction=reduction, fragments=int(fragments(rows, grid.tiles, blocks))
            )
        return
    yield data_parallel(grid, persistent_blocks=blocks)
    if sharing.schedule != "data_parallel" and sharing.split_k != 1 and grid.tiles and grid.iterations:
        for reduction in reductions:
            one = Grids.one(grid)
            shared = ScheduleOptions(one, streams(one, rows, blocks, CODES[reduction], True))
            for row in np.flatnonzero(shared.possible).tolist():
                yield schedule_of(shared.at(row, 0), grid, blocks)


def streams(grid: Grids, rows: Any, blocks: int, reduction: int, free: Any) -> list[ScheduleOption]:
    """The last wave shared by all blocks, alone or with the full wave before it, in which case tiles have at
    most two peers. Few tiles may also have equally many blocks each.
    """
    full, partial = grid.tiles // blocks, grid.tiles % blocks
    free = free & (partial > 0) & (full <= WAVES)
    if not some(free):
        return []
    parted = full, partial, PEERS, FULL_WAVES
    return [shared_by(grid, rows, blocks, reduction, free, *parted)]


def streams_of_one(grid: Grids, rows: int, blocks: int, reduction: int) -> list[ScheduleOption]:
    """The same for one config: the ways that are possible, in order."""
    full, partial = grid.tiles // blocks, grid.tiles % blocks
    if not partial or full > WAVES:
        return []
    # equally many peers for each of few tiles
    few = [(peers, 0) for peers in EACH if peers * partial < blocks] if full == 0 else []
    every = [
        shared_by(grid, rows, blocks, reduction, True, full, partial, peers, waves)
        for peers, waves in (*few, (0, 0), (0, 1))
    ]
    return [option for option in every if option.possible]


def shared_by(
    grid: Grids,
    rows: Any,
    blocks: int,
    reduction: int,
    free: Any,
    full: Any,
    partial: Any,
    peers: Any,
    waves: Any,
) -> ScheduleOption:
    """The partial wave shared, with `waves` full ones; `peers`: as in PEERS."""
    tiles, shared = partial + waves * blocks, where(peers > 0, partial * peers, blocks)
    possible = where(peers > 0, (full == 0) & (shared < blocks), full >= waves)
    possible = (
        possible & free & (shared * LEAST_STEPS <= tiles * grid.iterations) & ((full > 0) | (shared > tiles))
    )
    if reduction == TURNSTILE:
        possible = possible & (turns(larger(1, tiles), shared) <= MOST_TURNS)
    else:
        possible = possible & (full == 0) & (shared > 2 * tiles)
    return ScheduleOption.stream(possible, tiles, shared, reduction, fragments(rows, tiles, blocks), blocks)


def turns(tiles: Any, blocks: Any) -> Any:
    """How often sums are handed on while others wait. A block whose share ends inside a tile hands its sums
    on first. So only blocks that lie wholly within the tile delay the one that finishes it.
    """
    return blocks // tiles - (blocks % tiles == 0)


def fragments(rows: Any, tiles: Any, blocks: Any) -> Any:
    """Fragments of a tile in a separate reduction: one for each block, since starting a second one takes
    longer than one more row.
    """
    return larger(1, smaller(rows, blocks // larger(1, tiles)))


# ---- predicted time, in seconds: fitted on an H100 to the schedules of 468 products, with 3 % of error ----


# by slices of k, the share of an SM's limit in the main loop
EFFICIENCY = {1: 0.82, 2: 0.817, 4: 0.778, 8: 0.725}
FIRST = 1.0e-6  # before the first products: barriers, maps, latency of the first stage
# Seconds of the last tiles' second store, which no product hides. On an H200 products of 1024^2 to 4096^2
# took 3.3 to 5.8 us longer than the model said before.
SECOND_STORE = 3.5e-6
# Packing: the meeting of all blocks, and bytes per second into the L2. Fitted to 51 ragged products on an
# H200, whose launches overlapped. For the H100, where 1.55 TB/s were measured, it predicts 1.54.
PACKING, PACKED_BYTES_PER_SECOND = 1.1e-6, 5.7e12
DRAM_SHARE = 0.63
STEP, CHUNK = 32, 4  # elements of k in a stage, and in what a warp multiplies at once
MEETING = 1.2e-6  # slices exchange sums
# Pairs: seconds for any tile, and how many more for a tile of LARGEST elements.
LARGEST = 256 * 128
STORED = 0.6e-6, 3.2e-6  # the epilogue of a tile
HANDED, IN_TURN = (1.2e-6, 4.3e-6), (1.0e-6, 2.2e-6)  # turnstile: the first turn, and each further one
LEFT = 2.9e-6, 1.9e-6  # separate reduction: sums are left in the workspace
BROUGHT = 2.3e-6  # separate reduction of a fragment
BY_ROW, BY_PEER = 0.7e-6, 0.2e-6  # the same for each row of a thread's sums, and for each peer of a row


def of_tile(cost: tuple[float, float], config: Knobs) -> Any:
    return cost[0] + cost[1] * (config.bm * config.bn / LARGEST)


def seconds(problem: Problem, rows: Rows, device: Device, options: ScheduleOptions) -> Any:
    """Packing, then the larger of arithmetic on the busiest SM and memory traffic; for each way of each
    config.
    """
    rate, (before, memory) = rate_of(problem, rows.efficiency, device), apart_from_arithmetic(problem, device)
    if not np.all(rate):
        return np.full(options.possible.shape, np.inf)
    computed = computing(rows, device, options, rate, left_out(rows, problem.k))
    return before + larger(FIRST + computed, memory)


def rate_of(problem: Problem, efficiency: Any, device: Device) -> Any:
    """Flops per second of an SM; 0 if the chip does not multiply this type."""
    return device.unit_limit("fma", problem.math) * 1e12 * efficiency / device.sms


def apart_from_arithmetic(problem: Problem, device: Device) -> tuple[float, float]:
    """Seconds of packing, and of memory traffic; found once for each problem."""
    seconds_of: tuple[float, float] | None = problem.facts.get((apart_from_arithmetic, device))
    if seconds_of is None:
        seconds_of = problem.facts[apart_from_arithmetic, device] = packed_and_moved(problem, device)
    return seconds_of


def packed_and_moved(problem: Problem, device: Device) -> tuple[float, float]:
    bandwidth = device.dram_gbps * 1e9 * DRAM_SHARE
    a, b, _, d = problem.element_bytes
    elements = (
        problem.m * problem.k * a
        + problem.k * problem.n * b
        + problem.m * problem.n * d * (1 + bool(problem.c))
    )
    before = packing(problem, bandwidth) + (SECOND_STORE if stores_twice(problem) else 0.0)
    return before, prod(problem.batch) * elements / bandwidth


def packing(problem: Problem, bandwidth: float) -> float:
    if not any(packed(problem)):
        return 0.0
    return PACKING + sum(packed_bytes(problem)) * (1 / bandwidth + 1 / PACKED_BYTES_PER_SECOND)


def left_out(rows: Rows, k: int) -> Any:
    """The share of an iteration that is left out at the end of each tile: warps skip chunks of zeros."""
    chunks = chunks_of(k)
    share = rows.cached.get(("left out", chunks))
    if share is None:
        share = rows.cached["left out", chunks] = 1 - last_step(rows, chunks)
    return share


def chunks_of(k: int) -> int:
    """Chunks in the last iteration."""
    return (k - 1) % STEP // CHUNK + 1


def last_step(config: Knobs, chunks: int) -> Any:
    """The time of the last iteration over that of a whole one. A scheduler has two warps, whose slices are
    half of all slices apart; without slices both have all of k. The first scheduler has the most work.
    """
    chunks_of_slice = STEP // CHUNK // config.slices
    first = smaller(chunks_of_slice, chunks)
    second = smaller(larger(0, chunks - config.slices // 2 * chunks_of_slice), chunks_of_slice)
    return (first + where(config.slices > 1, second, first)) / (2 * chunks_of_slice)


def computing(config: Knobs, device: Device, options: Any, rate: Any, shorter: Any) -> Any:
    """Seconds of the busiest SM at this rate."""
    grid, blocks = options.grid, where(options.launched > 0, options.launched, device.sms)
    step = 2.0 * config.bm * config.bn * config.bk / rate
    stored = of_tile(STORED, config) + MEETING * (1 - 1 / config.slices)
    unshared = ceil_div(options.dp_tiles, blocks) * ((grid.iterations - shorter) * step + stored)
    if not some(options.sk_blocks):
        return unshared
    longest = options.longest
    tiles = larger(1, ceil_div(longest, larger(1, grid.iterations)))  # that a block meets
    rounds = ceil_div(options.sk_blocks, blocks)
    steps = longest - longest // larger(1, grid.iterations) * shorter
    shared = rounds * steps * step + tiles * stored + handing_on(config, options, blocks, rounds, stored)
    return unshared + where(options.sk_blocks > 0, shared, 0.0)


def handing_on(config: Knobs, options: Any, blocks: Any, rounds: Any, stored: Any) -> Any:
    """Seconds that reductions add. Blocks of a separate reduction store D in place of those that multiply."""
    sk_tiles = larger(1, options.sk_tiles // options.regions)
    peers = most_peers(sk_tiles, larger(1, options.blocks_per_region), options.grid.iterations)
    sum_rows = ceil_div(config.tm // config.slices, options.fragments)
    of_row = BROUGHT + sum_rows * (BY_ROW + BY_PEER * peers)
    separate = rounds * of_tile(LEFT, config) + ceil_div(options.reduction_blocks, blocks) * of_row - stored
    further = larger(1, turns(larger(1, options.sk_tiles), options.sk_blocks)) - 1
    turnstile = of_tile(HANDED, config) + further * of_tile(IN_TURN, config)
    return where(options.shares_tiles, where(options.reduction == SEPARATE, separate, turnstile), 0.0)
