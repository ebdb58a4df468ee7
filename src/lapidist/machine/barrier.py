"""Barriers of the threads of a block, or of a cluster."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from lapidist.machine.instructions.warp import BarrierRequest, reduced
from lapidist.machine.lanes import Cohort, Lanes

Array = np.ndarray


@dataclass
class Barrier:
    """One barrier of one block (or of one cluster): who has come, who waits."""

    expected: int
    arrived: int = 0
    site: int = 0
    waiting: list[tuple[Cohort, Lanes, int]] = field(default_factory=list)
    brought: list[tuple[Cohort, Lanes, BarrierRequest, Array]] = field(default_factory=list)

    def deliver(self) -> None:
        """bar.red: write the reduced value into each lane's register."""
        if not self.brought:
            return
        value = reduced(self.brought[0][2].operation, [flags for _, _, _, flags in self.brought])
        for cohort, lanes, request, _ in self.brought:
            old = cohort.registers[request.register]
            cohort.registers[request.register] = value if lanes.index is None else lanes.put(old, value)
