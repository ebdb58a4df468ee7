"""The operations of the language, a row each: by NumPy, in device code, and how far off a result may be.

A bound is first what the errors of the arguments make of it, then the operation's own roundings: so many
times half a unit in the last place. Device code and NumPy have the same bound; the two of them differ by
twice that."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from lapidist.dtypes import numpy_dtype
from lapidist.epilogues.erf import erf
from lapidist.epilogues.philox import kept as kept_by_philox
from lapidist.epilogues.philox import kept_by

Array = np.ndarray[Any, Any]
Off = tuple[Any, Any]  # a value, and how far from the exact one it may be
# CUDA's functions are right to 2 units in the last place or better, NumPy's to 4
LIBRARY = 8
OF_GELU = 8  # of its argument's size: epilogue_functions.cuh's polynomial; its slope's of 1
# types that a value may be rounded to on its way, as separate kernels would
CASTS = ("float32", "float16", "bfloat16")


def result_size(result: Any, *_: Any) -> Any:
    return abs(result)


def argument_size(_: Any, x: Off) -> Any:
    return abs(x[0])


def size_of_one(result: Any, *_: Any) -> Any:
    """For results that are differences of numbers near 1, whose errors are of that size."""
    return np.ones_like(result)


OVERFLOWN = 1e-31  # where exp(-x) is beyond the largest float, so much is rounded away


def size_of_sigmoid(result: Any, x: Off) -> Any:
    """The power of two behind it is off by its exponent's rounding, too."""
    return np.maximum(result, OVERFLOWN) * (1 + np.maximum(-x[0], 0) / 4)


@dataclass(frozen=True, eq=False)
class Operation:
    """`device`: with places for the arguments. `spread`: of a result and the arguments, each with its
    error."""

    arity: int
    numpy: Callable[..., Any]
    device: str
    spread: Callable[..., Any]
    roundings: int = 0
    condition: bool = False  # the result is true or false; its error is 1 where it may be the other one
    takes_conditions: tuple[int, ...] = ()  # which arguments are
    instructions: int = 1  # of a GPU, about, in float32
    # what roundings are a part of: the result's size, unless it says otherwise
    size: Callable[..., Any] = result_size


def reciprocal_root(x: Any) -> Any:
    return 1 / np.sqrt(x)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def gelu(x: Any) -> Any:
    """x times the probability that a normal number is below it; 0 at minus infinity, its limit."""
    half, root = x.dtype.type(0.5), x.dtype.type(math.sqrt(0.5))
    return np.where(np.isneginf(x), x.dtype.type(0), half * x * (1 + erf(x * root)))


def gelu_slope(x: Any) -> Any:
    """gelu's derivative: 0 and 1 at the infinities, its limits."""
    half, root, density = (x.dtype.type(each) for each in (0.5, math.sqrt(0.5), math.sqrt(0.5 / math.pi)))
    bounded = np.clip(x, -40, 40)
    return half * (1 + erf(bounded * root)) + bounded * np.exp(-half * bounded * bounded) * density


def cast(x: Any, dtype: str) -> Any:
    """Rounded to a type, in the type that it had."""
    return x.astype(numpy_dtype(dtype)).astype(x.dtype)


# ---- what the errors of arguments make of a result ----


def exact(*_: Any) -> Any:
    return 0.0


def added(_: Any, x: Off, y: Off) -> Any:
    return x[1] + y[1]


def multiplied(_: Any, x: Off, y: Off) -> Any:
    return abs(x[0]) * y[1] + abs(y[0]) * x[1] + x[1] * y[1]


def divided(result: Any, x: Off, y: Off) -> Any:
    least = abs(y[0]) - y[1]
    return np.where(least > 0, (x[1] + abs(result) * y[1]) / least, np.where(x[1] + y[1] > 0, np.inf, 0))


def kept(_: Any, x: Off) -> Any:
    return x[1]


def larger(_: Any, x: Off, y: Off) -> Any:
    return np.maximum(x[1], y[1])


def compared(_: Any, x: Off, y: Off) -> Any:
    off = x[1] + y[1]
    return (off > 0) & ~(abs(x[0] - y[0]) > off)


def either(_: Any, *args: Off) -> Any:
    return np.any(np.broadcast_arrays(*(off != 0 for _, off in args)), axis=0)


def chosen(_: Any, so: Off, x: Off, y: Off) -> Any:
    own = np.where(so[0], x[1], y[1])
    return np.where(so[1] != 0, np.maximum(x[1], y[1]) + abs(x[0] - y[0]), own)


def of_exp(result: Any, x: Off) -> Any:
    return abs(result) * np.expm1(x[1])


def of_log(_: Any, x: Off) -> Any:
    return np.where(x[1] < x[0], -np.log1p(-x[1] / x[0]), np.where(x[1] > 0, np.inf, 0))


def of_root(result: Any, x: Off) -> Any:
    return np.where(x[1] <= x[0], x[1] / np.where(x[1] > 0, result, 1), np.inf)


def of_reciprocal_root(result: Any, x: Off) -> Any:
    return np.where(x[1] < x[0], 1 / np.sqrt(x[0] - x[1]) - result, np.where(x[1] > 0, np.inf, 0))


def times(slope: float) -> Callable[..., Any]:
    """Of functions that are nowhere steeper."""
    return lambda _, x: slope * x[1]


def by_steps(function: Callable[..., Any]) -> Callable[..., Any]:
    """Of functions that never fall: between the ends of where the argument may be."""

    def spread(result: Any, x: Off, *more: Any) -> Any:
        low, high = function(x[0] - x[1], *more), function(x[0] + x[1], *more)
        return np.where(x[1] > 0, np.maximum(high - result, result - low), 0)

    return spread


OPERATIONS = {
    "add": Operation(2, np.add, "{0} + {1}", added, 1),
    "subtract": Operation(2, np.subtract, "{0} - {1}", added, 1),
    "multiply": Operation(2, np.multiply, "{0} * {1}", multiplied, 1),
    "divide": Operation(2, np.true_divide, "{0} / {1}", divided, 1, instructions=8),
    "negative": Operation(1, np.negative, "-{0}", kept),
    "absolute": Operation(1, np.abs, "fused::absolute({0})", kept),
    "minimum": Operation(2, np.minimum, "fused::minimum({0}, {1})", larger),
    "maximum": Operation(2, np.maximum, "fused::maximum({0}, {1})", larger),
    "less": Operation(2, np.less, "{0} < {1}", compared, condition=True),
    "less_equal": Operation(2, np.less_equal, "{0} <= {1}", compared, condition=True),
    "equal": Operation(2, np.equal, "{0} == {1}", compared, condition=True),
    "not_equal": Operation(2, np.not_equal, "{0} != {1}", compared, condition=True),
    "both": Operation(2, np.logical_and, "{0} && {1}", either, condition=True, takes_conditions=(0, 1)),
    "any_of": Operation(2, np.logical_or, "{0} || {1}", either, condition=True, takes_conditions=(0, 1)),
    "no": Operation(1, np.logical_not, "!{0}", either, condition=True, takes_conditions=(0,)),
    "where": Operation(3, np.where, "{0} ? {1} : {2}", chosen, takes_conditions=(0,)),
    "exp": Operation(1, np.exp, "fused::exponential({0})", of_exp, LIBRARY, instructions=8),
    "log": Operation(1, np.log, "fused::logarithm({0})", of_log, LIBRARY, instructions=12),
    "tanh": Operation(1, np.tanh, "fused::hyperbolic({0})", times(1.0), LIBRARY, instructions=18),
    "erf": Operation(1, erf, "fused::error_function({0})", times(1.129), LIBRARY, instructions=20),
    "sigmoid": Operation(
        1, sigmoid, "fused::sigmoid({0})", times(0.25), LIBRARY, instructions=5, size=size_of_sigmoid
    ),
    "gelu": Operation(1, gelu, "fused::gelu({0})", times(1.13), OF_GELU, instructions=10, size=argument_size),
    "gelu_slope": Operation(
        1, gelu_slope, "fused::gelu_slope({0})", times(0.8), OF_GELU, instructions=14, size=size_of_one
    ),
    "sqrt": Operation(1, np.sqrt, "fused::root({0})", of_root, 1),
    "rsqrt": Operation(
        1, reciprocal_root, "fused::reciprocal_root({0})", of_reciprocal_root, LIBRARY, instructions=6
    ),
    "floor": Operation(1, np.floor, "fused::down({0})", by_steps(np.floor)),
    "ceil": Operation(1, np.ceil, "fused::up({0})", by_steps(np.ceil)),
    "trunc": Operation(1, np.trunc, "fused::cut({0})", by_steps(np.trunc)),
    "rint": Operation(1, np.rint, "fused::nearest({0})", by_steps(np.rint)),
    # 47 instructions in Hopper's machine code; 22 of them multiply integers, at half the rate
    "kept": Operation(
        2, kept_by_philox, "fused::kept({0}, {1}, {value})", exact, condition=True, instructions=70
    ),
    # the share in float32, in which 2^32 times it is exact
    "kept_by": Operation(
        3, kept_by, "fused::kept({0}, {1}, double(float({2})))", exact, condition=True, instructions=70
    ),
    "cast": Operation(1, cast, "fused::rounded_to_{value}({0})", by_steps(cast)),
}
