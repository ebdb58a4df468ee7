"""The operations of epilogues, a row each: its function in libraries of arrays and in device code, and a
bound of its error.

The bound adds the spread of the arguments' errors and the operation's roundings, in half units in the last
place. Device code and NumPy have the same bound; the two differ by twice that."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from lapidist.epilogues.philox import WORD
from lapidist.epilogues.steps import DROPOUT_MASK, DROPOUT_MASK_BY_OPERAND

Off = tuple[Any, Any]  # a value, and a bound of its error
# CUDA's functions are right to 2 units in the last place or better, NumPy's to 4
LIBRARY = 8
OF_GELU = 8  # of the argument's size, by epilogue_functions.cuh's polynomial; for the slope, of 1
# types that a value may be rounded to, as between separate kernels
CASTS = ("float32", "float16", "bfloat16")


def result_size(result: Any, *_: Any) -> Any:
    return abs(result)


def argument_size(_: Any, x: Off) -> Any:
    return abs(x[0])


def size_of_one(result: Any, *_: Any) -> Any:
    """The size 1, for differences of numbers near 1, whose errors are of that size."""
    return np.ones_like(result)


OVERFLOWN = 1e-31  # where exp(-x) is beyond the largest float, so much is rounded away


def size_of_sigmoid(result: Any, x: Off) -> Any:
    """The size of a sigmoid's error, to which the rounded exponent of a power of two adds."""
    return np.maximum(result, OVERFLOWN) * (1 + np.maximum(-x[0], 0) / 4)


@dataclass(frozen=True, eq=False)
class Operation:
    """`device`: device code, with places for the arguments. `spread`: a function of a result and of the
    arguments with their errors. `called`: its name in libraries of arrays, if another one. `meaning`: a
    function of a namespace (interpreter.py) and the arguments, if libraries have none."""

    arity: int
    device: str
    # None for functions that never fall: their bounds are at the ends of the argument's
    spread: Callable[..., Any] | None
    roundings: int = 0
    condition: bool = False  # the result is true or false; its error is 1 where it may be the other one
    takes_conditions: tuple[int, ...] = ()  # the places of arguments that are conditions
    instructions: int = 1  # of a GPU, about, in float32
    special: int = 0  # powers of two and reciprocals among these, which multiplications wait for
    # the size that roundings are relative to
    size: Callable[..., Any] = result_size
    called: str = ""
    meaning: Callable[..., Any] | None = None


# ---- operations without a function in libraries of arrays ----


def minimum(xp: Any, x: Any, y: Any) -> Any:
    return xp.where((x < y) | xp.isnan(x), x, y)


def maximum(xp: Any, x: Any, y: Any) -> Any:
    """The larger one; NaN where either is. The second one of equals has the gradient: relu's is 0 at 0."""
    return xp.where((x > y) | xp.isnan(x), x, y)


def gelu_slope(xp: Any, x: Any) -> Any:
    """gelu's derivative: the share of normal numbers below x, plus x times their density. 0 and 1 at the
    infinities, its limits."""
    bounded = xp.clip(x, -40, 40)
    share = 0.5 * (1 + xp.erf(bounded * math.sqrt(0.5)))
    return share + bounded * xp.exp(-0.5 * bounded * bounded) * math.sqrt(0.5 / math.pi)


def cast(xp: Any, x: Any, dtype: str) -> Any:
    """x rounded to a type, in its own type."""
    return xp.astype(xp.astype(x, dtype), x.dtype)


def dropout_mask(xp: Any, seed: Any, position: Any, p: str) -> Any:
    """Whether dropout keeps an element: its first word is p x 2^32 or more."""
    word = xp.first_word(seed, position)
    return word >= xp.constant(int(float(p) * 2**WORD), word)


def dropout_mask_by_operand(xp: Any, seed: Any, position: Any, p: Any) -> Any:
    """The same for p at run time: in float32, whatever type other values have."""
    word, share = xp.first_word(seed, position), xp.nan_to_num(xp.astype(p, "float32"))
    return word >= xp.astype(xp.clip(xp.astype(share, "float64") * 2**WORD, 0, 2**WORD - 1), word.dtype)


# ---- how the errors of arguments spread to a result ----


def exact(*_: Any) -> Any:
    return 0.0


def added(_: Any, x: Off, y: Off) -> Any:
    return x[1] + y[1]


def multiplied(_: Any, x: Off, y: Off) -> Any:
    return abs(x[0]) * y[1] + abs(y[0]) * x[1] + x[1] * y[1]


def divided(result: Any, x: Off, y: Off) -> Any:
    least = abs(y[0]) - y[1]
    return np.where(least > 0, (x[1] + abs(result) * y[1]) / least, np.where(x[1] + y[1] > 0, np.inf, 0))


def unchanged(_: Any, x: Off) -> Any:
    return x[1]


def larger(_: Any, x: Off, y: Off) -> Any:
    return np.maximum(x[1], y[1])


def compared(_: Any, x: Off, y: Off) -> Any:
    off = x[1] + y[1]
    return (off > 0) & ~(abs(x[0] - y[0]) > off)


def either(_: Any, *args: Off) -> Any:
    return np.any(np.broadcast_arrays(*(off != 0 for _, off in args)), axis=0)


def chosen(_: Any, condition: Off, x: Off, y: Off) -> Any:
    either_one = np.maximum(x[1], y[1]) + abs(x[0] - y[0])
    return np.where(condition[1] != 0, either_one, np.where(condition[0], x[1], y[1]))


def of_exp(result: Any, x: Off) -> Any:
    return abs(result) * np.expm1(x[1])


def of_log(_: Any, x: Off) -> Any:
    return np.where(x[1] < x[0], -np.log1p(-x[1] / x[0]), np.where(x[1] > 0, np.inf, 0))


def of_root(result: Any, x: Off) -> Any:
    return np.where(x[1] <= x[0], x[1] / np.where(x[1] > 0, result, 1), np.inf)


def of_reciprocal_root(result: Any, x: Off) -> Any:
    return np.where(x[1] < x[0], 1 / np.sqrt(x[0] - x[1]) - result, np.where(x[1] > 0, np.inf, 0))


def times(slope: float) -> Callable[..., Any]:
    """The spread of functions that are nowhere steeper than `slope`."""
    return lambda _, x: slope * x[1]


OPERATIONS = {
    "add": Operation(2, "{0} + {1}", added, 1),
    "subtract": Operation(2, "{0} - {1}", added, 1),
    "multiply": Operation(2, "{0} * {1}", multiplied, 1),
    "divide": Operation(2, "{0} / {1}", divided, 1, instructions=8),
    "negative": Operation(1, "-{0}", unchanged),
    "absolute": Operation(1, "fused::absolute({0})", unchanged),
    "minimum": Operation(2, "fused::minimum({0}, {1})", larger, meaning=minimum),
    "maximum": Operation(2, "fused::maximum({0}, {1})", larger, meaning=maximum),
    "less": Operation(2, "{0} < {1}", compared, condition=True),
    "less_equal": Operation(2, "{0} <= {1}", compared, condition=True),
    "equal": Operation(2, "{0} == {1}", compared, condition=True),
    "not_equal": Operation(2, "{0} != {1}", compared, condition=True),
    "both": Operation(2, "{0} && {1}", either, condition=True, takes_conditions=(0, 1), called="logical_and"),
    "any_of": Operation(
        2, "{0} || {1}", either, condition=True, takes_conditions=(0, 1), called="logical_or"
    ),
    "no": Operation(1, "!{0}", either, condition=True, takes_conditions=(0,), called="logical_not"),
    "where": Operation(3, "{0} ? {1} : {2}", chosen, takes_conditions=(0,)),
    "exp": Operation(1, "fused::exponential({0})", of_exp, LIBRARY, instructions=8),
    "log": Operation(1, "fused::logarithm({0})", of_log, LIBRARY, instructions=12),
    "tanh": Operation(1, "fused::hyperbolic({0})", times(1.0), LIBRARY, instructions=18),
    "erf": Operation(1, "fused::error_function({0})", times(1.129), LIBRARY, instructions=20),
    "sigmoid": Operation(
        1, "fused::sigmoid({0})", times(0.25), LIBRARY, instructions=5, special=2, size=size_of_sigmoid
    ),
    "gelu": Operation(
        1, "fused::gelu({0})", times(1.13), OF_GELU, instructions=10, special=1, size=argument_size
    ),
    "gelu_slope": Operation(
        1,
        "fused::gelu_slope({0})",
        times(0.8),
        OF_GELU,
        instructions=14,
        special=1,
        size=size_of_one,
        meaning=gelu_slope,
    ),
    "sqrt": Operation(1, "fused::root({0})", of_root, 1),
    "rsqrt": Operation(1, "fused::reciprocal_root({0})", of_reciprocal_root, LIBRARY, instructions=6),
    "floor": Operation(1, "fused::down({0})", None),
    "ceil": Operation(1, "fused::up({0})", None),
    "trunc": Operation(1, "fused::cut({0})", None),
    "rint": Operation(1, "fused::nearest({0})", None),
    # 47 instructions in Hopper's machine code; 22 of them multiply integers, at half the rate
    DROPOUT_MASK: Operation(
        2, "fused::kept({0}, {1}, {value})", exact, condition=True, instructions=70, meaning=dropout_mask
    ),
    # the share in float32, in which 2^32 times it is exact
    DROPOUT_MASK_BY_OPERAND: Operation(
        3,
        "fused::kept({0}, {1}, double(float({2})))",
        exact,
        condition=True,
        instructions=70,
        meaning=dropout_mask_by_operand,
    ),
    "cast": Operation(1, "fused::rounded_to_{value}({0})", None, meaning=cast),
}
