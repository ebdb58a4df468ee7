"""Half of a symmetric D: the tiles that meet one triangle, in kernels that compute no others."""

from __future__ import annotations

from math import gcd
from typing import Any

import numpy as np

from lapidist.config import Config, Knobs
from lapidist.problems.modes import PLAIN
from lapidist.problems.problem import BOTH, COPIED, Problem
from lapidist.schedule.triangle import Triangle

LOWER, UPPER = 1, 2  # values of TRIANGLE


def sides(config: Knobs) -> tuple[Any, Any]:
    """Rows and columns of the tiles of a cluster."""
    return config.bm * config.cluster_m, config.bn * config.cluster_n


def in_columns(problem: Problem, config: Knobs) -> tuple[Any, Any]:
    """Both sides of a tile in columns of D: those of complex numbers have two for each row."""
    high, wide = sides(config)
    return high * max(1, problem.n // max(1, problem.m)), wide


def fill_squares(problem: Problem, config: Knobs) -> Any:
    """Whether tiles fill squares as wide as their larger side: then those on the diagonal are all needed."""
    high, wide = in_columns(problem, config)
    return (high % wide == 0) | (wide % high == 0)


def half_of(problem: Problem, stored_twice: bool) -> int:
    """The triangle that is computed. What a second launch mirrors is the caller's lower one."""
    if problem.triangle in (BOTH, COPIED):
        return UPPER if problem.transposed and not stored_twice else LOWER
    return UPPER if problem.triangle == "upper" else LOWER


def stores_twice(problem: Problem) -> bool:
    """Whether tiles are stored a second time, transposed (gemm/both_halves.cuh). Of a C in D's place, another
    block would read what is stored there.
    """
    symmetric = problem.triangle in (BOTH, COPIED) and problem.m == problem.n
    return symmetric and not problem.stores_d and not problem.in_place


def triangle_of(problem: Problem, config: Config) -> Triangle | None:
    """The tiles that are computed, if tiles are left out at all; None: all of them."""
    if not problem.triangle or problem.modes != PLAIN or not fill_squares(problem, config):
        return None
    return in_squares(problem, config, gcd(*in_columns(problem, config)))


def in_squares(problem: Problem, config: Knobs, side: Any) -> Triangle:
    """`side`: the shorter one of a tile, in columns."""
    high, wide = in_columns(problem, config)
    return Triangle(wide // side, high // side, half_of(problem, stores_twice(problem)) == UPPER)


def halved(problem: Problem, config: Knobs, walks: Any) -> Any:
    """A function that counts a matrix' tiles, of one config or of columns of many. `walks`: whose kernels
    leave tiles out.
    """
    if not problem.triangle or problem.modes != PLAIN or not np.any(walks):
        return None
    triangle = in_squares(problem, config, np.gcd(*in_columns(problem, config)))
    leaves_out = walks & fill_squares(problem, config)
    return lambda tiles_m, tiles_n: np.where(leaves_out, triangle.tiles(tiles_m, tiles_n), tiles_m * tiles_n)


def macros(problem: Problem, config: Config, twice: bool) -> dict[str, object]:
    """TRIANGLE with the tiles of a square, and BOTH_HALVES."""
    triangle = triangle_of(problem, config)
    if triangle is None:
        return {}
    squares = {"SQUARE_DOWN": triangle.down, "SQUARE_ACROSS": triangle.across}
    return {"TRIANGLE": half_of(problem, twice), **squares, **({"BOTH_HALVES": 1} if twice else {})}
