"""Products that NumPy takes at once: plain host arrays of one type, as most calls have them."""

from __future__ import annotations

from typing import Any

import numpy as np

from lapidist.frameworks.arrays import broadcast

Array = np.ndarray[Any, Any]
FLOAT, DOUBLE = np.dtype("float32"), np.dtype("float64")
HALF, BFLOAT = np.dtype("float16"), "bfloat16"  # a name, since importing ml_dtypes takes milliseconds
LEAST, MOST = 1e-30, 1e30  # sizes of alpha and beta that surely are normal numbers in float32


def product_at_once(a: Array, b: Array, out: Any) -> Any:
    """The fast path of plain host products: numpy.matmul alone. None: the full path must check the
    arguments.
    """
    dtype = a.dtype
    if dtype is not b.dtype:
        return None
    if not (dtype is FLOAT or dtype is DOUBLE):
        half = out is None and (dtype is HALF or dtype.type.__name__ == BFLOAT)
        return half_at_once(a, b, dtype) if half else None
    if out is not None and not (type(out) is np.ndarray and out.dtype is dtype and out.flags.carray):
        return None
    try:
        # NumPy would broadcast to an `out` with more matrices; of plain matrices it checks the shape itself.
        if out is not None and not (a.ndim == b.ndim == out.ndim == 2) and out.shape != shape_of(a, b):
            return None
        return np.matmul(a, b, out=out)
    except ValueError:
        return None


def shape_of(a: Array, b: Array) -> tuple[int, ...]:
    """The shape of a @ b; a ValueError if their batches do not broadcast."""
    if a.ndim == b.ndim == 2:
        return len(a), b.shape[1]
    if b.ndim < 2:
        return a.shape[:-1]
    batch = broadcast(a.shape[:-2], b.shape[:-2])
    return (*batch, *a.shape[-2:-1], b.shape[-1])


def half_at_once(a: Array, b: Array, dtype: np.dtype[Any]) -> Any:
    """The product in float32, rounded once."""
    try:
        product = np.matmul(a.astype(FLOAT), b.astype(FLOAT))
    except ValueError:
        return None
    with np.errstate(over="ignore"):
        return product.astype(dtype)


def gemm_at_once(a: Array, b: Array, c: Any, out: Any, numbers: tuple[Any, ...]) -> Any:
    """The same for plain matrices of gemm; `numbers`: alpha, beta, trans_a, trans_b."""
    alpha, beta, trans_a, trans_b = numbers
    if not (a.ndim == b.ndim == 2 and type(alpha) in (int, float) and type(beta) in (int, float)):
        return None
    if not (a.size and LEAST < abs(alpha) < MOST and (beta == 0 or LEAST < abs(beta) < MOST)):
        return None  # zero reads no operands, and what is too large is an error: for the full path
    dtype, scale, share = a.dtype, float(alpha), float(beta)
    if out is not None and (
        type(out) is not np.ndarray or any(np.may_share_memory(out, operand) for operand in (a, b))
    ):
        return None
    first, second = a.T if trans_a else a, b.T if trans_b else b
    shape = len(first), second.shape[1]
    if out is not None and out.shape != shape:
        return None
    if scale == 1 and share == 0:
        return product_at_once(first, second, out)
    if not (dtype is FLOAT or dtype is DOUBLE):
        return None  # alpha and beta must be applied before sums are rounded to half
    if share and not (type(c) is np.ndarray and c.dtype is dtype and c.shape == shape):
        return None
    if out is not None and not (out.flags.carray and out.dtype is dtype):
        return None
    if share and out is not None and c is not out and np.may_share_memory(c, out):
        return None
    result = product_at_once(first, second, None)
    if result is None:
        return None
    if scale != 1:
        result *= dtype.type(scale)
    if share:
        result += dtype.type(share) * c
    if out is None:
        return result
    out[...] = result
    return out
