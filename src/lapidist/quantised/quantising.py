"""Floats to codes and factors, in NumPy's arrays or in torch's tensors where they are: the same bits.

Both libraries have these functions by the same names. Numbers that floats are divided by are arrays on their
device: by a number of the host's, torch multiplies with its rounded inverse on a GPU.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lapidist.dtypes import numpy_dtype
from lapidist.errors import ArgumentError
from lapidist.frameworks.new_arrays import torch_dtype
from lapidist.quantised.number_formats import (
    E2M1,
    FORMATS,
    GROUP_OF,
    SYMMETRIC_ZERO,
    Format,
    scales_as_numbers,
)

EVERY_BYTE = np.arange(256, dtype=np.uint8)
MIDDLES = (E2M1[1:] + E2M1[:-1]) / 2


class Packed(NamedTuple):
    """Codes in groups (groups, steps, n), and factors and zero points (groups, n); of nvfp4 the factor of the
    whole weight in place of zero points.
    """

    codes: Any
    scales: Any
    zeros: Any = None


def library_of(array: Any) -> Any:
    if isinstance(array, np.ndarray):
        return np
    import torch

    return torch


def cast(array: Any, dtype: str) -> Any:
    if isinstance(array, np.ndarray):
        return array.astype(numpy_dtype(dtype))
    return array.to(torch_dtype(dtype))


def as_bytes(array: Any) -> Any:
    return array.view(np.uint8 if isinstance(array, np.ndarray) else torch_dtype("uint8"))


def constant(number: float, like: Any) -> Any:
    """A number in float32."""
    if isinstance(like, np.ndarray):
        return np.float32(number)
    return library_of(like).tensor(number, dtype=torch_dtype("float32"), device=like.device)


def as_numbers(scales: Any, scale_type: str) -> Any:
    """Factors in float64."""
    if isinstance(scales, np.ndarray):
        return scales_as_numbers(scales, scale_type)
    if scale_type not in ("e4m3", "e8m0"):
        return cast(scales, "float64")
    table = library_of(scales).from_numpy(scales_as_numbers(EVERY_BYTE, scale_type))
    return table.to(scales.device)[cast(scales, "int64")]


# ---- the kinds of factors ----


def symmetric(parts: Any, format: Format) -> Packed:
    lib = library_of(parts)
    largest = lib.amax(lib.abs(parts), 1)
    if format.name == "mxfp4":  # OCP: the power of two of the largest, over that of 6
        exponents = lib.frexp(largest)[1] - 1 - 2
        scales = cast(lib.where(largest == 0, 127, lib.clip(exponents + 127, 0, 254)), "uint8")
        numbers = as_numbers(scales, "e8m0")
    else:
        scales = cast(largest / constant(format.largest, largest), "bfloat16")
        numbers = cast(scales, "float64")
    return Packed(divided(parts, numbers, format), scales)


def with_two_factors(parts: Any, format: Format) -> Packed:
    """Factors of e4m3, the largest of which is its largest number by a factor of the whole weight."""
    lib, e4m3 = library_of(parts), FORMATS["e4m3"]
    largest = lib.amax(lib.abs(parts), 1)
    top = lib.amax(largest.reshape(1, -1), 1)
    overall = top / constant(format.largest * e4m3.largest, parts)
    overall = lib.where(overall == 0, constant(1, parts), overall)
    scales = codes_of(largest / constant(format.largest, parts) / overall, e4m3)
    numbers = as_numbers(scales, "e4m3") * cast(overall, "float64")
    return Packed(divided(parts, numbers, format), scales, overall)


def with_zero_points(parts: Any, format: Format) -> Packed:
    lib = library_of(parts)
    lowest, highest = lib.clip(lib.amin(parts, 1), None, 0), lib.clip(lib.amax(parts, 1), 0, None)
    with np.errstate(over="ignore"):
        spans = highest - lowest
    if not lib.isfinite(spans).all():
        raise ArgumentError(
            "weight: with zero_points, ranges of groups must be finite in float32; got infinity. Scale it"
        )
    scales = cast(spans / constant(15, parts), "bfloat16")
    divisors = lib.where(scales == 0, constant(1, parts), cast(scales, "float32"))
    zeros = lib.clip(lib.round(-lowest / divisors), 0, 15)
    codes = lib.clip(lib.round(parts / divisors[:, None]) + zeros[:, None], 0, 15)
    return Packed(cast(codes, "uint8"), scales, cast(zeros, "uint8"))


def divided(parts: Any, numbers: Any, format: Format) -> Any:
    """The codes of floats over their factors, which are rounded once; where a factor is 0, of floats."""
    divisors = library_of(parts).where(numbers == 0, 1, numbers)[:, None]
    return codes_of(cast(parts / divisors, "float32"), format)


# ---- codes ----


def codes_of(scaled: Any, format: Format) -> Any:
    """The nearest codes of numbers that were divided by their factors."""
    lib = library_of(scaled)
    if format.name == "e4m3":
        return as_bytes(cast(lib.clip(scaled, -448, 448), "float8_e4m3fn"))
    if format.name in GROUP_OF:
        magnitude, codes = lib.abs(scaled), cast(lib.signbit(scaled), "uint8") << 3
        below = cast(codes & 0, "uint8")
        for number, middle in enumerate(MIDDLES.tolist()):  # halfway goes to the even code
            below += cast(magnitude >= middle if number % 2 else magnitude > middle, "uint8")
        return codes | below
    rounded = lib.clip(lib.round(scaled), -format.largest - (format.name == "int4"), format.largest)
    if format.name == "int4":
        return cast(rounded + SYMMETRIC_ZERO, "uint8")
    return as_bytes(cast(rounded, "int8"))
