"""The ways of products with weights of few bits on Hopper, and the choice by predicted time.

streamed     codes are decoded on their way to tensor cores, for each block of rows again
converted    the same, by rows of e4m3 in bfloat16
decoded      the weight is decoded once, in the type of x; then the product of that type by any kernel
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from lapidist.device import Device
from lapidist.problems.scaling import K_BLOCK
from lapidist.quantised.kernel_parameters import Rows
from lapidist.quantised.launches import ROWS_OF_SKINNY
from lapidist.quantised.number_formats import FORMATS, VECTOR_BYTES
from lapidist.quantised.streamed_configs import NARROW, SMS, microseconds, streamed_config
from lapidist.quantised.weight_facts import Weight

Way = Literal["streamed", "converted", "decoded"]
# Of groups of rows, and where the chip is no Hopper. With more, decoding once takes less than decoding for
# each block of rows: on an H200 512 rows by 8192 x 8192 took 118 us in blocks of 128 rows and 130 decoded.
ROWS_OF_GROUPS, ROWS_WITHOUT_WGMMA = 512, 128
E4M3, WIDER = "float8_e4m3fn", "bfloat16"  # the second holds all of the first
# Codes are decoded into e4m3 where factors are those of scaled products, of 128 steps of k. Groups of FOLDED
# share the largest factor of 128 steps, and codes have the rest, as far as e4m3 goes. Columns whose factors
# span more are multiplied once more, streamed, by the launch behind, which else ends at once.
FOLDED, AS_CODES = ("mxfp4",), ("int4", "e4m3", "mxfp4")
# On an H200: microseconds that a launch takes which converts, and a product by a decoded weight beside what
# it moves and computes. By the bytes of an element: bytes that the launch before it moves in one, and
# operations in one. They are fitted to 80 products of ten layers, of 256, 512 and 4096 rows.
LAUNCH, BEGIN, BYTES_IN_ONE, OPERATIONS_IN_ONE = 1.7, 6.5, {2: 4.1e6, 1: 3.6e6}, {2: 850e6, 1: 1310e6}
BYTES_CONVERTED_IN_ONE = 2.2e6


def decodes_into_codes(weight: Weight) -> bool:
    """Whether e4m3 holds codes, and scaled products have the factors."""
    if weight.format not in AS_CODES or weight.dtype != E4M3:
        return False
    return weight.format in FOLDED or weight.group in (K_BLOCK, weight.k)


def as_converted(weight: Weight) -> Weight | None:
    """Facts of x in WIDER, if it holds products of codes and factors, and rows of x are whole vectors."""
    if weight.dtype != E4M3 or weight.k % VECTOR_BYTES:
        return None
    wider = weight._replace(dtype=WIDER)
    return wider if wider.exact_in_x else None


def way_on(
    chip: Device, rows: Rows, weight: Weight, decode: bool | None = None, may_decode: bool = True
) -> Way:
    """`decode`: the caller's wish, of x in 16 bits."""
    if weight.x_bytes == 2 and decode is not None:
        return "decoded" if decode else "streamed"
    if "wgmma" not in chip.units or rows.ragged is not None:
        return "decoded" if weight.x_bytes == 2 and rows.expected > few_rows(chip) else "streamed"
    return way_of(rows, weight, chip.sms, may_decode)


def few_rows(chip: Device) -> int:
    return ROWS_OF_GROUPS if "wgmma" in chip.units else ROWS_WITHOUT_WGMMA


@lru_cache(maxsize=1024)
def way_of(rows: Rows, weight: Weight, multiprocessors: int, may_decode: bool = True) -> Way:
    """The way of the least predicted time. The kernel of few rows reads 8 bits as they are."""
    if rows.expected <= ROWS_OF_SKINNY:
        return "streamed"
    times: dict[Way, float] = {"streamed": streamed_time(rows, weight, multiprocessors)}
    wider = as_converted(weight)
    if wider is not None:
        moved = 3 * rows.total * weight.k / BYTES_CONVERTED_IN_ONE
        times["converted"] = LAUNCH + moved + streamed_time(rows, wider, multiprocessors)
    may_decode = may_decode and rows.expected > NARROW
    if may_decode and (weight.x_bytes == 2 or decodes_into_codes(weight)):
        times["decoded"] = decoded_time(rows, weight, multiprocessors)
    return min(times, key=times.__getitem__)


def streamed_time(rows: Rows, weight: Weight, multiprocessors: int) -> float:
    """In microseconds."""
    return microseconds(rows, weight, streamed_config(rows, weight, multiprocessors), multiprocessors)


def decoded_time(rows: Rows, weight: Weight, multiprocessors: int) -> float:
    numbers = weight.n * weight.k
    moved = numbers * (FORMATS[weight.format].bits / 8 + weight.x_bytes) / BYTES_IN_ONE[weight.x_bytes]
    operations = 2 * rows.total * numbers / OPERATIONS_IN_ONE[weight.x_bytes]
    return BEGIN + (moved + operations) * SMS / multiprocessors
