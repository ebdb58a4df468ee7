"""torch.vmap over the operators: the mapped dimension becomes the first batch dimension.

`ops`: the operators as torch.ops has them, or ours, which outer transforms go through.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from lapidist.calls.fake_tensors import without

Dims = tuple[int | None, ...]
Batched = tuple[Any, int]  # a result, and its mapped dimension


def in_front(tensor: Any, dim: int | None) -> Any:
    return tensor if dim is None else tensor.movedim(dim, 0)


def rank(tensor: Any, dim: int | None) -> int:
    """How many dimensions the mapped function sees."""
    return int(tensor.ndim) - (dim is not None)


def filled(tensor: Any, dim: int | None, dimensions: int) -> Any:
    """A tensor with dimensions of one element behind the mapped one, so that it has `dimensions` more."""
    return tensor if dim is None else tensor[(slice(None),) + (None,) * (dimensions - rank(tensor, dim))]


def gemm_in_front(ops: Any, size: int, dims: Dims, a: Any, b: Any, c: Any, *how: Any) -> Any:
    """gemm of tensors that have their mapped dimension in front."""
    dimensions = max(rank(a, dims[0]), rank(b, dims[1]))
    if dims[0] is dims[1] is None:  # c alone is mapped over
        a, dims = a.expand(size, *a.shape), (0, *dims[1:])
    a, b = filled(a, dims[0], dimensions), filled(b, dims[1], dimensions)
    c = None if c is None else filled(c, dims[2], dimensions)
    return ops.gemm(a, b, c, *how)


def map_gemm(ops: Any, info: Any, dims: Any, a: Any, b: Any, c: Any = None, *how: Any) -> Batched:
    dims = (*dims, None)[:3]
    a, b, c = (x if x is None else in_front(x, dim) for x, dim in zip((a, b, c), dims, strict=True))
    return gemm_in_front(ops, info.batch_size, dims, a, b, c, *how), 0


def map_gram(ops: Any, info: Any, dims: Any, a: Any, c: Any = None, *how: Any) -> Batched:
    dims = (*dims, None)[:2]
    dimensions = rank(a, dims[0])
    a, c = in_front(a, dims[0]), None if c is None else filled(in_front(c, dims[1]), dims[1], dimensions)
    if dims[0] is None:  # c alone is mapped over
        a = a.expand(info.batch_size, *a.shape)
    return ops.gram(a, c, *how), 0


def map_matmul(ops: Any, info: Any, dims: Any, a: Any, b: Any, *types: Any) -> Batched:
    row, column = rank(a, dims[0]) == 1, rank(b, dims[1]) == 1
    a, b = in_front(a, dims[0]), in_front(b, dims[1])
    a, b = a.unsqueeze(-2) if row else a, b.unsqueeze(-1) if column else b
    dimensions = max(rank(a, dims[0]), rank(b, dims[1]))
    product = ops.matmul(filled(a, dims[0], dimensions), filled(b, dims[1], dimensions), *types)
    return without(product, row=row, column=column), 0


def map_symmetric_matmul(ops: Any, info: Any, dims: Any, a: Any, b: Any, *types: Any) -> Batched:
    return map_matmul(SimpleNamespace(matmul=ops.symmetric_matmul), info, dims, a, b, *types)


def map_linear(
    ops: Any, info: Any, dims: Any, input: Any, weight: Any, bias: Any = None, *types: Any
) -> Batched:
    dims = (*dims, None)[:3]
    if dims[1] is dims[2] is None:
        return ops.linear(in_front(input, dims[0]), weight, bias, *types), 0
    row, column = rank(input, dims[0]) == 1, rank(weight, dims[1]) == 1
    input, weight = in_front(input, dims[0]), in_front(weight, dims[1])
    input, weight = input.unsqueeze(-2) if row else input, weight.unsqueeze(-2) if column else weight
    bias = None if bias is None else in_front(bias, dims[2])
    beta = 0.0 if bias is None else 1.0
    product = gemm_in_front(ops, info.batch_size, dims, input, weight, bias, 1.0, beta, False, True, *types)
    return without(product, row=row, column=column), 0


def map_grouped(ops: Any, info: Any, dims: Dims, *args: Any) -> Batched:
    """Groups have no batch."""
    return one_by_one(ops.grouped, info, dims, *args)


def map_rows(op: Any, info: Any, dims: Any, rows: Any, *operands: Any) -> Batched:
    """An operator whose first tensor may have any dimensions before its last one."""
    if any(isinstance(dim, int) for dim in dims[1:]):
        return one_by_one(op, info, dims, rows, *operands)
    return op(in_front(rows, dims[0]), *operands), 0


def one_by_one(op: Any, info: Any, dims: Any, *args: Any) -> Batched:
    """A launch for each element."""
    slices = (
        [x.select(dim, i) if isinstance(dim, int) else x for x, dim in zip(args, dims, strict=True)]
        for i in range(info.batch_size)
    )
    return torch.stack([op(*operands) for operands in slices]), 0
