"""How long packing holds up the kernels on wgmma, and which of them pack a part of it beside their products
(gemm/wgmma/operands.cuh)."""

from __future__ import annotations

from typing import Any

import numpy as np

from lapidist.config import Knobs
from lapidist.device import Device
from lapidist.dtypes import size_of
from lapidist.kernels.wgmma.operands import EITHER_WAY, copies_out, packed, packed_bytes, scratch, transposed
from lapidist.kernels.wgmma.sharing import BAND, clusters_at_once
from lapidist.problems.problem import Problem
from lapidist.schedule.grid import ceil_div
from lapidist.schedule.ways import Grids, Ways

# Seconds until all blocks have met, and the share of the bandwidth at which operands are read and written;
# the same where they are transposed.
PACKING = 1.05e-6, 0.85
TURNING = 4.2e-6, 0.67
# Of what is packed beside products: it takes its share of memory and of the L2.
BESIDE_PRODUCTS = 0.8
LATE_ROWS, LATE_COLUMNS = 128, 192  # of a tile: rows, and columns at least
ROUNDS = 2  # of tiles, at least
MOST_LATE = 24  # lines of both operands, at most, for each column of a tile


def pack_seconds(problem: Problem, config: Knobs, device: Device, ways: Ways) -> Any:
    if not any(packed(problem)):
        return 0.0
    meeting, share = TURNING if any(transposed(problem)) else PACKING
    whole = 2.0 * scratch(problem)[1] / (device.dram_gbps * 1e9 * share)
    if not np.count_nonzero(packs_later(problem, config)):
        return meeting + whole
    first = first_share(problem, config, device, ways.grid)
    later = packs_later(problem, config) & (ways.scheduled == 0) & (ways.sk_blocks == 0)
    return meeting + whole * np.where(later, first + BESIDE_PRODUCTS * (1.0 - first), 1.0)


def packs_later(problem: Problem, config: Knobs) -> Any:
    """Whether the producer's idle warps pack what only later tiles need, where tiles are not shared."""
    if problem.math not in EITHER_WAY or size_of(problem.out_dtype) != 2 or problem.fused is not None:
        return False
    if not any(packed(problem)) or problem.batch or problem.skewed or problem.c is not None:
        return False
    if copies_out(problem):
        return False
    large = (config.bm == LATE_ROWS) & (config.bn >= LATE_COLUMNS)
    return large & (config.ping_pong == 0) & (config.skewed == 0)


def first_share(problem: Problem, config: Knobs, device: Device, grid: Grids) -> Any:
    """Of packed bytes, what the first tile of every block reads."""
    blocks = np.maximum(1, clusters_at_once(device)[config.cluster])
    lines = np.where(config.along_m, grid.tiles_n, grid.tiles_m)
    steps = np.where(config.along_m, grid.tiles_m, grid.tiles_n)
    band = np.maximum(1, np.minimum(np.where(config.raster > 0, config.raster, BAND), lines))
    bands = ceil_div(blocks, band * np.maximum(1, steps))
    down, along = bands * band, np.where(bands > 1, steps, ceil_div(blocks, band))
    high, wide = config.bm * config.cluster_m, config.bn * config.cluster_n
    rows = np.minimum(1.0, np.where(config.along_m, along, down) * high / max(1, problem.m))
    cols = np.minimum(1.0, np.where(config.along_m, down, along) * wide / max(1, problem.n))
    of_a, of_b = packed_bytes(problem)
    left = (of_a > 0) * (1.0 - rows) * problem.m + (of_b > 0) * (1.0 - cols) * problem.n
    few = left <= MOST_LATE * config.bn
    share = (of_a * rows + of_b * cols) / max(1, of_a + of_b)
    return np.where(few & (grid.tiles >= ROUNDS * blocks), share, 1.0)
