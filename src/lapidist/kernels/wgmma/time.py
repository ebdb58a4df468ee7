"""How long the kernels on wgmma need: the cycles of a step along k, rounds of tiles, what memory and power
allow.

The constants are fitted to some 2000 measurements on one H200 in bfloat16, tf32 and 8-bit floats. m, n and k
are log-uniform from 16 to 8192, as `lapidist tune --record` measures them."""

from __future__ import annotations

from math import inf, prod
from typing import Any

import numpy as np

from lapidist.config import Config, Knobs
from lapidist.device import Device
from lapidist.dtypes import size_of
from lapidist.kernels.budgets import BESIDE_SUMS, wgmma_registers
from lapidist.kernels.columns import grids_of
from lapidist.kernels.lines import L2_LINE, SECTOR
from lapidist.kernels.wgmma.operands import (
    EITHER_WAY,
    by_registers,
    c_in_patches,
    copies_out,
    grouped_columns,
    joins_columns,
    joins_values,
    mn_major,
    packed,
    packed_lines,
    quantises,
    same_c,
    transposed_d,
)
from lapidist.kernels.wgmma.packing import pack_seconds
from lapidist.kernels.wgmma.power import powered_seconds
from lapidist.kernels.wgmma.shared import beside_another
from lapidist.kernels.wgmma.sharing import clusters_at_once, cost_of, few_of_clusters, handing_on, rounds
from lapidist.kernels.wgmma.tiles import PATCH_ROWS, by_group, loaded_lines, patch, warpgroups
from lapidist.problems.problem import Problem
from lapidist.problems.scaling import STRIPS
from lapidist.schedule import CostModel
from lapidist.schedule.ways import TURNSTILE, Ways

CLOCK_SHARE = 0.88  # of the highest clock, which wgmma does not let the chip keep
OUTSIDE_ROWS = (
    7.0  # a cycle, on the whole chip: rows of boxes that lie outside the matrix all come from one place
)
LEAST_STEP = 200.0  # cycles, however small the tile: barriers there and back
# Times as long a step takes where one warpgroup multiplies alone, when no multiprocessor idles: nobody's
# products run beside its barriers. And where eight blocks wait for each other.
ONE_GROUP, OF_EIGHT = 1.06, 1.08
# The same where operands were packed in 16-bit types, and the chip is full: of clusters of two, or of more;
# or of warpgroups that take turns.
PACKED_PAIR, PACKED_MORE, PACKED_TURNS = 1.03, 1.04, 1.04
# A cycle, from the L2: to an SM, and to each of all when none idles, as it answers so many requests for the
# whole chip; to each no more as long as this part of them works.
L2_BYTES, L2_SHARED_BYTES, CROWDED_FROM = 97.0, 103.0, 1 / 1.6
# What a row of 128 bytes in a box costs, in lines of the L2, by where it starts: on a line; on a sector of 32
# bytes; elsewhere. Such rows are two or three requests, and those of neighbouring SMs for the same line are
# hardly merged on their way any more.
LINES, SECTORS, HALVES = 1.0, 1.95, 3.45
# Times as many, of such rows that go to all blocks of a cluster at once, by their number; and of those of
# blocks by themselves, whose neighbours ask for the same rows a little later. Without that the
# planner took pairs where blocks by themselves were up to a fifth faster.
SENT, LONE = {2: 1.4, 4: 1.2, 8: 1.28}, 0.95
# The same of the 144 bytes that such rows take where they are shifted on their way through registers; and the
# seconds, and the share, by which these products must be better than packed ones before they are.
SKEWED, SHIFTING = 5.1, (1.0e-6, 0.03)
STORED_BYTES = 20.0  # of D a cycle; TMA moves them while the next tile is multiplied
NARROW, NARROW_BYTES = 1.8, 64  # times as long where the rows of a patch have fewer bytes than that
# Cycles for 16 rows of a tile that each warp stores by itself, where TMA does not take D: for
# each warp, as the ends of their rows wait for each other, and for each column.
STRIP_BY_HAND, COLUMN_BY_HAND = 225.0, 12.0
# Of that, what D of gated pairs takes, half as wide and in pieces of 16 bytes. (8192 x 4096 x 1024 on an
# H100: SwiGLU takes 5 us more than the product alone in tiles of 128 x 256.)
GATED_BY_PIECES = 0.15
# tiles with rows so short are stored so much later by TMA: seen, not explained
FEW_BYTES, FEW_LONGER = (64, 2.5)
# a thread that holds so many has no registers for the way out: so much longer
CROWDED_SUMS, CROWDED_BY_HAND = (192, 1.5)
DRAM_SHARE = 0.8  # of the bandwidth that reading alone has
# Times as long a D larger than the L2 takes in a batch, by how what is stored at once lies in it: where
# clusters of two steps are 2 x 2, or write rows of so many bytes, with A and B exchanged; where tiles of one
# step are small. (Fitted on an H100: tiles of 128 rows took up to a fifth longer than these.)
SCATTERED, OF_SQUARES, OF_LONG_ROWS, LONG_ROWS = 1.12, 1.05, 1.03, 1024
OF_SMALL, SMALL_COLUMNS = 0.9, 128
# A faster DRAM than this, in GB/s, does not limit such tiles. The long rows alone are faster there. (On an
# H200 tiles of 64 x 128 took a fifth longer than those of 128 x 128, with one step.)
FAST_DRAM, LONG_ROWS_SHARE = 4000.0, 1 / 1.06
# The same where one tile has all rows of A (or columns of B) and the other operand is read once; seconds
# until that flows, less those of a launch that the last one hides; and what multiprocessors that idle cost of
# it.
STREAMED_SHARE, STREAM_STARTS, STREAM_IDLES = 0.94, -0.5e-6, 0.4
# seconds until the blocks of a cluster have met; where all blocks must first
PAIRING, PAIRED_PACKING = (0.2e-6, 0.4e-6)
# Of what the L2's lines cost in power, where pairs that share B ask for the A of the other pairs of their GPC
# (placement.py); the counters see nothing of it where pairs share A.
IN_ORDER = 0.65
WARP_BYTES = 128  # of a warp in one register
# times the store of a tile must be the products beside it, and what they hide: elements of 4 bytes
HIDES, HIDDEN = (4.0, 0.7)
TAKEN = 500.0  # cycles until sums are held, and the next tile's products begin
# Cycles, in ping-pong, from the products of one warpgroup's tile to those of the other's; where threads store
# D in 16-bit types.
TURN, TURN_BY_HAND = 1000.0, 500.0
# The same where a tile is one step, and D larger than the L2. Nothing is hidden then: neither one's store
# beside the other's products, nor that of held patches.
# (Where rows of D are no multiple of 256 bytes, ping-pong stayed faster.)
TURN_OF_ONE_STEP, EVEN_ROW = 3000.0, 128
# times as long a store takes there whose four warps wait for each other, as A and B are exchanged
EXCHANGED_STEP = 1.25
# Times as long an epilogue takes there: a warp is alone on its scheduler, and waits for its own instructions;
# and as much of it the other warpgroup's products are held up. (8192 x 4096 x 512 on an H200: the product
# alone 55 us, with bias + GELU in turns 96, where 78 are told without. 4096^3 with SwiGLU: 192, 236, 214.)
ALONE, HELD_UP = 3.5, 2.2
# The same of a function that is written out for all sums of a thread, and the cycles of a turn. Products of
# tiles of 128 rows, too, take less than is told. (On an H100, 8192 x 4096 x 512: alone 50 us, with bias
# and GELU by tanh 64 in turns of 128 x 128, 74 in tiles of 128 x 256. 4096^3 alone: 177 and 171.)
ALONE_AT_ONCE, HELD_UP_AT_ONCE, TURN_AT_ONCE, CLOSER = 0.9, 0.95, 400.0, 0.94
# Sums that a short function is written out for: where D's elements are moved in pieces, or else; and cycles
# of a turn of the loop over more. (8192 x 28672 x 4096 by such a loop over 200 sums: the product alone
# 2.49 ms, with a bias 3.12.)
IN_PIECES, AT_ONCE, LOOPED = 128, 208, 550.0
# Of a function that is written out for more sums than the former, what shows. (8192 x 4096 x 1024 on an H100:
# bias and GELU take 6 us more than a bias in tiles of 256 x 200, 12 in 128 x 256 and in turns of 128 x 128.)
LARGE_SHOWN = 0.4
FINISHED_AT_ONCE = 128  # elements: an instruction of four warps
LINE_OF_C = 2.5  # instructions for an element, as two rows have each of C's
# pairs in ping-pong, and tiles of 64 rows, whose epilogues alone were measured: so much longer without one
PAIRED_BY_TURNS = 1.1
STEP_BYTES = 128  # along k, of a row of A or a column of B
# The same where the next launch's blocks wait beside these: seconds less, and the share that fewer stages
# take.
BESIDE, SHALLOW = 0.65e-6, 0.027
# cycles of a step: there and back, for each sum, for factors; for each sum of two warpgroups, where each
# column has a factor
PROMOTING, PROMOTED_SUM, BROUGHT_FACTORS, FACTORED_SUM = (150.0, 1.2, 80.0, 7.0)


def seconds(problem: Problem, config: Knobs, device: Device, ways: Ways) -> Any:
    """Rounds of tiles, each its steps; or what power allows; or the bytes of memory. Of each way of each
    config."""
    if not device.peak_tflops(problem.math, "wgmma"):
        return np.full(ways.taken.shape, np.inf)
    grid, peers, iterations = ways.grid, ways.cluster, ways.grid.iterations
    step = step_cycles(problem, config, device, np.maximum(grid.tiles, ways.sk_blocks) * config.cluster)
    turns = rounds(ways, config, device)
    stored = store_cycles(problem, config) / peers  # peers store a part each
    even = (problem.m if transposed_d(problem) else problem.n) % EVEN_ROW == 0
    streams = (d_streams(problem, device) and even) & (iterations < 2)
    stored = stored * np.where(streams & (config.exchanged != 0), EXCHANGED_STEP, 1.0)
    held = np.where(streams, 0.0, held_share(problem, config, ways, step, stored))
    finished = finish_cycles(problem, config) / peers
    turn: Any = TURN if copies_out(problem) or problem.math not in EITHER_WAY else TURN_BY_HAND
    turn = np.where(streams, TURN_OF_ONE_STEP, turn)
    quick = written_out(problem, config) & (sums_of_thread(config) <= IN_PIECES)
    cycles = busy_cycles(turns, iterations * step, stored, config, held, finished, turn, quick)
    if problem.fused is None:
        paired = (config.bm == 64) | ((config.cluster_m == 2) & (config.cluster_n == 1))
        cycles = np.where((config.ping_pong != 0) & paired, PAIRED_BY_TURNS * cycles, cycles)
    running = cycles / (device.clock_mhz * 1e6 * CLOCK_SHARE)
    moved = grid.tiles * iterations * config.cluster * bytes_of_step(problem, config)
    powered = powered_seconds(problem, config, device, grid, running, moved)
    worked = together(*powered, memory_seconds(problem, config, device, ways))
    handed = handing_on(ways, config, device)
    return (
        pack_seconds(problem, config, device, ways) + worked + handed + beside_work(problem, config, worked)
    )


def beside_work(problem: Problem, config: Knobs, worked: Any) -> Any:
    """Seconds until clusters have met; for shifting rows; and less, where the next launch finds room."""
    pairing = PAIRED_PACKING if any(packed(problem)) else PAIRING
    found = np.where(config.cluster > 1, pairing, 0.0)
    if problem.skewed:
        found = found + (SHIFTING[0] + SHIFTING[1] * worked)
    return found + np.where(beside_another(problem, config), SHALLOW * worked - BESIDE, 0.0)


def busy_cycles(
    turns: Any,
    products: Any,
    store: Any,
    config: Knobs,
    held: Any,
    finish: Any = 0.0,
    turn: Any = TURN,
    quick: Any = False,
) -> Any:
    """Of a block: the store of a tile comes behind its products, and behind its epilogue. In ping-pong the
    other warpgroup's run beside both, so that only the last one shows, unless they take longer. Where a part
    of the sums is held, the next tile's run beside its store."""
    behind = np.ceil(turns) * store
    if np.count_nonzero(held):
        beside = (np.ceil(turns) - 1) * (TAKEN + (1.0 - held) * store) + store
        behind = np.where(held > 0, beside, behind)
    alone = turns * products + behind + np.ceil(turns) * finish
    if not np.count_nonzero(config.ping_pong):
        return alone
    products = np.where(quick & (config.bm > 64) & (turns > 1), CLOSER, 1.0) * products
    store = store + np.where(quick, ALONE_AT_ONCE, ALONE) * finish
    beside = products + np.where(quick, TURN_AT_ONCE + HELD_UP_AT_ONCE * finish, turn + HELD_UP * finish)
    in_turn = np.maximum(turns * beside, np.ceil(turns / 2) * (products + store) - store) + store
    return np.where(config.ping_pong, in_turn, alone)


def d_streams(problem: Problem, device: Device) -> bool:
    """To DRAM: it is larger than the L2. Measured in 16-bit types."""
    return (
        size_of(problem.dtype) == size_of(problem.out_dtype) == 2
        and least_bytes(problem)[1] > device.l2_bytes
    )


def held_share(problem: Problem, config: Knobs, ways: Ways, step: Any, store: Any) -> Any:
    """Of a tile, what waits in registers, as it is stored, while the next one begins
    (cuda/wgmma_pipeline.cuh). Elements of 4 bytes take their time of the L2 all the same, unless there is
    plenty. Columns of D that leave by whole warpgroups do not wait, and are as quick as if they did."""
    size, steps = size_of(problem.out_dtype), ways.grid.iterations
    other_way = problem.scaling.promoted or c_in_patches(problem) or not copies_out(problem)
    if size == 1 or by_registers(problem) or other_way:
        return 0.0
    slabs, (width, height) = config.wm // PATCH_ROWS, patch(problem, config)
    room = wgmma_registers(config.bm) - BESIDE_SUMS * slabs - slabs * config.bn // 2
    of_warp = width * height // np.where(by_group(problem, config), 4, 1)
    patches = slabs * config.bn * PATCH_ROWS // of_warp
    held = np.maximum(0, np.minimum(patches, room * WARP_BYTES // (of_warp * size)))
    # they leave one in a step: with fewer steps none waits
    waits = (config.ping_pong == 0) & (warpgroups(config) != 3) & (steps >= held) & (ways.scheduled == 0)
    if size == 2:
        return np.where(waits, held / patches, 0.0)
    return np.where(waits & (steps * step >= HIDES * store), HIDDEN * held / patches, 0.0)


def step_cycles(problem: Problem, config: Knobs, device: Device, blocks: Any = inf) -> Any:
    """The slowest of products, shared memory, lines from the L2, and barriers; of a launch of so many
    blocks.
    """
    # flops of an SM and cycle
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
    return longer * together(products, fed, LEAST_STEP, lines / L2_BYTES, shared, promoted, outside)


def waiting(config: Knobs, busy: Any) -> Any:
    """Times as long a step takes; `busy`: the share of all multiprocessors that has a block."""
    alone = np.where((warpgroups(config) == 1) & (config.ping_pong == 0), 1.0 + (ONE_GROUP - 1.0) * busy, 1.0)
    return alone * np.where(config.cluster == 8, OF_EIGHT, 1.0)


def rows_outside(problem: Problem, config: Knobs, device: Device) -> Any:
    """Of all boxes of A and B in a step, over all tiles alike. Boxes of MN-major operands have k for rows."""
    tiles_m = np.maximum(1, -(-problem.m // config.bm))
    tiles_n = np.maximum(1, -(-problem.n // config.bn))
    transposed_a, transposed_b = mn_major(problem)
    a_lines, b_lines = loaded_lines(problem, config)
    of_a, of_b = a_lines - problem.m / tiles_m, b_lines - problem.n / tiles_n
    at_once = np.minimum(device.sms, tiles_m * tiles_n * prod(problem.batch))
    return at_once * (of_a * (not transposed_a) + of_b * (not transposed_b))


def promoted_cycles(problem: Problem, config: Knobs, products: Any) -> Any:
    """Of one warpgroup, whose next products wait until it has added up those of this step; the others' run
    meanwhile.
    """
    if not problem.scaling.promoted:
        return 0.0
    groups = warpgroups(config)
    sums, along_k = config.bm * config.bn / (128 * groups), problem.scaling.a.along_k
    # instructions bound where columns have factors, and warpgroups issue theirs by turns
    of_sum = FACTORED_SUM * groups / 2 if problem.scaling.b.kind == STRIPS else PROMOTED_SUM
    brought = BROUGHT_FACTORS if along_k or problem.scaling.b.along_k else 0.0
    return products / groups + PROMOTING + of_sum * sums + brought


def bytes_of_step(problem: Problem, config: Knobs) -> Any:
    """What a block asks of the L2, and what comes to its shared memory: more, where others of its cluster ask
    for it too.
    """
    b_width = -(-config.bn // 64) * 64 if mn_major(problem)[1] else config.bn
    a_rows, b_rows = rows_of_step(problem, config)
    in_order = (config.cluster_m == 2) & (config.cluster_n == 1)
    asked = (a_rows + b_rows) * np.where(in_order, IN_ORDER, 1.0)
    return (asked + config.bm + b_width) * STEP_BYTES


def lines_of_step(problem: Problem, config: Knobs) -> Any:
    """Of the L2, for a step of one block."""
    size = size_of(problem.dtype)
    a, b = (lines_of_row(step * size) for _, _, step in packed_lines(problem))
    a = SKEWED if problem.skewed else a
    a_rows, b_rows = rows_of_step(problem, config)
    lone = np.where(config.cluster == 1, LONE, 1.0)
    sent = np.select([config.cluster == blocks for blocks in SENT], list(SENT.values()), lone)
    a_rows = np.where(a > LINES, np.where(config.cluster_n > 1, sent, lone), 1.0) * a_rows
    b_rows = np.where(b > LINES, np.where(config.cluster_m > 1, sent, lone), 1.0) * b_rows
    if a == b == LINES:  # eight blocks were not seen to gain
        a_rows, b_rows = (np.where(config.cluster == 8, 8.0, 1.0) * rows for rows in (a_rows, b_rows))
    if mn_major(problem)[1]:
        return a_rows * a + b_rows * np.where(config.bn % 64 == 0, b, max(b, SECTORS))
    return a_rows * a + b_rows * b


def lines_of_row(pitch: int) -> float:
    """Of a box whose rows are so many bytes apart."""
    return LINES if pitch % L2_LINE == 0 else SECTORS if pitch % SECTOR == 0 else HALVES


def rows_of_step(problem: Problem, config: Knobs) -> tuple[Any, Any]:
    """Of 128 bytes, of A and of B, that a block orders: others of its cluster order the rest of what they
    share.
    """
    a_rows, b_rows = loaded_lines(problem, config)
    b_rows = -(-config.bn // 64) * 64 if mn_major(problem)[1] else b_rows
    return a_rows / config.cluster_n, b_rows / config.cluster_m


def store_cycles(problem: Problem, config: Knobs) -> Any:
    """What the way out of a tile adds."""
    size, (width, _) = size_of(problem.out_dtype), patch(problem, config)
    narrow = np.where(width * size < NARROW_BYTES, NARROW, 1.0)
    if copies_out(problem):
        row_bytes = config.bn * size
        few = np.where(row_bytes <= FEW_BYTES, FEW_LONGER, 1.0)
        return narrow * few * config.bm * row_bytes / STORED_BYTES
    crowded = np.where(config.wm // 16 * config.bn // 2 >= CROWDED_SUMS, CROWDED_BY_HAND, 1.0)
    by_hand = STRIP_BY_HAND * config.consumers / 32 + narrow * COLUMN_BY_HAND * config.bn
    return crowded * by_hand * config.wm / 16 * (GATED_BY_PIECES if gated(problem) else 1.0)


def gated(problem: Problem) -> bool:
    """Whether D has a column for two of the product, and threads store pieces of 16 bytes of it."""
    fused = problem.fused
    if fused is None or not fused.function.paired or fused.grouped:
        return False
    return fused.function.results[0].other is None and fused.stored[0].in_pieces


def finish_cycles(problem: Problem, config: Knobs) -> Any:
    """Of a tile's epilogue, and of a C that is one line: its instructions, of four warps at once."""
    instructions: Any = problem.fused.cost if problem.fused else 0
    if problem.fused is not None and joins_values(problem):
        instructions = problem.fused.joined_cost
    if problem.fused is not None and quantises(problem):
        whole = config.bn % grouped_columns(problem) == 0
        instructions = np.where(whole, problem.fused.grouped_cost, instructions)
    if same_c(problem):
        instructions += LINE_OF_C
    found = instructions * config.bm * config.bn / FINISHED_AT_ONCE
    if problem.fused is None:
        return found
    special = problem.fused.special_cost * config.bm * config.bn / FINISHED_AT_ONCE
    exposed = special + LOOPED * turns_of_loop(problem, config)
    large = written_out(problem, config) & (sums_of_thread(config) > IN_PIECES)
    return np.where(config.ping_pong == 0, np.where(large, LARGE_SHOWN, 1.0) * (found + exposed), found)


def sums_of_thread(config: Knobs) -> Any:
    return config.wm // 16 * config.bn // 2


def written_out(problem: Problem, config: Knobs) -> Any:
    """Whether a short function is, for all sums of a thread (cuda/gemm/wgmma/epilogue.cuh)."""
    fused = problem.fused
    if fused is None or not fused.is_short:
        return False
    if not copies_out(problem) and not fused.function.stores_d:  # was not measured
        return False
    whole = not fused.stored and not fused.grouped
    return sums_of_thread(config) <= (AT_ONCE if whole else IN_PIECES)


def turns_of_loop(problem: Problem, config: Knobs) -> Any:
    """Of 12 sums, or as many as divide those of 64 rows, where more than can be written out wait. Where
    columns are joined, of eight."""
    half = config.bn // 2
    twelve = (half % 12 == 0) & (not joins_columns(problem))
    at_once = np.where(twelve, 12, np.where(half % 8 == 0, 8, 4))
    waits = (sums_of_thread(config) > IN_PIECES) & ~np.asarray(written_out(problem, config))
    return np.where(waits, sums_of_thread(config) / at_once, 0.0)


def feed_limit(config: Knobs, problem: Problem) -> Any:
    """Flops a cycle that shared memory can feed: an instruction reads 64 rows of A and all columns of B, 128
    bytes a cycle.
    """
    depth, rows = 32 // size_of(problem.dtype), 128 if problem.skewed else 64  # two words for each, to shift
    return 2.0 * 64 * config.bn * depth / ((rows + config.bn) * 32 / 128)


def together(*bounds: Any) -> Any:
    """The largest, and a little of what comes near it: the fourth root of the sum of fourth powers."""
    total: Any = 0.0
    for bound in bounds:
        square = bound * bound
        total = total + square * square
    return np.sqrt(np.sqrt(total))


def memory_seconds(problem: Problem, config: Knobs, device: Device, ways: Ways) -> Any:
    """Decode is a stream of weights, the thinner the more multiprocessors have no tile, or none in the last
    round.
    """
    reading, written = (nbytes / (device.dram_gbps * 1e9) for nbytes in least_bytes(problem))
    few = (problem.m <= config.bm * config.cluster_m) | (problem.n <= config.bn * config.cluster_n)
    if prod(problem.batch) > 1:
        return (reading - written + written * scattering(problem, config, device, ways)) / DRAM_SHARE
    if not np.count_nonzero(few):
        return reading / DRAM_SHARE
    slots, peers = clusters_at_once(device)[config.cluster], ways.cluster
    tiles = ways.grid.tiles * peers
    idle = 1.0 - tiles / (np.maximum(1, np.ceil(tiles / slots)) * slots)
    idle = np.where((ways.sk_blocks > 0) & (peers == 1) & (config.cluster == 1), 0.0, idle)
    streamed = STREAM_STARTS + reading / STREAMED_SHARE * (1.0 + STREAM_IDLES * idle)
    return np.where(few, streamed, reading / DRAM_SHARE)


def scattering(problem: Problem, config: Knobs, device: Device, ways: Ways) -> Any:
    """Times as long a D of a batch takes to DRAM, by how tiles that are stored at once lie in it."""
    steps, plain = ways.grid.iterations, config.exchanged == 0
    row = config.bm * config.cluster_m * size_of(problem.out_dtype)
    long_rows = ~plain & (row >= LONG_ROWS)
    if device.dram_gbps > FAST_DRAM:
        found = np.where(long_rows, LONG_ROWS_SHARE, 1.0)
    else:
        square = plain & (config.cluster_m == 2) & (config.cluster_n == 2) & (steps == 2)
        small = plain & (config.bm == 64) & (config.bn == SMALL_COLUMNS) & (steps < 2)
        found = np.where(long_rows & (steps <= 2), OF_LONG_ROWS, SCATTERED)
        found = np.where(square, OF_SQUARES, np.where(small, OF_SMALL, found))
    return np.where(d_streams(problem, device), found, 1.0)


def least_bytes(problem: Problem) -> tuple[float, float]:
    """Of all matrices, and of D alone."""
    a, b, _, d = problem.element_bytes
    count, of_d = prod(problem.batch), problem.m * problem.n * d
    of_all = problem.m * problem.k * a + problem.n * problem.k * b + of_d * (1 + c_in_patches(problem))
    return float(count * of_all), float(count * of_d)


def block_costs(problem: Problem, config: Config, device: Device) -> CostModel:
    """Of a block that shares tiles by turnstile, in seconds, for drawings of schedules."""
    step, stored = (
        float(cycles) / (device.clock_mhz * 1e6 * CLOCK_SHARE)
        for cycles in (step_cycles(problem, config, device), store_cycles(problem, config))
    )
    handing, peer = cost_of(TURNSTILE, config, few_of_clusters(grids_of(problem, config), config, device))
    return CostModel(stored, float(handing - peer), step, float(peer), "seconds", "measured on an H200")
