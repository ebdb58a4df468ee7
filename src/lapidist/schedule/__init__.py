"""Schedules: who computes which tile and which part of k, as a plain function of the block index.

    grid = TileGrid.of(1024, 1152, 4096, 128, 128, 32)
    schedule = stream_k(grid, sms=132)
    print(schedule)                      # and why it is so
    schedule.units(block)                # what a block does, in order
    simulate(schedule, sms=132).end      # of schedule/simulate.py: when it would be done, by the cost model

`cuda/share/schedule.cuh` has the same functions for kernels. These take `device_words(schedule)` as a struct.
"""

from lapidist.schedule.costs import CostModel, Measurement, fit
from lapidist.schedule.grid import Raster, TileGrid
from lapidist.schedule.makers import data_parallel, shared_waves, split_k, stream_k
from lapidist.schedule.units import Schedule, WorkUnit

__all__ = [
    "CostModel",
    "Measurement",
    "Raster",
    "Schedule",
    "TileGrid",
    "WorkUnit",
    "data_parallel",
    "fit",
    "shared_waves",
    "split_k",
    "stream_k",
]
