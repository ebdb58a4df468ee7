"""Tiles of groups whose k several blocks share, as the device decides (share/stretches.cuh): in gemm/mma.cu,
gemm/simt.cu and gemm/sgemm.cu.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from lapidist.config import Config
from lapidist.device import CHIPS
from lapidist.dtypes import size_of
from lapidist.kernels.blocks.splits import HANDED_BY
from lapidist.problems.problem import Problem
from lapidist.problems.ragged import COLS, DEPTH, ROWS, Ragged
from lapidist.schedule.grid import ceil_div
from lapidist.schedule.schedule_options import TURNSTILE

MOST_PARTS = 8


class Waves(NamedTuple):
    """The most waves of tiles of which the last ones are cut: where groups have one k, and where they cut
    it.
    """

    rows: int
    depth: int


# How many times as fast as whole tiles on an H200, with lengths by Zipf's law; then with even ones. With more
# waves the last one hardly matters, or blocks that stay on the chip are slower than ones that come and go.
OF_DOUBLES = Waves(5, 1)  # rows 1.17 to 1.27, 0.97 to 1.06; k cut 1.99, 0.93
OF_THREADS = Waves(1, 1)  # rows 1.30, 1.00; k cut 1.67, 0.92
OF_TMA = Waves(0, 2)  # main loops of rows slow down by a sixth; k cut 1.59 to 2.16, 0.82 to 0.93
WHOLE = Waves(0, 0)
MOST_STEPS = 1 << 19  # of a tile, so that 32 bits count those of all blocks
MOST_TILES_OF_GROUPS = 1 << 30
MEASURED = CHIPS["h200"]  # steps are counted for it on all chips, so that binaries are the same


def parts_of_tiles(problem: Problem, config: Config, unit: str, together: int, waves: Waves) -> int:
    """The most blocks that share the k of a tile. One: where rows must keep their bits whatever the lengths
    of groups are, where k is short, and where there are so many tiles that the last ones hardly matter.
    """
    ragged = problem.modes.ragged
    if ragged is None or problem.invariant or ragged.cuts is not None or not config.bk:
        return 1
    steps = ceil_div(ragged.total if ragged.extent == DEPTH else problem.k, config.bk)
    if steps > MOST_STEPS or too_many_tiles(problem, ragged, config, together, waves):
        return 1
    return max(1, min(MOST_PARTS, steps // least_steps(problem, config, unit, together)))


def too_many_tiles(problem: Problem, ragged: Ragged, config: Config, together: int, waves: Waves) -> bool:
    """Whether the last ones hardly matter. Wrong ends may give all lines to each group: 32 bits count
    those, too.
    """
    m = ragged.total if ragged.extent == ROWS else problem.m
    n = ragged.total if ragged.extent == COLS else problem.n
    tiles, blocks = ceil_div(m, config.bm) * ceil_div(n, config.bn), MEASURED.sms * together
    if ragged.extent == DEPTH:
        return ragged.groups * tiles > waves.depth * blocks
    return tiles > waves.rows * blocks or ragged.groups * tiles > MOST_TILES_OF_GROUPS


def least_steps(problem: Problem, config: Config, unit: str, together: int) -> int:
    """Steps of k in which a block multiplies as long as it takes to hand sums on. `together`: blocks that
    share an SM's unit.
    """
    first, by_byte, _ = HANDED_BY[TURNSTILE]
    tile_bytes = config.bm * config.bn * max(4, size_of(problem.accumulator))
    rate = MEASURED.unit_limit(unit, problem.math) * 1e12 / MEASURED.sms / together
    return max(1, math.ceil((first + by_byte * tile_bytes) * rate / (2 * config.bm * config.bn * config.bk)))


def part_macros(
    problem: Problem, config: Config, unit: str, together: int, waves: Waves
) -> dict[str, object]:
    parts = parts_of_tiles(problem, config, unit, together, waves)
    if parts == 1:
        return {}
    least = least_steps(problem, config, unit, together)
    return {"MOST_PARTS": parts, "LEAST_STEPS": least, "TOGETHER": together}
