"""The parts of a wgmma kernel's tile: boxes of A and B that a block loads, patches of D that it stores."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from lapidist.config import Config, Knobs
from lapidist.dtypes import size_of
from lapidist.kernels.halves import sides, stores_twice, triangle_of
from lapidist.kernels.wgmma.operands import (
    by_registers,
    c_in_patches,
    copies_out,
    few_rows,
    mn_major,
    packed,
    transposed_d,
)
from lapidist.problems.compile_key import of_kind
from lapidist.problems.problem import Problem
from lapidist.problems.ragged import COLS, ROWS
from lapidist.problems.scaling import STRIPS

ROW_BYTES = 128  # a row of a slab: along k, or along m or n in M-major and N-major tiles
SLAB_BYTES = 64 * ROW_BYTES
PATCH_BYTES = 32  # least bytes in each row of a patch
# Promoted sums of wider tiles are multiplied in two parts. With a factor for each column, tiles of 160 are.
UNPARTED, PARTED_STRIPS = 192, 160
MOST_TILE = 1 << 30  # more lines than any tile has
# Columns of a tile that several warps load, and how many do: of groups, one warp finds tiles.
NARROW, LOADERS, BESIDE_FINDER = 128, 4, 3
PATCH_ROWS = 16  # rows of D in a warp's patch


def warpgroups(config: Knobs) -> Any:
    """Warpgroups that multiply. Three share a tile of 192 rows, with fewer registers and half the patches.
    Ping-pong has two.
    """
    return config.consumers // 128


def loaders(problem: Problem, config: Knobs) -> Any:
    """Warps of a block that load in turn. One thread starts the loads of a step in 135 ns, and products of
    narrow tiles take less (H200: 0.7 of the time, 64 x 32, long k). A warp must not wait for a phase while
    the one before has not begun, which has the same parity: so there are as many stages at least.
    """
    factors = problem.scaling.a.along_k or problem.scaling.b.along_k
    busy = any(packed(problem)) or problem.skewed or factors or problem.modes.gather_a
    most = LOADERS if problem.modes.ragged is None else BESIDE_FINDER
    narrow = (config.bm == 64) & (config.bn <= NARROW) & (config.ping_pong == 0) & (config.stages >= LOADERS)
    return np.where(narrow & (not busy), most, 1)


def sums_of_thread(config: Knobs) -> Any:
    return config.wm // 16 * config.bn // 2


def columns_of_part(config: Knobs, problem: Problem) -> Any:
    """Columns of a tile of promoted sums that are multiplied, and then promoted, at once."""
    large = (config.bn % 32 == 0) & (config.bn > UNPARTED)
    parted = config.bn == PARTED_STRIPS if problem.scaling.b.kind == STRIPS else large
    return np.where(parted, config.bn // 2, config.bn)


def rows_of_stage(problem: Problem, config: Knobs) -> Any:
    """Rows of a tile of A for which a stage has space. wgmma reads further rows behind them, which must lie
    in the same stage, in B.
    """
    rows = few_rows(problem)
    if not rows:
        return config.bm
    least = -(-(config.bm - config.bn) // 16) * 16
    return np.where(config.cluster == 1, np.minimum(config.bm, np.maximum(rows, least)), config.bm)


def loaded_lines(problem: Problem, config: Knobs) -> tuple[Any, Any]:
    """Rows of A and columns of B of a tile that are loaded: if one tile has all of them, no more than exist
    (gemm/wgmma/skinny.cuh).
    """
    a, b, alone = rows_of_stage(problem, config), config.bn, config.cluster == 1
    if alone is False:  # one config, whose numbers are Python's
        return a, b
    m, n = lines_in_all(problem)
    if alone is True:
        return min(a, m), min(b, n)
    few_a, few_b = np.minimum(a, m), np.minimum(b, n)
    return np.where(alone, few_a, a), np.where(alone, few_b, b)


def lines_in_all(problem: Problem) -> tuple[int, int]:
    """Rows and columns, one at least. Where groups cut them, no tile holds all."""
    m = MOST_TILE if problem.modes.cuts(ROWS) else max(1, problem.m)
    return m, MOST_TILE if problem.modes.cuts(COLS) else max(1, problem.n)


def tiles_of_triangle(problem: Problem, config: Config) -> int | None:
    """How many tiles, or clusters of them, meet one triangle of D (triangle_tiles.cuh). None: all tiles are
    computed, as no triangle is asked for, sides of tiles do not fill squares, or operands are packed in the
    order of all tiles.
    """
    triangle = triangle_of(problem, config)
    if triangle is None or any(packed(problem)):
        return None
    high, wide = sides(config)
    return int(triangle.tiles(-(-problem.m // high), -(-problem.n // wide))) * prod(problem.batch)


def stores_both_halves(problem: Problem, config: Config) -> bool:
    """Whether tiles off the diagonal are stored a second time, transposed (deferred_store.cuh)."""
    if not stores_twice(problem) or tiles_of_triangle(problem, config) is None or config.bn % 16:
        return False
    leaves_whole = copies_out(problem) and not transposed_d(problem) and size_of(problem.out_dtype) > 1
    return leaves_whole and not by_registers(problem)


def read_once(problem: Problem, config: Config) -> tuple[bool, bool]:
    """Whether each part of A, and of B, is read by a single tile: one tile has all columns of B, or all rows
    of A. Of groups, whether one tile has as many lines as most groups have.
    """
    modes = problem.modes
    if modes.ragged is not None:
        few = modes.cuts(COLS) and problem.n <= config.bn, modes.cuts(ROWS) and problem.m <= config.bm
        return config.cluster == 1 and few[0], config.cluster == 1 and few[1]
    alone, (m, n) = config.cluster == 1 and prod(problem.batch) == 1, lines_in_all(problem)
    return alone and n <= config.bn, alone and m <= config.bm


def boxes(problem: Problem, config: Config) -> tuple[tuple[int, int], tuple[int, int]]:
    """The boxes of A and B. Each block of a cluster loads its share of what they have in common."""
    step, a_parts, b_parts = config.bk, config.cluster_n, config.cluster_m
    (transposed_a, transposed_b), (a_lines, b_lines) = (
        mn_major(problem),
        map(int, loaded_lines(problem, config)),
    )
    slab = ROW_BYTES // size_of(problem.dtype)
    a = (slab, step // a_parts) if transposed_a else (step, a_lines // a_parts)
    b = (slab, step // b_parts) if transposed_b else (step, b_lines // b_parts)
    return a, b


def patch(problem: Problem, config: Knobs, peers: int = 1) -> tuple[Any, Any]:
    """Width and height of a patch of D, contiguous elements first. By rows: 16 rows of up to 128 bytes. By
    columns: 16 rows of as many columns, or 64 rows of four warps. Patches divide the tile. If C is loaded to
    them they are half as wide.
    """
    size, most = size_of(problem.out_dtype), ROW_BYTES // (2 if c_in_patches(problem) else 1)
    if transposed_d(problem):
        lines = widest((64, 32), most // size, config.bn, 16)
        return np.where(by_group(problem, config, peers), 4 * PATCH_ROWS, PATCH_ROWS), lines
    least = np.where(config.bn % 16 == 0, PATCH_BYTES // size, 16)  # an overlapping patch has 8 new columns
    return widest((128 // size, 64 // size), most // size, config.bn, least), PATCH_ROWS


@of_kind
def patch_of(problem: Problem, config: Config, peers: int) -> tuple[int, int]:
    """The same for one config."""
    width, height = patch(problem, config, peers)
    return int(width), int(height)


def widest(widths: tuple[int, int], most: int, columns: Any, otherwise: Any) -> Any:
    """The first of these widths that is not too large and divides the columns."""
    first, second = ((width <= most) & (columns % width == 0) for width in widths)
    return np.where(first, widths[0], np.where(second, widths[1], otherwise))


def by_group(problem: Problem, config: Knobs, peers: int = 1) -> Any:
    """Whether the four warps of a warpgroup store columns of D together, in lines of 128 bytes
    (gemm/wgmma/store.cuh). Not if peers of a cluster divide the patches among them, nor if C is loaded warp
    by warp.
    """
    alone = peers == 1 and not by_registers(problem) and not c_in_patches(problem)
    in_pairs = transposed_d(problem) and size_of(problem.out_dtype) == 2 and alone
    return (config.ping_pong == 0) & in_pairs
