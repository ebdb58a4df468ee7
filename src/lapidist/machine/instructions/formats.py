"""Number formats: half, bf16, fp8 and tf32 as bits, with the chip's rounding; what .ftz and .sat do."""

from __future__ import annotations

import numpy as np

from lapidist.machine.codegen import runtime

Array = np.ndarray

# ---- half precision: values are computed as float32 and rounded once ----


@runtime
def from_bf16(bits: Array) -> Array:
    return (bits.astype("u4") << np.uint32(16)).view("f4")


@runtime
def to_bf16(value: Array) -> Array:
    """float32 or float64 to bf16 bits, to nearest even; NaN becomes the canonical one."""
    single = value.astype("f4") if value.dtype == np.float32 else to_odd(value)
    bits = single.view("u4")
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(single), np.uint32(0x7FFF), rounded).astype("u2")


def to_odd(value: Array) -> Array:
    """float64 to float32, inexact results to the neighbour with an odd last bit: a later rounding is then
    exact.
    """
    single = value.astype("f4")
    bits = single.view("u4")
    wide = single.astype("f8")
    inexact = (wide != value) & np.isfinite(wide) & ((bits & np.uint32(1)) == 0)
    outward = np.abs(wide) < np.abs(value)
    return np.where(inexact, np.where(outward, bits + np.uint32(1), bits - np.uint32(1)), bits).view("f4")


@runtime
def to_f16(value: Array) -> Array:
    """To f16 bits, to nearest even; NaN becomes the canonical one."""
    half = value.astype("f2").view("u2")
    return np.where(np.isnan(value), np.uint16(0x7FFF), half) if np.isnan(value).any() else half


@runtime
def from_f16(bits: Array) -> Array:
    return bits.view("f2").astype("f4")


@runtime
def flush(value: Array) -> Array:
    """.ftz: subnormal floats become zeros of their sign."""
    small = np.abs(value) < np.float32(1.1754943508222875e-38)
    return np.where(small, np.copysign(np.float32(0), value), value)


@runtime
def saturate(value: Array) -> Array:
    return np.where(np.isnan(value), value.dtype.type(0), np.clip(value, 0, 1)).astype(value.dtype)


# ---- fp8 ----


def fp8_values(kind: str) -> Array:
    """float32 value of each of the 256 codes."""
    codes = np.arange(256)
    exponent_bits, mantissa_bits, bias = (4, 3, 7) if kind == "e4m3" else (5, 2, 15)
    exponent = codes >> mantissa_bits & ((1 << exponent_bits) - 1)
    fraction = (codes & ((1 << mantissa_bits) - 1)) / (1 << mantissa_bits)
    values = np.where(
        exponent == 0, fraction * 2.0 ** (1 - bias), (1 + fraction) * 2.0 ** (exponent.astype(float) - bias)
    )
    if kind == "e4m3":
        values[(codes & 0x7F) == 0x7F] = np.nan
    else:
        values[(codes & 0x7F) == 0x7C] = np.inf
        values[(codes & 0x7F) > 0x7C] = np.nan
    return np.where(codes & 0x80, -values, values).astype("f4")


FP8 = {kind: fp8_values(kind) for kind in ("e4m3", "e5m2")}
FP8_LARGEST = {"e4m3": 0x7E, "e5m2": 0x7B}


def to_fp8(value: Array, kind: str) -> Array:
    """To nearest even, beyond the largest finite number to that number; NaN stays NaN."""
    largest = FP8_LARGEST[kind]
    table = FP8[kind][: largest + 1].astype("f8")
    size = np.abs(value.astype("f8"))
    upper = np.clip(np.searchsorted(table, size), 1, largest)
    below, above = size - table[upper - 1], table[upper] - size
    down = (below < above) | ((below == above) & (upper % 2 == 1))
    code = np.where(size >= table[-1], largest, np.where(down, upper - 1, upper))
    return np.where(np.isnan(value), 0x7F, code | np.where(np.signbit(value), 0x80, 0)).astype("u1")


@runtime
def pack_fp8(low: Array, high: Array, kind: str, relu: bool) -> Array:
    parts = [np.maximum(part, 0) if relu else part for part in (low, high)]
    first, second = (to_fp8(part, kind).astype("u2") for part in parts)
    return (first | (second << np.uint16(8))).astype("u2")


@runtime
def unpack_fp8(bits: Array, kind: str) -> Array:
    low, high = (
        to_f16(FP8[kind][bits >> np.uint16(shift) & np.uint16(255)]).astype("u4") for shift in (0, 8)
    )
    return low | (high << np.uint32(16))
