"""The operators for torch's FlopCounterMode: two operations for each pair of factors, as for torch's own."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.utils.flop_counter import register_flop_formula

Shape = Any  # torch passes shapes for tensors


def of_linear(input: Shape, weight: Shape, *_: Any, **__: Any) -> int:
    return 2 * math.prod(input) * (weight[0] if len(weight) == 2 else 1)


def of_gemm(
    a: Shape,
    b: Shape,
    c: Any = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    trans_a: bool = False,
    trans_b: bool = False,
    *_: Any,
    **__: Any,
) -> int:
    m, k = reversed(a[-2:]) if trans_a else a[-2:]
    batch = torch.broadcast_shapes(a[:-2], b[:-2])
    return int(2 * math.prod(batch) * m * k * b[-2 if trans_b else -1])


def of_matmul(a: Shape, b: Shape, *_: Any, **__: Any) -> int:
    a = (1, *a) if len(a) == 1 else a
    return of_gemm(a, (*b, 1) if len(b) == 1 else b)


def of_update(out: Shape, a: Shape, b: Shape, *args: Any, **options: Any) -> int:
    return of_gemm(a, b, None, *args, **options)


def of_gram(
    a: Shape, c: Any = None, alpha: float = 1.0, beta: float = 0.0, trans: bool = False, *_: Any, **__: Any
) -> int:
    """Of the whole product, as for torch's own."""
    return of_gemm(a, a, c, alpha, beta, trans, not trans)


def of_groups(
    a: Shape, b: Shape, offsets: Shape, trans_a: bool = False, trans_b: bool = False, *_: Any, **__: Any
) -> int:
    """As if groups filled the operands; where they end only the device knows."""
    return of_gemm(a[-2:], b[-2:], None, 1.0, 0.0, trans_a, trans_b)


def of_grouped_update(out: Shape, a: Shape, b: Shape, *args: Any, **options: Any) -> int:
    return of_groups(a, b, *args, **options)


FORMULAS = {
    "linear": of_linear,
    "gemm": of_gemm,
    "matmul": of_matmul,
    "scaled": of_matmul,
    "grouped": of_groups,
    "grouped_": of_grouped_update,
    "gemm_": of_update,
    "gram": of_gram,
    "symmetric_matmul": of_matmul,
}


def count() -> None:
    for name, formula in FORMULAS.items():
        register_flop_formula(getattr(torch.ops.lapidist, name))(formula)
