"""Fit the cost model on a chip: time schedules that vary one cost at a time, with the kernel that will use
the model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lapidist.schedule.costs import CostModel, Measurement, fit
from lapidist.schedule.grid import TileGrid, at_least
from lapidist.schedule.makers import data_parallel, split_k
from lapidist.schedule.units import Schedule

ITERATIONS = (4, 8, 16, 32, 64, 128)
PEERS = (1, 2, 3, 4, 6, 8)


def probes(sms: int, per_sm: int = 1) -> list[tuple[Schedule, Measurement]]:
    """Schedules whose blocks are alike and run at once, one on each SM. Unshared tiles also with as many
    blocks as an SM holds.

    The Measurements lack their seconds.
    """
    at_least("sms", sms, 1)
    at_least("per_sm", per_sm, 1)
    pairs = []
    for resident, sharing in [*((1, peers) for peers in PEERS), *((per_sm, 1) for _ in range(per_sm > 1))]:
        tiles = sms * resident // sharing
        for steps in ITERATIONS if tiles else ():
            grid = TileGrid(1, tiles, steps * sharing)
            schedule = split_k(grid, sharing) if sharing > 1 else data_parallel(grid)
            pairs.append((schedule, Measurement(steps, sharing, 0.0, resident)))
    return pairs


def calibrate(sms: int, per_sm: int, seconds_of: Callable[[Schedule], float], source: str = "") -> CostModel:
    """`seconds_of` runs a schedule with the kernel in question, on random numbers, and returns its time."""
    return fit(
        [replace(probe, seconds=seconds_of(schedule)) for schedule, probe in probes(sms, per_sm)], source
    )
