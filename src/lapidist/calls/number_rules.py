"""The rules for alpha, beta, factors and flags, each written once."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import numpy as np

from lapidist.dtypes import MOST_K, OPERANDS, number_type
from lapidist.errors import ArgumentError, ShapeError, shown


def require_c_for_beta(beta: float, c: object) -> None:
    if beta != 0 and c is None:
        raise ArgumentError(
            f"beta: must be 0 when there is no c; got {beta}. Pass c, or c=out to update the output in place"
        )


def require_scalar(name: str, value: Any) -> Any:
    """alpha or beta as a Python number. Complex ones are refused later, where sums are real."""
    if isinstance(value, (complex, np.complexfloating)):
        return complex(value)
    if isinstance(value, Real) or (
        isinstance(value, np.generic) and (value.dtype.kind == "b" or value.dtype.name in OPERANDS)
    ):
        try:
            return float(value)
        except OverflowError:
            raise ArgumentError(
                f"{name}: must fit a float64; got an integer beyond it. Scale the inputs instead"
            ) from None
    raise no_real_number(name, value)


def no_real_number(name: str, value: Any) -> ArgumentError:
    way_out = "Call float() on it, or .item() on an array"
    if isinstance(value, complex):
        way_out = "Convert a and b to complex numbers, or pass its real part"
    return ArgumentError(f"{name}: must be a real number; got {type(value).__name__}. {way_out}")


BLAS_FLAGS = "BLAS' 'N' is False, 'T' is True"


def require_op(name: str, value: object) -> None:
    """What op does to an operand."""
    if not (isinstance(value, str) and value == "C") and not isinstance(value, (bool, np.bool_)):
        raise ArgumentError(
            f'{name}: must be True, False or "C"; got {shown(value)}. {BLAS_FLAGS}; "C" conjugates, too'
        )


def require_flag(name: str, value: object, way_out: str = "Call bool() on it, or leave it out") -> None:
    if not isinstance(value, (bool, np.bool_)):
        raise ArgumentError(f"{name}: must be True or False; got {shown(value)}. {way_out}")


def require_in_range(name: str, value: Any, accumulator: str) -> Any:
    """alpha or beta rounded to the type that kernels take: the accumulator's, or float for half sums. What
    rounds to zero is zero.
    """
    dtype = number_type(accumulator)
    if isinstance(value, complex):
        if np.dtype(accumulator).kind != "c":
            raise no_real_number(name, value)
        parts = (require_in_range(name, part, dtype.name) for part in (value.real, value.imag))
        return complex(*parts) if value.imag else next(parts)
    if value in (0.0, 1.0):
        return value
    if dtype.kind in "biu":
        require_integer(name, value, dtype)
        return value
    if dtype.kind != "f" or dtype.itemsize > 8 or not math.isfinite(value):
        return value
    largest = float(np.finfo(dtype).max)
    if abs(value) > largest:
        raise ArgumentError(
            f"{name}: must fit {dtype}, at most {largest:.4g} in size; got {value:g}. Scale the inputs"
            " instead"
        )
    return float(dtype.type(value))


def require_integer(name: str, value: float, dtype: np.dtype[Any]) -> None:
    """A float64 holds every whole number up to 2^53."""
    info = np.iinfo(dtype) if dtype.kind in "iu" else np.iinfo("uint8")
    low, high = (max(info.min, -(2**53)), min(info.max, 2**53)) if dtype.kind in "iu" else (0, 1)
    if not value.is_integer() or not low <= value <= high:
        rule = (
            f"a whole number of {8 * dtype.itemsize} bits"
            if dtype == np.int32
            else f"a whole number from {low} to {high}"
        )
        raise ArgumentError(
            f"{name}: must be {rule} for integers, whose sums are {dtype}; got {value:g}. "
            "Multiply with 1 and scale the result in a floating type"
        )


def require_reach(bits: int, k: int) -> None:
    """Longer sums lose what was asked for."""
    if k > MOST_K:
        raise ShapeError(
            f"precision: {bits} bits hold up to k = {MOST_K}; got k = {k}. Add products of parts of k, or"
            ' name a precision, as "emulated"'
        )
