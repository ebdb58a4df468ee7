"""Predicted time of kernels with one block for each tile, on CUDA cores and with mma.sync.

A block computes whole tiles, or what its schedule says; the busiest SM decides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from lapidist.config import Config, Knobs
from lapidist.device import CHIPS, Device
from lapidist.dtypes import size_of
from lapidist.kernels.blocks.splits import busiest, by_fours, costs_of, handing_on, refuse_cluster, resident
from lapidist.kernels.halves import stores_twice
from lapidist.kernels.kernel import Kernel
from lapidist.kernels.kernel_table import Rows, ScalarRow, config_alone
from lapidist.kernels.tma_alignment import SECTOR, line
from lapidist.kernels.vector_width import inputs_on_16_bytes, least_alignment, vector_width
from lapidist.problems.cached_fact import fact
from lapidist.problems.problem import Problem
from lapidist.schedule import CostModel
from lapidist.schedule.makers import MIN_ITERATIONS, Search, Split
from lapidist.schedule.numbers import larger, smaller, where
from lapidist.schedule.schedule_options import TURNSTILE, Grids, ScalarOption, ScheduleOption, ScheduleOptions

DRAM_SHARE = 0.65  # of the bandwidth of reading alone
# In double, fitted to 47 batches of small matrices on both chips: the same by mma and on CUDA cores, and a
# factor on what the first stages cost.
DOUBLES_SHARES, FIRST_STAGES = (0.9, 0.75), 1.3
# Seconds of a block before its first products, and for each element of D; the third: if D is not aligned to
# vectors.
BESIDE = {
    "fma": (0.3e-6, 1.6e-10, 3.0e-10),
    "mma": (0.8e-6, 0.7e-10, 2.1e-10),
    "doubles": (0.3e-6, 1.5e-10, 2.1e-10),  # mma in double
}
# Of an element that is stored a second time, transposed: on CUDA cores, on tensor cores. Fitted on an H200.
STORED_TWICE = 9.0e-10, 2.6e-10
# Latency hiding: an SM whose warps hold s independent sums a lane runs at s / (s + 54) of its best. Fitted to
# the SIMT family on an H200 with one to sixteen warps on an SM and thread tiles of 16, 32 and 64.
HALF_RATE_SUMS = 54
# A warp uses one of an SM's four schedulers, and this much of that.
SCHEDULERS, ONE_WARP = 4, 0.72
MEETING = 0.4e-6  # seconds in which the slices of k of a tile of gemm/simt.cu are added
LANES = 128  # an SM executes an epilogue's instruction for so many elements in a cycle
# Latency hiding on tensor cores: one warp for each scheduler reaches four fifths of the best rate, two reach
# all of it. So does one warp with 64 x 64 sums.
TENSOR_ALONE, TENSOR_BY_WARP = 0.6, 0.05
SUMS_FOR_TWO = 64 * 64
# Where elements of 1 or 2 bytes pass through registers warps wait longer: s warps reach s / (s + 12).
TENSOR_HELD, HALF_RATE_WARPS = 2.5, 12
# In double one or two warps keep the unit busy. But a block that is alone on its SM waits for its operands: a
# stage arrives so many seconds after it is asked for. Fitted to operands in DRAM and in the L2.
STAGE_SECONDS = 0.52e-6
# Unaligned lines that start on multiples of 4 or 8 bytes pass no registers: so much faster than others.
BY_WORDS = 1.35
FULL_WARPS = 16  # the measured efficiencies are for so many; more add nothing, or do not fit
MEASURED = CHIPS["h200"]  # the chip of these efficiencies; those of all Hoppers are taken for equal


Weighable = Rows | ScalarRow


class Standing(NamedTuple):
    """Intermediate results that are the same for all problems of one type on a chip: a column with a value
    for each config.
    """

    per_sm: Any  # blocks that an SM holds
    limit: Any  # TFLOP/s of the unit; 0: it does not multiply this type
    pace: Any  # products of the unit in a cycle of an SM, beside the chip whose efficiencies were measured
    tile_bytes: Any
    sum_rows: Any
    persistent: Any
    fits: Any  # whether peers can form a cluster: a tile's sums fit in the shared memory of its operands
    starts: Any  # these three: the values of BESIDE
    stored: Any
    stored_unaligned: Any


def seconds(
    problem: Problem, rows: Weighable, device: Device, options: ScheduleOptions | ScalarOption
) -> Any:
    """The larger of arithmetic (whole tiles on the busiest SM) and memory traffic, and what neither hides."""
    residency = standing(problem, rows, device)
    computed = computing(problem, rows, device, options, residency) if problem.k else 0.0
    computed = computed + block_overheads(problem, rows, device, options.grid, residency)
    share = where(rows.by_warps, *DOUBLES_SHARES) if problem.math == "float64" else DRAM_SHARE
    memory = traffic_bytes(problem) / (device.dram_gbps * 1e9 * share)
    return larger(computed, memory) + uncovered(problem, rows, computed, memory, options.grid, residency)


def uncovered(
    problem: Problem, rows: Weighable, computed: Any, memory: Any, grid: Grids, residency: Standing
) -> Any:
    """In double: while a block's first stages arrive, it multiplies nothing; only other blocks on its SM do.
    (256 products of 100^3 on an H100: 36 us with one block on an SM, 34 with two, 32 with four.)
    """
    if problem.accumulator != "float64":
        return 0.0
    filling = smaller(1.0, larger(0, rows.stages - 1) / larger(1, grid.iterations))
    return FIRST_STAGES * smaller(computed, memory) * filling / residency.per_sm


def standing(problem: Problem, rows: Weighable, device: Device) -> Standing:
    """The values for this chip and these types, found once."""
    key = device, problem.accumulator, fours_of(problem, rows)
    residency = rows.cached.get(key)
    if residency is None:
        residency = rows.cached[key] = Standing(
            *map(rows.column, zip(*stand(problem, rows, device), strict=True))
        )
    return residency


def fours_of(problem: Problem, rows: Weighable) -> tuple[bool, ...]:
    return tuple(by_fours(kernel.family, problem) for kernel, _, _ in rows.spans if kernel.family.scheduled)


def stand(problem: Problem, rows: Weighable, device: Device) -> Iterator[tuple[Any, ...]]:
    tensor = "doubles" if problem.math == "float64" else "mma"
    for kernel, config in zip(rows.kernels, rows.configs, strict=True):
        yield (
            resident(kernel, config, problem, device),
            device.unit_limit(kernel.unit, problem.math),
            relative_pace(device, kernel.unit, problem.math),
            kernel.tile_bytes(problem, config),
            kernel.sum_rows(config),
            bool(kernel.persistent),
            refuse_cluster(kernel, config, problem, device) is None,
            *BESIDE["fma" if kernel.unit == "fma" else tensor],
        )


def relative_pace(device: Device, unit: str, math: str) -> float:
    """The unit's products in a cycle of an SM, over those of the chip whose efficiencies were measured."""
    if device.capability[0] == MEASURED.capability[0]:
        return 1.0
    products, reference = (
        chip.unit_limit(unit, math) / (chip.sms * chip.clock_mhz) for chip in (device, MEASURED)
    )
    return products / reference if reference else 1.0


def reached_at(pace: Any, efficiency: Any) -> Any:
    """The efficiency at another pace of the unit. A config loses cycles of an SM to loads, barriers and other
    instructions. They are taken for equal on all chips, so a slower unit hides more of them.
    """
    return efficiency / (efficiency + (1.0 - efficiency) * pace)


def efficiencies(problem: Problem, rows: Weighable) -> Any:
    """The efficiency of each config for these lines."""
    if problem.math == "float64":
        longer = 1 + sum(rows.longer_by_lines[lines] for lines in lines_of_doubles(problem))
        return rows.efficiency * (1.0 if inputs_on_16_bytes(problem) else rows.unaligned) / longer
    if inputs_on_16_bytes(problem):
        return rows.efficiency * rows.across_k if problem.layouts.startswith("cr") else rows.efficiency
    unaligned = rows.unaligned
    if least_alignment(problem) >= 4 > size_of(problem.dtype):
        unaligned = where(rows.scheduled, smaller(1.0, BY_WORDS * unaligned), unaligned)
    return rows.efficiency * unaligned


@fact
def lines_of_doubles(problem: Problem) -> list[int]:
    """Indices in longer_by_lines for the alignment of A's and B's lines."""
    lines = []
    for matrix, first in ((problem.a, 0), (problem.b, 2)):
        by_rows = matrix.layout == "row"
        count, _, step = line(matrix, by_rows)
        if vector_width(matrix, "float64", 2) < 2:
            lines.append(first + 1)
        elif count > 1 and step * 8 % SECTOR:
            lines.append(first)
    return lines


def computing(
    problem: Problem,
    rows: Weighable,
    device: Device,
    options: ScheduleOptions | ScalarOption,
    residency: Standing,
) -> Any:
    """Seconds of products on the busiest SM; infinite if the unit does not multiply this type."""
    alone, alongside = paces(problem, rows, device, residency)
    load = busiest(options, device.sms, residency.per_sm)
    scheduled = (alone - alongside) * load.longest + alongside * load.iterations
    tiles = larger(1, -(-options.grid.tiles // device.sms))
    rate = sm_rate(problem, rows, device, residency, tiles)
    unscheduled = 2.0 * rows.bm * rows.bn * problem.k * tiles / rate
    seconds = where(options.scheduled, scheduled + handing_on(options, residency.tile_bytes), unscheduled)
    return where(residency.limit > 0, seconds, math.inf)


def paces(problem: Problem, rows: Weighable, device: Device, residency: Standing) -> tuple[Any, Any]:
    """Seconds of an iteration of a block that is alone on an SM, and how many more each other block adds.
    Both are the same for all problems with equally aligned lines.
    """
    key = "paces", device, *alignment_key(problem), fours_of(problem, rows)
    pair: tuple[Any, Any] | None = rows.cached.get(key)
    if pair is None:
        step, most = 2.0 * rows.bm * rows.bn * rows.bk, residency.per_sm
        alone, full = (
            step * blocks / sm_rate(problem, rows, device, residency, blocks)
            for blocks in (most // most, most)
        )
        if problem.math == "float64":
            alone = waiting(rows, alone)
            full = larger(full, alone)
        pair = alone, where(most > 1, (full - alone) / larger(1, most - 1), alone)
        rows.cached[key] = pair
    return pair


def waiting(rows: Weighable, seconds: Any) -> Any:
    """Seconds of an iteration of a block that is alone on its SM, with the wait for its stages."""
    ahead = STAGE_SECONDS / larger(1, rows.stages - 1)
    return where(rows.stages > 1, (seconds**2 + ahead**2) ** 0.5, seconds)


@fact
def alignment_key(problem: Problem) -> tuple[Any, ...]:
    """The properties of a problem that decide how fast an SM computes."""
    doubles = tuple(lines_of_doubles(problem)) if problem.math == "float64" else ()
    lies = least_alignment(problem), problem.layouts.startswith("cr")
    return problem.math, problem.dtype, problem.accumulator, *lies, doubles


def sm_rate(problem: Problem, rows: Weighable, device: Device, residency: Standing, blocks: Any) -> Any:
    """Flops per second of an SM with so many blocks."""
    held = least_alignment(problem) < 4
    warps = smaller(FULL_WARPS, blocks * (rows.threads - rows.producers) / 32)
    doubles = problem.math == "float64"
    hiding = latency_hidden(warps, rows, held, doubles) / latency_hidden(FULL_WARPS, rows, held, doubles)
    reached = efficiencies(problem, rows) * where(residency.persistent, 1.0, hiding)
    few = where(rows.by_warps, 1.0, smaller(1.0, ONE_WARP / SCHEDULERS * warps))
    rate = residency.limit * 1e12 * smaller(reached_at(residency.pace, reached), few) / device.sms
    return where(rate > 0, rate, math.inf)


def latency_hidden(warps: Any, config: Knobs, held: bool, doubles: bool) -> Any:
    """The share of an SM's best rate that its warps reach, as each waits for its own results."""
    counted = warps * where(config.wm * config.wn >= SUMS_FOR_TWO, 2, 1)
    alone, by_warp = (1.0, 0.0) if doubles else (TENSOR_ALONE, TENSOR_BY_WARP)
    tensor = TENSOR_HELD * warps / (warps + HALF_RATE_WARPS) if held else alone + by_warp * counted
    sums = warps * config.tm * config.tn
    return where(config.by_warps, smaller(1.0, tensor), sums / (sums + HALF_RATE_SUMS))


def block_overheads(
    problem: Problem, rows: Weighable, device: Device, grid: Grids, residency: Standing
) -> Any:
    """Seconds that the busiest SM spends before the products and in the epilogues of its tiles."""
    tiles = -(-grid.tiles // device.sms)
    stored = (
        residency.stored_unaligned if vector_width(problem.d, problem.out_dtype) == 1 else residency.stored
    )
    if problem.fused is not None:  # the same count as for wgmma, with which these kernels compete
        stored = stored + rows.by_warps * problem.fused.cost / (LANES * device.clock_mhz * 1e6)
    if stores_twice(problem):
        stored = stored + where(rows.walks, where(rows.by_warps, *STORED_TWICE[::-1]), 0.0)
    stored = rows.bm * rows.bn * stored + where(rows.slices > 1, MEETING, 0.0)
    return -(-tiles // residency.per_sm) * residency.starts + tiles * stored


def stream_of(problem: Problem, rows: Rows, device: Device, grid: Grids, free: Any) -> ScheduleOption:
    """Stream-K, for configs where it is better than whole tiles. It has 0 fragments."""
    tiles, blocks = np.zeros_like(grid.tiles), np.zeros_like(grid.tiles)
    for at in np.flatnonzero(free).tolist():
        stream = streamed(problem, rows.kernels[at], rows.configs[at], device)
        if stream is not None:
            tiles[at], blocks[at] = stream.tiles, stream.blocks
    return ScheduleOption.stream(tiles > 0, tiles, blocks, TURNSTILE, 0)


def streamed(problem: Problem, kernel: Kernel, config: Config, device: Device) -> Split | None:
    per_sm, costs = sharing_costs(problem, device, kernel, config)
    grid = kernel.tile_grid(problem, config)
    return Search(grid, device.sms, per_sm, MIN_ITERATIONS, costs).best()


def sharing_costs(problem: Problem, device: Device, kernel: Kernel, config: Config) -> tuple[int, CostModel]:
    """Blocks that an SM holds, and the costs of sharing tiles."""
    row = config_alone(kernel, config, problem.math).scalar_row
    residency = standing(problem, row, device)
    pace = paces(problem, row, device, residency)
    return residency.per_sm, costs_of(residency.tile_bytes, *pace)


def traffic_bytes(problem: Problem) -> float:
    """Bytes of each operand moved once: no kernel can move fewer."""
    a, b, c, d = problem.element_bytes
    bytes_of_c = c if problem.c else 0
    moved = problem.m * problem.k * a + problem.k * problem.n * b + problem.m * problem.n * (bytes_of_c + d)
    return float(math.prod(problem.batch) * moved)
