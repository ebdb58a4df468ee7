"""The operations of the language, a row each: what libraries of arrays have for it, what device code has, and
how far off a result may be.

A bound is first what the errors of the arguments make of it, then the operation's own roundings: so many
times half a unit in the last place. Device code and NumPy have the same bound; the two of them differ by
twice that."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from lapidist.epilogues.philox import WORD

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
    """`device`: with places for the arguments. `spread`: of a result and the arguments, each with its error.
    `called`: by libraries of arrays, where they have another name for it; `meaning`: of a namespace
    (interpreter.py) and the arguments, where no function of theirs is it."""

    arity: int
    device: str
    # None of functions that never fall: between the ends of where the argument may be
    spread: Callable[..., Any] | None
    roundings: int = 0
    condition: bool = False  # the result is true or false; its error is 1 where it may be the other one
    takes_conditions: tuple[int, ...] = ()  # which arguments are
    instructions: int = 1  # of a GPU, about, in float32
    special: int = 0  # of these, powers of two and reciprocals that multiplications wait for
    # what roundings are a part of: the result's size, unless it says otherwise
    size: Callable[..., Any] = result_size
    called: str = ""
    meaning: Callable[..., Any] | None = None


# ---- what libraries of arrays have no function for ----


def minimum(xp: Any, x: Any, y: Any) -> Any:
    return xp.where((x < y) | xp.isnan(x), x, y)


def maximum(xp: Any, x: Any, y: Any) -> Any:
    """NaN where either is. Where they are equal, the second has the gradient: relu's is 0 at 0."""
    return xp.where((x > y) | xp.isnan(x), x, y)


def gelu_slope(xp: Any, x: Any) -> Any:
    """gelu's derivative: the share of normal numbers below x, and x times their density. 0 and 1 at the
    infinities, its limits."""
    bounded = xp.clip(x, -40, 40)
    share = 0.5 * (1 + xp.erf(bounded * math.sqrt(0.5)))
    return share + bounded * xp.exp(-0.5 * bounded * bounded) * math.sqrt(0.5 / math.pi)


def cast(xp: Any, x: Any, dtype: str) -> Any:
    """Rounded to a type, in the type that it had."""
    return xp.astype(xp.astype(x, dtype), x.dtype)


def kept(xp: Any, seed: Any, position: Any, p: str) -> Any:
    """Whether dropout keeps an element: it does where its first word is p x 2^32 or more."""
    word = xp.first_word(seed, position)
    return word >= xp.constant(int(float(p) * 2**WORD), word)


def kept_by(xp: Any, seed: Any, position: Any, p: Any) -> Any:
    """The same, where p is known at run time: in float32, whatever else is reckoned in."""
    word, share = xp.first_word(seed, position), xp.nan_to_num(xp.astype(p, "float32"))
    return word >= xp.astype(xp.clip(xp.astype(share, "float64") * 2**WORD, 0, 2**WORD - 1), word.dtype)


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


def unchanged(_: Any, x: Off) -> Any:
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
    "kept": Operation(
        2, "fused::kept({0}, {1}, {value})", exact, condition=True, instructions=70, meaning=kept
    ),
    # the share in float32, in which 2^32 times it is exact
    "kept_by": Operation(
        3,
        "fused::kept({0}, {1}, double(float({2})))",
        exact,
        condition=True,
        instructions=70,
        meaning=kept_by,
    ),
    "cast": Operation(1, "fused::rounded_to_{value}({0})", None, meaning=cast),
}
