"""Gradients of weights that are added to a tensor of the caller's, in a wider type than the weights', or to
a tree's sums.
"""

from __future__ import annotations

from typing import Any

import torch

from lapidist.calls.fake_tensors import in_rows
from lapidist.errors import ArgumentError, ShapeError
from lapidist.torch import operators
from lapidist.torch.gradients import by_groups, factors_of_a, factors_of_b, gradient_of_input
from lapidist.torch.invariant_precision import summed_freely
from lapidist.torch.token_tree import TokenTree


class Accumulated(torch.autograd.Function):  # type: ignore[misc]
    """linear, whose weight gradient is added to another tensor."""

    @staticmethod
    def forward(
        ctx: Any, input: Any, weight: Any, bias: Any, into: Any, out_dtype: Any, precision: Any
    ) -> Any:
        ctx.save_for_backward(input, weight)
        ctx.into, ctx.precision = into, precision
        ctx.bias_shape = None if bias is None else bias.shape
        return operators.linear(input, weight, bias, out_dtype, precision)

    @staticmethod
    def backward(ctx: Any, g: Any) -> tuple[Any, ...]:
        (input, weight), needed = ctx.saved_tensors, ctx.needs_input_grad
        of_bias = g.sum_to_size(ctx.bias_shape) if needed[2] else None
        how = 1.0, False, True, ctx.precision
        of_input = gradient_of_input(g, weight, input.shape, how) if needed[0] else None
        if needed[1]:
            rows_of_g, rows = in_rows(g.to(weight.dtype)), in_rows(input)
            with torch.no_grad():  # a gradient that is differentiated again has numbers here, and no history
                how_summed = True, False, summed_freely(ctx.precision)
                if isinstance(ctx.into, TokenTree):
                    ctx.into.add(rows_of_g, rows, ctx.precision)
                else:
                    operators.update(ctx.into, rows_of_g, rows, 1.0, 1.0, *how_summed)
        return of_input, None, of_bias, None, None, None


class AccumulatedGroups(torch.autograd.Function):  # type: ignore[misc]
    """grouped, whose gradient of b is added to another tensor."""

    @staticmethod
    def forward(
        ctx: Any, a: Any, b: Any, offsets: Any, into: Any, flags: Any, out_dtype: Any, *how: Any
    ) -> Any:
        ctx.save_for_backward(a, b, offsets)
        ctx.into, ctx.flags, ctx.how = into, flags, how
        return operators.grouped(a, b, offsets, *flags, out_dtype, *how)

    @staticmethod
    def backward(ctx: Any, g: Any) -> tuple[Any, ...]:
        a, b, offsets = ctx.saved_tensors
        of_a = None
        if ctx.needs_input_grad[0]:
            first, second, *flags = factors_of_a(g, b, *ctx.flags)
            of_a = by_groups(first, second, offsets, *flags, None, *ctx.how)
        if ctx.needs_input_grad[1]:
            with torch.no_grad():
                first, second, *flags = factors_of_b(g, a, *ctx.flags)
                how = summed_freely(ctx.how[0]), ctx.how[1]
                operators.grouped_update(ctx.into, first, second, offsets, *flags, *how)
        return of_a, None, None, None, None, None, None, None


def require_into(into: Any, weight: Any, name: str, dimensions: int) -> None:
    if isinstance(into, TokenTree):
        raise ArgumentError(
            "into: must be a tensor here; got a TokenTree, which sums gradients of linear's weight. Pass"
            f" torch.zeros_like({name}, dtype=torch.float32)"
        )
    if not isinstance(into, torch.Tensor):
        raise ArgumentError(
            f"into: must be a tensor; got {type(into).__name__}. Make it with torch.zeros_like({name},"
            " dtype=torch.float32)"
        )
    if into.shape != weight.shape or into.requires_grad or weight.ndim != dimensions:
        raise ShapeError(
            f"into: must be a tensor of {name}'s {dimensions} dimensions, without a gradient of its own; got"
            f" {tuple(into.shape)} for {tuple(weight.shape)}. Make it with torch.zeros_like({name},"
            " dtype=torch.float32)"
        )


def accumulated(input: Any, weight: Any, bias: Any, into: Any, out_dtype: Any, precision: Any) -> Any:
    """linear, whose backward pass adds the weight's gradient to `into`."""
    if isinstance(into, TokenTree):
        if torch.compiler.is_compiling():
            raise ArgumentError(
                "into: must be a tensor in a compiled graph; got a TokenTree, which adds in eager mode. Leave"
                " the layer out of torch.compile"
            )
        into.require_leaves(in_rows(input).shape[0])
    else:
        require_into(into, weight, "weight", 2)
    return Accumulated.apply(input, weight, bias, into, out_dtype, precision)


def accumulated_groups(a: Any, b: Any, offsets: Any, into: Any, flags: tuple[bool, bool], *how: Any) -> Any:
    """grouped, whose backward pass adds the gradient of b to `into`. `how`: out_dtype, precision and
    expected_rows.
    """
    require_into(into, b, "b", 3)
    return AccumulatedGroups.apply(a, b, offsets, into, flags, *how)
