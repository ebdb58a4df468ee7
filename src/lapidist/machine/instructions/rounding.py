"""Arithmetic rounded down (.rm), up (.rp) or towards zero (.rz), exactly.

A float32 result is computed in float64, as a rounded value and its error. The error of a sum is exact.
That of a product is zero. A quotient or root that is no float32 is too far from the nearest one for
float64 to round onto it. Results in float64 are rare: they are compared as fractions, lane by lane."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from lapidist.machine.codegen import runtime

Array = np.ndarray
SINGLE = np.dtype("f4")


def sum_of(a: Array, b: Array) -> tuple[Array, Array]:
    """The rounded sum and its error; no float32 is so large that this overflows."""
    total = a + b
    back = total - a
    return total, (a - (total - back)) + (b - back)


def without_error(value: Array) -> tuple[Array, Array]:
    """A value whose error does not change how it is rounded to float32."""
    return value, np.zeros(1)


# Of float32 operands, widened to float64.
WIDE: dict[str, Callable[..., tuple[Array, Array]]] = {
    "add": sum_of,
    "sub": lambda a, b: sum_of(a, -b),
    "fma": lambda a, b, c: sum_of(a * b, c),
    "mul": lambda a, b: without_error(a * b),
    "div": lambda a, b: without_error(a / b),
    "rcp": lambda a: without_error(1 / a),
    "sqrt": lambda a: without_error(np.sqrt(a)),
}
EXACT: dict[str, Callable[..., Fraction]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "fma": lambda a, b, c: a * b + c,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "rcp": lambda a: 1 / a,
}


@runtime
def directed(operation: str, mode: str, *values: Array) -> Array:
    """The result of floats of one type, rounded to that type."""
    wide = [value.astype(np.float64) for value in values]
    total, error = WIDE[operation](*wide)
    if operation in ("add", "sub", "fma") and mode == "rm":
        total = np.where((total == 0) & (error == 0) & cancels(operation, wide), -0.0, total)
    if values[0].dtype == SINGLE:
        return towards(mode, total, error)
    columns = [column.tolist() for column in np.broadcast_arrays(total, *wide)]
    return np.array([lane(operation, mode, *lane_values) for lane_values in zip(*columns, strict=True)])


def cancels(operation: str, values: list[Array]) -> Array:
    """Whether a sum of zero is not one of positive zeros alone: rounded down it is negative."""
    first = values[0] * values[1] if operation == "fma" else values[0]
    last = -values[-1] if operation == "sub" else values[-1]
    return np.signbit(first) | np.signbit(last)


def towards(mode: str, total: Array, error: Array) -> Array:
    """total + rest as float32, where total is that sum rounded to float64."""
    near = total.astype(SINGLE)
    above = (near > total) | ((near == total) & (error < 0))
    below = (near < total) | ((near == total) & (error > 0))
    infinity = SINGLE.type(np.inf)
    down, up = (
        np.where(beyond, np.nextafter(near, end), near)
        for beyond, end in ((above, -infinity), (below, infinity))
    )
    if mode == "rz":
        return np.where(total < 0, up, down)
    return down if mode == "rm" else up


@runtime
def converted_towards(mode: str, value: Array, code: np.dtype) -> Array:
    """A float64 or an integer to a narrower float, or to one that cannot hold all of its bits."""
    total = value.astype(np.float64)
    if value.dtype.kind == "f":
        return towards(mode, total, np.zeros(1))
    gaps = [
        Fraction(exact) - Fraction(near) for exact, near in zip(value.tolist(), total.tolist(), strict=True)
    ]
    if code == SINGLE:
        return towards(mode, total, np.sign(np.array(gaps, np.float64)))
    return np.array([neighbour(mode, near, gap) for near, gap in zip(total.tolist(), gaps, strict=True)])


def lane(operation: str, mode: str, near: float, *values: float) -> float:
    """One float64 result. `near` is right where it, or an operand, is no number or exactly zero."""
    if not all(map(math.isfinite, values)) or (operation in ("div", "rcp") and values[-1] == 0):
        return near
    if operation == "sqrt":
        return (
            near
            if near == 0 or math.isnan(near)
            else neighbour(mode, near, Fraction(values[0]) - Fraction(near) ** 2)
        )
    exact = EXACT[operation](*map(Fraction, values))
    if exact == 0:
        return near
    try:
        near = exact.numerator / exact.denominator  # Python divides integers with one rounding
    except OverflowError:
        near = math.inf if exact > 0 else -math.inf
        return neighbour(mode, near, -exact)
    return neighbour(mode, near, exact - Fraction(near))


def neighbour(mode: str, near: float, gap: Fraction) -> float:
    """The nearest float or the one beside it; `gap` is how far the exact value lies above it."""
    towards_zero = -math.inf if near > 0 or (near == 0 and gap > 0) else math.inf
    end = {"rm": -math.inf, "rp": math.inf, "rz": towards_zero}[mode]
    return math.nextafter(near, end) if gap * (1 if end > 0 else -1) > 0 else near
