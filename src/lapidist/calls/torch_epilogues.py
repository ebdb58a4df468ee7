"""The function of an epilogue, computed by torch of sums, with gradients and in compilers' graphs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from lapidist.calls import fake_tensors
from lapidist.calls.epilogue_operands import fits_batch
from lapidist.dtypes import accumulators_of, number_type
from lapidist.epilogues import passes
from lapidist.epilogues.interpreter import Namespace, evaluate, stored
from lapidist.epilogues.philox import LOW, WORD, philox
from lapidist.epilogues.steps import ROW, SCALAR, TILE, Result
from lapidist.epilogues.tracing import BoundEpilogue
from lapidist.frameworks.new_arrays import torch_dtype


def delivered(bound: BoundEpilogue, values: Iterable[Any], row: bool, column: bool) -> Any:
    """The results without the dimensions that vectors were given: one, or a tuple."""
    pairs = zip(bound.function.results, values, strict=True)
    results = tuple(without(value, result, row, column) for result, value in pairs)
    return results if len(results) > 1 else results[0]


def type_of_sums(a: Any, b: Any) -> Any:
    """In which functions get the sums of a product."""
    if a.is_complex() or b.is_complex():
        return a.dtype if a.is_complex() else b.dtype
    return torch_dtype(number_type(accumulators_of(str(a.dtype)[6:])[0]).name)


# ---- the function by torch ----


def gelu(x: Any) -> Any:
    """gelu with its limits 0 and x at the infinities, where torch's is NaN."""
    bounded = torch.isinf(x)
    return torch.where(bounded, TORCH.maximum(x, 0), torch.nn.functional.gelu(torch.where(bounded, 0, x)))


class Torch(Namespace):
    """torch. Integers are of int64: their products wrap around, and have the bits of uint64."""

    def __init__(self) -> None:
        super().__init__(torch, equal=torch.eq, rint=torch.round, gelu=gelu)

    def constant(self, number: complex, like: Any) -> Any:
        return torch.tensor(number, dtype=like.dtype)

    def operand(self, value: Any, like: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.to(like.dtype)
        return self.constant(complex(value) if like.is_complex() else float(value), like)

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
    """The lower and the upper word."""
    return number & LOW, number >> WORD & LOW


TORCH = Torch()


# ---- operands and results of the function ----


def with_operands(bound: BoundEpilogue, changes: Mapping[str, Callable[[Any], Any]]) -> BoundEpilogue:
    """The epilogue with its tensors changed, those of the kinds that `changes` names."""
    values = dict(bound.values)
    for name, kind in bound.function.parameters:
        if kind in changes and isinstance(values[name], torch.Tensor):
            values[name] = changes[kind](values[name])
    return bound._replace(values=values)


def finished(bound: BoundEpilogue, sums: Any, dtype: Any, row: bool = False, column: bool = False) -> Any:
    """The results of the function. `row`, `column`: dimensions of the sums that vectors were given."""
    return delivered(bound, by_torch(bound, sums, dtype), row, column)


def by_torch(bound: BoundEpilogue, sums: Any, dtype: Any) -> list[Any]:
    """The results as torch computes them. `dtype`: D's, if the function names none."""
    function = bound.function
    operands = {
        parameter.name: aligned(parameter.kind, bound.values[parameter.name], sums)
        for parameter in function.parameters
    }
    pairs = zip(function.results, evaluate(function, sums, operands, TORCH), strict=True)
    return [
        stored(values, result.dtype or str(sums.dtype if result.then else dtype)[6:], TORCH)
        for result, values in pairs
    ]


def aligned(kind: str, value: Any, sums: Any) -> Any:
    """An operand with the dimensions in which it broadcasts to the sums."""
    if not isinstance(value, torch.Tensor) or kind == TILE:
        return value
    if kind == SCALAR:
        return value.reshape(())
    fits = fits_batch(value.shape[:-1], sums.shape[:-2])
    if kind == ROW:
        return value.unsqueeze(-2) if fits else value
    return value.unsqueeze(-1) if fits and value.shape[-1] == sums.shape[-2] else value


def without(values: Any, result: Result, row: bool, column: bool) -> Any:
    """A result without the dimensions that vectors were given."""
    if result.then not in passes.REDUCTIONS:
        return fake_tensors.without(values, row=row, column=column)
    drops = {passes.ROW: row, passes.COLUMN: column}.get(passes.REDUCTIONS[result.then].over)
    return values.squeeze(-1) if drops else values
