"""torch.ops.lapidist.few_bits: x times a weight of few bits, whose arrays and layout are arguments."""

from __future__ import annotations

from typing import Any

import torch

from lapidist.errors import DTypeError
from lapidist.quantised import product as products
from lapidist.quantised.packed_weight import PackedWeight, of_layout
from lapidist.torch.autocast import in_autocast
from lapidist.torch.fake_tensors import outline
from lapidist.torch.operators import Operator

WEIGHT = "Tensor codes, Tensor scales, Tensor? zeros, int[] layout"


def linear(x: Any, weight: PackedWeight, bias: Any = None) -> Any:
    """x @ weight + bias, with gradients to x and to the bias; under torch.compile a node of the graph."""
    if not isinstance(x, torch.Tensor):
        raise DTypeError(
            f"x: must be a torch.Tensor; got {type(x).__name__}. Pass it through torch.as_tensor"
        )
    x, bias = in_autocast(x, bias)
    return few_bits(x, weight.codes, weight.scales, weight.zeros, weight.layout, bias)


def run_product(x: Any, codes: Any, scales: Any, zeros: Any, layout: list[int], bias: Any = None) -> Any:
    weight = of_layout(layout, codes, scales, zeros)
    return products.product(x.detach(), weight, None if bias is None else bias.detach())


def run_back(gradient: Any, codes: Any, scales: Any, zeros: Any, layout: list[int]) -> Any:
    return products.gradient_to_x(gradient.contiguous(), of_layout(layout, codes, scales, zeros))


def fake_product(x: Any, codes: Any, scales: Any, zeros: Any, layout: list[int], bias: Any = None) -> Any:
    weight, left = of_layout(layout, codes, scales, zeros), outline(x, "x")
    products.require_activations(left, layout[0], [outline(codes, "codes")])
    if bias is not None:
        products.require_bias(outline(bias, "bias"), left, weight)
    return x.new_empty((*x.shape[:-1], layout[1]))


def fake_back(gradient: Any, codes: Any, scales: Any, zeros: Any, layout: list[int]) -> Any:
    return gradient.new_empty((*gradient.shape[:-1], layout[0]))


def keep(ctx: Any, inputs: Any, output: Any) -> None:
    _, codes, scales, zeros, ctx.layout, _ = inputs
    ctx.save_for_backward(codes, scales, zeros)


def back(ctx: Any, gradient: Any) -> tuple[Any, ...]:
    codes, scales, zeros = ctx.saved_tensors
    needs_x, needs_bias = ctx.needs_input_grad[0], ctx.needs_input_grad[5]
    of_x = few_bits_back.op(gradient, codes, scales, zeros, ctx.layout) if needs_x else None
    of_bias = gradient.reshape(-1, gradient.shape[-1]).sum(0) if needs_bias else None
    return of_x, None, None, None, None, of_bias


few_bits = Operator(f"few_bits(Tensor x, {WEIGHT}, Tensor? bias=None) -> Tensor", run_product, fake_product)
few_bits_back = Operator(f"few_bits_back(Tensor gradient, {WEIGHT}) -> Tensor", run_back, fake_back)
few_bits.record(keep, back)
