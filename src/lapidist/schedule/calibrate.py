"""The cost model fitted on a chip: schedules that vary one cost at a time, timed with the kernel that will use the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lapidist.schedule.build import data_parallel, split_k
from lapidist.schedule.costs import CostModel, Measurement, fit
from lapidist.schedule.grid import TileGrid, at_least
from lapidist.schedule.units import Schedule

ITERATIONS = (4, 8, 16, 32, 64, 128)
PEERS = (1, 2, 3, 4, 6, 8)


def probes(sms: int, iterations: Sequence[int] = ITERATIONS, peers: Sequence[int] = PEERS) -> list[tuple[Schedule, int, int]]:
    """(schedule, iterations of each block, peers of each tile): all blocks are alike and run in one wave that fills the chip."""
    at_least("sms", sms, 1)
    found = []
    for sharing in peers:
        tiles = sms // sharing
        for each in iterations if tiles else ():
            grid = TileGrid(1, tiles, each * sharing)
            schedule = split_k(grid, sharing) if sharing > 1 else data_parallel(grid)
            found.append((schedule, each, sharing))
    return found


def calibrate(sms: int, seconds_of: Callable[[Schedule], float], source: str = "") -> CostModel:
    """`seconds_of` runs a schedule with the kernel in question, operands of random numbers, and gives its time."""
    timed = [Measurement(each, sharing, seconds_of(schedule)) for schedule, each, sharing in probes(sms)]
    return fit(timed, source)
