"""Ranges of global memory that a launch reads and does not write: later launches ask which line read what."""

from __future__ import annotations

import numpy as np

from lapidist.machine.memory import Region
from lapidist.machine.sanitize.shadow import grains_of

Array = np.ndarray


class OnlyRead:
    """Of each grain, the instruction that read it last, counted from 1. Who read it, and when, is of no use:
    nobody writes there."""

    ever_written = False

    def __init__(self, nbytes: int, grain: int, instructions: int) -> None:
        self.grain, self.count = grain, -(-nbytes // grain)
        self.reader = np.zeros(self.count, np.min_scalar_type(instructions))

    def grains(self, positions: Array, size: int) -> Array:
        return grains_of(positions, size, self.grain)

    def log_read(self, at: Array, warp: int, now: int, site: Array | int, lanes: Array) -> None:
        self.reader[at] = site + 1

    def lines(self, lines: Array, part: slice) -> Array:
        """The line of PTX, of those of all instructions, that read each grain of a part; 0 where none did."""
        return np.concatenate([np.zeros(1, lines.dtype), lines])[self.reader[part]]


def only_read_of(noted: dict[int, OnlyRead], region: Region, grain: int, instructions: int) -> OnlyRead:
    """What is noted of a range."""
    if region.start not in noted:
        noted[region.start] = OnlyRead(region.end - (region.start & -16), grain, instructions)
    return noted[region.start]
