"""Layers with an activation, where gradients are recorded: no launch for the activation in either pass.

    before = input up^T + bias       one launch: hidden, and before
    hidden = activation(before)
    result = hidden down^T + bias    one launch

In the backward pass the product by `down` has an epilogue, which computes the gradient of `before` and the
sum of its columns, the gradient of the first bias. A single layer runs torch's kernel there. A residual that
is added to hidden has hidden's gradient.

hidden and before are results of the functions, though no caller sees them: gradients that are differentiated
again have gradients by both."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from lapidist import api
from lapidist.epilogues.layer_activations import ENDINGS
from lapidist.epilogues.ready_made import READY
from lapidist.torch import gradients, operators
from lapidist.torch.recording import function_of

aten = torch.ops.aten


def slope_of_silu(g: Any, before: Any) -> Any:
    """The gradient before silu, also where it is differentiated again, for which torch's has no gradient."""
    if not torch.is_grad_enabled():
        return aten.silu_backward(g, before)
    share = before.sigmoid()
    return g * share * (1 + before * (1 - share))


# the gradient of `before` from that of hidden
SLOPES: dict[str, Any] = {
    "relu": lambda g, before: aten.threshold_backward(g, before, 0),
    "gelu": aten.gelu_backward,
    "gelu_tanh": partial(aten.gelu_backward, approximate="tanh"),
    "silu": slope_of_silu,
}


def ended(
    input: Any, weight: Any, activation: str, keeps: bool, types: dict[str, Any], **operands: Any
) -> Any:
    """A layer in one launch. `operands` of its epilogue may be None."""
    present = {name: value for name, value in operands.items() if value is not None}
    after = ENDINGS[activation, keeps][tuple(present)](**present)
    return api.gemm(input, weight, trans_b=True, epilogue=after, **types)


def keep(ctx: Any, activation: str, precision: Any, *saved: Any) -> None:
    ctx.save_for_backward(*saved)
    ctx.set_materialize_grads(False)  # None for gradients of hidden and before, unless differentiated again
    ctx.activation, ctx.how = activation, (1.0, False, True, precision)


def slope(ctx: Any, of_hidden: Any, of_before: Any, before: Any) -> Any:
    """The gradient of `before`, by hidden and by itself."""
    through = None if of_hidden is None else SLOPES[ctx.activation](of_hidden, before)
    return gradients.summed(through, of_before)


def of_layer(ctx: Any, g: Any, input: Any, weight: Any, needed: Any) -> tuple[Any, Any, Any]:
    """The gradients of a layer's input, weight and bias; None where not needed."""
    if g is None:
        return None, None, None
    return (
        gradients.gradient_of_a(g, weight, input.shape, ctx.how) if needed[0] else None,
        gradients.gradient_of_b(g, input, weight.shape, ctx.how) if needed[1] else None,
        g.sum(0) if needed[2] else None,
    )


# ---- one layer ----


def layer_forward(
    ctx: Any, input: Any, weight: Any, bias: Any, activation: str, precision: Any, residual: Any
) -> Any:
    types = {"precision": precision}
    hidden, before = ended(input, weight, activation, True, types, bias=bias, residual=residual)
    keep(ctx, activation, precision, input, weight, before)
    return hidden, before


def layer_back(ctx: Any, of_hidden: Any, of_before: Any) -> Any:
    input, weight, before = ctx.saved_tensors
    g = slope(ctx, of_hidden, of_before, before)
    of_residual = of_hidden if ctx.needs_input_grad[-1] else None
    return *of_layer(ctx, g, input, weight, ctx.needs_input_grad), None, None, of_residual


# ---- two layers ----


def layers_forward(
    ctx: Any, input: Any, up: Any, up_bias: Any, down: Any, down_bias: Any, activation: str, precision: Any
) -> Any:
    hidden, before = ended(input, up, activation, True, {"precision": precision}, bias=up_bias)
    keep(ctx, activation, precision, input, up, down, hidden, before)
    return operators.run_linear(hidden, down, down_bias, None, precision), hidden, before


def is_last(g: Any) -> bool:
    """Whether a gradient is not differentiated again, so torch need not see it."""
    return not (g is None or torch.is_grad_enabled() or gradients.stands_for_many(g))


def layers_back(ctx: Any, of_result: Any, of_hidden: Any, of_before: Any) -> Any:
    input, up, down, hidden, before = ctx.saved_tensors
    needed = ctx.needs_input_grad
    if is_last(of_result) and of_hidden is of_before is None:
        after = READY[f"{ctx.activation}_backward"]
        bound = after(mask=hidden) if ctx.activation == "relu" else after(before=before)
        g, columns = api.gemm(of_result, down, epilogue=bound, precision=ctx.how[-1])
        of_up_bias = columns.to(g.dtype) if needed[2] else None
        of_input, of_up, _ = of_layer(ctx, g, input, up, (*needed[:2], False))
    else:
        through, _, _ = of_layer(ctx, of_result, hidden, down, (True, False, False))
        g = slope(ctx, gradients.summed(through, of_hidden), of_before, before)
        of_input, of_up, of_up_bias = of_layer(ctx, g, input, up, needed)
    _, of_down, of_down_bias = of_layer(ctx, of_result, hidden, down, (False, *needed[3:5]))
    return of_input, of_up, of_up_bias, of_down, of_down_bias, None, None


LAYER = function_of(torch.autograd.Function, layer_forward, layer_back)
LAYERS = function_of(torch.autograd.Function, layers_forward, layers_back)
