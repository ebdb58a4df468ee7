"""What power allows on Hopper. Products, bytes that move on the chip and bytes of DRAM each cost energy, and
the clock falls until the power is what the chip may draw.

With a little less energy the clock rises a little, and so does the voltage. Less than half of the time
follows the energy, the rest the cycles. The constants are fitted to 8192^3 in bfloat16 as it is, with loads
that the L2 answers, and without any."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from lapidist.config import Knobs
from lapidist.device import Device
from lapidist.dtypes import size_of
from lapidist.kernels.wgmma.sharing import BAND, clusters_at_once
from lapidist.problems.problem import Problem
from lapidist.schedule.ways import Grids

# seconds at the limit of the unit; of shorter products 2000 were measured one by one, and fitted by a sum
LONG = 0.3e-3
POWER_SHARE = 0.95  # of the limit that was measured with tiles that stay where they are
SHORT_MOVED_BYTES = (
    170e12  # a second, out of the L2 and into shared memory: what they cost in power, and so in clock
)
BY_ENERGY = 0.4  # the exponent of energy in the time; cycles have the rest
# Were the clock the highest, at the power that the chip may draw: products, as a share of the limit that
# tiles have which stay where they are; bytes a second out of the L2 and into shared memory; bytes a second
# out of DRAM.
PRODUCTS, MOVED_BYTES, DRAM_BYTES = 0.9, 28e12, 2.5e12
KEPT_BYTES = 40e6  # of operands, which the L2 has still when the next tiles ask for them


def powered_seconds(
    problem: Problem, config: Knobs, device: Device, grid: Grids, running: Any, moved: Any
) -> tuple[Any, ...]:
    """What bounds together, of `running` seconds at the highest clock; `moved`: bytes out of the L2 and into
    shared memory.
    """
    limit = problem.flops / (device.unit_limit("wgmma", problem.math) * 1e12)
    if limit < LONG:
        return running, limit / POWER_SHARE + moved / SHORT_MOVED_BYTES
    energy = limit / PRODUCTS + moved / MOVED_BYTES + read_bytes(problem, config, device, grid) / DRAM_BYTES
    return (np.maximum(running, running ** (1 - BY_ENERGY) * energy**BY_ENERGY),)


def read_bytes(problem: Problem, config: Knobs, device: Device, grid: Grids) -> Any:
    """Of A and B out of DRAM. Tiles that are multiplied at once read each of their rows and columns once; the
    next ones read them again, unless the L2 has all."""
    size, matrices = size_of(problem.dtype), prod(problem.batch)
    once = float(matrices * (problem.m + problem.n) * problem.k * size)
    if once <= KEPT_BYTES:
        return once
    at_once = np.minimum(clusters_at_once(device)[config.cluster], grid.tiles_m * grid.tiles_n)
    band = np.where(config.raster > 0, config.raster, BAND)
    high = np.minimum(np.minimum(band, np.where(config.along_m, grid.tiles_n, grid.tiles_m)), at_once)
    wide = at_once / high
    rows = np.where(config.along_m, wide, high) * (config.bm * config.cluster_m)
    cols = np.where(config.along_m, high, wide) * (config.bn * config.cluster_n)
    turns = grid.tiles / at_once
    return np.maximum(
        once, turns * (np.minimum(rows, problem.m) + np.minimum(cols, problem.n)) * problem.k * size
    )
