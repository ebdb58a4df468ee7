"""How long packing delays the kernels with wgmma, and which of them pack a part while they multiply
(gemm/wgmma/operands.cuh).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lapidist.config import Knobs
from lapidist.device import Device
from lapidist.dtypes import size_of
from lapidist.kernels.wgmma.operands import EITHER_WAY, copies_out, packed, packed_bytes, scratch, transposed
from lapidist.kernels.wgmma.sharing import clusters_at_once
from lapidist.knobs.shared_knobs import BAND
from lapidist.problems.problem import Problem
from lapidist.schedule.grid import ceil_div
from lapidist.schedule.schedule_options import Grids, ScheduleOptions

# Seconds of the meeting of all blocks, and the share of the bandwidth that packing reaches; then the same if
# it transposes.
PACKING = 1.05e-6, 0.85
TURNING = 4.2e-6, 0.67
# If a part is packed during products: further seconds, and how much of that part's time is not hidden, in
# tiles of 224 columns. Wider tiles ask less of the L2 and hide more.
BESIDE_PRODUCTS, OF_COLUMNS = (1.5e-6, 0.45), 224
# Tiles whose kernels pack during products: rows, and least columns; rows, and most columns.
EVEN_TILE, FEWER_TILE = (128, 192), (256, 160)
# From so many packed elements for each block on, only this share of k is packed before the products.
PANELS_FROM, FIRST_STEPS = 52 << 10, 3 / 8


def pack_seconds(problem: Problem, config: Knobs, device: Device, options: ScheduleOptions) -> Any:
    if not any(packed(problem)):
        return 0.0
    meeting, share = TURNING if any(transposed(problem)) else PACKING
    packing = 2.0 * scratch(problem)[1] / (device.dram_gbps * 1e9 * share)
    if not np.count_nonzero(packs_alongside(problem, config)):
        return meeting + packing
    first = first_share(problem, config, device, options.grid)
    overlapped = packs_alongside(problem, config) & (options.scheduled == 0) & (options.sk_blocks == 0)
    shown = BESIDE_PRODUCTS[1] * np.where(config.bm == EVEN_TILE[0], OF_COLUMNS / config.bn, 1.0)
    late = BESIDE_PRODUCTS[0] + packing * shown * (1.0 - first)
    return meeting + np.where(overlapped & (first < 1.0), packing * first + late, packing)


def packs_alongside(problem: Problem, config: Knobs) -> Any:
    """Whether the producer's idle warps pack what first tiles do not read at once (parts.cuh). Only if tiles
    are not shared.
    """
    if problem.math not in EITHER_WAY or size_of(problem.out_dtype) != 2 or problem.fused is not None:
        return False
    if not any(packed(problem)) or problem.batch or problem.skewed or problem.c is not None:
        return False
    if copies_out(problem):
        return False
    even = (config.bm == EVEN_TILE[0]) & (config.bn >= EVEN_TILE[1])
    fewer = (config.bm == FEWER_TILE[0]) & (config.bn <= FEWER_TILE[1])
    return (even | fewer) & (config.ping_pong == 0) & (config.skewed == 0)


def first_share(problem: Problem, config: Knobs, device: Device, grid: Grids) -> Any:
    """The share of packed bytes that must be there before the products: what each block's first
    tile reads.
    """
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
    share = (of_a * rows + of_b * cols) / max(1, of_a + of_b)
    large = of_a + of_b >= PANELS_FROM * size_of(problem.dtype) * blocks * config.cluster
    all_lines = ((rows == 1.0) | (of_a == 0)) & ((cols == 1.0) | (of_b == 0))
    return np.where(all_lines & large, FIRST_STEPS, share)
