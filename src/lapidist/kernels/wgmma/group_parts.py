"""Tiles of groups whose k several blocks share, since the device alone knows how few tiles there are
(share/stretches.cuh), or as often as one product alone (share/cut_tiles.cuh).
"""

from __future__ import annotations

from lapidist.config import Config
from lapidist.kernels.blocks.group_parts import MEASURED, MOST_PARTS, MOST_STEPS, Waves, too_many_tiles
from lapidist.kernels.budgets import MOST_SUMS_BESIDE_FINDING
from lapidist.kernels.wgmma.tiles import sums_of_thread
from lapidist.kernels.wgmma.time import d_streams
from lapidist.problems.problem import Problem
from lapidist.problems.ragged import DEPTH
from lapidist.schedule.grid import ceil_div

# Waves of tiles up to which they are cut where groups cut k. Whole ones took so many times as long, by Zipf's
# law: with 0.97 waves 1.20 and 1.31, with 1.94 waves 1.13 and 1.47, with 3.9 waves 0.95 (8 groups, H200).
WAVES = Waves(0, 2)
# The most of a wave that the tiles of one D fill where groups cut k. With 0.48 whole ones took 0.97, 0.98 and
# 1.35 of the time (four groups, even, by Zipf's law, all in one). With 0.97 it was 0.98 three times, and with
# four times the rows 0.81, 0.97 and 0.99 (two groups).
WAVES_OF_GROUP = 0.5
# Steps of k of a part. Below, handing sums on takes as long as the products: 64 rows of one group with
# k = 2048 took 10.3 us in parts of 6, and 9.9 in parts of 12 (H200).
LEAST_STEPS = 12


def parts_of_tiles(problem: Problem, config: Config) -> int:
    """The most blocks that share the k of a tile. One: where rows must keep the bits of one sum, where groups
    cut k and there are many tiles, in ping-pong, whose warpgroups have a tile each, and where the warp that
    finds tiles would spill.
    """
    modes = problem.modes
    if modes.fixed_cuts is not None:
        return modes.fixed_cuts.parts
    if modes.ragged is None or problem.invariant or config.ping_pong:
        return 1
    steps = ceil_div(problem.k, config.bk)
    if modes.cuts(DEPTH):
        steps = ceil_div(modes.ragged.total, config.bk)
        many = steps > MOST_STEPS or too_many_tiles(problem, modes.ragged, config, 1, WAVES)
        tiles = ceil_div(problem.m, config.bm) * ceil_div(problem.n, config.bn)
        if many or tiles > WAVES_OF_GROUP * MEASURED.sms or sums_of_thread(config) > MOST_SUMS_BESIDE_FINDING:
            return 1
    return max(1, min(MOST_PARTS, steps // LEAST_STEPS))


def group_macros(problem: Problem, config: Config) -> dict[str, object]:
    """Where the device decides how many parts there are. Fixed ones are of the modes. A D that is larger than
    the L2 leaves A and B room there; measured where groups cut k.
    """
    parts = 1 if problem.modes.fixed_cuts else parts_of_tiles(problem, config)
    macros: dict[str, object] = {"MOST_PARTS": parts, "LEAST_STEPS": LEAST_STEPS} if parts > 1 else {}
    streams = problem.modes.cuts(DEPTH) and d_streams(problem, MEASURED)
    return {**macros, "D_STREAMS": 1} if streams else macros


def tiles_handed_on(problem: Problem, blocks: int) -> int:
    """The most tiles of sums that blocks leave for each other. Of fixed parts most are left where two blocks
    share a tile: half of its parts, and there are half as many such tiles as blocks.
    """
    cuts = problem.modes.fixed_cuts
    return blocks if cuts is None else blocks * ceil_div(max(4, cuts.parts), 4)
