"""What a binary takes, by a formula so short that it is asked for each new shape.

Eight prices a binary, fitted by `lapidist cover` to what the planner's model says of a thousand shapes:
mostly within a tenth. That is enough to tell which of a few binaries serves a shape. As the choice decides
in which order k is summed, nothing but the shape and the chip may enter into it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from lapidist.config import Config
from lapidist.device import Device
from lapidist.kernels.row import Kernel

TERMS = 8
FACTORS, ROUNDS = (0.7, 0.9, 0.97, 1.03, 1.1, 1.4), 6


class Lot(NamedTuple):
    """What the formula knows of a binary."""

    exchanged: Any
    rows: Any  # of D that a block, or a cluster, computes at once
    cols: Any
    step: Any
    slots: Any  # for blocks, or clusters, at once
    peers: Any  # of a tile, each with a part of its k
    shares: Any  # blocks share tiles, so that all work for as long

    @staticmethod
    def of(kernel: Kernel, config: Config, shares: bool, peers: int, device: Device) -> Lot:
        rows, cols = config.bm * config.cluster_m, config.bn * config.cluster_n
        slots = max(1, device.clusters_resident(config.cluster * peers))
        return Lot(config.exchanged, rows, cols, max(1, config.bk), slots, peers, shares)


Offer = tuple[Lot, tuple[float, ...]]  # a binary with its prices


def terms(lot: Lot, m: Any, n: Any, k: Any) -> Any:
    """What is paid for, a row each, for many shapes."""
    down, along = m + (n - m) * lot.exchanged, n + (m - n) * lot.exchanged
    tiles, steps = -(-down // lot.rows) * -(-along // lot.cols), -(-k // lot.step)
    whole = -(-tiles // lot.slots)
    rounds = np.where(lot.shares, np.where(lot.peers > 1, 1.0, tiles / lot.slots), whole)
    own = steps / lot.peers
    alone = np.ones_like(rounds)
    moved = alone * (m + n) * k
    return np.array([alone, rounds, rounds * own, tiles * steps, alone * m * n, moved, whole, alone * steps])


def cheapest_first(offers: Sequence[Offer], m: int, n: int, k: int) -> list[tuple[float, int]]:
    """Seconds by binary, and its place: the sums of prices times terms, in the same order. Of sixteen plain
    numbers take a third of the time that columns do."""
    asked = []
    out, moved = 1.0 * m * n, 1.0 * (m + n) * k
    for place, (lot, (alone, each, own, step, stored, read, whole, along)) in enumerate(offers):
        down, across = (n, m) if lot.exchanged else (m, n)
        tiles, steps = -(-down // lot.rows) * -(-across // lot.cols), -(-k // lot.step)
        full = -(-tiles // lot.slots)
        rounds = full if not lot.shares else 1.0 if lot.peers > 1 else tiles / lot.slots
        seconds = alone + each * rounds + own * (rounds * (steps / lot.peers)) + step * (tiles * steps)
        asked.append((seconds + stored * out + read * moved + whole * full + along * steps, place))
    return sorted(asked)


def fitted(paid: Any, seconds: Any) -> Any:
    """The prices with the least relative errors, of `paid` terms, a row a shape; none is below zero."""
    paid = paid / seconds[:, None]
    scale = paid.max(axis=0)
    bought, found = list(range(TERMS)), np.zeros(TERMS)
    while bought:
        found[:] = 0.0
        found[bought] = np.linalg.lstsq(paid[:, bought] / scale[bought], np.ones(len(paid)), rcond=None)[0]
        if found.min() >= 0:
            break
        bought.remove(int(found.argmin()))
    return found / scale


def bargained(prices: Any, paid: Any, losses: Any) -> Any:
    """Prices, a column a binary, changed one by one as long as the cheapest binaries lose less by it.
    `paid`: terms by binary, shape and term; `losses`: what a shape loses by each binary, infinite where that
    does not take it."""
    prices, every = prices.copy(), np.arange(len(losses))
    asked = np.where(np.isfinite(losses), np.einsum("jst,tj->sj", paid, prices), np.inf)
    least = losses[every, asked.argmin(axis=1)].mean()
    for _ in range(ROUNDS):
        before = least
        for term, binary in np.ndindex(*prices.shape):
            for factor in FACTORS:
                change = (factor - 1) * prices[term, binary] * paid[binary, :, term]
                asked[:, binary] += change
                found = losses[every, asked.argmin(axis=1)].mean()
                if found < least:
                    least, prices[term, binary] = found, prices[term, binary] * factor
                else:
                    asked[:, binary] -= change
        if least == before:
            break
    return prices
