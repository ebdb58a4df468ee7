"""The same product on the host: NumPy's BLAS, with the semantics that the kernels have."""

from __future__ import annotations

from typing import Any

import numpy as np

from lapidist.dtypes import TF32, TYPES

Array = np.ndarray[Any, Any]


def multiply(
    a: Array, b: Array, c: Array | None, out: Array, alpha: float, beta: float, accumulator: str, precision: str
) -> None:
    """out = alpha a b + beta c. Small floats are summed in float; beta = 0 never reads c; alpha = 0 never reads a and b."""
    if accumulator == "int32":
        multiply_integers(a, b, c, out, int(alpha), int(beta))
        return
    working = np.dtype("float32" if accumulator == "float16" else accumulator)
    if alpha == 0 or a.shape[-1] == 0:
        result = np.zeros(out.shape, working)
    elif alpha == 1 and beta == 0 and a.dtype == out.dtype == working and precision != TF32 and out.flags.c_contiguous:
        np.matmul(a, b, out=out)
        return
    else:
        factors = (x.astype(working, copy=False) for x in (a, b))
        result = np.matmul(*(map(rounded_to_tf32, factors) if precision == TF32 else factors))
        if accumulator == "float16":
            with np.errstate(over="ignore"):
                result = result.astype(np.float16).astype(working)
        if alpha != 1:
            result *= working.type(alpha)
    if beta != 0 and c is not None:
        result = result + working.type(beta) * c.astype(working, copy=False)
    with np.errstate(over="ignore"):
        out[...] = within_bounds(result, out.dtype.name)


def multiply_integers(a: Array, b: Array, c: Array | None, out: Array, alpha: int, beta: int) -> None:
    """Every step modulo 2^32, as the kernels do it. BLAS has no integers: float64 holds sums of up to 2^37 products exactly."""
    if alpha == 0 or a.shape[-1] == 0:
        result = np.zeros(out.shape, np.int64)
    else:
        result = alpha * np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(np.int64).astype(np.int32).astype(np.int64)
    if beta != 0 and c is not None:
        result = result + beta * c.astype(np.int64)
    out[...] = within_bounds(result.astype(np.int32), out.dtype.name)


def within_bounds(result: Array, dtype: str) -> Array:
    """Results of 8 bits stop at the largest number of their type; NaN stays."""
    bounds = TYPES[dtype].bounds
    return result if bounds is None else np.clip(result, *bounds)


def rounded_to_tf32(values: Array) -> Array:
    """float32 rounded to 10 bits behind the leading one, ties to even, as Hopper's cvt.rn.tf32 does it."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    bits = (bits + np.uint32(0xFFF) + (bits >> np.uint32(13) & np.uint32(1))) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(values), bits.view(np.float32), values)
