"""Predicted cycles of what follows a tile's products: its epilogue, and the store of D."""

from __future__ import annotations

from typing import Any

import numpy as np

from lapidist.config import Knobs
from lapidist.dtypes import size_of
from lapidist.kernels.wgmma.operands import (
    copies_out,
    grouped_columns,
    joins_columns,
    joins_values,
    quantises,
    same_c,
)
from lapidist.kernels.wgmma.tiles import patch, sums_of_thread
from lapidist.problems.problem import Problem

STORED_BYTES = 20.0  # bytes of D in a cycle, stored by TMA during the next tile's products
NARROW, NARROW_BYTES = 1.8, 64  # factor if rows of a patch have fewer bytes
# The same factor if threads store them and they have fewer columns. (e4m3 with a D of fp32 on an H200, 40
# ragged products: tiles of 48, 80, 112, 144 columns took 9 % longer beside the others than predicted.)
NARROW_COLUMNS = 32
# Cycles to store 16 rows of a tile by threads: for each warp, since the ends of rows wait for each other, and
# for each column.
STRIP_BY_HAND, COLUMN_BY_HAND = 225.0, 12.0
# Factor on that for a gated D, half as wide and stored in pieces of 16 bytes. (8192 x 4096 x 1024 on an H100:
# SwiGLU takes 5 us more than the product alone in tiles of 128 x 256.)
GATED_BY_PIECES = 0.15
# TMA takes longer to store tiles with such short rows: measured, not explained.
FEW_BYTES, FEW_LONGER = (64, 2.5)
# With so many sums a thread has few registers for the epilogue: factor on stores by threads.
CROWDED_SUMS, CROWDED_BY_HAND = (192, 1.5)
# Short functions are unrolled over so many sums: IN_PIECES if they store more than D, else AT_ONCE. LOOPED:
# cycles of each pass of the loop over more. (8192 x 28672 x 4096 with 200 sums: the product alone 2.49 ms,
# with a bias in the loop 3.12.)
IN_PIECES, AT_ONCE, LOOPED = 128, 208, 550.0
# The share of an epilogue's time that is not hidden if it is unrolled over more sums than IN_PIECES. (8192 x
# 4096 x 1024 on an H100: bias and GELU take 6 us more than a bias in tiles of 256 x 200. In 128 x 256, and in
# ping-pong of 128 x 128, they take 12.)
LARGE_SHOWN = 0.4
FINISHED_AT_ONCE = 128  # elements of an instruction of four warps
LINE_OF_C = 2.5  # instructions for an element, if C is one line: two rows share each value


def store_cycles(problem: Problem, config: Knobs) -> Any:
    """Cycles to store a tile."""
    size, (width, _) = size_of(problem.out_dtype), patch(problem, config)
    narrow = np.where(width * size < NARROW_BYTES, NARROW, 1.0)
    if copies_out(problem):
        row_bytes = config.bn * size
        few = np.where(row_bytes <= FEW_BYTES, FEW_LONGER, 1.0)
        return narrow * few * config.bm * row_bytes / STORED_BYTES
    crowded = np.where(config.wm // 16 * config.bn // 2 >= CROWDED_SUMS, CROWDED_BY_HAND, 1.0)
    narrow = np.where(width < NARROW_COLUMNS, NARROW, narrow)
    by_hand = STRIP_BY_HAND * config.consumers / 32 + narrow * COLUMN_BY_HAND * config.bn
    return crowded * by_hand * config.wm / 16 * (GATED_BY_PIECES if gated(problem) else 1.0)


def gated(problem: Problem) -> bool:
    """Whether D has a column for two of the product, stored by threads in pieces of 16 bytes."""
    fused = problem.fused
    if fused is None or not fused.function.paired or fused.grouped:
        return False
    return fused.function.results[0].other is None and fused.stored[0].in_pieces


def finish_cycles(problem: Problem, config: Knobs) -> Any:
    """Cycles of a tile's epilogue, and of a C that is one line: its instructions, for four warps at once."""
    instructions: Any = problem.fused.cost if problem.fused else 0
    if problem.fused is not None and joins_values(problem):
        instructions = problem.fused.joined_cost
    if problem.fused is not None and quantises(problem):
        quantised = config.bn % grouped_columns(problem) == 0
        instructions = np.where(quantised, problem.fused.grouped_cost, instructions)
    if same_c(problem):
        instructions += LINE_OF_C
    cycles = instructions * config.bm * config.bn / FINISHED_AT_ONCE
    if problem.fused is None:
        return cycles
    special = problem.fused.special_cost * config.bm * config.bn / FINISHED_AT_ONCE
    exposed = special + LOOPED * turns_of_loop(problem, config)
    large = unrolled(problem, config) & (sums_of_thread(config) > IN_PIECES)
    return np.where(config.ping_pong == 0, np.where(large, LARGE_SHOWN, 1.0) * (cycles + exposed), cycles)


def unrolled(problem: Problem, config: Knobs) -> Any:
    """Whether a short function is unrolled over all sums of a thread (gemm/wgmma/epilogue_of_tile.cuh)."""
    fused = problem.fused
    if fused is None or not fused.is_short:
        return False
    if not copies_out(problem) and not fused.function.stores_d:  # not measured
        return False
    plain = not fused.stored and not fused.grouped
    return sums_of_thread(config) <= (AT_ONCE if plain else IN_PIECES)


def turns_of_loop(problem: Problem, config: Knobs) -> Any:
    """Passes of the loop over sums, if a function is not unrolled over all. A pass has 12 sums, or as many as
    divide those of 64 rows; 8 where lanes reduce columns.
    """
    half = config.bn // 2
    twelve = (half % 12 == 0) & (not joins_columns(problem))
    at_once = np.where(twelve, 12, np.where(half % 8 == 0, 8, 4))
    waits = (sums_of_thread(config) > IN_PIECES) & ~np.asarray(unrolled(problem, config))
    return np.where(waits, sums_of_thread(config) / at_once, 0.0)
