"""Activations and residuals of layers, in the launch of the product, unless torch must see between them."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from lapidist import api
from lapidist.calls import fake_tensors
from lapidist.calls.fake_tensors import in_rows
from lapidist.calls.linear_shapes import require_features
from lapidist.epilogues.layer_activations import require_activation
from lapidist.epilogues.ready_made import READY
from lapidist.errors import DTypeError, LapidistError, ShapeError
from lapidist.torch import mlp, operators
from lapidist.torch.dispatch_state import is_direct, is_recorded

# torch's functions, by the names of ready-made epilogues
ACTIVATIONS = {
    "relu": torch.nn.functional.relu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": partial(torch.nn.functional.gelu, approximate="tanh"),
    "silu": torch.nn.functional.silu,
}


def ended(
    input: Any, weight: Any, bias: Any, activation: Any, residual: Any, out_dtype: Any, precision: Any
) -> Any:
    """A layer with an activation, a residual or both. Products name a and b in errors; `of_linear` raises the
    same of input and weight.
    """
    if residual is not None:
        require_residual(residual, input, tuple(weight.shape), input.is_complex() or weight.is_complex())
    try:
        if activation is None:
            return with_residual(input, weight, bias, residual, out_dtype, precision)
        return activated(input, weight, bias, activation, out_dtype, precision, residual)
    except LapidistError:
        fake_tensors.of_linear(input, weight, bias, out_dtype, precision)
        raise


def activated(
    input: Any,
    weight: Any,
    bias: Any,
    activation: str,
    out_dtype: Any = None,
    precision: Any = "ieee",
    residual: Any = None,
) -> Any:
    """A layer with an activation. Transforms and compilers see a product, torch's activation and a sum."""
    require_activation_of(activation, input, weight)
    operands = input, weight, bias, residual
    fusible = is_direct(*operands) and fits(input, weight, bias)
    recorded = fusible and is_recorded(operands)
    if not fusible or (recorded and out_dtype not in (None, input.dtype)):
        hidden = ACTIVATIONS[activation](operators.linear(input, weight, bias, out_dtype, precision))
        return added(hidden, residual)
    rows, addend = in_rows(input), None if residual is None else in_rows(residual)
    if recorded:
        hidden, _ = mlp.LAYER.apply(rows, weight, bias, activation, precision, addend)
    else:
        types = {"out_dtype": out_dtype, "precision": precision}
        hidden = mlp.ended(rows, weight, activation, False, types, bias=bias, residual=addend)
    return hidden.reshape(*input.shape[:-1], weight.shape[0])


def with_residual(input: Any, weight: Any, bias: Any, residual: Any, out_dtype: Any, precision: Any) -> Any:
    """A layer with a residual alone. Its gradient is that of a product plus C, or of a sum."""
    operands = input, weight, bias, residual
    if is_direct(*operands) and fits(input, weight, bias) and not is_recorded(operands):
        addend = in_rows(residual)
        if bias is None:
            epilogue = READY["residual"](residual=addend)
        else:
            epilogue = READY["bias_residual"](bias=bias, residual=addend)
        types = {"out_dtype": out_dtype, "precision": precision}
        return api.gemm(in_rows(input), weight, trans_b=True, epilogue=epilogue, **types).reshape(
            residual.shape
        )
    if bias is None and weight.ndim == 2 and residual.dtype is input.dtype and out_dtype is None:
        rows = in_rows(input), weight, in_rows(residual)
        return operators.gemm(*rows, 1.0, 1.0, False, True, None, precision).reshape(residual.shape)
    return added(operators.linear(input, weight, bias, out_dtype, precision), residual)


def added(hidden: Any, residual: Any) -> Any:
    """hidden + residual, in hidden's type."""
    return hidden if residual is None else (hidden + residual).to(hidden.dtype)


def require_residual(residual: Any, input: Any, of_weight: tuple[int, ...], is_complex: bool = False) -> None:
    """Refuse a residual that is not of the result's shape, and complex ones of a real result."""
    require_features(tuple(input.shape), of_weight)
    shape = (*input.shape[:-1], *of_weight[:-1])
    if not isinstance(residual, torch.Tensor) or tuple(residual.shape) != shape:
        got = tuple(residual.shape) if isinstance(residual, torch.Tensor) else type(residual).__name__
        raise ShapeError(
            f"residual: must be a tensor of the result's shape, {shape}; got {got}. Expand it, or add it to"
            " the result"
        )
    if residual.is_complex() and not is_complex:
        raise DTypeError(
            f"residual: must be of real numbers, as the result is; got {residual.dtype}. Add it to the result"
        )


def require_activation_of(activation: str, input: Any, weight: Any) -> None:
    require_activation(activation)
    if input.is_complex() or weight.is_complex():
        raise DTypeError(
            f"activation: {activation} is a function of real numbers; got a result of complex ones. Leave it"
            " out, and compute with the result's parts"
        )


def two_layers(
    input: Any, up: Any, up_bias: Any, down: Any, down_bias: Any, activation: str, precision: Any
) -> Any:
    """Two layers with an activation between them, fused for both passes where gradients are recorded."""
    require_activation_of(activation, input, up)
    operands = input, up, up_bias, down, down_bias
    fused = is_direct(*operands) and is_recorded(operands)
    if not fused or not fits(input, up, up_bias) or not fits(input, down, down_bias):
        hidden = activated(input, up, up_bias, activation, None, precision)
        return operators.linear(hidden, down, down_bias, None, precision)
    result, *_ = mlp.LAYERS.apply(in_rows(input), *operands[1:], activation, precision)
    return result.reshape(*input.shape[:-1], down.shape[0])


def fits(input: Any, weight: Any, bias: Any) -> bool:
    """Whether shapes and types are those of a layer: floats, and one bias for each feature."""
    is_layer = input.dtype.is_floating_point and input.ndim and weight.ndim == 2
    return bool(is_layer and (bias is None or bias.shape == weight.shape[:1]))
