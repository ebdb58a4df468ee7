"""Products on the host: NumPy's BLAS, with the kernels' semantics."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Number
from typing import Any, NamedTuple

import numpy as np

from lapidist.dtypes import TF32, THREE_PRODUCTS, TYPES, numpy_sums
from lapidist.errors import DTypeError
from lapidist.frameworks.arrays import broadcast
from lapidist.problems.scaling import K_BLOCK

Array = np.ndarray[Any, Any]


# shapes: (rows of A or 1, blocks of k or 1) and (blocks of k or 1, columns of B or 1)
Factors = tuple[Array | None, Array | None]


class HostProduct(NamedTuple):
    """The arguments of `multiply`."""

    a: Array
    b: Array
    c: Array | None
    out: Array
    alpha: float
    beta: float
    accumulator: str
    precision: str
    factors: Factors | None = None
    finish: Callable[[Array], Array] | None = None
    store: Callable[[Array], None] | None = None
    sums: Callable[..., Array] | None = None  # in place of sums_of


def multiply(
    a: Array,
    b: Array,
    c: Array | None,
    out: Array,
    alpha: float,
    beta: float,
    accumulator: str,
    precision: str,
    factors: Factors | None = None,
    finish: Callable[[Array], Array] | None = None,
    store: Callable[[Array], None] | None = None,
    sums: Callable[..., Array] | None = None,
) -> None:
    """out = finish(alpha a b + beta c), then store(out). Small floats are summed in float. beta = 0 never
    reads c; alpha = 0 never reads a and b.
    """
    working = numpy_sums(accumulator)
    if sums is None and accumulator == "int32" and a.dtype.itemsize == 1:
        multiply_integers(a, b, c, out, int(alpha), int(beta))
    elif (
        (alpha == 1 and beta == 0 and finish is sums is None and a.shape[-1])
        and a.dtype == out.dtype == working
        and precision not in (TF32, THREE_PRODUCTS)
        and out.flags.c_contiguous
        and not working.hasobject
    ):
        np.matmul(a, b, out=out)
    else:
        sums = sums or (sums_of_objects if working.hasobject else sums_of)
        result = sums(a, b, c, alpha, beta, accumulator, precision, factors)
        if finish is not None:
            result = finish(result)
        with np.errstate(over="ignore"):
            out[...] = within_bounds(result, out.dtype.name)
    if store is not None:
        store(out)


def sums_of_objects(a: Array, b: Array, c: Array | None, *how: Any) -> Array:
    """Objects say only by multiplying whether they do. What fails has written nothing."""
    try:
        return sums_of(a, b, c, *how)
    except TypeError as error:
        arrays = (("a", a), ("b", b), ("c", c))
        elements = ((name, element) for name, array in arrays if array is not None for element in array.flat)
        wrong = (
            f"{name} {type(element).__name__}"
            for name, element in elements
            if not isinstance(element, Number)
        )
        name, _, kind = next(wrong, "a, b others").rpartition(" ")
        raise DTypeError(
            f"{name}: objects must multiply and add up as numbers do; got {kind} ({error}). Convert them"
        ) from error


def sums_of(
    a: Array,
    b: Array,
    c: Array | None,
    alpha: float,
    beta: float,
    accumulator: str,
    precision: str,
    factors: Factors | None,
) -> Array:
    """alpha a b + beta c, in the type that sums are kept in."""
    working = numpy_sums(accumulator)
    if alpha == 0 or a.shape[-1] == 0:
        batch = broadcast(a.shape[:-2], b.shape[:-2])
        result = np.zeros((*batch, a.shape[-2], b.shape[-1]), working)
    else:
        first, second = (x.astype(working, copy=False) for x in (a, b))
        if precision == TF32:
            first, second = rounded_to_tf32(first), rounded_to_tf32(second)
        if precision == THREE_PRODUCTS and np.iscomplexobj(a) and np.iscomplexobj(b):
            result = three_products(first, second)
        elif factors is None:
            result = np.matmul(first, second)
        else:
            result = scaled_product(first, second, *factors)
        if accumulator == "float16":
            with np.errstate(over="ignore"):
                result = result.astype(np.float16).astype(working)
        if alpha != 1:
            result = result * number(alpha, working)
    if beta != 0 and c is not None:
        result = result + number(beta, working) * c.astype(working, copy=False)
    return result


def three_products(a: Array, b: Array) -> Array:
    """Re = A1 B1 - A2 B2, Im = (A1 + A2) (B1 + B2) - A1 B1 - A2 B2, of real and imaginary parts."""
    first, second = np.matmul(a.real, b.real), np.matmul(a.imag, b.imag)
    result = np.empty(first.shape, a.dtype)
    result.real = first - second
    result.imag = np.matmul(a.real + a.imag, b.real + b.imag) - first - second
    return result


def number(value: float, working: np.dtype[Any]) -> Any:
    """alpha or beta in the type of sums; whole numbers stay whole where NumPy multiplies Python's objects."""
    return working.type(int(value) if working.kind in "biuO" and float(value).is_integer() else value)


def scaled_product(a: Array, b: Array, of_a: Array | None, of_b: Array | None) -> Array:
    """Factors that change along k multiply the sums of each 128 of k, other factors the whole sum."""
    of_a, of_b = (np.ones((1, 1), np.float32) if factors is None else factors for factors in (of_a, of_b))
    if of_a.shape[1] == of_b.shape[0] == 1:
        return np.matmul(a, b) * (of_a * of_b)
    blocks = -(-a.shape[-1] // K_BLOCK)
    of_a, of_b = np.broadcast_to(of_a, (len(of_a), blocks)), np.broadcast_to(of_b, (blocks, of_b.shape[1]))
    total = np.zeros((*a.shape[:-1], b.shape[-1]), np.float32)
    for block in range(blocks):
        part = slice(block * K_BLOCK, (block + 1) * K_BLOCK)
        total += (of_a[:, block, None] * of_b[block]) * np.matmul(a[..., part], b[..., part, :])
    return total


def multiply_integers(a: Array, b: Array, c: Array | None, out: Array, alpha: int, beta: int) -> None:
    """Every step modulo 2^32, as in kernels. BLAS has no integers: float64 holds sums of up to 2^37 products
    exactly.
    """
    if alpha == 0 or a.shape[-1] == 0:
        result = np.zeros(out.shape, np.int64)
    else:
        result = alpha * np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(np.int64).astype(
            np.int32
        ).astype(np.int64)
    if beta != 0 and c is not None:
        result = result + beta * c.astype(np.int64)
    out[...] = within_bounds(result.astype(np.int32), out.dtype.name)


def within_bounds(result: Array, dtype: str) -> Array:
    """Results of 8 bits are clipped to their type's range; NaN stays."""
    bounds = TYPES[dtype].bounds if dtype in TYPES else None
    return result if bounds is None else np.clip(result, *bounds)


def rounded_to_tf32(values: Array) -> Array:
    """float32 rounded to 10 bits of mantissa, ties to even, like Hopper's cvt.rn.tf32."""
    if np.iscomplexobj(values):
        result = np.empty(values.shape, values.dtype)
        result.real, result.imag = rounded_to_tf32(values.real), rounded_to_tf32(values.imag)
        return result
    bits = np.ascontiguousarray(values).view(np.uint32)
    bits = (bits + np.uint32(0xFFF) + (bits >> np.uint32(13) & np.uint32(1))) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(values), bits.view(np.float32), values)
