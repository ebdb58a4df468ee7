"""A grouped product in Triton after the idea of its tutorial on groups: programs that stay walk over the
tiles of all groups, whose lengths lie on the device. TMA loads the operands, by maps that the host encodes.

All configs are tried for each case, and the fastest is measured.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from triton.testing import do_bench_cudagraph
from triton.tools.tensor_descriptor import TensorDescriptor

GROUPS_AT_MOST = 256
LINE = 128  # bytes of a step of k, which are a line of swizzled shared memory
TRIED_MS = 2  # of calls in the graph that a config is tried by; Triton replays it ten times


class Config(NamedTuple):
    """Rows and columns of a tile, warps, and stages of loads."""

    rows: int
    columns: int
    warps: int
    stages: int


CONFIGS = (Config(64, 128, 4, 5), Config(64, 256, 4, 4), Config(128, 128, 8, 4), Config(128, 256, 8, 4))


@triton.jit
def place_of(ends, behind, tiles, tile):
    """The group of a tile, where it begins and ends, and the tile's number in it."""
    past = behind <= tile
    group = tl.sum(past.to(tl.int32))
    begin = tl.load(ends + group - 1, mask=group > 0, other=0)
    return group, begin, tl.load(ends + group), tile - tl.sum(tl.where(past, tiles, 0))


@triton.jit
def rows_by_groups(
    a, b, d, ends, row_factors, column_factors, groups, n, k,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEP: tl.constexpr, TRANSPOSED_B: tl.constexpr,
    FACTORS: tl.constexpr, MOST: tl.constexpr,
):  # fmt: skip
    """`b`: (groups n, k) where it is transposed, and else (groups k, n)."""
    number = tl.arange(0, MOST)
    lengths = tl.load(ends + number, mask=number < groups, other=0)
    lengths -= tl.load(ends + number - 1, mask=(number > 0) & (number < groups), other=0)
    across = tl.cdiv(n, COLUMNS)
    tiles = tl.cdiv(lengths, ROWS) * across
    behind = tl.cumsum(tiles)
    for tile in range(tl.program_id(0), tl.sum(tiles), tl.num_programs(0)):
        group, begin, end, inside = place_of(ends, behind, tiles, tile)
        down = tl.cdiv(end - begin, ROWS)
        row, column = begin + inside % down * ROWS, inside // down * COLUMNS
        total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
        for step in range(0, k, STEP):
            b_lines = (
                b.load([group * n + column, step]).T if TRANSPOSED_B else b.load([group * k + step, column])
            )
            total = tl.dot(a.load([row, step]), b_lines, total)
        at_row, at_column = row + tl.arange(0, ROWS), column + tl.arange(0, COLUMNS)
        mask_of_d = (at_row < end)[:, None] & (at_column < n)[None, :]
        if FACTORS:
            total *= tl.load(row_factors + at_row, mask=at_row < end, other=0.0)[:, None]
            total *= tl.load(column_factors + group * n + at_column, mask=at_column < n, other=0.0)[None, :]
        to = d + at_row.to(tl.int64)[:, None] * n + at_column[None, :]
        tl.store(to, total.to(d.dtype.element_ty), mask=mask_of_d)


@triton.jit
def columns_by_groups(
    a, b, d, ends, groups, m, n,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Of gradients of weights: `a` is (total, m) and `b` (total, n), and each group has as many tiles."""
    down, across = tl.cdiv(m, ROWS), tl.cdiv(n, COLUMNS)
    for tile in range(tl.program_id(0), groups * down * across, tl.num_programs(0)):
        group, inside = tile // (down * across), tile % (down * across)
        row, column = inside % down * ROWS, inside // down * COLUMNS
        begin, end = tl.load(ends + group - 1, mask=group > 0, other=0), tl.load(ends + group)
        total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
        end_of_steps = begin + (end - begin) // STEP * STEP
        for step in range(begin, end_of_steps, STEP):
            total = tl.dot(a.load([step, row]).T, b.load([step, column]), total)
        if end_of_steps < end:  # rows of the next group count nothing
            inside_group = (end_of_steps + tl.arange(0, STEP) < end)[:, None]
            a_lines, b_lines = a.load([end_of_steps, row]), b.load([end_of_steps, column])
            a_lines, b_lines = tl.where(inside_group, a_lines, 0.0), tl.where(inside_group, b_lines, 0.0)
            total = tl.dot(a_lines.to(a.dtype).T, b_lines.to(b.dtype), total)
        at_row, at_column = row + tl.arange(0, ROWS), column + tl.arange(0, COLUMNS)
        to = d + group.to(tl.int64) * m * n + at_row[:, None] * n + at_column[None, :]
        tl.store(to, total.to(d.dtype.element_ty), mask=(at_row < m)[:, None] & (at_column < n)[None, :])


def map_of(lines: Any, *block: int) -> Any:
    return TensorDescriptor.from_tensor(lines, list(block))


def launch(config: Config, a: Any, b: Any, ends: Any, out: Any, factors: Sequence[Any]) -> None:
    """Rows of `a` by groups, or with `out` of three dimensions columns. `factors`: of rows and columns."""
    rows, columns, warps, stages = config
    step, most = LINE // a.element_size(), GROUPS_AT_MOST
    groups, how = len(ends), {"num_warps": warps, "num_stages": stages}
    grid = (torch.cuda.get_device_properties(a.device).multi_processor_count,)
    if out.ndim == 3:
        maps = map_of(a.T, step, rows), map_of(b, step, columns)
        columns_by_groups[grid](*maps, out, ends, groups, *out.shape[1:], rows, columns, step, **how)
        return
    k, n = b.shape[1:]
    transposed = b.stride(1) == 1
    lines = b.mT.reshape(groups * n, k) if transposed else b.reshape(groups * k, n)
    of_b = map_of(lines, *((columns, step) if transposed else (step, columns)))
    more = factors or (ends, ends)
    rows_by_groups[grid](
        map_of(a, rows, step), of_b, out, ends, *more, groups, n, k,
        rows, columns, step, transposed, bool(factors), most, **how,
    )  # fmt: skip


def fastest(
    a: Sequence[Any], b: Sequence[Any], ends: Sequence[Any], c: Sequence[Any], factors: Sequence[Any]
) -> tuple[Config, Any]:
    """The config that took least, and what starts the product of a set by it."""

    def call(index: int, config: Config) -> None:
        launch(config, a[index], b[index], ends[index], c[index], factors)

    def milliseconds(config: Config) -> float:
        def every_set() -> None:
            for index in range(len(a)):
                call(index, config)

        return float(do_bench_cudagraph(every_set, rep=TRIED_MS))

    best = min(CONFIGS, key=milliseconds)
    return best, partial(call, config=best)
