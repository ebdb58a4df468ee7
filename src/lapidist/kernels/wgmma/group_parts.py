"""Tiles of groups whose k several blocks share, since the device alone knows how few tiles there are
(gemm/wgmma/cut_tiles.cuh).
"""

from __future__ import annotations

from lapidist.config import Config
from lapidist.kernels.wgmma.tiles import read_once
from lapidist.problems.problem import Problem
from lapidist.problems.ragged import DEPTH
from lapidist.schedule.grid import ceil_div

MOST_PARTS = 8
SATURATING = 53  # clusters: more read a weight no faster
LEAST_STEPS = 6  # of k, of a part: below, handing sums on takes as long as the products


def parts_of_tiles(problem: Problem, config: Config) -> int:
    """The most blocks that share the k of a tile. One: where rows must keep their bits whatever the lengths
    of groups are, where groups cut k itself, and in ping-pong, whose warpgroups have a tile each.
    """
    modes = problem.modes
    if modes.ragged is None or modes.cuts(DEPTH) or problem.invariant or config.ping_pong:
        return 1
    return max(1, min(MOST_PARTS, ceil_div(problem.k, config.bk) // LEAST_STEPS))


def part_macros(problem: Problem, config: Config) -> dict[str, object]:
    parts = parts_of_tiles(problem, config)
    if parts == 1:
        return {}
    streams = any(read_once(problem, config))
    return {"MOST_PARTS": parts, "LEAST_STEPS": LEAST_STEPS, "SATURATING": SATURATING if streams else 0}
