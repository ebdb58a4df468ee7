"""What a block costs: the model that picks the number of Stream-K blocks, and its fit to measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lapidist.errors import ArgumentError

UNCALIBRATED = "uncalibrated: a guess"


@dataclass(frozen=True, slots=True)
class CostModel:
    """Time of a block = start + fixup [peers > 1] + iteration * iterations + peer * (peers - 1).

    The paper (arXiv 2301.03598) calls them a, b, c and d. Peers are the blocks that share a tile: `fixup` is what handing
    the first partial sum on costs, `peer` what each further peer adds. The defaults are not measured.
    """

    start: float = 2.0
    fixup: float = 8.0
    iteration: float = 1.0
    peer: float = 3.0
    unit: str = "iterations"
    source: str = UNCALIBRATED

    def __post_init__(self) -> None:
        for name in ("start", "fixup", "iteration", "peer"):
            if not getattr(self, name) >= 0:
                raise ArgumentError(f"{name}: a cost is not negative; got {getattr(self, name)}")

    def block(self, iterations: int, peers: int) -> float:
        return self.start + self.fixup * (peers > 1) + self.iteration * iterations + self.peer * (peers - 1)

    def amount(self, value: float) -> str:
        """A time with its unit; seconds are shown as microseconds."""
        return f"{value * 1e6:,.1f} us" if self.unit == "seconds" else f"{value:,.0f} {self.unit}"


@dataclass(frozen=True, slots=True)
class Measurement:
    """Time of a launch in which the busiest block did `iterations` and shared its tile with `peers` - 1 others."""

    iterations: int
    peers: int
    seconds: float


def fit(measurements: Sequence[Measurement], source: str = "") -> CostModel:
    """Least squares on relative errors (a launch of milliseconds must not drown one of microseconds), no cost below zero."""
    rows = np.array([[1.0, m.peers > 1, m.iterations, m.peers - 1] for m in measurements], np.float64).reshape(-1, 4)
    seconds = np.array([m.seconds for m in measurements], np.float64)
    if np.any(seconds <= 0):
        raise ArgumentError(f"measurements: seconds must be positive; got {seconds.min()}")
    if np.linalg.matrix_rank(rows) < 4:
        raise ArgumentError(
            f"measurements: {len(measurements)} of them do not tell four costs apart; "
            "give at least four, with several iteration counts and with 1, 2 and more peers"
        )
    costs = non_negative(rows / seconds[:, None], np.ones(len(measurements)))
    start, fixup, iteration, peer = (float(cost) for cost in costs)
    return CostModel(start, fixup, iteration, peer, "seconds", source or f"fitted to {len(measurements)} measurements")


def non_negative(rows: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """Least squares; what comes out negative is held at zero, the most negative first, and the rest is solved again."""
    free = list(range(rows.shape[1]))
    while True:
        found = np.linalg.lstsq(rows[:, free], goal, rcond=None)[0]
        if not free or found.min() >= 0:
            break
        del free[int(found.argmin())]
    costs = np.zeros(rows.shape[1])
    costs[free] = found
    return costs
