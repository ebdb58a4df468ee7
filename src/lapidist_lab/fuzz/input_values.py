"""What the arrays of a case hold: normal numbers, small whole ones, now and then infinity and NaN; indices;
addresses.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from lapidist.dtypes import COMPLEX_HALVES, FP8, PART_OF, TYPES, size_of
from lapidist_lab.fuzz.buffers import Arena
from lapidist_lab.fuzz.drawn_kinds import Generator, one_of
from lapidist_lab.fuzz.memory_layouts import Array, View, put
from lapidist_lab.fuzz.random_calls import Call

INDICES = ("gather_a", "gather_b", "scatter_d")
SIGNED, UNSIGNED = (-10_000, 10_001), (0, 20_001)
INTEGER_RANGES = {"bool": (0, 2), "int16": SIGNED, "int32": SIGNED, "int64": SIGNED}
INTEGER_RANGES |= dict.fromkeys(("uint16", "uint32", "uint64"), UNSIGNED)
ODD = (np.nan, np.inf, -np.inf)


def fill(rng: Generator, call: Call, arena: Arena) -> bool:
    """Fill the image. Whether all numbers are small integers, so that results must be equal."""
    small_integers = bool(rng.random() < 0.3 and sums_are_exact(call))
    skipped = {"c"} if call.kind.beta == "zero" else set()
    skipped |= {"a", "b"} if call.kind.alpha == "zero" and rng.random() < 0.7 else set()
    for name in ("a", "b", "c", "addend"):
        for view in () if name in skipped else call.views.get(name, ()):
            place = arena.array_in(arena.image, view)
            drawn = numbers(rng, view, small_integers)
            mirrored = call.kind.symmetric and name in ("c", "addend")
            put(place, symmetric(drawn) if mirrored else drawn)
            if (
                name in ("a", "b")
                and not small_integers
                and place.dtype.kind not in "biu"
                and not call.kind.is_complex
                and rng.random() < 0.04
            ):
                put_odd(rng, place)
    for name in (*INDICES, "alpha", "beta", "scale_a", "scale_b"):
        for view in call.views.get(name, ()):
            arena.array_in(arena.image, view)[...] = extra(rng, call, name, view, small_integers)
    write_addresses(call, arena)
    return small_integers


def symmetric(matrices: Array) -> Array:
    """With the conjugated lower triangle in place of the upper one, and a real diagonal."""
    result, extent = np.array(matrices), matrices.shape[-1]
    for row in range(extent):
        result[..., row, row + 1 :] = np.conj(result[..., row + 1 :, row])
        result[..., row, row] = np.real(result[..., row, row])
    return result


def sums_are_exact(call: Call) -> bool:
    """Whether sums of integers up to 4 are exact: floats of 24 bits; tensor cores keep fewer of 8-bit
    floats."""
    kind, k = call.kind, call.extents[2]
    numbers = all(how in ("one", "minus", "zero") for how in (kind.alpha, kind.beta))
    return bool(
        kind.out in ("float32", "float64", *PART_OF)
        and kind.sums != "float16"
        and numbers
        and not kind.scaled
    ) and k < (200 if kind.a in FP8 else 32 if kind.out == COMPLEX_HALVES else 100_000)


def numbers(rng: Generator, view: View, small_integers: bool) -> Array:
    if view.dtype in INTEGER_RANGES:
        return rng.integers(*INTEGER_RANGES[view.dtype], view.shape)
    element = TYPES.get(view.dtype)
    if element is not None and not element.roundoff and element.bounds:
        return rng.integers(int(element.bounds[0]), int(element.bounds[1]) + 1, view.shape)
    if view.dtype in PART_OF:
        parts = view._replace(dtype=PART_OF[view.dtype])
        drawn_numbers: Array = numbers(rng, parts, small_integers) + 1j * numbers(rng, parts, small_integers)
        return drawn_numbers
    if small_integers:
        return rng.integers(-4, 5, view.shape)
    drawn: Array = rng.standard_normal(view.shape, np.float64 if view.dtype == "float64" else np.float32)
    return drawn


def put_odd(rng: Generator, place: Array) -> None:
    """Set one element, if there is any; float8_e4m3fn has no infinity."""
    if place.size:
        where = tuple(int(rng.integers(extent)) for extent in place.shape)
        place[where] = ODD[int(rng.integers(1 if place.dtype.name == "float8_e4m3fn" else 3))]


def extra(rng: Generator, call: Call, name: str, view: View, small_integers: bool) -> Any:
    if name in INDICES:
        rows = indices(rng, name, call.limits[name], view.shape)
        if name == call.beyond:
            rows.flat[int(rng.integers(rows.size))] = one_of(
                rng, (-1, -call.limits[name], call.limits[name], 2**31 - 1)
            )
        return rows
    if name in ("scale_a", "scale_b"):
        return rng.uniform(0.25, 4.0, view.shape)
    return rng.integers(-3, 4, view.shape) if view.dtype == "int32" else rng.uniform(-2.0, 2.0, view.shape)


def indices(rng: Generator, name: str, limit: int, shape: tuple[int, ...]) -> Array:
    """Random indices; scattered rows are distinct."""
    if name != "scatter_d":
        return rng.integers(0, limit, shape)
    rows = [rng.permutation(limit)[: shape[-1]] for _ in range(prod(shape[:-1]))]
    return np.array(rows, np.int64).reshape(shape)


def write_addresses(call: Call, arena: Arena) -> None:
    for name, views in call.views.items():
        of = call.views.get(name.removeprefix("addresses of "))
        if name.startswith("addresses of ") and of is not None:
            at = [arena.address + arena.at[view.region] + view.start * size_of(view.dtype) for view in of]
            arena.array_in(arena.image, views[0])[...] = at
