"""Epilogues of products over several ranks, and results in the shape of the operand that was split.

The function of a gather is in the product's launch, that of a sum comes after the exchange. Where autograd or
a compiler must see it, torch computes it of the sums. Operands are matrices with the rows of `in_rows`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from lapidist import api
from lapidist.calls import fake_tensors
from lapidist.calls.operation import epilogue_checked
from lapidist.calls.torch_epilogues import by_torch, type_of_sums, with_operands
from lapidist.distributed.compiled_products import is_compiling
from lapidist.distributed.product_gradients import recorded
from lapidist.distributed.row_products import in_rows, in_shape
from lapidist.distributed.unequal_parts import first_of
from lapidist.epilogues.passes import REDUCTIONS
from lapidist.epilogues.passes import ROW as OF_ROWS
from lapidist.epilogues.steps import COLUMN, TILE, Result
from lapidist.epilogues.tracing import BoundEpilogue


def in_order(epilogue: Any, dim: int, leading: Sequence[int]) -> BoundEpilogue | None:
    """A caller's epilogue. Operands may have the result's dimensions, of which rows run over `leading`."""
    bound = epilogue_checked(epilogue)
    if bound is None or len(leading) == 1:
        return bound

    def tile(value: Any) -> Any:
        return in_rows(value, dim, "epilogue")[0] if value.ndim > len(leading) else value

    def column(value: Any) -> Any:
        return value.movedim(dim, 0).reshape(-1) if value.ndim == len(leading) else value

    return with_operands(bound, {TILE: tile, COLUMN: column})


def tensors_of(bounds: Iterable[BoundEpilogue | None]) -> list[Any]:
    """The operands of epilogues."""
    values = [value for bound in bounds if bound is not None for value in bound.values.values()]
    return [value for value in values if isinstance(value, torch.Tensor)]


def shaped(
    values: Any, bound: BoundEpilogue | None, leading: tuple[int, ...], dim: int, extent: int | None = None
) -> Any:
    """A product, or the results of an epilogue, whose rows are where they were in the operand."""
    if bound is None:
        return first_of(in_shape(values, leading, dim), dim, extent)
    results = bound.function.results
    several = len(results) > 1
    found = [
        first_of(in_shape(value, leading, dim), dim, extent) if has_rows(result) else value
        for result, value in zip(results, values if several else (values,), strict=True)
    ]
    return tuple(found) if several else found[0]


def has_rows(result: Result) -> bool:
    """Whether a result has values for each row."""
    return result.then not in REDUCTIONS or REDUCTIONS[result.then].over == OF_ROWS


def without_k(rows: Any, shape: tuple[int, int], dtype: Any) -> tuple[Any, Any]:
    """Operands of k = 0, where `rows` are, whose product has this shape and type."""
    operands = torch.int8 if dtype == torch.int32 else dtype
    return rows.new_empty((shape[0], 0), dtype=operands), rows.new_empty((0, shape[1]), dtype=operands)


def require_follows(bound: BoundEpilogue | None, rows: Any, shape: tuple[int, int], dtype: Any) -> None:
    """Refuse a function that cannot follow sums of this shape and type, before `rows` are multiplied."""
    if bound is not None:
        fake_tensors.of_gemm(*without_k(rows, shape, dtype), epilogue=bound)


def followed(total: Any, bound: BoundEpilogue | None, dim: int, dtype: Any) -> Any:
    """The function of sums in the shape of the operand, and its results. `dtype`: D's."""
    if bound is None:
        return in_type(total, dtype)
    rows, leading = in_rows(total, dim, "a")
    if is_compiling() or recorded(rows, *tensors_of([bound])):
        require_follows(bound, rows, tuple(rows.shape), rows.dtype)
        values = by_torch(bound, rows.to(type_of_sums(rows, rows)), dtype)
    else:
        nothing = without_k(rows, tuple(rows.shape), rows.dtype)
        product = api.gemm(*nothing, rows, beta=1.0, epilogue=bound)
        results = product if isinstance(product, tuple) else (product,)
        values = [
            value if result.dtype or result.then else in_type(value, dtype)
            for result, value in zip(bound.function.results, results, strict=True)
        ]
    return shaped(values if len(values) > 1 else values[0], bound, leading, dim)


def in_type(tensor: Any, dtype: Any) -> Any:
    return tensor if tensor.dtype == dtype else tensor.to(dtype)
