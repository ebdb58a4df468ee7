"""Layers with an activation: fused into the products where torch need not see between them."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from lapidist import api
from lapidist.epilogues.ready import READY
from lapidist.errors import ArgumentError
from lapidist.torch import mlp, operators
from lapidist.torch.sight import is_plain, is_recorded, is_unobserved

# torch's own, by the names of ready-made epilogues
ACTIVATIONS = {
    "relu": torch.nn.functional.relu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": partial(torch.nn.functional.gelu, approximate="tanh"),
    "silu": torch.nn.functional.silu,
}


def activated(
    input: Any, weight: Any, bias: Any, activation: str, out_dtype: Any = None, precision: Any = "ieee"
) -> Any:
    """Transforms and graphs of torch.compile see the product and torch's activation."""
    require_known(activation)
    given = input, weight, bias
    if not is_unobserved() or not all(map(is_plain, given)) or not fits(*given):
        return ACTIVATIONS[activation](operators.linear(input, weight, bias, out_dtype, precision))
    rows = in_rows(input)
    if is_recorded(given):
        if out_dtype not in (None, input.dtype):
            return ACTIVATIONS[activation](operators.linear(input, weight, bias, out_dtype, precision))
        hidden, _ = mlp.LAYER.apply(rows, weight, bias, activation, precision)
    else:
        epilogue = READY[activation] if bias is None else READY[f"bias_{activation}"](bias=bias)
        how = {"out_dtype": out_dtype, "precision": precision}
        hidden = api.gemm(rows, weight, trans_b=True, epilogue=epilogue, **how)
    return hidden.reshape(*input.shape[:-1], weight.shape[0])


def two_layers(
    input: Any, up: Any, up_bias: Any, down: Any, down_bias: Any, activation: str, precision: Any
) -> Any:
    require_known(activation)
    given = input, up, up_bias, down, down_bias
    fused = is_unobserved() and all(map(is_plain, given)) and is_recorded(given)
    if not fused or not fits(*given[:3]) or not fits(input, *given[3:]):
        hidden = activated(input, up, up_bias, activation, None, precision)
        return operators.linear(hidden, down, down_bias, None, precision)
    result, *_ = mlp.LAYERS.apply(in_rows(input), *given[1:], activation, precision)
    return result.reshape(*input.shape[:-1], down.shape[0])


def require_known(activation: Any) -> None:
    if activation not in ACTIVATIONS:
        raise ArgumentError(
            f"activation: must be {', '.join(map(repr, ACTIVATIONS))} or None; got {activation!r}. Apply"
            " others to the result"
        )


def in_rows(input: Any) -> Any:
    return input if input.ndim == 2 else input.reshape(-1, input.shape[-1])


def fits(input: Any, weight: Any, bias: Any) -> bool:
    """Whether it is a layer's: of floats, a bias for each of its features."""
    plain = input.dtype.is_floating_point and input.ndim and weight.ndim == 2
    return bool(plain and (bias is None or bias.shape == weight.shape[:1]))
