"""Ready-made epilogues, written as a caller would."""

from __future__ import annotations

from typing import Any

from lapidist.epilogues.expressions import Column, Row, Scalar, Tile
from lapidist.epilogues.functions import gelu as gelu_of
from lapidist.epilogues.functions import gelu_slope, sigmoid, where
from lapidist.epilogues.functions import relu as relu_of
from lapidist.epilogues.functions import silu as silu_of
from lapidist.epilogues.reductions import amax as amax_of
from lapidist.epilogues.reductions import column_sum
from lapidist.epilogues.results import Output, Pair, Quantised
from lapidist.epilogues.tracing import epilogue


@epilogue
def scaled(acc: Any, factor: Scalar) -> Any:
    """acc * factor"""
    return acc * factor


@epilogue
def scaled_rows(acc: Any, factors: Column) -> Any:
    """acc * factors, one for each row of D"""
    return acc * factors


@epilogue
def relu(acc: Any) -> Any:
    return relu_of(acc)


@epilogue
def gelu(acc: Any) -> Any:
    return gelu_of(acc)


@epilogue
def gelu_tanh(acc: Any) -> Any:
    return gelu_of(acc, approximate="tanh")


@epilogue
def silu(acc: Any) -> Any:
    return silu_of(acc)


@epilogue
def bias(acc: Any, bias: Row) -> Any:
    return acc + bias


@epilogue
def bias_relu(acc: Any, bias: Row) -> Any:
    return relu_of(acc + bias)


@epilogue
def bias_gelu(acc: Any, bias: Row) -> Any:
    return gelu_of(acc + bias)


@epilogue
def bias_gelu_tanh(acc: Any, bias: Row) -> Any:
    return gelu_of(acc + bias, approximate="tanh")


@epilogue
def bias_silu(acc: Any, bias: Row) -> Any:
    return silu_of(acc + bias)


@epilogue
def residual(acc: Any, residual: Tile) -> Any:
    return acc + residual


@epilogue
def bias_residual(acc: Any, bias: Row, residual: Tile) -> Any:
    return acc + bias + residual


@epilogue
def bias_gelu_residual(acc: Any, bias: Row, residual: Tile) -> Any:
    return gelu_of(acc + bias) + residual


# ---- reductions, which a second pass finishes ----


@epilogue
def amax(acc: Any) -> Any:
    """acc, and the largest absolute value of all"""
    return acc, amax_of(acc)


# ---- backward: acc is the gradient of an activation's value; the results are the gradients of its argument,
# `before`, and of a bias that was added to that ----


@epilogue
def relu_backward(acc: Any, mask: Tile) -> Any:
    """acc where the mask is not 0, and the sum of each column: the gradient of a bias before relu"""
    slope = where(mask != 0, acc, 0)
    return slope, column_sum(slope)


@epilogue
def gelu_backward(acc: Any, before: Tile) -> Any:
    slope = acc * gelu_slope(before)
    return slope, column_sum(slope)


@epilogue
def gelu_tanh_backward(acc: Any, before: Tile) -> Any:
    slope = acc * gelu_slope(before, approximate="tanh")
    return slope, column_sum(slope)


@epilogue
def silu_backward(acc: Any, before: Tile) -> Any:
    share = sigmoid(before)
    slope = acc * (share * (1 + before * (1 - share)))
    return slope, column_sum(slope)


# ---- to 8 bits, by a factor for each row ----


@epilogue
def quantise_e4m3(acc: Any, factors: Column) -> Any:
    """acc * factors, as float8_e4m3fn"""
    return Output(acc * factors, "float8_e4m3fn")


@epilogue
def quantise_int8(acc: Any, factors: Column) -> Any:
    """acc * factors, as int8"""
    return Output(acc * factors, "int8")


# ---- to 8 bits, by a factor for 128 neighbours of a row, which a second pass finds ----


@epilogue
def quantise_e4m3_groups(acc: Any) -> Any:
    """float8_e4m3fn, and its factors"""
    return Quantised(acc, "float8_e4m3fn")


@epilogue
def quantise_int8_groups(acc: Any) -> Any:
    """int8, and its factors"""
    return Quantised(acc, "int8")


@epilogue
def swiglu_e4m3_groups(acc: Pair) -> Any:
    """SwiGLU as float8_e4m3fn, and its factors"""
    return Quantised(silu_of(acc.first) * acc.second, "float8_e4m3fn")


# ---- of neighbouring columns: gated, D is half as wide ----


@epilogue
def swiglu(acc: Pair) -> Any:
    return silu_of(acc.first) * acc.second


@epilogue
def geglu(acc: Pair) -> Any:
    return gelu_of(acc.first) * acc.second


@epilogue
def rotary(acc: Pair, cosine: Tile, sine: Tile) -> Any:
    """Pairs turned by angles."""
    return Pair(acc.first * cosine - acc.second * sine, acc.first * sine + acc.second * cosine)


READY = {name: value for name, value in globals().items() if isinstance(value, type(scaled))}
