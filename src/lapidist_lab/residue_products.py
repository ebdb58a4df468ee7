"""float64 products by int8 tensor cores and the Chinese remainder theorem (Ozaki's scheme II): the arithmetic
in NumPy, and what it would take on a chip, by counts.

    a, b    scaled by powers of two for each row of A and column of B, and rounded to integers
    r_i     their remainders modulo p_i, which fit into int8; each p_i takes one int8 product
    c       the integer below the product of all p_i that has these remainders, scaled back

emulated_float64.py has it as launches. docs/attempts.md has what these take, and the decision.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from lapidist.device import Device

SUSTAINED_INT8, SUSTAINED_FP64 = 1440.7e12, 53.3e12  # of an H200 at 8192^3, as docs/performance has them
INT8_BYTES, INT32_BYTES, FP64_BYTES = 1, 4, 8
Array = np.ndarray[Any, Any]


def moduli(count: int) -> list[int]:
    """The largest numbers up to 256 that share no factor: remainders around zero fit into int8."""
    chosen: list[int] = []
    for number in range(256, 1, -1):
        if len(chosen) == count:
            break
        if all(math.gcd(number, other) == 1 for other in chosen):
            chosen.append(number)
    return chosen


def bits(count: int, k: int) -> float:
    """Bits of an element below the largest of its line, for numbers of one size."""
    return (math.log2(math.prod(moduli(count))) - 1 - math.log2(k)) / 2


# ---- in NumPy ----


def integers(lines: Array, product: int) -> tuple[Array, Array]:
    """Lines as integers whose Euclidean norms stay below the root of half of `product`, and the exponents."""
    norms = np.linalg.norm(lines, axis=1)
    most = math.log2(product // 2) / 2 - 0.5  # room for what rounding adds
    exponents = np.floor(most - np.log2(np.where(norms > 0, norms, 1.0))).astype(np.int64)
    return np.rint(np.ldexp(lines, exponents[:, None])).astype(np.int64), exponents


def centred(numbers: Array, modulus: int) -> Array:
    """Remainders from -modulus / 2 up, as int8."""
    half = modulus // 2
    return ((numbers + half) % modulus - half).astype(np.int8)


def multiplied(a: Array, b: Array, count: int) -> Array:
    """a @ b of float64, rounded once from the exact product of both operands' integers."""
    numbers = moduli(count)
    product = math.prod(numbers)
    rows, of_rows = integers(a, product)
    columns, of_columns = integers(b.T, product)
    total = np.zeros((len(rows), len(columns)), object)
    for modulus in numbers:
        left, right = centred(rows, modulus), centred(columns, modulus)
        sums = left.astype(np.int32) @ right.astype(np.int32).T
        others = product // modulus
        weight = others * pow(others, -1, modulus)
        total = (total + (sums % modulus).astype(object) * weight) % product
    total = np.where(total > product // 2, total - product, total)
    exponents = of_rows[:, None] + of_columns
    return np.ldexp(total.astype(np.float64), -exponents)


# ---- by counts ----


class Seconds(NamedTuple):
    """What the parts of a product take."""

    products: float
    cutting: float
    remainders: float  # of int32 sums, where the product's launch does not take them itself
    joining: float

    @property
    def total(self) -> float:
        return sum(self)


def counted(size: int, count: int, device: Device, fused: bool) -> Seconds:
    """Of m = n = k = size. `fused`: the products' launches store remainders of one byte; else sums of four,
    which a pass reads.
    """
    elements, rate = size * size, device.dram_gbps * 1e9
    flops, stored = 2.0 * size**3, count * elements * INT8_BYTES
    between = 0 if fused else 2 * count * elements * INT32_BYTES
    return Seconds(
        products=count * flops / SUSTAINED_INT8,
        cutting=2 * elements * (FP64_BYTES + count * INT8_BYTES) / rate,
        remainders=(stored + between) / rate,
        joining=(stored + elements * FP64_BYTES) / rate,
    )


def promised(size: int, count: int, device: Device, fused: bool) -> float:
    """The time of float64 on tensor cores over this one."""
    return 2.0 * size**3 / SUSTAINED_FP64 / counted(size, count, device, fused).total
