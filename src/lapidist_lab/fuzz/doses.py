"""How much a case may compute, by the place where it runs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

GROUP = 4  # cases that share a call, so that most meet what was planned before


class Dose(NamedTuple):
    """`most`: the largest extent; `products`: of all matrices, of which the machine does a million a second;
    `batch`: matrices. `kinds`: how many a run draws, as each is compiled; 0: one a call. It starts with
    `first`, and adds one every few calls, so that short runs compile little."""

    most: int
    products: int
    batch: int
    kinds: int
    first: int

    def kinds_at(self, group: int) -> int:
        return min(self.kinds, self.first + group // 3)


DOSES = {
    "host": Dose(200, 300_000, 24, 0, 0),
    "machine": Dose(120, 24_000, 4, 200, 6),
    "gpu": Dose(600, 50_000_000, 40, 200, 200),
}
# of every kernel and config: extents follow from the tile, and each config is compiled
TILE_DOSES = {"machine": Dose(0, 300_000, 3, 0, 0), "gpu": Dose(0, 50_000_000, 4, 1500, 1500)}


def extent(rng: np.random.Generator, most: int, tidy: bool) -> int:
    """A log-uniform extent; sometimes 0, 1 or a multiple of 16."""
    roll = rng.random()
    if roll < 0.03:
        return 0
    if roll < 0.09:
        return 1
    drawn = int(np.exp(rng.uniform(0.0, np.log(most + 1))))
    return min(most, max(16, drawn // 16 * 16)) if tidy or roll < 0.2 else drawn


def extents(rng: np.random.Generator, dose: Dose, tidy: bool) -> tuple[int, int, int]:
    """m, n and k; sometimes one of them is long."""
    drawn = [extent(rng, dose.most, tidy) for _ in range(3)]
    if rng.random() < 0.03:
        drawn[rng.integers(3)] *= 8
    while np.prod(drawn) > dose.products:
        longest = int(np.argmax(drawn))
        drawn[longest] = drawn[longest] // 32 * 16 if tidy else drawn[longest] // 2
    return drawn[0], drawn[1], drawn[2]


def batch_extents(rng: np.random.Generator, dose: Dose, dimensions: int, products: int) -> tuple[int, ...]:
    room = min(dose.batch, dose.products // max(1, products))
    extents = []
    for _ in range(dimensions):
        extents.append(0 if rng.random() < 0.03 else int(rng.integers(1, max(2, min(room, 6) + 1))))
        room //= max(1, extents[-1])
    return tuple(extents)
