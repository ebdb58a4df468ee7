"""What power allows on Hopper. Products, bytes that move on the chip and bytes of DRAM cost energy. The clock
falls until the power is what the chip may draw.

Less energy lets the clock rise, and with it the voltage. So less than half of the time follows the energy,
and the rest follows the cycles. The constants are fitted to 8192^3 in bfloat16: as it is, with loads that the
L2 answers, and without loads.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from lapidist.config import Knobs
from lapidist.device import Device
from lapidist.dtypes import size_of
from lapidist.kernels.wgmma.sharing import clusters_at_once
from lapidist.knobs.shared_knobs import BAND
from lapidist.problems.problem import Problem
from lapidist.schedule.schedule_options import Grids

# Seconds at the unit's limit. Shorter products were fitted as a sum, to 2000 of them measured one by one.
LONG = 0.3e-3
POWER_SHARE = 0.95  # of the limit, which was measured with operands that stay in shared memory
# Bytes per second from the L2 to shared memory that would cost as much time, by power and so by clock.
SHORT_MOVED_BYTES = 170e12
BY_ENERGY = 0.4  # the exponent of energy in the time; cycles have the rest
# What the power would allow at the highest clock, of each alone: products, as a share of the unit's limit;
# bytes per second from the L2 to shared memory; bytes per second from DRAM.
PRODUCTS, MOVED_BYTES, DRAM_BYTES = 0.9, 28e12, 2.5e12
KEPT_BYTES = 40e6  # operands up to this size stay in the L2 until the next tiles read them


def powered_seconds(
    problem: Problem, config: Knobs, device: Device, grid: Grids, running: Any, moved: Any
) -> tuple[Any, ...]:
    """The bounds of `running`, seconds at the highest clock, and of power. `moved`: bytes from the L2 to
    shared memory.
    """
    limit = problem.flops / (device.unit_limit("wgmma", problem.math) * 1e12)
    if limit < LONG:
        return running, limit / POWER_SHARE + moved / SHORT_MOVED_BYTES
    energy = limit / PRODUCTS + moved / MOVED_BYTES + read_bytes(problem, config, device, grid) / DRAM_BYTES
    return (np.maximum(running, running ** (1 - BY_ENERGY) * energy**BY_ENERGY),)


def read_bytes(problem: Problem, config: Knobs, device: Device, grid: Grids) -> Any:
    """Bytes of A and B from DRAM. Tiles of one wave read each of their rows and columns once. The next wave
    reads them again, unless the L2 still has them.
    """
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
