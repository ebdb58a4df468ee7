"""A kernel in Triton that decodes int4 with factors of 128, as its users write them: a peer of few_bits.

A byte has the codes of two steps of k, 64 apart: so a block of 128 steps is two products, and no code moves.
All configs are tried for each product, and the fastest is measured.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

HALF, GROUP, WIDTH = 64, 128, 1024
TRIES = 20  # calls of a config that is tried


class Config(NamedTuple):
    """Rows and columns of a block, blocks that share k, warps, and stages of loads."""

    rows: int
    columns: int
    parts: int
    warps: int
    stages: int


@triton.jit
def product(
    x, codes, factors, result, m, n, k, ROWS: tl.constexpr, COLUMNS: tl.constexpr, PARTS: tl.constexpr
):
    """`result`: of each part of k."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    part, step = tl.program_id(2), tl.arange(0, 64)
    there, inside = (row < m)[:, None], (column < n)[None, :]
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    blocks = k // 128
    for block in range(blocks * part // PARTS, blocks * (part + 1) // PARTS):
        of_x = x + row[:, None] * k + (block * 128 + step)[None, :]
        both = tl.load(codes + (block * 64 + step)[:, None] * n + column[None, :], mask=inside, other=0)
        factor = tl.load(factors + block * n + column[None, :], mask=inside, other=0.0)
        low = ((both & 15).to(tl.int8) - 8).to(tl.bfloat16) * factor
        high = ((both >> 4).to(tl.int8) - 8).to(tl.bfloat16) * factor
        total = tl.dot(tl.load(of_x, mask=there, other=0.0), low, total)
        total = tl.dot(tl.load(of_x + 64, mask=there, other=0.0), high, total)
    to = result + part * m * n + row[:, None] * n + column[None, :]
    tl.store(to, total.to(result.dtype.element_ty), mask=there & inside)


@triton.jit
def added(parts, result, count, PARTS: tl.constexpr, WIDTH: tl.constexpr):
    at = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    total = tl.zeros((WIDTH,), dtype=tl.float32)
    for part in range(PARTS):
        total += tl.load(parts + part * count + at, mask=at < count, other=0.0)
    tl.store(result + at, total.to(result.dtype.element_ty), mask=at < count)


def in_bytes(codes: Any) -> Any:
    """Codes (k, n) as bytes (k / 2, n)."""
    k, n = codes.shape
    blocks = codes.reshape(k // GROUP, 2, HALF, n)
    return (blocks[:, 0] | blocks[:, 1] << 4).reshape(k // 2, n).contiguous()


def configs(m: int) -> list[Config]:
    rows = next((count for count in (16, 32, 64) if m <= count), 128)
    if rows < 128:
        return [Config(rows, columns, parts, 4, 4) for columns in (64, 128) for parts in (1, 2, 4, 8)]
    return [Config(rows, columns, parts, 8, 3) for columns in (128, 256) for parts in (1, 2)]


def launch(config: Config, x: Any, codes: Any, factors: Any, out: Any, room: Any) -> None:
    """`room`: for the sums of each part."""
    (m, k), n = x.shape, codes.shape[1]
    grid = triton.cdiv(m, config.rows), triton.cdiv(n, config.columns), config.parts
    to = out if config.parts == 1 else room
    how = {"num_warps": config.warps, "num_stages": config.stages}
    product[grid](x, codes, factors, to, m, n, k, config.rows, config.columns, config.parts, **how)
    if config.parts > 1:
        added[(triton.cdiv(m * n, WIDTH),)](room, out, m * n, config.parts, WIDTH)


def fastest(
    a: Sequence[Any], codes: Sequence[Any], factors: Sequence[Any], c: Sequence[Any]
) -> tuple[Config, Any]:
    """The config that took least, and what starts the product of a set by it."""
    (m, _), n = a[0].shape, codes[0].shape[1]
    tried = configs(m)
    room = torch.empty(max(config.parts for config in tried), m, n, device=a[0].device)

    def call(index: int, config: Config) -> None:
        launch(config, a[index], codes[index], factors[index], c[index], room)

    def milliseconds(config: Config) -> float:
        call(0, config)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for number in range(TRIES):
            call(number % len(a), config)
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end))

    best = min(tried, key=milliseconds)
    return best, partial(call, config=best)
