"""The functions of the language. Each is one operation, or written in the others, as a caller could."""

from __future__ import annotations

import math
from typing import Any, Literal

from lapidist.dtypes import name_of
from lapidist.epilogues.expressions import Expression
from lapidist.epilogues.operations import CASTS
from lapidist.errors import ArgumentError, DTypeError


def traced(operation: str, *args: Any, value: str = "") -> Expression:
    """One step more on the tape of the first argument that has one."""
    for arg in args:
        if isinstance(arg, Expression):
            return arg.tape.apply(operation, *args, value=value)
    raise ArgumentError(
        f"lapidist.{operation}: belongs into a function of @lapidist.epilogue; got {args[0]!r}. Use NumPy's"
        f" or"
        " torch's on arrays"
    )


def where(condition: Any, x: Any, y: Any) -> Expression:
    """x where the condition holds, else y.

    >>> import lapidist
    >>> print(lapidist.epilogue(lambda acc: lapidist.where(acc > 0, acc, 0.1 * acc)))
    where(0 < acc, acc, 0.1 * acc)
    """
    return traced("where", condition, x, y)


def minimum(x: Any, y: Any) -> Expression:
    """The smaller one; NaN where either is.

    >>> import lapidist
    >>> print(lapidist.epilogue(lambda acc: lapidist.minimum(acc, 6)))
    minimum(acc, 6)
    """
    return traced("minimum", x, y)


def maximum(x: Any, y: Any) -> Expression:
    """The larger one; NaN where either is.

    >>> import lapidist
    >>> print(lapidist.epilogue(lambda acc: lapidist.maximum(acc, 0)))
    maximum(acc, 0)
    """
    return traced("maximum", x, y)


def clamp(x: Any, low: Any, high: Any) -> Expression:
    """x, or the nearer one of two bounds.

    >>> import lapidist
    >>> print(lapidist.epilogue(lambda acc: lapidist.clamp(acc, -1, 1)))
    minimum(maximum(acc, -1), 1)
    """
    return minimum(maximum(x, low), high)


def absolute(x: Any) -> Expression:
    """x without its sign; abs(x) is the same.

    >>> import lapidist
    >>> print(lapidist.epilogue(lambda acc: lapidist.absolute(acc)))
    absolute(acc)
    """
    return traced("absolute", x)


def exp(x: Any) -> Expression:
    """e to the power of x.

    >>> import lapidist
    >>> print(lapidist.epilogue(lambda acc: lapidist.exp(acc)))
    exp(acc)
    """
    return traced("exp", x)


def log(x: Any) -> Expression:
    """The natural logarithm.

    >>> import lapidist
    >>> print(lapidist.epilogue(lambda acc: lapidist.log(acc)))
    log(acc)
    """
    return traced("log", x)


def sqrt(x: Any) -> Expression:
    """The square root.

    >>> import lapidist
    >>> print(lapidist.epilogue(lambda acc: lapidist.sqrt(acc)))
    sqrt(acc)
    """
    return traced("sqrt", x)


def rsqrt(x: Any) -> Expression:
    """One over the square root.

    >>> import lapidist
    >>> print(lapidist.epilogue(lambda acc: lapidist.rsqrt(acc)))
    rsqrt(acc)
    """
    return traced("rsqrt", x)


def tanh(x: Any) -> Expression:
    """The hyperbolic tangent.

    >>> import lapidist
    >>> print(lapidist.epilogue(lambda acc: lapidist.tanh(acc)))
    tanh(acc)
    """
    return traced("tanh", x)


def erf(x: Any) -> Expression:
    """The error function.

    >>> import lapidist
    >>> print(lapidist.epilogue(lambda acc: lapidist.erf(acc)))
    erf(acc)
    """
    return traced("erf", x)


def floor(x: Any) -> Expression:
    """The largest whole number that is not above x.

    >>> import lapidist
    >>> print(lapidist.epilogue(lambda acc: lapidist.floor(acc)))
    floor(acc)
    """
    return traced("floor", x)


def ceil(x: Any) -> Expression:
    """The smallest whole number that is not below x.

    >>> import lapidist
    >>> print(lapidist.epilogue(lambda acc: lapidist.ceil(acc)))
    ceil(acc)
    """
    return traced("ceil", x)


def trunc(x: Any) -> Expression:
    """x without what follows the point.

    >>> import lapidist
    >>> print(lapidist.epilogue(lambda acc: lapidist.trunc(acc)))
    trunc(acc)
    """
    return traced("trunc", x)


def rint(x: Any) -> Expression:
    """The nearest whole number; of two, the even one.

    >>> import lapidist
    >>> print(lapidist.epilogue(lambda acc: lapidist.rint(acc)))
    rint(acc)
    """
    return traced("rint", x)


def cast(x: Any, dtype: Any) -> Expression:
    """x rounded to float32, float16 or bfloat16, as it would be between two kernels.

    >>> import lapidist
    >>> print(lapidist.epilogue(lambda acc: lapidist.cast(acc, "bfloat16")))
    cast(acc, 'bfloat16')
    """
    name = name_of(dtype, "dtype")
    if name not in CASTS:
        raise DTypeError(
            f"dtype: must be {', '.join(CASTS[:-1])} or {CASTS[-1]}; got {name}. Round with rint or trunc"
        )
    return traced("cast", x, value=name)


def relu(x: Any) -> Expression:
    """x, or 0 where it is below.

    >>> import lapidist
    >>> print(lapidist.epilogue(lambda acc: lapidist.relu(acc)))
    maximum(acc, 0)
    """
    return maximum(x, 0.0)


def sigmoid(x: Any) -> Expression:
    """1 / (1 + exp(-x)).

    >>> import lapidist
    >>> print(lapidist.epilogue(lambda acc: lapidist.sigmoid(acc)))
    sigmoid(acc)
    """
    return traced("sigmoid", x)


def silu(x: Any) -> Expression:
    """x sigmoid(x).

    >>> import lapidist
    >>> print(lapidist.epilogue(lambda acc: lapidist.silu(acc)))
    acc * sigmoid(acc)
    """
    return x * sigmoid(x)


def gelu(x: Any, approximate: Literal["none", "tanh"] = "none") -> Expression:
    """x times the probability that a normal number is below it; approximate="tanh" is the formula by tanh.

    >>> import lapidist
    >>> print(lapidist.epilogue(lambda acc: lapidist.gelu(acc)))
    gelu(acc)
    """
    if approximate not in ("none", "tanh"):
        raise ArgumentError(
            f'approximate: must be "none" or "tanh"; got {approximate!r}. Leave it out for "none"'
        )
    if approximate == "none":
        return traced("gelu", x)
    return x * sigmoid(math.sqrt(8 / math.pi) * (x + 0.044715 * x * x * x))
