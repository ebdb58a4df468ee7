"""What a block of the wgmma kernels loads of A and B for a tile, and lays down of D."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from lapidist.config import Config, Knobs
from lapidist.dtypes import size_of
from lapidist.kernels.wgmma.operands import by_registers, c_in_patches, few_rows, mn_major, transposed_d
from lapidist.problems.kinds import of_kind
from lapidist.problems.problem import Problem
from lapidist.problems.scaling import STRIPS

ROW_BYTES = 128  # of a slab: of a tile's row, or of an MN-major one's k
SLAB_BYTES = 64 * ROW_BYTES  # of 64 rows of a tile, or of 64 columns of an MN-major one in 16-bit types
PATCH_BYTES = 32  # at least, in each row of a patch
# Columns up to which promoted sums are multiplied at once; those of tiles by parts where each has a factor.
UNPARTED, PARTED_STRIPS = 192, 160
PATCH_ROWS = 16  # of D that a warp lays down at once


def warpgroups(config: Knobs) -> Any:
    """That multiply. Three share a tile of 192 rows, with fewer registers and half the patches. In ping-pong
    there are two.
    """
    return config.consumers // 128


def columns_of_part(config: Knobs, problem: Problem) -> Any:
    """Of a tile of promoted sums: those that are multiplied, and then promoted, at once."""
    large = (config.bn % 32 == 0) & (config.bn > UNPARTED)
    parted = config.bn == PARTED_STRIPS if problem.scaling.b.kind == STRIPS else large
    return np.where(parted, config.bn // 2, config.bn)


def rows_of_stage(problem: Problem, config: Knobs) -> Any:
    """Rows of a tile of A that have room in a stage. What wgmma reads behind them must lie in the same stage,
    in B.
    """
    rows = few_rows(problem)
    if not rows:
        return config.bm
    least = -(-(config.bm - config.bn) // 16) * 16
    return np.where(config.cluster == 1, np.minimum(config.bm, np.maximum(rows, least)), config.bm)


def loaded_lines(problem: Problem, config: Knobs) -> tuple[Any, Any]:
    """Rows of A and columns of B in a tile that are loaded: where one tile has all of them, just those
    (gemm/wgmma/few_lines.cuh).
    """
    a, b, alone = rows_of_stage(problem, config), config.bn, config.cluster == 1
    if alone is False:  # of one config
        return a, b
    if alone is True:
        return min(a, max(1, problem.m)), min(b, max(1, problem.n))
    few_a, few_b = np.minimum(a, max(1, problem.m)), np.minimum(b, max(1, problem.n))
    return np.where(alone, few_a, a), np.where(alone, few_b, b)


def read_once(problem: Problem, config: Config) -> tuple[bool, bool]:
    """Whether no two tiles read the same part of A, or of B: all lines of the other one are in one tile."""
    alone = config.cluster == 1 and prod(problem.batch) == 1
    return alone and problem.n <= config.bn, alone and problem.m <= config.bm


def boxes(problem: Problem, config: Config) -> tuple[tuple[int, int], tuple[int, int]]:
    """The boxes of A and B. What two blocks of a cluster share, each of them loads half of."""
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
    """What a warp lays down of D at once, touching elements first: 16 rows of up to 128 bytes; or, where
    columns touch, 16 of as many columns, or 64 that are four warps'. They divide the tile. Half of that where
    C comes in as many bytes."""
    size, most = size_of(problem.out_dtype), ROW_BYTES // (2 if c_in_patches(problem) else 1)
    if transposed_d(problem):
        lines = widest((64, 32), most // size, config.bn, 16)
        return np.where(by_group(problem, config, peers), 4 * PATCH_ROWS, PATCH_ROWS), lines
    least = np.where(config.bn % 16 == 0, PATCH_BYTES // size, 16)  # one that overlaps brings eight columns
    return widest((128 // size, 64 // size), most // size, config.bn, least), PATCH_ROWS


@of_kind
def patch_of(problem: Problem, config: Config, peers: int) -> tuple[int, int]:
    """Of one config."""
    width, height = patch(problem, config, peers)
    return int(width), int(height)


def widest(widths: tuple[int, int], most: int, columns: Any, otherwise: Any) -> Any:
    """The first of these numbers that is not too large and divides the columns."""
    first, second = ((width <= most) & (columns % width == 0) for width in widths)
    return np.where(first, widths[0], np.where(second, widths[1], otherwise))


def by_group(problem: Problem, config: Knobs, peers: int = 1) -> Any:
    """Whether the four warps of a warpgroup lay columns of D together, in lines of 128 bytes
    (cuda/wgmma_pipeline.cuh). Peers in a cluster have some warps' patches each, and C comes warp by warp."""
    alone = peers == 1 and not by_registers(problem) and not c_in_patches(problem)
    whole = transposed_d(problem) and size_of(problem.out_dtype) == 2 and alone
    return (config.ping_pong == 0) & whole
