"""The cost of a block: the model that chooses the number of Stream-K blocks, and its fit to measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from lapidist.errors import ArgumentError
from lapidist.schedule.grid import ceil_div
from lapidist.schedule.numbers import larger, smaller, where

UNCALIBRATED = "uncalibrated: a guess"


@dataclass(frozen=True, slots=True)
class CostModel:
    """Time of a block that has an SM for itself = start + fixup [peers > 1] + iteration * iterations + peer *
    (peers - 1).

    The paper (arXiv 2301.03598) calls them a, b, c and d. `fixup`: the cost of handing on the first partial
    sum; `peer`: of each further peer of a tile. `alongside`: how much longer an iteration takes for each
    other block on the SM. None: as much again, since they share its rate; it is less if they fill each
    other's waits. The defaults are not measured.
    """

    start: float = 2.0
    fixup: float = 8.0
    iteration: float = 1.0
    peer: float = 3.0
    unit: str = "iterations"
    source: str = UNCALIBRATED
    alongside: float | None = None

    def __post_init__(self) -> None:
        for name in ("start", "fixup", "iteration", "peer", "crowding"):
            if not getattr(self, name) >= 0:
                raise ArgumentError(f"{name}: a cost is not negative; got {getattr(self, name)}")

    def block(self, iterations: int, peers: int) -> float:
        return self.start + self.fixup * (peers > 1) + self.iteration * iterations + self.peer * (peers - 1)

    @property
    def crowding(self) -> float:
        return self.iteration if self.alongside is None else self.alongside

    def pace(self, blocks: int) -> float:
        """The speed of each of so many blocks on an SM, relative to a block that is alone."""
        return (
            self.iteration / (self.iteration + self.crowding * (blocks - 1))
            if self.iteration
            else 1.0 / blocks
        )

    def computing(self, load: Load) -> float:
        """Time of the busiest SM's iterations. Iterations of one place follow each other, and all places
        share the SM's rate.
        """
        return (self.iteration - self.crowding) * load.longest + self.crowding * load.iterations

    def launch(self, load: Load, peers: int) -> float:
        return (
            self.start * load.rounds
            + self.computing(load)
            + self.fixup * (peers > 1)
            + self.peer * (peers - 1)
        )

    def amount(self, value: float) -> str:
        """A time with its unit; seconds are shown as microseconds."""
        return f"{value * 1e6:,.1f} us" if self.unit == "seconds" else f"{value:,.0f} {self.unit}"


class Load(NamedTuple):
    """The work of the busiest SM: all its iterations, the longest chain of those that follow each other, and
    the blocks in that chain. Numbers or arrays.
    """

    iterations: Any
    longest: Any
    rounds: Any


def load_of(sms: Any, per_sm: Any, shared: tuple[Any, Any], unshared: tuple[Any, Any] = (0, 1)) -> Load:
    """The load of `shared` blocks, (number, iterations of each), then of `unshared` ones. The chip dispatches
    them in this order, each to the place that is free first. Numbers or arrays.

    Shared blocks are spread evenly: some places get one more than others. The places that are behind take
    `ahead` rounds of whole blocks before the others take any; then all take one in turn.
    """
    length, step = shared[1], unshared[1]
    first, second = ceil_div(shared[0], sms), ceil_div(unshared[0], sms)
    early, late = first // per_sm, first % per_sm  # rounds that all have; places that have one more
    behind, ahead = per_sm - late, ceil_div(length, step) * (late > 0)
    remaining = larger(0, second - ahead * behind)
    turns, more = remaining // per_sm, remaining % per_sm
    begun = smaller(ahead, ceil_div(second, behind))
    low = early + where(remaining > 0, ahead + turns + (more > late), begun), early * length
    rounds = low[0], early + 1 + turns + (more > 0)
    times = low[1] + (low[0] - early) * step, low[1] + length + (rounds[1] - early - 1) * step
    higher = (late > 0) & ((times[1] > times[0]) | ((times[1] == times[0]) & (rounds[1] > rounds[0])))
    total = first * length + second * step
    return Load(total, where(higher, times[1], times[0]), where(higher, rounds[1], rounds[0]))


@dataclass(frozen=True, slots=True)
class Measurement:
    """Time of a launch in which every SM held `resident` blocks of `iterations`, and `peers` blocks shared
    each tile.
    """

    iterations: int
    peers: int
    seconds: float
    resident: int = 1


def fit(measurements: Sequence[Measurement], source: str = "") -> CostModel:
    """Least squares of relative errors, without negative costs. Relative, so that a launch of milliseconds
    does not outweigh one of microseconds.

    `alongside` is only known if several blocks were on an SM.
    """
    rows = np.array(
        [[1.0, m.peers > 1, m.iterations, m.peers - 1, m.iterations * (m.resident - 1)] for m in measurements]
    )
    rows = rows.astype(np.float64).reshape(-1, 5)
    crowded = bool(np.any(rows[:, 4]))
    rows = rows if crowded else rows[:, :4]
    seconds = np.array([m.seconds for m in measurements], np.float64)
    if np.any(seconds <= 0):
        raise ArgumentError(f"measurements: seconds must be positive; got {seconds.min()}")
    if np.linalg.matrix_rank(rows) < rows.shape[1]:
        raise ArgumentError(
            f"measurements: {len(measurements)} of them do not tell {rows.shape[1]} costs apart; "
            "give at least as many, with several iteration counts and with 1, 2 and more peers"
        )
    costs = [float(cost) for cost in non_negative(rows / seconds[:, None], np.ones(len(measurements)))]
    source = source or f"fitted to {len(measurements)} measurements"
    start, fixup, iteration, peer = costs[:4]
    return CostModel(start, fixup, iteration, peer, "seconds", source, costs[4] if crowded else None)


def non_negative(rows: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """Least squares: the most negative value is set to zero, and the rest is solved again."""
    free = list(range(rows.shape[1]))
    while True:
        solution = np.linalg.lstsq(rows[:, free], goal, rcond=None)[0]
        if not free or solution.min() >= 0:
            break
        del free[int(solution.argmin())]
    costs = np.zeros(rows.shape[1])
    costs[free] = solution
    return costs
