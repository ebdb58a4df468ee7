"""Gradients of weights that are added to a tensor of the caller's, in a wider type than the weights'."""

from __future__ import annotations

from typing import Any

import torch

from lapidist.errors import ShapeError
from lapidist.torch import operators
from lapidist.torch.fake_tensors import in_rows
from lapidist.torch.gradients import gradient_of_input


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
                operators.update(ctx.into, rows_of_g, rows, 1.0, 1.0, True, False, ctx.precision)
        return of_input, None, of_bias, None, None, None


def accumulated(input: Any, weight: Any, bias: Any, into: Any, out_dtype: Any, precision: Any) -> Any:
    """linear, whose backward pass adds the weight's gradient to `into`."""
    if into.shape != weight.shape or into.requires_grad or weight.ndim != 2:
        raise ShapeError(
            f"into: must be a tensor of weight's two dimensions, without a gradient of its own; got"
            f" {tuple(into.shape)} for {tuple(weight.shape)}. Make it with torch.zeros_like(weight,"
            " dtype=torch.float32)"
        )
    return Accumulated.apply(input, weight, bias, into, out_dtype, precision)
