"""Weights and activations of layers as 8-bit floats with factors.

A factor is the largest magnitude of its part over the largest number of the type. "rows": one for each row of
an activation and of a weight; "blocks": one for 1 x 128 of an activation and 128 x 128 of a weight."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch

from lapidist.calls.fake_tensors import in_rows
from lapidist.dtypes import IEEE
from lapidist.errors import ArgumentError, DTypeError, shown
from lapidist.problems.scaling import K_BLOCK
from lapidist.torch import operators
from lapidist.torch.gradients import gradient_of_b, gradient_of_input
from lapidist.torch.invariant_precision import with_invariance

Factors = Literal["rows", "blocks"]
KINDS = ("rows", "blocks")
DTYPES = (torch.float8_e4m3fn, torch.float8_e5m2)
LEAST = 2.0**-100  # of a factor: what is zero stays zero


class Quantised(NamedTuple):
    """A matrix of k columns, and the factors of its rows."""

    values: Any
    factors: Any

    def renewed(self, other: Quantised) -> Quantised:
        """Copy another one's numbers into these tensors."""
        with torch.inference_mode(self.values.is_inference()):
            for target, source in zip(self, other, strict=True):
                target.copy_(source)
        return self


def fits(one: Quantised, other: Quantised) -> bool:
    """Whether numbers of one can be copied into the other."""
    pairs = list(zip(one, other, strict=True))
    return all((a.shape, a.dtype, a.device) == (b.shape, b.dtype, b.device) for a, b in pairs)


def quantised(rows: Any, dtype: Any, down: int, along: int | None) -> Quantised:
    """A matrix in 8 bits, with a factor for each part of `down` rows and `along` columns (None: all)."""
    m, k = rows.shape
    along = along or max(k, 1)
    padded = torch.nn.functional.pad(rows.float(), (0, -k % along, 0, -m % down))
    parts = padded.unflatten(1, (-1, along)).unflatten(0, (-1, down))
    most = torch.finfo(dtype).max
    factors = (parts.abs().amax((1, 3), keepdim=True) / most).clamp(min=LEAST)
    values = (parts / factors).clamp(-most, most).flatten(2).flatten(0, 1)[:m, :k]
    return Quantised(values.to(dtype), factors[:, 0, :, 0])


def of_activation(rows: Any, dtype: Any, kind: Factors) -> Quantised:
    return quantised(rows, dtype, 1, K_BLOCK if kind == "blocks" else None)


def of_weight(weight: Any, dtype: Any, kind: Factors) -> Quantised:
    """A quantised weight. In a product it is transposed, so factors of its rows become factors of columns."""
    parts = (K_BLOCK, K_BLOCK) if kind == "blocks" else (1, None)
    values, factors = quantised(weight.detach(), dtype, *parts)
    return Quantised(values.contiguous(), factors.contiguous())


def product(input: Any, weight: Quantised, bias: Any, kind: Factors, invariant: bool | None = None) -> Any:
    """linear, in input's type."""
    rows = of_activation(in_rows(input), weight.values.dtype, kind)
    dtype = None if input.dtype is torch.float32 else input.dtype
    factors = rows.factors, weight.factors.t()
    result = operators.scaled(rows.values, weight.values.t(), *factors, bias, dtype, None, invariant)
    return result.view(*input.shape[:-1], len(weight.values))


class Straight(torch.autograd.Function):  # type: ignore[misc]
    """A product in 8 bits, with the gradients of a product that rounds nothing."""

    @staticmethod
    def forward(
        ctx: Any,
        input: Any,
        weight: Any,
        bias: Any,
        values: Any,
        factors: Any,
        kind: Any,
        invariant: bool | None = None,
    ) -> Any:
        ctx.save_for_backward(input, weight)
        ctx.has_bias = bias is not None
        ctx.precision = with_invariance(IEEE, invariant)
        return product(input, Quantised(values, factors), bias, kind, invariant)

    @staticmethod
    def backward(ctx: Any, g: Any) -> tuple[Any, ...]:
        input, weight = ctx.saved_tensors
        how = 1.0, False, True, ctx.precision
        of_input = gradient_of_input(g, weight, input.shape, how) if ctx.needs_input_grad[0] else None
        rows, rows_of_g = in_rows(input), in_rows(g)
        of_weight = gradient_of_b(rows_of_g, rows, weight.shape, how) if ctx.needs_input_grad[1] else None
        of_bias = rows_of_g.sum(0) if ctx.has_bias else None
        return of_input, of_weight, of_bias, None, None, None, None


def require_kind(dtype: Any, factors: str) -> None:
    if dtype not in DTYPES:
        raise DTypeError(
            f"dtype: must be torch.float8_e4m3fn or torch.float8_e5m2; got {dtype}. Leave it out to"
            " multiply in the layers' own type"
        )
    if factors not in KINDS:
        raise ArgumentError(
            f'factors: must be "rows" or "blocks"; got {shown(factors)}. Leave it out for "rows"'
        )
