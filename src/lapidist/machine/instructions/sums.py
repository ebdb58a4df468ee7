"""How tensor cores sum: quickly in float64, or bit for bit as an H200 does.

The chip's sum of one step was found by matching recorded results: all bits of all of them agree. Every
product, and the old accumulator, is cut off below 2^-25 of the largest one's power of two. What is left is
added exactly. The sum is cut to float32, or rounded to half. A product's power of two is that of its factors
added, before it is normalised. fp8 in wgmma keeps 2^-13 in place of 2^-25, and as many bits of a float32 sum.
float64 is a chain of fused multiplications."""

from __future__ import annotations

import numpy as np

from lapidist.machine.instructions.floats import fused64
from lapidist.machine.instructions.formats import from_f16, to_f16

Array = np.ndarray
FRACTION, FRACTION_FP8 = 25, 13
NOTHING = -(1 << 14)  # the exponent of zero: below all others
FP8 = ("e4m3", "e5m2")
DEPTH_OF_TF32_WMMA = 4  # the compiler makes two steps of a wmma


def tensor_sum(
    a: Array, b: Array, c: Array | None, kinds: tuple[str, str], chip: bool, unit: str = "mma"
) -> Array:
    """a (.., m, k) times b (.., k, n) plus c, in float64. `kinds` are the types of the result and of A;
    `unit` is the instruction: mma, wmma or wgmma."""
    result, element = kinds
    if not chip or result == "s32":
        product = a @ b
        return product if c is None else product + c
    if element == "f64":
        return fused_chain(a, b, c)
    if element in FP8 and unit == "mma":
        return sum_of_halves(a, b, c, result)
    if element in FP8:
        total = chip_sum(a, b, c, FRACTION_FP8)
        return cut(total, FRACTION_FP8) if result == "f32" else total
    depth = DEPTH_OF_TF32_WMMA if element == "tf32" and unit == "wmma" else a.shape[-1]
    for start in range(0, a.shape[-1], depth):
        part = slice(start, start + depth)
        c = rounded(chip_sum(a[..., part], b[..., part, :], c, FRACTION), result)
    assert c is not None
    return c


def rounded(total: Array, result: str) -> Array:
    return cut(total, 23) if result == "f32" else from_f16(to_f16(total)).astype("f8")


def fused_chain(a: Array, b: Array, c: Array | None) -> Array:
    total = np.zeros((*a.shape[:-1], b.shape[-1])) if c is None else c
    for k in range(a.shape[-1]):
        first, second = np.broadcast_arrays(a[..., :, k, None], b[..., None, k, :])
        total = fused64(first, second, total)
    return total


def sum_of_halves(a: Array, b: Array, c: Array | None, result: str) -> Array:
    """The sum of an fp8 mma.sync, which is done in half precision: first the lower pair of each register's
    four, then the upper. The cores add the old accumulator."""
    total = None
    for upper in (False, True):
        part = (np.arange(a.shape[-1]) % 4 >= 2) == upper
        total = rounded(chip_sum(a[..., part], b[..., part, :], total, FRACTION), result)
    assert total is not None
    if c is None:
        return total
    added = total + c
    return added.astype("f4").astype("f8") if result == "f32" else added


def exponent(value: Array) -> Array:
    """e for |value| in [2^(e-1), 2^e)."""
    _, powers = np.frexp(value)
    return np.where(value == 0, NOTHING, powers)


def chip_sum(a: Array, b: Array, c: Array | None, fraction: int) -> Array:
    """The chip's sum, one row of a at a time: the products of a whole instruction are many."""
    columns = np.ascontiguousarray(b.swapaxes(-1, -2))
    column_exponents = exponent(columns)
    rows = []
    for m in range(a.shape[-2]):
        row = a[..., m, None, :]
        products = row * columns
        exponents = np.where(products == 0, NOTHING, exponent(row) + column_exponents - 1)
        if c is not None:
            products = np.concatenate([products, c[..., m, :, None]], axis=-1)
            exponents = np.concatenate([exponents, exponent(c[..., m, :, None])], axis=-1)
        rows.append(aligned_sum(products, exponents.max(axis=-1, keepdims=True) - 1 - fraction))
    return np.stack(rows, axis=-2)


def aligned_sum(terms: Array, unit: Array) -> Array:
    """The sum of terms cut to whole multiples of 2^unit; infinities and NaN stay what they are."""
    total = np.ldexp(np.trunc(np.ldexp(terms, -unit)).sum(axis=-1), unit[..., 0])
    plain = terms.sum(axis=-1)
    return np.where(np.isfinite(plain), np.where(unit[..., 0] < NOTHING // 2, 0.0, total), plain)


def cut(value: Array, fraction: int) -> Array:
    """The value truncated to `fraction` bits behind the leading one."""
    unit = exponent(value) - 1 - fraction
    cut_off = np.ldexp(np.trunc(np.ldexp(value, -unit)), unit)
    return np.where((value == 0) | ~np.isfinite(value), value, cut_off)
