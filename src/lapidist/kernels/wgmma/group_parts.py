"""Tiles of groups whose k several blocks share, since the device alone knows how few tiles there are
(share/cut_tiles.cuh).
"""

from __future__ import annotations

from lapidist.config import Config
from lapidist.problems.problem import Problem
from lapidist.problems.ragged import DEPTH
from lapidist.schedule.grid import ceil_div

MOST_PARTS = 8
# Steps of k of a part. Below, handing sums on takes as long as the products: 64 rows of one group with
# k = 2048 took 10.3 us in parts of 6, and 9.9 in parts of 12 (H200).
LEAST_STEPS = 12


def parts_of_tiles(problem: Problem, config: Config) -> int:
    """The most blocks that share the k of a tile. One: where rows must keep the bits of one sum, where groups
    cut k itself, and in ping-pong, whose warpgroups have a tile each.
    """
    modes = problem.modes
    if modes.fixed_cuts is not None:
        return modes.fixed_cuts.parts
    if modes.ragged is None or modes.cuts(DEPTH) or problem.invariant or config.ping_pong:
        return 1
    return max(1, min(MOST_PARTS, ceil_div(problem.k, config.bk) // LEAST_STEPS))


def part_macros(problem: Problem, config: Config) -> dict[str, object]:
    """Where the device decides how many there are. Fixed ones are of the modes."""
    parts = 1 if problem.modes.fixed_cuts else parts_of_tiles(problem, config)
    return {"MOST_PARTS": parts, "LEAST_STEPS": LEAST_STEPS} if parts > 1 else {}


def tiles_handed_on(problem: Problem, blocks: int) -> int:
    """The most tiles of sums that blocks leave for each other. Of fixed parts most are left where two blocks
    share a tile: half of its parts, and there are half as many such tiles as blocks.
    """
    cuts = problem.modes.fixed_cuts
    return blocks if cuts is None else blocks * ceil_div(max(4, cuts.parts), 4)
