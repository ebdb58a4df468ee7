"""How tensor cores sum: quickly in float64, or bit for bit as an H200 does.

The chip's sum of one instruction, found by matching recorded results (all bits of all of them agree): every product, and
the old accumulator, is cut off below 2^-25 of the largest one's power of two; what is left is added exactly; the sum is
cut to float32. A product's power of two is that of its factors added, before it is normalised. fp8 in wgmma keeps
2^-13 in place of 2^-25, and as many bits of the sum.
"""

from __future__ import annotations

import numpy as np

Array = np.ndarray
FRACTION, FRACTION_FP8 = 25, 13
NOTHING = -(1 << 14)  # the exponent of zero: below all others
FP8 = ("e4m3", "e5m2")
# mma.sync of fp8 is done as two halves of the depth.
DEPTH_OF_FP8_MMA = 16


def tensor_sum(a: Array, b: Array, c: Array | None, kinds: tuple[str, str], chip: bool, wgmma: bool = False) -> Array:
    """a (.., m, k) times b (.., k, n) plus c, in float64. `kinds` are the types of the result and of A."""
    result, element = kinds
    if not chip or result != "f32" or element not in ("f16", "bf16", "tf32", *FP8):
        product = a @ b
        return product if c is None else product + c
    if element in FP8 and wgmma:
        return cut(chip_sum(a, b, c, FRACTION_FP8), FRACTION_FP8)
    if element not in FP8:
        return chip_sum(a, b, c, FRACTION)
    for start in range(0, a.shape[-1], DEPTH_OF_FP8_MMA):
        part = slice(start, start + DEPTH_OF_FP8_MMA)
        c = cut(chip_sum(a[..., part], b[..., part, :], c, FRACTION), 23)
    assert c is not None
    return c


def exponent(value: Array) -> Array:
    """e for |value| in [2^(e-1), 2^e)."""
    _, found = np.frexp(value)
    return np.where(value == 0, NOTHING, found)


def chip_sum(a: Array, b: Array, c: Array | None, fraction: int) -> Array:
    """One row of a at a time: the products of a whole instruction are many."""
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
    """The sum of terms cut to whole multiples of 2^unit; infinities and NaN go their own way."""
    whole = np.ldexp(np.trunc(np.ldexp(terms, -unit)).sum(axis=-1), unit[..., 0])
    plain = terms.sum(axis=-1)
    return np.where(np.isfinite(plain), np.where(unit[..., 0] < NOTHING // 2, 0.0, whole), plain)


def cut(value: Array, fraction: int) -> Array:
    """Truncated to `fraction` bits behind the leading one."""
    unit = exponent(value) - 1 - fraction
    cut_off = np.ldexp(np.trunc(np.ldexp(value, -unit)), unit)
    return np.where((value == 0) | ~np.isfinite(value), value, cut_off)
