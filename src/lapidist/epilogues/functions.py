"""The functions of epilogues: an operation, or an expression of others, as a caller could write it."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any, Literal

from lapidist.dtypes import name_of
from lapidist.epilogues.expressions import Expression, Scalar, Tape, place_now
from lapidist.epilogues.operations import CASTS
from lapidist.epilogues.results import Pair, Returned
from lapidist.epilogues.steps import DROPOUT_MASK, DROPOUT_MASK_BY_OPERAND
from lapidist.errors import ArgumentError, DTypeError, shown

BY_TANH = math.sqrt(8 / math.pi)  # gelu's formula: 0.5 (1 + tanh(y)) is sigmoid(2 y)


def traced(operation: str, *args: Any, value: str = "") -> Expression:
    """A new step on the tape of the arguments."""
    return tape_of(operation, *args).apply(operation, *args, value=value)


def tape_of(operation: str, *args: Any) -> Tape:
    """The tape of the first argument that has one."""
    for arg in args:
        if isinstance(arg, Expression):
            return arg.tape
    for arg in args:
        if isinstance(arg, (Pair, Returned)):
            raise arg.refusal()
    raise ArgumentError(
        f"lapidist.{operation}: belongs into a function of @lapidist.epilogue, of values that it is given;"
        f" got {outside(args[0])}, {place_now()}. Use Python's on numbers, and NumPy's or torch's on arrays"
    )


def outside(value: Any) -> str:
    """A value that is not traced, in one line."""
    return f"an array of shape {tuple(value.shape)}" if hasattr(value, "shape") else repr(value)


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
    tape_of("clamp", x, low, high)
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
    """x without its fraction.

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
    tape_of("relu", x)
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
    tape_of("silu", x)
    return x * sigmoid(x)


def gelu(x: Any, approximate: Literal["none", "tanh"] = "none") -> Expression:
    """x times the probability that a normal number is below it; approximate="tanh" is the formula by tanh.

    >>> import lapidist
    >>> print(lapidist.epilogue(lambda acc: lapidist.gelu(acc)))
    gelu(acc)
    """
    if is_exact(approximate):
        return traced("gelu", x)
    tape_of("gelu", x)
    return x * sigmoid(x * (BY_TANH + 0.044715 * BY_TANH * (x * x)))


def gelu_slope(x: Any, approximate: Literal["none", "tanh"] = "none") -> Expression:
    """The derivative of gelu at x, for gradients.

    >>> import lapidist
    >>> print(lapidist.epilogue(lambda acc: lapidist.gelu_slope(acc)))
    gelu_slope(acc)
    """
    if is_exact(approximate):
        return traced("gelu_slope", x)
    tape_of("gelu_slope", x)
    square = x * x
    share = sigmoid(x * (square * (0.044715 * BY_TANH) + BY_TANH))
    return share * (1 + x * (1 - share) * (square * (3 * 0.044715 * BY_TANH) + BY_TANH))


def is_exact(approximate: str) -> bool:
    if approximate not in ("none", "tanh"):
        raise ArgumentError(
            f'approximate: must be "none" or "tanh"; got {shown(approximate)}. Leave it out for "none"'
        )
    return approximate == "none"


def dropout(x: Any, p: Any, seed: Any) -> Expression:
    """0 with probability p, else x / (1 - p), chosen by the seed and the element's place in D.

    `p` is a captured number or a Scalar, the seed a captured integer or a Scalar of 64 bits; Scalars may
    change from call to call. Elements are numbered row by row, through all matrices of a batch; those of a
    pair share a number. Philox4x32-10 gives each a random word, the same on any device, in any kernel.

    >>> import lapidist
    >>> print(lapidist.epilogue(lambda acc: lapidist.dropout(acc, 0.5, seed=7)))
    where(kept(7, position, 0.5), acc * 2, 0)
    """
    tape = tape_of("dropout", x)
    if isinstance(p, Scalar):
        mask = tape.apply(DROPOUT_MASK_BY_OPERAND, tape.seed(seed), tape.position(), p)
        return where(mask, x * (1 / (1 - p)), 0.0)
    if not isinstance(p, Real) or not 0 <= float(p) < 1:
        got = f"{type(p).__name__}, which is traced" if isinstance(p, Expression) else repr(p)
        raise ArgumentError(
            f"p: must be a Scalar or a number that is captured, 0 or more and below 1; got {got}. Try 0.1"
        )
    mask = tape.apply(DROPOUT_MASK, tape.seed(seed), tape.position(), value=repr(float(p)))
    return where(mask, x * (1 / (1 - float(p))), 0.0)
