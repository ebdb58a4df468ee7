"""The predicted time of a binary by a short formula, cheap enough to evaluate for each new shape.

A binary has eight prices, fitted by `lapidist cover` to what the planner's model says of a thousand shapes,
mostly within a tenth. This is enough to choose among a few binaries. The choice decides in which order k is
summed, so only the shape and the chip may enter it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from lapidist.config import Config
from lapidist.device import Device
from lapidist.kernels.kernel import Kernel

TERMS = 8
FACTORS, ROUNDS = (0.7, 0.9, 0.97, 1.03, 1.1, 1.4), 6  # by which `refined` tries to change a price


class Pricing(NamedTuple):
    """What the formula uses of a binary."""

    exchanged: Any
    rows: Any  # of a tile, or of the tiles of a cluster
    cols: Any
    step: Any  # elements of k in one iteration
    slots: Any  # blocks, or clusters, that the chip holds at once
    peers: Any  # blocks that share the k of a tile
    shares: Any  # whether blocks share tiles, so that all work equally long

    @staticmethod
    def of(kernel: Kernel, config: Config, shares: bool, peers: int, device: Device) -> Pricing:
        rows, cols = config.bm * config.cluster_m, config.bn * config.cluster_n
        slots = max(1, device.clusters_resident(config.cluster * peers))
        return Pricing(config.exchanged, rows, cols, max(1, config.bk), slots, peers, shares)


Offer = tuple[Pricing, tuple[float, ...]]  # a binary's inputs and prices


def terms(pricing: Pricing, m: Any, n: Any, k: Any) -> Any:
    """What the prices multiply: a row for each term, a column for each shape."""
    down, along = m + (n - m) * pricing.exchanged, n + (m - n) * pricing.exchanged
    tiles, steps = -(-down // pricing.rows) * -(-along // pricing.cols), -(-k // pricing.step)
    full_rounds = -(-tiles // pricing.slots)
    rounds = np.where(pricing.shares, np.where(pricing.peers > 1, 1.0, tiles / pricing.slots), full_rounds)
    steps_of_peer = steps / pricing.peers
    constant = np.ones_like(rounds)
    moved = constant * (m + n) * k
    computed = rounds * steps_of_peer, tiles * steps
    return np.array([constant, rounds, *computed, constant * m * n, moved, full_rounds, constant * steps])


def cheapest_first(offers: Sequence[Offer], m: int, n: int, k: int) -> list[tuple[float, int]]:
    """Predicted seconds and index of each binary, the fastest first: sums of prices times `terms`. For
    sixteen binaries plain numbers take a third of the time that NumPy does.
    """
    ranking = []
    out, moved = 1.0 * m * n, 1.0 * (m + n) * k
    for index, (pricing, prices) in enumerate(offers):
        constant, of_round, of_step, of_all_steps, of_output, of_input, of_full_round, of_depth = prices
        down, across = (n, m) if pricing.exchanged else (m, n)
        tiles, steps = -(-down // pricing.rows) * -(-across // pricing.cols), -(-k // pricing.step)
        full_rounds = -(-tiles // pricing.slots)
        rounds = full_rounds if not pricing.shares else 1.0 if pricing.peers > 1 else tiles / pricing.slots
        seconds = constant + of_round * rounds + of_step * (rounds * (steps / pricing.peers))
        seconds = seconds + of_all_steps * (tiles * steps) + of_output * out + of_input * moved
        ranking.append((seconds + of_full_round * full_rounds + of_depth * steps, index))
    return sorted(ranking)


def fitted(paid: Any, seconds: Any) -> Any:
    """The non-negative prices with the smallest relative errors. `paid`: terms, a row for each shape."""
    paid = paid / seconds[:, None]
    scale = paid.max(axis=0)
    positive, prices = list(range(TERMS)), np.zeros(TERMS)
    while positive:
        prices[:] = 0.0
        scaled = paid[:, positive] / scale[positive]
        prices[positive] = np.linalg.lstsq(scaled, np.ones(len(paid)), rcond=None)[0]
        if prices.min() >= 0:
            break
        positive.remove(int(prices.argmin()))
    return prices / scale


def refined(prices: Any, paid: Any, losses: Any) -> Any:
    """Prices, a column for each binary, changed one by one while the choice by them gets better. `paid`:
    terms by binary, shape and term; `losses`: of each shape by each binary, infinite if that does not take
    it.
    """
    prices, shapes = prices.copy(), np.arange(len(losses))
    predicted = np.where(np.isfinite(losses), np.einsum("jst,tj->sj", paid, prices), np.inf)
    least_loss = losses[shapes, predicted.argmin(axis=1)].mean()
    for _ in range(ROUNDS):
        loss_before = least_loss
        for term, binary in np.ndindex(*prices.shape):
            for factor in FACTORS:
                change = (factor - 1) * prices[term, binary] * paid[binary, :, term]
                predicted[:, binary] += change
                loss = losses[shapes, predicted.argmin(axis=1)].mean()
                if loss < least_loss:
                    least_loss, prices[term, binary] = loss, prices[term, binary] * factor
                else:
                    predicted[:, binary] -= change
        if least_loss == loss_before:
            break
    return prices
