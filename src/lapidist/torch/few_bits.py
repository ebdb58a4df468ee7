"""torch.ops.lapidist.few_bits, few_bits_scaled, few_bits_grouped and few_bits_routed: x times weights of few
bits, whose arrays and layout are arguments.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from lapidist.calls import fake_tensors
from lapidist.calls import grouped as grouped_calls
from lapidist.calls.factor_operands import require_number
from lapidist.calls.fake_tensors import outline
from lapidist.calls.operation import is_array
from lapidist.epilogues.ready_made import READY
from lapidist.errors import ArgumentError, DTypeError, shown
from lapidist.frameworks.new_arrays import torch_dtype
from lapidist.frameworks.torch_autocast import in_autocast
from lapidist.quantised import product as products
from lapidist.quantised.activations import OF_16_BITS, activations_of
from lapidist.quantised.packed_weight import PackedExperts, PackedWeight, columns_in_order, of_layout
from lapidist.torch.batches import map_rows, one_by_one
from lapidist.torch.operators import Operator

WEIGHT = "Tensor codes, Tensor scales, Tensor? zeros, int[] layout"


def linear(x: Any, weight: PackedWeight, bias: Any = None) -> Any:
    """x @ weight + bias, with gradients to x and to the bias; under torch.compile a node of the graph."""
    require_tensor("x", x)
    x, bias = in_autocast(x, bias)
    x = in_order(x, weight)
    return few_bits(x, weight.codes, weight.scales, weight.zeros, weight.layout, bias)


def scaled(x: Any, weight: PackedWeight, scale_a: Any, bias: Any = None, out_dtype: Any = None) -> Any:
    """The same of x in e4m3 or int8, whose rows have factors; x and its factors have no gradient."""
    require_tensor("x", x)
    factors, number = (scale_a, None) if is_array(scale_a) else (None, scale_a)
    if factors is not None:
        require_tensor("scale_a", factors)
    elif number is not None:
        number = require_number("scale_a", number)
    x = in_order(x, weight)
    return few_bits_scaled(
        x, factors, number, weight.codes, weight.scales, weight.zeros, weight.layout, bias, out_dtype
    )


def grouped(x: Any, weight: PackedWeight, offsets: Any, expected_rows: int | None = None) -> Any:
    """Rows of groups, each by the weight of its group, with a gradient to x. Rows behind the last group are
    not set, as in lapidist.torch.grouped.
    """
    require_tensor("x", x)
    require_tensor("offsets", offsets)
    if not isinstance(weight, PackedExperts):
        raise ArgumentError(
            f"b: must be weights of all groups, PackedExperts; got {shown(weight)}. Put them together with"
            " lapidist.quantised.stack"
        )
    (x,) = in_autocast(x)
    arrays = weight.codes, weight.scales, weight.zeros
    return few_bits_grouped(x, *arrays, weight.layout, offsets, expected_rows)


def routed(
    x: Any,
    weight: PackedWeight,
    offsets: Any,
    gather_a: Any = None,
    scatter_d: Any = None,
    factors: Any = None,
) -> Any:
    """The same without gradients, of rows of x by their indices. Results go to rows by their indices, each
    row times its factor.
    """
    (x,) = in_autocast(x)
    arrays = weight.codes, weight.scales, weight.zeros
    return few_bits_routed(x, *arrays, weight.layout, offsets, gather_a, scatter_d, factors)


def in_order(x: Any, weight: PackedWeight) -> Any:
    """x with the columns that steps of the weight multiply; torch records and compiles it."""
    return x if weight.order is None else columns_in_order(x, weight.order)


def require_tensor(name: str, value: Any) -> None:
    if not isinstance(value, torch.Tensor):
        raise DTypeError(
            f"{name}: must be a torch.Tensor; got {type(value).__name__}. Pass it through torch.as_tensor"
        )


# ---- one weight ----


def run_product(x: Any, codes: Any, scales: Any, zeros: Any, layout: list[int], bias: Any = None) -> Any:
    weight = of_layout(layout, codes, scales, zeros)
    return products.product(x.detach(), weight, None if bias is None else bias.detach())


def run_back(gradient: Any, codes: Any, scales: Any, zeros: Any, layout: list[int]) -> Any:
    return products.gradient_to_x(gradient.contiguous(), of_layout(layout, codes, scales, zeros))


def fake_product(x: Any, codes: Any, scales: Any, zeros: Any, layout: list[int], bias: Any = None) -> Any:
    weight, left = of_layout(layout, codes, scales, zeros), outline(x, "x")
    products.require_activations(left, layout[0], [outline(codes, "codes")], OF_16_BITS)
    if bias is not None:
        products.require_bias(outline(bias, "bias"), left, weight, left.dtype)
    return x.new_empty((*x.shape[:-1], layout[1]))


def fake_back(gradient: Any, codes: Any, scales: Any, zeros: Any, layout: list[int]) -> Any:
    return gradient.new_empty((*gradient.shape[:-1], layout[0]))


def keep(ctx: Any, inputs: Any, output: Any) -> None:
    """Of the product, and of the one that is its gradient."""
    _, codes, scales, zeros, ctx.layout, *_ = inputs
    ctx.save_for_backward(codes, scales, zeros)
    ctx.save_for_forward(codes, scales, zeros)
    ctx.shape = output.shape


def back(ctx: Any, gradient: Any) -> tuple[Any, ...]:
    codes, scales, zeros = ctx.saved_tensors
    needs_x, needs_bias = ctx.needs_input_grad[0], ctx.needs_input_grad[5]
    of_x = few_bits_back.op(gradient, codes, scales, zeros, ctx.layout) if needs_x else None
    of_bias = gradient.reshape(-1, gradient.shape[-1]).sum(0) if needs_bias else None
    return of_x, None, None, None, None, of_bias


def forth(ctx: Any, of_x: Any, *of_operands: Any) -> Any:
    of_bias = of_operands[4]
    if of_x is None:
        return of_bias.expand(ctx.shape)
    return few_bits.op(of_x, *ctx.saved_tensors, ctx.layout, of_bias)


def back_of_gradient(ctx: Any, gradient: Any) -> tuple[Any, ...]:
    return few_bits.op(gradient, *ctx.saved_tensors, ctx.layout), None, None, None, None


def forth_of_gradient(ctx: Any, of_gradient: Any, *_: None) -> Any:
    return few_bits_back.op(of_gradient, *ctx.saved_tensors, ctx.layout)


def gradient_of_x(gradient: Any, weight: PackedWeight) -> Any:
    """Of an x in the order of the weight's steps."""
    return few_bits_back.op(gradient, weight.codes, weight.scales, weight.zeros, weight.layout)


few_bits = Operator(f"few_bits(Tensor x, {WEIGHT}, Tensor? bias=None) -> Tensor", run_product, fake_product)
few_bits_back = Operator(f"few_bits_back(Tensor gradient, {WEIGHT}) -> Tensor", run_back, fake_back)
few_bits.record(keep, back, forth)
few_bits_back.record(keep, back_of_gradient, forth_of_gradient)
for product in (few_bits, few_bits_back):
    product.map(partial(map_rows, product.op))


# ---- rows of 8 bits ----


def run_scaled(
    x: Any,
    factors: Any,
    number: float | None,
    codes: Any,
    scales: Any,
    zeros: Any,
    layout: list[int],
    bias: Any = None,
    out_dtype: Any = None,
) -> Any:
    weight = of_layout(layout, codes, scales, zeros)
    added, scale_a = (None if tensor is None else tensor.detach() for tensor in (bias, factors))
    scale_a = number if scale_a is None else scale_a
    return products.product(x.detach(), weight, added, scale_a=scale_a, out_dtype=out_dtype)


def fake_scaled(
    x: Any,
    factors: Any,
    number: float | None,
    codes: Any,
    scales: Any,
    zeros: Any,
    layout: list[int],
    bias: Any = None,
    out_dtype: Any = None,
) -> Any:
    weight, left = of_layout(layout, codes, scales, zeros), outline(x, "x")
    products.require_activations(left, layout[0], [outline(codes, "codes")])
    scale_a = number if factors is None else outline(factors, "scale_a")
    dtype = activations_of(left, weight, scale_a, out_dtype, None).result
    if bias is not None:
        products.require_bias(outline(bias, "bias"), left, weight, dtype)
    return x.new_empty((*x.shape[:-1], layout[1]), dtype=torch_dtype(dtype))


def keep_scaled(ctx: Any, inputs: Any, output: Any) -> None:
    """Only the bias has a gradient, which needs nothing but that of the result."""


def back_of_scaled(ctx: Any, gradient: Any) -> tuple[Any, ...]:
    of_bias = gradient.reshape(-1, gradient.shape[-1]).sum(0) if ctx.needs_input_grad[7] else None
    return *[None] * 7, of_bias, None


few_bits_scaled = Operator(
    f"few_bits_scaled(Tensor x, Tensor? factors, float? number, {WEIGHT}, Tensor? bias=None,"
    " ScalarType? out_dtype=None) -> Tensor",
    run_scaled,
    fake_scaled,
)
few_bits_scaled.record(keep_scaled, back_of_scaled)


# ---- weights of groups ----


def run_grouped(
    x: Any,
    codes: Any,
    scales: Any,
    zeros: Any,
    layout: list[int],
    offsets: Any,
    expected_rows: int | None = None,
) -> Any:
    weight = of_layout(layout, codes, scales, zeros)
    return grouped_calls.grouped(x.detach(), weight, offsets, expected_rows=expected_rows)


def run_grouped_back(
    gradient: Any,
    codes: Any,
    scales: Any,
    zeros: Any,
    layout: list[int],
    offsets: Any,
    expected_rows: int | None = None,
) -> Any:
    weight: Any = of_layout(layout, codes, scales, zeros)
    return products.gradient_of_groups(gradient.contiguous(), weight, offsets, expected_rows)


def fake_grouped(
    x: Any,
    codes: Any,
    scales: Any,
    zeros: Any,
    layout: list[int],
    offsets: Any,
    expected_rows: int | None = None,
) -> Any:
    products.require_activations(outline(x, "x"), layout[0], [outline(codes, "codes")], OF_16_BITS)
    matrices = x.new_empty((codes.shape[0], *layout[:2]))
    return fake_tensors.of_grouped(x, matrices, offsets, expected_rows=expected_rows)


def fake_grouped_back(
    gradient: Any,
    codes: Any,
    scales: Any,
    zeros: Any,
    layout: list[int],
    offsets: Any,
    expected_rows: int | None = None,
) -> Any:
    return gradient.new_empty((gradient.shape[0], layout[0]))


def keep_groups(ctx: Any, inputs: Any, output: Any) -> None:
    _, codes, scales, zeros, ctx.layout, offsets, ctx.expected_rows = inputs
    ctx.save_for_backward(codes, scales, zeros, offsets)
    ctx.save_for_forward(codes, scales, zeros, offsets)


def of_groups(product: Operator, ctx: Any, rows: Any) -> Any:
    """Other rows of the same groups."""
    *arrays, offsets = ctx.saved_tensors
    return product.op(rows, *arrays, ctx.layout, offsets, ctx.expected_rows)


def record_groups(product: Operator, gradient: Operator) -> None:
    """Each of them is the other's gradient."""

    def back(ctx: Any, rows: Any) -> tuple[Any, ...]:
        return of_groups(gradient, ctx, rows), None, None, None, None, None, None

    def forth(ctx: Any, of_rows: Any, *_: None) -> Any:
        return of_groups(product, ctx, of_rows)

    product.record(keep_groups, back, forth)


GROUPS = "Tensor offsets, int? expected_rows=None"
few_bits_grouped = Operator(
    f"few_bits_grouped(Tensor x, {WEIGHT}, {GROUPS}) -> Tensor", run_grouped, fake_grouped
)
few_bits_grouped_back = Operator(
    f"few_bits_grouped_back(Tensor gradient, {WEIGHT}, {GROUPS}) -> Tensor",
    run_grouped_back,
    fake_grouped_back,
)
record_groups(few_bits_grouped, few_bits_grouped_back)
record_groups(few_bits_grouped_back, few_bits_grouped)
for product in (few_bits_grouped, few_bits_grouped_back):
    product.map(partial(one_by_one, product.op))


# ---- rows of groups by their indices ----


def run_routed(
    x: Any,
    codes: Any,
    scales: Any,
    zeros: Any,
    layout: list[int],
    offsets: Any,
    gather_a: Any = None,
    scatter_d: Any = None,
    factors: Any = None,
) -> Any:
    weight = of_layout(layout, codes, scales, zeros)
    how: dict[str, Any] = {"gather_a": gather_a, "scatter_d": scatter_d}
    if scatter_d is not None:
        how["out"] = x.new_empty(scatter_d.shape[0], layout[1])
    if factors is not None:
        how["epilogue"] = READY["scaled_rows"](factors=factors.detach())
    return grouped_calls.grouped(x.detach(), weight, offsets, **how)


def fake_routed(
    x: Any,
    codes: Any,
    scales: Any,
    zeros: Any,
    layout: list[int],
    offsets: Any,
    gather_a: Any = None,
    scatter_d: Any = None,
    factors: Any = None,
) -> Any:
    products.require_activations(outline(x, "x"), layout[0], [outline(codes, "codes")], OF_16_BITS)
    return x.new_empty(((x if gather_a is None else gather_a).shape[0], layout[1]))


def keep_nothing(ctx: Any, inputs: Any, output: Any) -> None:
    """There is no gradient."""


def back_of_routed(ctx: Any, gradient: Any) -> tuple[Any, ...]:
    raise ArgumentError(
        "x: rows that a product gathers or scatters have no gradient; got one of their results. Gather them"
        " with torch, and call lapidist.torch.grouped"
    )


few_bits_routed = Operator(
    f"few_bits_routed(Tensor x, {WEIGHT}, Tensor offsets, Tensor? gather_a=None, Tensor? scatter_d=None,"
    " Tensor? factors=None) -> Tensor",
    run_routed,
    fake_routed,
)
few_bits_routed.record(keep_nothing, back_of_routed)
