"""What a block costs: the model that picks the number of Stream-K blocks, and its fit to measurements."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lapidist.errors import ArgumentError

UNCALIBRATED = "uncalibrated: a guess"


@dataclass(frozen=True, slots=True)
class CostModel:
    """Time of a block that has an SM for itself = start + fixup [peers > 1] + iteration * iterations + peer *
    (peers - 1).

    The paper (arXiv 2301.03598) calls them a, b, c and d. Peers are the blocks that share a tile: `fixup` is
    what handing the first partial sum on costs, `peer` what each further peer adds. `alongside` is what an
    iteration takes longer for each other block on the SM: as much again where they share its rate (None),
    less where they fill each other's waits. The defaults are not measured."""

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
        """How fast each of so many blocks on an SM works, against one that is alone."""
        return (
            self.iteration / (self.iteration + self.crowding * (blocks - 1))
            if self.iteration
            else 1.0 / blocks
        )

    def computing(self, load: Load) -> float:
        """Time of the busiest SM's iterations: each place waits for its own results, and all share the SM's
        rate.
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
    """What the busiest SM computes: all its iterations, those that follow each other, and the blocks that
    do.
    """

    iterations: int
    longest: int
    rounds: int


def load_of(sms: int, per_sm: int, *blocks: tuple[int, int]) -> Load:
    """Of blocks (so many, of so many iterations each) dispatched in this order, each to the place that is
    free first.
    """
    places = [(0, 0)] * per_sm
    for count, iterations in blocks:
        on_one = -(-count // sms)
        # rounds in which every place takes one: they change no order
        alike = max(0, on_one // per_sm - per_sm)
        places = [(total + alike * iterations, rounds + alike) for total, rounds in places]
        for _ in range(on_one - alike * per_sm):
            total, rounds = heapq.heappop(places)
            heapq.heappush(places, (total + iterations, rounds + 1))
    return Load(sum(total for total, _ in places), *max(places))


@dataclass(frozen=True, slots=True)
class Measurement:
    """Time of a launch in which every SM held `resident` blocks of `iterations`, `peers` of which shared each
    tile.
    """

    iterations: int
    peers: int
    seconds: float
    resident: int = 1


def fit(measurements: Sequence[Measurement], source: str = "") -> CostModel:
    """Least squares on relative errors (a launch of milliseconds must not drown one of microseconds), no cost
    below zero.

    `alongside` is told only where more than one block was on an SM.
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
    """Least squares; what comes out negative is held at zero, the most negative first, and the rest is solved
    again.
    """
    free = list(range(rows.shape[1]))
    while True:
        found = np.linalg.lstsq(rows[:, free], goal, rcond=None)[0]
        if not free or found.min() >= 0:
            break
        del free[int(found.argmin())]
    costs = np.zeros(rows.shape[1])
    costs[free] = found
    return costs
