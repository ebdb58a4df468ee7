"""Products with an epilogue: one launch where nobody needs the sums; else torch has the function, and with it
its gradients, transforms and compilers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from lapidist import api
from lapidist.calls.epilogue_operands import fits_batch
from lapidist.calls.operation import given_epilogue
from lapidist.dtypes import accumulators_of, number_type
from lapidist.epilogues import passes
from lapidist.epilogues.interpreter import Namespace, evaluate, stored
from lapidist.epilogues.philox import LOW, WORD, philox
from lapidist.epilogues.steps import ROW, SCALAR, TILE, Result
from lapidist.epilogues.tracing import BoundEpilogue
from lapidist.frameworks.new_arrays import torch_dtype
from lapidist.torch import fake_tensors, operators
from lapidist.torch.autocast import in_autocast
from lapidist.torch.dispatch_state import is_plain, is_recorded, is_unobserved


def is_seen(given: BoundEpilogue, *tensors: Any) -> bool:
    """Whether torch needs more than the result: the product before the function, or a gradient of one of its
    operands.
    """
    every = (*tensors, *given.values.values())
    return not is_unobserved() or not all(map(is_plain, every)) or is_recorded(every)


def matmul(a: Any, b: Any, epilogue: Any, out_dtype: Any, precision: Any) -> Any:
    given = given_epilogue(epilogue)
    assert given is not None
    a, b = in_autocast(a, b)
    if not is_seen(given, a, b):
        return api.matmul(a, b, out_dtype=out_dtype, precision=precision, epilogue=given)
    dtype = fake_tensors.of_matmul(a, b, out_dtype, precision, given).dtype
    row, column = a.ndim == 1, b.ndim == 1
    given = with_tiles(given, lambda tile: with_lines(tile, row, column))
    a, b = (a.unsqueeze(0) if row else a), (b.unsqueeze(1) if column else b)
    sums = operators.matmul(a, b, type_of_sums(a), precision)
    return finished(given, sums, dtype, row, column)


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
    """`how`: alpha, beta and what is transposed, in the operator's order. `row`: the caller has no rows."""
    given = given_epilogue(epilogue)
    assert given is not None
    a, b, c = in_autocast(a, b, c)
    if row:
        given = with_tiles(given, lambda tile: tile.unsqueeze(0) if tile.ndim == 1 else tile)
    how = {**how, "precision": precision}
    if not is_seen(given, a, b, c):
        made = api.gemm(a, b, c, **how, out_dtype=out_dtype, epilogue=given)
        found = made if isinstance(made, tuple) else (made,)
        return delivered(
            [without(*each, row, False) for each in zip(given.function.results, found, strict=True)]
        )
    dtype = fake_tensors.of_gemm(a, b, c, **how, out_dtype=out_dtype, epilogue=given).dtype
    kind = type_of_sums(a)
    numbers = how["alpha"], how["beta"], how["trans_a"], how["trans_b"]
    sums = operators.gemm(a, b, None if c is None else c.to(kind), *numbers, kind, precision)
    return finished(given, sums, dtype, row)


def linear(input: Any, weight: Any, bias: Any, epilogue: Any, out_dtype: Any, precision: Any) -> Any:
    """Of a bias, too, the sums have their share before the function."""
    how = {"alpha": 1.0, "beta": 0.0 if bias is None else 1.0, "trans_a": False, "trans_b": True}
    return gemm(
        fake_tensors.as_rows(input), weight, bias, epilogue, how, out_dtype, precision, input.ndim == 1
    )


def with_tiles(given: BoundEpilogue, change: Callable[[Any], Any]) -> BoundEpilogue:
    """Its operands that have a value for each element of D, changed."""
    tiles = {each.name for each in given.function.parameters if each.kind == TILE}
    changed = {
        name: change(value) if name in tiles and isinstance(value, torch.Tensor) else value
        for name, value in given.values.items()
    }
    return given._replace(values=changed) if tiles else given


def with_lines(tile: Any, row: bool, column: bool) -> Any:
    """With the rows and columns that a product of vectors lacks."""
    tile = tile.unsqueeze(-1) if column else tile
    return tile.unsqueeze(-2) if row else tile


def delivered(results: list[Any]) -> Any:
    return tuple(results) if len(results) > 1 else results[0]


def type_of_sums(a: Any) -> Any:
    return torch_dtype(number_type(accumulators_of(str(a.dtype)[6:])[0]).name)


# ---- the function by torch ----


def gelu(x: Any) -> Any:
    """gelu, with its limits 0 and x at the infinities, where torch's is NaN."""
    bounded = torch.isinf(x)
    return torch.where(bounded, TORCH.maximum(x, 0), torch.nn.functional.gelu(torch.where(bounded, 0, x)))


class Torch(Namespace):
    """Whole numbers are of int64: their products wrap around, and have the bits of uint64."""

    def __init__(self) -> None:
        super().__init__(torch, equal=torch.eq, rint=torch.round, gelu=gelu)

    def constant(self, number: float, like: Any) -> Any:
        return torch.tensor(number, dtype=like.dtype)

    def operand(self, value: Any, like: Any) -> Any:
        is_tensor = isinstance(value, torch.Tensor)
        return value.to(like.dtype) if is_tensor else self.constant(float(value), like)

    def seed(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.to(torch.int64)
        return torch.tensor(value - 2**64 if value >= 2**63 else value)

    def positions(self, shape: tuple[int, ...], like: Any) -> Any:
        return torch.arange(math.prod(shape), device=like.device).reshape(shape)

    def first_word(self, seed: Any, position: Any) -> Any:
        (low, high), key = words_of(position), words_of(seed)
        zero = torch.zeros_like(position)
        return philox((low, high, zero, zero), key, lambda word, factor: words_of(word * factor)[::-1])[0]

    def astype(self, values: Any, dtype: Any) -> Any:
        return values.to(torch_dtype(dtype) if isinstance(dtype, str) else dtype)

    def without_gradient(self, values: Any) -> Any:
        return values.detach()

    def sum(self, values: Any, axis: int | None) -> Any:
        return values.flatten().sum(-1) if axis is None else values.sum(axis)

    def max(self, values: Any, axis: int | None, nothing: float) -> Any:
        values, axis = (values.flatten(), -1) if axis is None else (values, axis)
        if not values.shape[axis]:
            return values.new_full(values.sum(axis).shape, nothing)
        return values.amax(axis)

    def pad(self, values: Any, columns: int) -> Any:
        return torch.nn.functional.pad(values, (0, columns))


def words_of(number: Any) -> tuple[Any, Any]:
    """The lower and the upper one."""
    return number & LOW, number >> WORD & LOW


TORCH = Torch()


# ---- operands, and results as the caller has them ----


def finished(given: BoundEpilogue, sums: Any, dtype: Any, row: bool = False, column: bool = False) -> Any:
    """Apply the function to the sums. `row`, `column`: dimensions of D that were added for vectors, and are
    dropped.
    """
    function = given.function
    operands = {each.name: beside(each.kind, given.values[each.name], sums) for each in function.parameters}
    found = []
    for result, values in zip(function.results, evaluate(function, sums, operands, TORCH), strict=True):
        kind = result.dtype or str(sums.dtype if result.then else dtype)[6:]
        found.append(without(result, stored(values, kind, TORCH), row, column))
    return delivered(found)


def beside(kind: str, value: Any, sums: Any) -> Any:
    """An operand of the function, with the dimensions to be broadcast to the sums."""
    if not isinstance(value, torch.Tensor) or kind == TILE:
        return value
    if kind == SCALAR:
        return value.reshape(())
    fits = fits_batch(value.shape[:-1], sums.shape[:-2])
    if kind == ROW:
        return value.unsqueeze(-2) if fits else value
    return value.unsqueeze(-1) if fits and value.shape[-1] == sums.shape[-2] else value


def without(result: Result, made: Any, row: bool, column: bool) -> Any:
    """The result without the dimensions that vectors were given."""
    over = passes.REDUCTIONS[result.then].over if result.then in passes.REDUCTIONS else ""
    if over == passes.ALL:
        return made
    has_row, has_column = over != passes.COLUMN, over != passes.ROW
    if column and has_column:
        made = made.squeeze(-1)
    if row and has_row:
        made = made.squeeze(-2 if has_column and not column else -1)
    return made
