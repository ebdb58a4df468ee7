"""Layers that are split over ranks, in 8 bits. Each rank rounds its own weight, and the activations that it
has, with factors of its own: shards that are gathered travel in 8 bits. Terms of sums travel in the input's
type. Gradients are those of a product that rounds nothing, by the same ways."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch

from lapidist.distributed.chosen_ways import gathered, reduced, scattered
from lapidist.distributed.compiled_products import FUNCTIONS, Kind
from lapidist.distributed.group_facts import group_of
from lapidist.distributed.parallel_products import split_along
from lapidist.distributed.product_gradients import agreeing
from lapidist.distributed.product_options import Options
from lapidist.distributed.row_products import RowProducts, in_rows, in_shape
from lapidist.errors import ArgumentError
from lapidist.torch.eight_bits import Quantised, of_activation, of_weight
from lapidist.torch.layers import state_of


class StraightOverRanks(torch.autograd.Function):  # type: ignore[misc]
    """Products of rows in 8 bits. `how`: the kind, the kind of factors, the group, and options."""

    @staticmethod
    def forward(ctx: Any, rows: Any, weight: Any, bias: Any, values: Any, factors: Any, how: Any) -> Any:
        ctx.save_for_backward(rows, weight, *(() if bias is None else (bias,)))
        ctx.how = how
        kind, of_parts, group, options = how
        quantised = of_activation(rows, values.dtype, of_parts)
        dtype = None if rows.dtype is torch.float32 else rows.dtype
        biases = () if bias is None else (bias,)
        options = replace(options, out_dtype=dtype)
        products = RowProducts([values.t()], options, [factors.t()], biases)
        operands = quantised.values, quantised.factors, products
        if kind == "enter":
            return products.multiply(*operands[:2])[0]
        if kind == "gather":
            return gathered(*operands, group, None)[0]
        return (scattered if kind == "scatter" else reduced)(*operands, group, None)

    @staticmethod
    def backward(ctx: Any, g: Any) -> tuple[Any, ...]:
        kind, _, group, options = ctx.how
        rows, weight, *biases = ctx.saved_tensors
        of_rows, of_weight, of_bias, *_ = ctx.needs_input_grad
        padded = (biases or [None]) if kind in ("gather", "enter") else []
        options = replace(options, trans_b=True, gradients="")
        context = SimpleNamespace(
            saved_tensors=(rows, weight, *padded),
            call=(group, options, None),
            options=options,
            needs_input_grad=(of_rows, False, False, False, of_weight, *[of_bias] * len(padded)),
        )
        gradients = FUNCTIONS[kind].backward.__wrapped__(context, g)
        return gradients[0], gradients[4], gradients[5] if padded else None, None, None, None


def linear_over_ranks(
    kind: Kind, input: Any, weight: Any, bias: Any, quantised: Quantised, layer: Any, sequence_dim: int | None
) -> Any:
    """A layer's result in 8 bits. `weight`: this rank's part, in its own type."""
    if torch.compiler.is_compiling():
        raise ArgumentError(
            "dtype: must be None for layers over several ranks that torch.compile compiles; got one. Swap"
            " them without dtype, or do not compile them"
        )
    dim = 0 if sequence_dim is None else sequence_dim
    rows, leading = in_rows(input, dim, "input")
    of_result = layer.sharing.leading_of_result(kind, leading)
    options = split_along(Options(invariant=layer.invariant), dim % input.ndim, leading)
    options = agreeing(options, kind, rows, [weight])
    how = kind, layer.eight_bits[1], group_of(layer.sharing.mesh), options
    result = StraightOverRanks.apply(rows, weight, bias, *quantised, how)
    return in_shape(result, of_result, dim)


def quantised_part(layer: Any, weight: Any) -> Quantised:
    """This rank's part in 8 bits; rounded again when it was written to."""
    cached = layer.__dict__.get("_quantised")
    if cached is None or cached[0] != state_of(weight):
        cached = layer.__dict__["_quantised"] = state_of(weight), of_weight(weight, *layer.eight_bits)
    quantised: Quantised = cached[1]
    return quantised
