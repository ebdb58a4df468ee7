"""Layers of few bits with an activation, a residual or another function, in the launch of the product unless
torch must see between them."""

from __future__ import annotations

from typing import Any

import torch

import lapidist.quantised as quantised
from lapidist.calls import fake_tensors
from lapidist.calls.fake_tensors import in_rows
from lapidist.calls.operation import epilogue_checked
from lapidist.calls.torch_epilogues import finished, with_operands
from lapidist.epilogues.layer_activations import ENDINGS, require_activation, require_epilogue_alone
from lapidist.epilogues.ready_made import READY
from lapidist.epilogues.steps import TILE
from lapidist.frameworks.torch_autocast import in_autocast
from lapidist.quantised.bound_product import require_bias_alone
from lapidist.quantised.packed_weight import PackedWeight
from lapidist.quantised.product import require_weight
from lapidist.quantised.row_norms import normalised, require_epsilon
from lapidist.torch import few_bits, fused_epilogues, mlp
from lapidist.torch.activations import ACTIVATIONS, added, require_residual
from lapidist.torch.dispatch_state import is_direct, is_recorded


def normed(input: Any, weight: Any, addends: tuple[Any, ...], epsilon: Any) -> tuple[Any, float | None]:
    """The input and the epsilon of its norm, for a launch that has it; or what torch makes of both."""
    number = require_epsilon(epsilon)
    few_bits.require_tensor("input", input)
    if isinstance(weight, PackedWeight) and is_direct(input, *addends) and not is_recorded((input, *addends)):
        return input, number
    (input,) = in_autocast(input)
    return normalised(input, number), None


def linear(
    input: Any,
    weight: PackedWeight,
    bias: Any,
    activation: Any,
    residual: Any,
    epilogue: Any = None,
    norm_eps: float | None = None,
) -> Any:
    """input @ weight + bias, and what follows it. With a norm, torch need not see it."""
    require_weight(weight)
    few_bits.require_tensor("input", input)
    if epilogue is not None:
        require_epilogue_alone(activation=activation, residual=residual)
        require_bias_alone(bias)
        return with_epilogue(input, weight, epilogue, norm_eps)
    if bias is not None:
        few_bits.require_tensor("bias", bias)
    input, bias = in_autocast(input, bias)
    if activation is not None:
        require_activation(activation)
    if residual is not None:
        require_residual(residual, input, weight.shape[::-1])
    operands = input, bias, residual
    ends, direct = not activation is residual is None, is_direct(*operands)
    if not ends and norm_eps is not None:
        return quantised.matmul(input, weight, bias, norm_eps=norm_eps)
    if not ends or not direct or (activation is None and is_recorded(operands)):
        hidden = few_bits.linear(input, weight, bias)
        return added(hidden if activation is None else ACTIVATIONS[activation](hidden), residual)
    rows, addend = in_rows(input), None if residual is None else in_rows(residual)
    if is_recorded(operands):
        hidden, _ = Ended.apply(few_bits.in_order(rows, weight), bias, addend, weight.in_order, activation)
    else:
        hidden = in_one_launch(rows, weight, activation, False, norm_eps, bias=bias, residual=addend)
    return hidden.reshape(*input.shape[:-1], weight.shape[1])


def of_bytes(
    input: Any, weight: PackedWeight, scale_a: Any, bias: Any, activation: str | None, out_dtype: Any
) -> Any:
    """The layer of an input in 8 bits, whose rows have factors."""
    require_weight(weight)
    if activation is not None:
        require_activation(activation)
    hidden = few_bits.scaled(input, weight, scale_a, bias, out_dtype)
    return hidden if activation is None else ACTIVATIONS[activation](hidden)


def in_one_launch(
    rows: Any,
    weight: PackedWeight,
    activation: str | None,
    keeps: bool,
    norm_eps: float | None = None,
    **operands: Any,
) -> Any:
    """`operands` of the epilogue may be None."""
    present = {name: value for name, value in operands.items() if value is not None}
    after = READY["_".join(present)] if activation is None else ENDINGS[activation, keeps][tuple(present)]
    return quantised.matmul(rows, weight, epilogue=after(**present), norm_eps=norm_eps)


class Ended(torch.autograd.Function):  # type: ignore[misc]
    """One launch, which stores the activation's argument, too: a result, by which gradients that are
    differentiated again have gradients.
    """

    @staticmethod
    def forward(ctx: Any, rows: Any, bias: Any, residual: Any, weight: PackedWeight, activation: str) -> Any:
        tensors = (None if tensor is None else tensor.detach() for tensor in (bias, residual))
        operands = dict(zip(("bias", "residual"), tensors, strict=True))
        hidden, before = in_one_launch(rows.detach(), weight, activation, True, **operands)
        ctx.save_for_backward(before)
        ctx.set_materialize_grads(False)
        ctx.weight, ctx.activation = weight, activation
        return hidden, before

    @staticmethod
    def backward(ctx: Any, of_hidden: Any, of_before: Any) -> Any:
        needs_rows, needs_bias, needs_residual, *_ = ctx.needs_input_grad
        g = mlp.slope(ctx, of_hidden, of_before, *ctx.saved_tensors)
        return (
            None if g is None or not needs_rows else few_bits.gradient_of_x(g, ctx.weight),
            None if g is None or not needs_bias else g.sum(0),
            of_hidden if needs_residual else None,
            None,
            None,
        )


def with_epilogue(input: Any, weight: PackedWeight, epilogue: Any, norm_eps: float | None) -> Any:
    """A function of sums; where torch must see them, they are rounded to the input's type before it."""
    bound = epilogue_checked(epilogue)
    assert bound is not None
    (input,) = in_autocast(input)
    if not fused_epilogues.is_separate(bound, input):
        return quantised.matmul(input, weight, epilogue=bound, norm_eps=norm_eps)
    input = input if norm_eps is None else normalised(input, norm_eps)
    row = input.ndim == 1
    if row:
        bound = with_operands(bound, {TILE: fake_tensors.as_rows})
    sums = few_bits.linear(input.unsqueeze(0) if row else input, weight).float()
    numbers = input.new_empty(()).expand(weight.shape)  # their shape and type alone
    dtype = fake_tensors.of_matmul(input, numbers, epilogue=bound).dtype
    return finished(bound, sums, dtype, row)
