"""Layers with an activation: fused into the products where torch need not see between them."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from lapidist import api
from lapidist.calls.linear_shapes import require_features
from lapidist.epilogues.ready_made import READY
from lapidist.errors import ArgumentError, DTypeError, LapidistError, ShapeError
from lapidist.torch import fake_tensors, mlp, operators
from lapidist.torch.dispatch_state import is_plain, is_recorded, is_unobserved
from lapidist.torch.fake_tensors import in_rows

# torch's own, by the names of ready-made epilogues
ACTIVATIONS = {
    "relu": torch.nn.functional.relu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": partial(torch.nn.functional.gelu, approximate="tanh"),
    "silu": torch.nn.functional.silu,
}


def ended(
    input: Any, weight: Any, bias: Any, activation: Any, residual: Any, out_dtype: Any, precision: Any
) -> Any:
    """A layer with an activation, a residual or both. What it calls names a and b in errors; `of_linear` says
    the same of input and weight.
    """
    if residual is not None:
        require_residual(residual, input, weight)
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
    """Transforms and graphs of torch.compile see the product, torch's activation and the sum."""
    require_known(activation)
    given = input, weight, bias, residual
    seen = not is_unobserved() or not all(map(is_plain, given)) or not fits(input, weight, bias)
    recorded = not seen and is_recorded(given)
    if seen or (recorded and out_dtype not in (None, input.dtype)):
        hidden = ACTIVATIONS[activation](operators.linear(input, weight, bias, out_dtype, precision))
        return added(hidden, residual)
    rows, added_to = in_rows(input), None if residual is None else in_rows(residual)
    if recorded:
        hidden, _ = mlp.LAYER.apply(rows, weight, bias, activation, precision, added_to)
    else:
        types = {"out_dtype": out_dtype, "precision": precision}
        hidden = mlp.ended(rows, weight, activation, False, types, bias=bias, residual=added_to)
    return hidden.reshape(*input.shape[:-1], weight.shape[0])


def with_residual(input: Any, weight: Any, bias: Any, residual: Any, out_dtype: Any, precision: Any) -> Any:
    """A layer without an activation. A gradient through it is that of a product plus C, or of a sum."""
    given = input, weight, bias, residual
    if is_unobserved() and all(map(is_plain, given)) and fits(input, weight, bias) and not is_recorded(given):
        names = {"bias": bias, "residual": in_rows(residual)}
        after = READY["residual" if bias is None else "bias_residual"]
        epilogue = after(**{name: value for name, value in names.items() if value is not None})
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


def require_residual(residual: Any, input: Any, weight: Any) -> None:
    """Refuse a residual that is not of the result's shape."""
    require_features(tuple(input.shape), tuple(weight.shape))
    shape = (*input.shape[:-1], *weight.shape[:-1])
    if not isinstance(residual, torch.Tensor) or tuple(residual.shape) != shape:
        got = tuple(residual.shape) if isinstance(residual, torch.Tensor) else type(residual).__name__
        raise ShapeError(
            f"residual: must be a tensor of the result's shape, {shape}; got {got}. Expand it, or add it to"
            " the result"
        )
    if residual.is_complex():
        raise DTypeError(
            f"residual: must be of real numbers, as the result is; got {residual.dtype}. Add it to the result"
        )


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


def fits(input: Any, weight: Any, bias: Any) -> bool:
    """Whether a bias is one that layers have: floats, one for each feature."""
    plain = input.dtype.is_floating_point and input.ndim and weight.ndim == 2
    return bool(plain and (bias is None or bias.shape == weight.shape[:1]))
