"""Half of a symmetric D: the tiles that meet one triangle, in kernels that compute no others."""

from __future__ import annotations

from math import gcd
from typing import Any

import numpy as np

from lapidist.config import Config, Knobs
from lapidist.problems.modes import PLAIN
from lapidist.problems.problem import BOTH, Problem
from lapidist.schedule.triangle import Triangle

HALVES = {"lower": 1, "upper": 2, BOTH: 1}  # of D, as TRIANGLE counts them


def sides(config: Knobs) -> tuple[Any, Any]:
    """Rows and columns of the tiles of a cluster."""
    return config.bm * config.cluster_m, config.bn * config.cluster_n


def fill_squares(config: Knobs) -> Any:
    """Whether tiles fill squares as wide as their larger side: then those on the diagonal are all needed."""
    high, wide = sides(config)
    return (high % wide == 0) | (wide % high == 0)


def triangle_of(problem: Problem, config: Config) -> Triangle | None:
    """The tiles that a kernel with these walks computes; None: all of them."""
    if not problem.triangle or problem.modes != PLAIN or not fill_squares(config):
        return None
    high, wide = sides(config)
    side = gcd(high, wide)
    return Triangle(wide // side, high // side, HALVES[problem.triangle] == 2)


def halved(problem: Problem, config: Knobs, walks: Any) -> Any:
    """A function that counts a matrix' tiles, of one config or of columns of many. `walks`: whose kernels leave
    tiles out.
    """
    if not problem.triangle or problem.modes != PLAIN or not np.any(walks):
        return None
    high, wide = sides(config)
    side = np.gcd(high, wide)
    triangle = Triangle(wide // side, high // side, HALVES[problem.triangle] == 2)
    leaves_out = walks & fill_squares(config)
    return lambda tiles_m, tiles_n: np.where(leaves_out, triangle.tiles(tiles_m, tiles_n), tiles_m * tiles_n)


def macros(problem: Problem, config: Config) -> dict[str, object]:
    """TRIANGLE; and BOTH_HALVES, if tiles are stored a second time, transposed."""
    if triangle_of(problem, config) is None:
        return {}
    both = problem.triangle == BOTH and not problem.stores_d
    return {"TRIANGLE": HALVES[problem.triangle], **({"BOTH_HALVES": 1} if both else {})}
