"""Formats of weights: how codes become numbers, and which groups of k share a factor."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lapidist.dtypes import numpy_dtype
from lapidist.errors import ArgumentError, shown

Array = np.ndarray[Any, Any]
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
SYMMETRIC_ZERO = 8  # the code of 0 in int4 without zero points
GROUPS = 32, 64, 128
GROUP_OF = {"mxfp4": 32, "nvfp4": 16}  # formats whose factors are of so many steps of k, and no others
BLOCK = 64  # steps of k that a warp decodes at once
VECTOR_BYTES = 16  # of a load; rows of x begin at multiples of them
SCALE_TYPES = "float32", "float16", "bfloat16", "e8m0", "e4m3"


class Format(NamedTuple):
    """`largest`: the magnitude that the largest of a group becomes."""

    name: str
    bits: int
    largest: float


FORMATS = {
    row.name: row
    for row in (
        *(Format("int4", 4, 7), Format("mxfp4", 4, 6), Format("nvfp4", 4, 6)),
        *(Format("int8", 8, 127), Format("e4m3", 8, 448)),
    )
}


def steps_of_codes(k: int, group: int) -> int:
    """k as codes lie in memory: whole blocks, and whole groups of two. Behind the last are zeros."""
    step = max(GROUPS) if group == max(GROUPS) else BLOCK
    return -(-k // step) * step


def group_of_column(k: int) -> int:
    """One factor for a column: a group of all its steps, or of as few as a group may have."""
    return max(k, min(GROUPS))


def group_sizes(k: int, only: int | None) -> list[int]:
    """The steps of k that a factor may have; `only`: what a format has."""
    return [group_of_column(k), *GROUPS] if only is None else [only]


def format_named(name: object, argument: str = "format") -> Format:
    if isinstance(name, str) and name in FORMATS:
        return FORMATS[name]
    raise ArgumentError(
        f"{argument}: must be one of {', '.join(FORMATS)}; got {shown(name)}. Name one of them"
    )


def values_of(codes: Array, format: Format) -> Array:
    """Codes as numbers, before zero points and factors."""
    if format.name in GROUP_OF:
        return np.where(codes & 8, -E2M1[codes & 7], E2M1[codes & 7])
    if format.name == "e4m3":
        return codes.view(numpy_dtype("float8_e4m3fn")).astype(np.float32)
    signed = codes.view(np.int8) if format.name == "int8" else codes
    return signed.astype(np.float32)


def scales_as_numbers(scales: Array, scale_type: str) -> Array:
    """Factors in float64, of bytes also. E8M0 is a power of two from 2^-127 to 2^127; 255 is NaN."""
    if scale_type == "e4m3":
        return scales.view(numpy_dtype("float8_e4m3fn")).astype(np.float64)
    if scale_type == "e8m0":
        powers = np.ldexp(1.0, scales.astype(np.int32) - 127)
        return np.where(scales == 255, np.nan, powers)
    return scales.astype(np.float64)
