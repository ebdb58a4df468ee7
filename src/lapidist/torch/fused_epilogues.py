"""Products with an epilogue: one launch if torch needs no sums, else the function in torch, with gradients,
transforms and compilers."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from lapidist import api
from lapidist.calls import fake_tensors
from lapidist.calls.operation import epilogue_checked
from lapidist.calls.torch_epilogues import delivered, finished, type_of_sums, with_operands
from lapidist.epilogues.steps import TILE
from lapidist.epilogues.tracing import BoundEpilogue
from lapidist.frameworks.torch_autocast import in_autocast
from lapidist.torch import operators
from lapidist.torch.dispatch_state import is_direct, is_recorded


def is_separate(bound: BoundEpilogue, *tensors: Any) -> bool:
    """Whether torch needs the product before the function, or a gradient of an operand."""
    operands = (*tensors, *bound.values.values())
    return not is_direct(*operands) or is_recorded(operands)


def matmul(a: Any, b: Any, epilogue: Any, out_dtype: Any, precision: Any) -> Any:
    bound = epilogue_checked(epilogue)
    assert bound is not None
    a, b = in_autocast(a, b)
    if not is_separate(bound, a, b):
        return api.matmul(a, b, out_dtype=out_dtype, precision=precision, epilogue=bound)
    dtype = fake_tensors.of_matmul(a, b, out_dtype, precision, bound).dtype
    row, column = a.ndim == 1, b.ndim == 1
    bound = with_operands(bound, {TILE: partial(fake_tensors.within, row=row, column=column)})
    a, b = (a.unsqueeze(0) if row else a), (b.unsqueeze(1) if column else b)
    sums = operators.matmul(a, b, type_of_sums(a, b), precision)
    return finished(bound, sums, dtype, row, column)


def gemm(
    a: Any,
    b: Any,
    c: Any,
    epilogue: Any,
    how: dict[str, Any],
    out_dtype: Any,
    precision: Any,
    row: bool = False,
) -> Any:
    """`how`: alpha, beta, trans_a, trans_b. `row`: a is a vector of the caller's, as one row."""
    bound = epilogue_checked(epilogue)
    assert bound is not None
    a, b, c = in_autocast(a, b, c)
    if row:
        bound = with_operands(bound, {TILE: fake_tensors.as_rows})
    options = {**how, "precision": precision}
    if not is_separate(bound, a, b, c):
        product = api.gemm(a, b, c, **options, out_dtype=out_dtype, epilogue=bound)
        results = product if isinstance(product, tuple) else (product,)
        return delivered(bound, results, row, False)
    if torch.compiler.is_compiling():  # symbols for numbers: when it runs, the operator checks these
        options |= {"alpha": 1.0, "beta": 1.0 if how["beta"] else 0.0}
    dtype = fake_tensors.of_gemm(a, b, c, **options, out_dtype=out_dtype, epilogue=bound).dtype
    kind = type_of_sums(a, b)
    sums = operators.gemm(a, b, None if c is None else c.to(kind), *how.values(), kind, precision)
    return finished(bound, sums, dtype, row)


def linear(input: Any, weight: Any, bias: Any, epilogue: Any, out_dtype: Any, precision: Any) -> Any:
    """linear with an epilogue; the sums that the function gets have the bias."""
    how = {"alpha": 1.0, "beta": 0.0 if bias is None else 1.0, "trans_a": False, "trans_b": True}
    return gemm(
        fake_tensors.as_rows(input), weight, bias, epilogue, how, out_dtype, precision, input.ndim == 1
    )
