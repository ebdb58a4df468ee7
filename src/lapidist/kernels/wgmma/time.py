"""Predicted time of the kernels with wgmma: cycles of an iteration, rounds of tiles, bounds of memory and
power.

The constants are fitted to some 2000 measurements on one H200 in bfloat16, tf32 and 8-bit floats. m, n and k
are log-uniform from 16 to 8192. `lapidist tune --record` measures them.
"""

from __future__ import annotations

from math import inf, prod
from typing import Any

import numpy as np

from lapidist.config import Config, Knobs
from lapidist.device import Device
from lapidist.dtypes import size_of
from lapidist.kernels.budgets import BESIDE_SUMS, wgmma_registers
from lapidist.kernels.config_table import grids_of
from lapidist.kernels.tma_alignment import L2_LINE, SECTOR
from lapidist.kernels.wgmma.busy_cycles import (
    EVEN_ROW,
    TURN,
    TURN_BY_HAND,
    TURN_OF_ONE_STEP,
    alone_by_turns,
    busy_cycles,
    longer_by_turns,
)
from lapidist.kernels.wgmma.epilogue_time import IN_PIECES, finish_cycles, store_cycles, unrolled
from lapidist.kernels.wgmma.operands import (
    EITHER_WAY,
    by_registers,
    c_in_patches,
    copies_out,
    mn_major,
    packed,
    packed_lines,
    transposed_d,
)
from lapidist.kernels.wgmma.packing import pack_seconds
from lapidist.kernels.wgmma.power import powered_seconds
from lapidist.kernels.wgmma.shared import leaves_room
from lapidist.kernels.wgmma.sharing import clusters_at_once, cost_of, few_of_clusters, handing_on, rounds
from lapidist.kernels.wgmma.tiles import (
    PATCH_ROWS,
    by_group,
    loaded_lines,
    loaders,
    patch,
    sums_of_thread,
    warpgroups,
)
from lapidist.problems.problem import Problem
from lapidist.problems.ragged import COLS, DEPTH, ROWS
from lapidist.problems.scaling import STRIPS
from lapidist.schedule import CostModel
from lapidist.schedule.schedule_options import TURNSTILE, ScheduleOptions

CLOCK_SHARE = 0.88  # of the highest clock, which the chip cannot hold with wgmma
# Rows of boxes that lie outside the matrix: so many in a cycle, on the whole chip.
OUTSIDE_ROWS = 7.0
# Cycles of an iteration, however small the tile: where one thread starts its loads; where several do, in one
# round of tiles and in more, whose loads are in each other's way.
LEAST_STEP, LEAST_IN_TURN, LEAST_IN_ROUNDS = 200.0, 120.0, 165.0
# Factors on an iteration, when no SM idles. One warpgroup that multiplies alone: no other products run during
# its barriers. Clusters of eight: blocks wait for each other.
ONE_GROUP, OF_EIGHT = 1.06, 1.08
# Factors on an iteration with packed operands of 16-bit types, on a full chip: in clusters of two, in larger
# ones, in ping-pong.
PACKED_PAIR, PACKED_MORE, PACKED_TURNS = 1.03, 1.04, 1.04
# Bytes in a cycle from the L2 to an SM: what the SM can take, and its share when all SMs work, as the L2
# answers so many requests in all. With fewer than 1 / 1.6 of the SMs at work, each has more.
L2_BYTES, L2_SHARED_BYTES, CROWDED_FROM = 97.0, 103.0, 1 / 1.6
# Cost of a box's row of 128 bytes, in lines of the L2, by where it starts: on a line, on a sector of 32
# bytes, or elsewhere. The latter are two or three requests, and those of neighbouring SMs for one line are
# hardly merged.
LINES, SECTORS, HALVES = 1.0, 1.95, 3.45
# Factors on such rows: multicast to a cluster, by its blocks; and without clusters, whose neighbours ask for
# the same rows a little later. Without these the planner took pairs where single blocks were up to a fifth
# faster.
SENT, LONE = {2: 1.4, 4: 1.2, 8: 1.28}, 0.95
# Cost of a shifted row of 144 bytes, in lines of the L2. Shifting is chosen only if it is faster than packing
# by these seconds and this share.
SKEWED, SHIFTING = 5.1, (1.0e-6, 0.03)
DRAM_SHARE = 0.8  # of the bandwidth of reading alone
# Factors on the time to store a batch's D that is larger than the L2, by the addresses that are written at
# once. SCATTERED is the usual one. OF_SQUARES: clusters of 2 x 2 with two iterations. OF_LONG_ROWS: long
# rows, with A and B exchanged. OF_SMALL: small tiles with one iteration. (Fitted on an H100.)
SCATTERED, OF_SQUARES, OF_LONG_ROWS, LONG_ROWS = 1.12, 1.05, 1.03, 1024
OF_SMALL, SMALL_COLUMNS = 0.9, 128
# From this DRAM bandwidth on, in GB/s, only long rows are faster. (On an H200 tiles of 64 x 128 took a fifth
# longer than those of 128 x 128, with one iteration.)
FAST_DRAM, LONG_ROWS_SHARE = 4000.0, 1 / 1.06
# A stream: one tile has all rows of A (or columns of B), and the other operand is read once. Its share of the
# bandwidth; seconds at the start, less those of the launch that the last one hides; the cost of idle SMs.
STREAMED_SHARE, STREAM_STARTS, STREAM_IDLES = 0.94, -0.5e-6, 0.4
# seconds until the blocks of a cluster have met: without packing, and with it
PAIRING, PAIRED_PACKING = (0.2e-6, 0.4e-6)
# Factor on the power of L2 lines if pairs share B and lie near those with the same A (placement.py). Where
# pairs share A, counters show no effect.
IN_ORDER = 0.65
WARP_BYTES = 128  # of a warp in one register
# Held patches of 4-byte elements: the products must take so many times as long as the store, of which they
# then hide this share.
HIDES, HIDDEN = (4.0, 0.7)
# Factor on the store of a D larger than the L2 by tiles of one iteration, with A and B exchanged: four warps
# wait for each other.
EXCHANGED_STEP = 1.25
STEP_BYTES = 128  # of k in an iteration, for a row of A or a column of B
# If the next launch's blocks find room beside these: seconds less, and the cost of fewer stages.
BESIDE, SHALLOW = 0.65e-6, 0.027
# Promoted sums, cycles of an iteration: fixed, for each sum, for loading factors along k; for each sum with a
# factor for its column, of two warpgroups.
PROMOTING, PROMOTED_SUM, BROUGHT_FACTORS, FACTORED_SUM = (150.0, 1.2, 80.0, 7.0)


def seconds(problem: Problem, config: Knobs, device: Device, options: ScheduleOptions) -> Any:
    """The time of each way of each config: rounds of tiles with their iterations, bounded by power and by
    memory.
    """
    if not device.peak_tflops(problem.math, "wgmma"):
        return np.full(options.possible.shape, np.inf)
    grid, peers, iterations = options.grid, options.cluster, options.grid.iterations
    step = step_cycles(problem, config, device, np.maximum(grid.tiles, options.sk_blocks) * config.cluster)
    turns = rounds(options, config, device)
    stored = store_cycles(problem, config) / peers  # each peer stores a part
    even = (problem.m if transposed_d(problem) else problem.n) % EVEN_ROW == 0
    streams = (d_streams(problem, device) and even) & (iterations < 2)
    stored = stored * np.where(streams & (config.exchanged != 0), EXCHANGED_STEP, 1.0)
    held = np.where(streams, 0.0, held_share(problem, config, options, step, stored))
    finished = finish_cycles(problem, config) / peers
    turn: Any = TURN if copies_out(problem) or problem.math not in EITHER_WAY else TURN_BY_HAND
    turn = np.where(streams, TURN_OF_ONE_STEP, turn)
    quick = unrolled(problem, config) & (sums_of_thread(config) <= IN_PIECES)
    cycles = busy_cycles(turns, iterations * step, stored, config, held, finished, turn, quick)
    cycles = np.where(config.ping_pong != 0, longer_by_turns(problem, config) * cycles, cycles)
    running = cycles / (device.clock_mhz * 1e6 * CLOCK_SHARE)
    moved = grid.tiles * iterations * config.cluster * bytes_of_step(problem, config)
    powered = powered_seconds(problem, config, device, grid, running, moved)
    worked = together(*powered, memory_seconds(problem, config, device, options))
    handed = handing_on(options, config, device)
    packing, beside = pack_seconds(problem, config, device, options), beside_work(problem, config, worked)
    return alone_by_turns(problem, config) * (packing + worked + handed + beside)


def beside_work(problem: Problem, config: Knobs, worked: Any) -> Any:
    """Further seconds: the meeting of clusters, the handicap of shifted rows, less what overlapping launches
    gain.
    """
    pairing = PAIRED_PACKING if any(packed(problem)) else PAIRING
    cycles = np.where(config.cluster > 1, pairing, 0.0)
    if problem.skewed:
        cycles = cycles + (SHIFTING[0] + SHIFTING[1] * worked)
    return cycles + np.where(leaves_room(problem, config), SHALLOW * worked - BESIDE, 0.0)


def d_streams(problem: Problem, device: Device) -> bool:
    """Whether D is larger than the L2, and so goes to DRAM. Measured in 16-bit types."""
    return (
        size_of(problem.dtype) == size_of(problem.out_dtype) == 2
        and least_bytes(problem)[1] > device.l2_bytes
    )


def held_share(problem: Problem, config: Knobs, options: ScheduleOptions, step: Any, store: Any) -> Any:
    """The share of a tile that is held in registers and stored during the next tile's products
    (gemm/wgmma/deferred_store.cuh). Stores of 4-byte elements still take time of the L2, unless products take
    long. Columns of D that whole warpgroups store are not held, but are as quick as if they were.
    """
    size, steps = size_of(problem.out_dtype), options.grid.iterations
    other_way = problem.scaling.promoted or c_in_patches(problem) or not copies_out(problem)
    if size == 1 or by_registers(problem) or other_way:
        return 0.0
    slabs, (width, height) = config.wm // PATCH_ROWS, patch(problem, config)
    room = wgmma_registers(config.bm) - BESIDE_SUMS * slabs - slabs * config.bn // 2
    of_warp = width * height // np.where(by_group(problem, config), 4, 1)
    patches = slabs * config.bn * PATCH_ROWS // of_warp
    held = np.maximum(0, np.minimum(patches, room * WARP_BYTES // (of_warp * size)))
    # One patch is stored in each iteration. With fewer iterations than patches none is held, except where
    # groups cut k.
    long = (steps >= held) | problem.modes.cuts(DEPTH)
    waits = (config.ping_pong == 0) & (warpgroups(config) != 3) & long & (options.scheduled == 0)
    if size == 2:
        return np.where(waits, held / patches, 0.0)
    return np.where(waits & (steps * step >= HIDES * store), HIDDEN * held / patches, 0.0)


def step_cycles(problem: Problem, config: Knobs, device: Device, blocks: Any = inf) -> Any:
    """Cycles of an iteration, in a launch of so many blocks: the slowest of products, shared memory, lines
    from the L2, and barriers.
    """
    # flops of an SM in a cycle
    peak = device.peak_tflops(problem.math, "wgmma") * 1e6 / (device.sms * device.clock_mhz)
    flops = 2.0 * config.bm * config.bn * config.bk
    lines = lines_of_step(problem, config) * L2_LINE
    shared = lines * np.minimum(1.0, blocks / device.sms / CROWDED_FROM) / L2_SHARED_BYTES
    products, outside = flops / peak, rows_outside(problem, config, device) / OUTSIDE_ROWS
    promoted = promoted_cycles(problem, config, products)
    fed = flops / feed_limit(config, problem)
    longer = waiting(config, np.minimum(1.0, blocks / device.sms))
    if any(packed(problem)) and size_of(problem.dtype) == 2:
        pairs = np.where(config.cluster > 2, PACKED_MORE, PACKED_PAIR)
        pairs = np.where(config.cluster > 1, pairs, 1.0) * np.where(config.ping_pong != 0, PACKED_TURNS, 1.0)
        longer = longer * np.where(blocks >= device.sms, pairs, 1.0)
    in_turn = np.where(blocks > device.sms, LEAST_IN_ROUNDS, LEAST_IN_TURN)
    least = np.where(loaders(problem, config) > 1, in_turn, LEAST_STEP)
    return longer * together(products, fed, least, lines / L2_BYTES, shared, promoted, outside)


def waiting(config: Knobs, busy: Any) -> Any:
    """A factor on the iteration; `busy`: the share of all SMs that have a block."""
    alone = np.where((warpgroups(config) == 1) & (config.ping_pong == 0), 1.0 + (ONE_GROUP - 1.0) * busy, 1.0)
    return alone * np.where(config.cluster == 8, OF_EIGHT, 1.0)


def rows_outside(problem: Problem, config: Knobs, device: Device) -> Any:
    """Rows of all boxes of an iteration that lie outside the matrices, on average. In boxes of M-major and
    N-major operands rows run along k, and none lies outside. Where boxes end with a group, what is behind it
    takes no time: with 16 rows a group, tiles of 160 columns were as fast as those of 256.
    """
    tiles_m = np.maximum(1, -(-problem.m // config.bm))
    tiles_n = np.maximum(1, -(-problem.n // config.bn))
    transposed_a, transposed_b = mn_major(problem)
    a_lines, b_lines = loaded_lines(problem, config)
    of_a, of_b = a_lines - problem.m / tiles_m, b_lines - problem.n / tiles_n
    at_once = np.minimum(device.sms, tiles_m * tiles_n * prod(problem.batch))
    counts_a = not transposed_a and not problem.modes.cuts(ROWS)
    counts_b = not transposed_b and not problem.modes.cuts(COLS)
    return at_once * (of_a * counts_a + of_b * counts_b)


def promoted_cycles(problem: Problem, config: Knobs, products: Any) -> Any:
    """Cycles of one warpgroup, whose next products wait until it has added up those of this iteration. The
    other warpgroups' products run meanwhile.
    """
    if not problem.scaling.promoted:
        return 0.0
    groups = warpgroups(config)
    sums, along_k = config.bm * config.bn / (128 * groups), problem.scaling.a.along_k
    # With a factor for each column, instructions are the bound, and warpgroups share their issue.
    of_sum = FACTORED_SUM * groups / 2 if problem.scaling.b.kind == STRIPS else PROMOTED_SUM
    brought = BROUGHT_FACTORS if along_k or problem.scaling.b.along_k else 0.0
    return products / groups + PROMOTING + of_sum * sums + brought


def bytes_of_step(problem: Problem, config: Knobs) -> Any:
    """Bytes that a block asks of the L2, and that arrive in its shared memory. The latter are more, since
    others of its cluster load parts for it.
    """
    b_width = -(-config.bn // 64) * 64 if mn_major(problem)[1] else config.bn
    a_rows, b_rows = rows_of_step(problem, config)
    in_order = (config.cluster_m == 2) & (config.cluster_n == 1)
    lines = (a_rows + b_rows) * np.where(in_order, IN_ORDER, 1.0)
    return (lines + config.bm + b_width) * STEP_BYTES


def lines_of_step(problem: Problem, config: Knobs) -> Any:
    """Lines of the L2 for an iteration of one block."""
    size = size_of(problem.dtype)
    a, b = (lines_of_row(step * size) for _, _, step in packed_lines(problem))
    a = SKEWED if problem.skewed else a
    a_rows, b_rows = rows_of_step(problem, config)
    lone = np.where(config.cluster == 1, LONE, 1.0)
    sent = np.select([config.cluster == blocks for blocks in SENT], list(SENT.values()), lone)
    a_rows = np.where(a > LINES, np.where(config.cluster_n > 1, sent, lone), 1.0) * a_rows
    b_rows = np.where(b > LINES, np.where(config.cluster_m > 1, sent, lone), 1.0) * b_rows
    if a == b == LINES:  # aligned rows: no gain was measured with clusters of eight
        a_rows, b_rows = (np.where(config.cluster == 8, 8.0, 1.0) * rows for rows in (a_rows, b_rows))
    if mn_major(problem)[1]:
        return a_rows * a + b_rows * np.where(config.bn % 64 == 0, b, max(b, SECTORS))
    return a_rows * a + b_rows * b


def lines_of_row(pitch: int) -> float:
    """Cost of a row of a box, in lines of the L2, whose rows are so many bytes apart."""
    return LINES if pitch % L2_LINE == 0 else SECTORS if pitch % SECTOR == 0 else HALVES


def rows_of_step(problem: Problem, config: Knobs) -> tuple[Any, Any]:
    """Rows of 128 bytes, of A and of B, that a block itself loads. Others of its cluster load the rest of
    what they share.
    """
    a_rows, b_rows = loaded_lines(problem, config)
    b_rows = -(-config.bn // 64) * 64 if mn_major(problem)[1] else b_rows
    return a_rows / config.cluster_n, b_rows / config.cluster_m


def feed_limit(config: Knobs, problem: Problem) -> Any:
    """Flops in a cycle that shared memory can feed, at 128 bytes a cycle: an instruction reads 64 rows of A
    and all columns of B.
    """
    depth, rows = 32 // size_of(problem.dtype), 128 if problem.skewed else 64  # two words for each, to shift
    return 2.0 * 64 * config.bn * depth / ((rows + config.bn) * 32 / 128)


def together(*bounds: Any) -> Any:
    """The largest bound, and a little of those that come near it: the fourth root of the sum of fourth
    powers.
    """
    total: Any = 0.0
    for bound in bounds:
        square = bound * bound
        total = total + square * square
    return np.sqrt(np.sqrt(total))


def memory_seconds(problem: Problem, config: Knobs, device: Device, options: ScheduleOptions) -> Any:
    """Seconds of memory traffic. Decode streams weights, more slowly if SMs have no tile, or none in the last
    round.
    """
    reading, written = (nbytes / (device.dram_gbps * 1e9) for nbytes in least_bytes(problem))
    few = (problem.m <= config.bm * config.cluster_m) | (problem.n <= config.bn * config.cluster_n)
    if prod(problem.batch) > 1:
        return (reading - written + written * scattering(problem, config, device, options)) / DRAM_SHARE
    if not np.count_nonzero(few):
        return reading / DRAM_SHARE
    slots, peers = clusters_at_once(device)[config.cluster], options.cluster
    tiles = options.grid.tiles * peers
    idle = 1.0 - tiles / (np.maximum(1, np.ceil(tiles / slots)) * slots)
    idle = np.where((options.sk_blocks > 0) & (peers == 1) & (config.cluster == 1), 0.0, idle)
    streamed = STREAM_STARTS + reading / STREAMED_SHARE * (1.0 + STREAM_IDLES * idle)
    return np.where(few, streamed, reading / DRAM_SHARE)


def scattering(problem: Problem, config: Knobs, device: Device, options: ScheduleOptions) -> Any:
    """A factor on the time to store a batch's D to DRAM, by the addresses that tiles write at once."""
    steps, plain = options.grid.iterations, config.exchanged == 0
    row = config.bm * config.cluster_m * size_of(problem.out_dtype)
    long_rows = ~plain & (row >= LONG_ROWS)
    if device.dram_gbps > FAST_DRAM:
        share = np.where(long_rows, LONG_ROWS_SHARE, 1.0)
    else:
        square = plain & (config.cluster_m == 2) & (config.cluster_n == 2) & (steps == 2)
        small = plain & (config.bm == 64) & (config.bn == SMALL_COLUMNS) & (steps < 2)
        share = np.where(long_rows & (steps <= 2), OF_LONG_ROWS, SCATTERED)
        share = np.where(square, OF_SQUARES, np.where(small, OF_SMALL, share))
    return np.where(d_streams(problem, device), share, 1.0)


def least_bytes(problem: Problem) -> tuple[float, float]:
    """Bytes of all matrices, and of D alone."""
    a, b, _, d = problem.element_bytes
    count, of_d = prod(problem.batch), problem.m * problem.n * d
    of_all = problem.m * problem.k * a + problem.n * problem.k * b + of_d * (1 + c_in_patches(problem))
    return float(count * of_all), float(count * of_d)


def block_costs(problem: Problem, config: Config, device: Device) -> CostModel:
    """Costs of a block that shares tiles by turnstile, in seconds; for pictures of schedules."""
    step, stored = (
        float(cycles) / (device.clock_mhz * 1e6 * CLOCK_SHARE)
        for cycles in (step_cycles(problem, config, device), store_cycles(problem, config))
    )
    handing, peer = cost_of(TURNSTILE, config, few_of_clusters(grids_of(problem, config), config, device))
    return CostModel(stored, float(handing - peer), step, float(peer), "seconds", "measured on an H200")
