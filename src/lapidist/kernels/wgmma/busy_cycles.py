"""Cycles of the busiest block: its products, epilogues and stores, one after another or in ping-pong."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from lapidist.config import Knobs
from lapidist.problems.problem import Problem
from lapidist.problems.ragged import ROWS

TAKEN = 500.0  # cycles until patches are held and the next tile's products begin
# Ping-pong: cycles from the products of one warpgroup to those of the other; the second is for 16-bit types
# whose D is stored by threads.
TURN, TURN_BY_HAND = 1000.0, 500.0
# The same for tiles of one iteration and a D larger than the L2. Nothing is hidden then: neither a store
# behind the other's products, nor held patches. (With rows of D that are no multiple of 256 bytes ping-pong
# was faster.)
TURN_OF_ONE_STEP, EVEN_ROW = 3000.0, 128
# Epilogues in ping-pong: factor on their time, as a warp is alone on its scheduler and waits for its own
# instructions; and the share by which they delay the other warpgroup's products. (8192 x 4096 x 512 on an
# H200: the product alone 55 us, with bias and GELU 96, predicted without these 78. 4096^3, SwiGLU: 192, 236,
# 214.)
ALONE, HELD_UP = 3.5, 2.2
# The same for functions that are unrolled over all sums of a thread, and the cycles of a turn; and a factor
# on products of tiles of 128 rows. (On an H100, 8192 x 4096 x 512: alone 50 us; with bias and GELU by tanh 64
# in ping-pong of 128 x 128, 74 in tiles of 128 x 256. 4096^3 alone: 177 and 171.)
ALONE_AT_ONCE, HELD_UP_AT_ONCE, TURN_AT_ONCE, CLOSER = 0.9, 0.95, 400.0, 0.94
# Ping-pong in pairs, or with tiles of 64 rows, was measured with epilogues only: factor without one.
PAIRED_BY_TURNS = 1.1
# Factors on the seconds of ping-pong with tiles of 64 x 256 without a cluster: of short groups of rows; of a
# row, of one group and of long ones; of other products. In groups of 4 to 64 rows in the mean, by Zipf's law,
# it took 0.76 to 1.01 of one warpgroup's time, where the model sees no gain (H200). Other products were not
# measured, and keep their choices.
SHORT_GROUPS, OTHER_GROUPS, NO_GROUPS = 0.97, 1.1, 1.3
SHORT_ROWS = range(3, 193)


def busy_cycles(
    turns: Any,
    products: Any,
    store: Any,
    config: Knobs,
    held: Any,
    finish: Any = 0.0,
    turn: Any = TURN,
    quick: Any = False,
) -> Any:
    """Cycles of the busiest block. A tile's epilogue and store follow its products. In ping-pong they run
    behind the other warpgroup's products, so only the last ones count, unless they take longer. If patches
    are held, the next tile's products run during the store.
    """
    stores = np.ceil(turns) * store
    if np.count_nonzero(held):
        alongside = (np.ceil(turns) - 1) * (TAKEN + (1.0 - held) * store) + store
        stores = np.where(held > 0, alongside, stores)
    alone = turns * products + stores + np.ceil(turns) * finish
    if not np.count_nonzero(config.ping_pong):
        return alone
    products = np.where(quick & (config.bm > 64) & (turns > 1), CLOSER, 1.0) * products
    store = store + np.where(quick, ALONE_AT_ONCE, ALONE) * finish
    alongside = products + np.where(quick, TURN_AT_ONCE + HELD_UP_AT_ONCE * finish, turn + HELD_UP * finish)
    in_turn = np.maximum(turns * alongside, np.ceil(turns / 2) * (products + store) - store) + store
    return np.where(config.ping_pong, in_turn, alone)


def for_groups(config: Knobs) -> Any:
    """Which tiles in ping-pong were measured with groups of rows alone."""
    return (config.ping_pong != 0) & (config.bm == 64) & (config.bn == 256) & (config.cluster == 1)


def longer_by_turns(problem: Problem, config: Knobs) -> Any:
    """The factor on ping-pong's cycles."""
    pair = (config.cluster_m == 2) & (config.cluster_n == 1)
    paired = ((config.bm == 64) | pair) & (problem.fused is None)
    return np.where(paired & (for_groups(config) == 0), PAIRED_BY_TURNS, 1.0)


def alone_by_turns(problem: Problem, config: Knobs) -> Any:
    """The factor on the seconds of tiles for groups."""
    short = problem.m in SHORT_ROWS and prod(problem.batch) > 1
    of_groups = SHORT_GROUPS if short else OTHER_GROUPS
    return np.where(for_groups(config), of_groups if problem.modes.cuts(ROWS) else NO_GROUPS, 1.0)
