"""Shared memory of the wgmma kernels: stages, patches of D, barriers."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from lapidist.config import Config, Knobs
from lapidist.dtypes import size_of
from lapidist.kernels.budgets import SHARED_OF_TWO, STAGE_BARRIERS, SWIZZLE_PERIOD
from lapidist.kernels.wgmma.maps import SKEWED_BYTES
from lapidist.kernels.wgmma.operands import (
    c_in_patches,
    copies_out,
    mn_major,
    packed,
    rows_copied_out,
    transposed,
)
from lapidist.kernels.wgmma.tiles import PATCH_ROWS, ROW_BYTES, SLAB_BYTES, patch, rows_of_stage, warpgroups
from lapidist.problems.compile_key import of_kind
from lapidist.problems.problem import Problem
from lapidist.problems.scaling import SQUARES, STRIPS, Scaling
from lapidist.schedule.grid import ceil_div

# Further bytes of a patch's row where threads store D: the end of the patch before, and padding for the
# banks.
BESIDE_ROW = 48
TURN_BYTES = 16  # barriers of ping-pong
# Bytes of the unit queue with promoted sums: tiles of 256 columns with factors have no more to spare. Other
# kernels give it what aligning to the swizzle's period leaves.
QUEUE_BYTES = 512
# Blocks leave room for one of the next launch if tiles have at most 128 columns. With up to 16 tiles the next
# launch finds free SMs anyway.
MOST_BESIDE, LEAST_BESIDE = 128, 16
LONGEST_BESIDE = 160 * 1024  # k times columns of a tile: a longer k needs the stages


def stages_bytes(config: Knobs, transposed_b: bool, a_rows: Any, a_bytes: int = ROW_BYTES) -> Any:
    b = -(-config.bn // 64) * SLAB_BYTES if transposed_b else config.bn * ROW_BYTES
    stage = ceil_div(a_rows * a_bytes + b, SWIZZLE_PERIOD)
    return config.stages * (stage * SWIZZLE_PERIOD + STAGE_BARRIERS)


def plain_shared(problem: Problem, config: Knobs) -> Any:
    """Stages and their barriers, and space to align them to the swizzle's period."""
    return stages_bytes(config, False, config.bm) + SWIZZLE_PERIOD


def wgmma_shared(problem: Problem, config: Knobs) -> Any:
    """Stages, and patches of D: for each warp 4 KB in two buffers, or 2 KB if there are twelve warps. C takes
    half of them. If threads store D: one patch with longer rows, and those of C.
    """
    warps = config.consumers // 32
    patched = warps * np.where(warpgroups(config) == 3, 1, 2) * (PATCH_ROWS * ROW_BYTES)
    if not copies_out(problem):
        (width, _), of_c = patch(problem, config), patched // 2 if c_in_patches(problem) else 0
        patched = of_c + warps * PATCH_ROWS * (width * size_of(problem.out_dtype) + BESIDE_ROW)
    a_bytes = SKEWED_BYTES if problem.skewed else ROW_BYTES
    stages = stages_bytes(config, mn_major(problem)[1], rows_of_stage(problem, config), a_bytes)
    # A block's memory is already aligned to the swizzle's period, so the unit queue gets that space.
    more = QUEUE_BYTES if problem.scaling.promoted else SWIZZLE_PERIOD
    return stages + more + patched + factor_bytes(config, problem.scaling) + TURN_BYTES


def patched_shared(problem: Problem, config: Knobs) -> Any:
    """For the rungs, which have all rows of a tile in each stage and read C into registers. Two patches of D
    for each warp, or one with longer rows if threads store D.
    """
    patch_bytes = (
        2 * PATCH_ROWS * ROW_BYTES if rows_copied_out(problem) else PATCH_ROWS * (ROW_BYTES + BESIDE_ROW)
    )
    return plain_shared(problem, config) + config.consumers // 32 * patch_bytes


def factor_bytes(config: Knobs, scaling: Scaling) -> Any:
    """Factors along k are loaded with each stage: one for each row of A; for B one for each column, or two in
    all.
    """
    of_a = config.bm if scaling.a.along_k else 0
    of_b = {STRIPS: config.bn, SQUARES: 2}.get(scaling.b.kind, 0)
    along_k = scaling.a.along_k or scaling.b.along_k
    return config.stages * 4 * (of_a + of_b + 2) if along_k else 8


def leaves_room(problem: Problem, config: Knobs) -> Any:
    """Whether a block leaves room on its SM for one of the next launch, where operands are packed. Such a
    launch is cooperative, so all its blocks need places at once. Without the room they must wait for the last
    block of the launch before. A long k needs more stages.
    """
    if not any(packed(problem)) or any(transposed(problem)) or problem.skewed:
        return False
    tiles = -(-problem.m // config.bm) * -(-problem.n // config.bn) * prod(problem.batch)
    short = (problem.k * config.bn <= LONGEST_BESIDE) & (tiles > LEAST_BESIDE) & (config.bn <= MOST_BESIDE)
    if short is False:  # one config, whose numbers are Python's
        return False
    alone = (warpgroups(config) == 1) & (config.cluster == 1)
    if short is True:
        return alone and shared_of_one(problem, config) <= SHARED_OF_TWO
    return short & alone & (wgmma_shared(problem, config) <= SHARED_OF_TWO)


@of_kind
def shared_of_one(problem: Problem, config: Config) -> int:
    return int(wgmma_shared(problem, config))
