"""Weights of few bits whose k ends inside of what a kernel decodes at once, sanitized in the machine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lapidist
from in_turns import surveyed_but
from lapidist import quantised
from lapidist.backends.machine_backend import MachineBackend, sanitized
from lapidist.device import chip as chip_named
from lapidist.dtypes import numpy_dtype
from lapidist.errors import LapidistError

N, E4M3 = 72, "float8_e4m3fn"
# The chip, weight, x, rows of x, and k. Rows of x begin at vectors or are copied; the last group is short.
CASES = [
    ("h200", "int4", {"group": 32}, "bfloat16", 3, 96),
    ("h200", "nvfp4", {}, "float16", 9, 144),
    ("h200", "int4", {"group": 128, "zero_points": True}, "bfloat16", 17, 136),
    ("h200", "int4", {"group": 128}, "float16", 2, 200),
    ("a100", "int8", {}, "bfloat16", 9, 77),
    ("a100", "mxfp4", {}, "float16", 2, 104),
    ("h200", "mxfp4", {}, E4M3, 7, 100),
    ("h200", "e4m3", {"group": 64}, E4M3, 3, 80),
    ("h200", "int4", {}, "int8", 1, 20),
    ("a100", "int8", {"group": 32}, "int8", 5, 144),
    ("h200", "int4", {"zero_points": True}, "bfloat16", 1, 1),
]


def activations(rng: np.random.Generator, rows: int, k: int, dtype: str) -> Any:
    numbers = rng.standard_normal((rows, k))
    return np.rint(40 * numbers).astype(dtype) if dtype == "int8" else numbers.astype(numpy_dtype(dtype))


def of_8_bits(dtype: str) -> dict[str, float]:
    return {"scale_a": 0.5} if dtype in (E4M3, "int8") else {}


def require_near(found: Any, x: Any, weight: Any) -> None:
    """Sums of e4m3 keep 14 bits in the tensor core, and 16-bit results are rounded once."""
    exact, terms = x.astype("f8") @ weight, np.abs(x.astype("f8")) @ np.abs(weight)
    if x.dtype.itemsize == 1:
        exact, terms = exact / 2, terms / 2
    assert np.all(np.abs(found.astype("f8") - exact) <= 2.0**-8 * np.abs(exact) + 2.0**-13 * terms)


@pytest.mark.parametrize(("chip", "format", "more", "dtype", "m", "k"), surveyed_but(CASES, 0, 2, 4, 6))
def test_products_end_where_k_does(
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
    chip: str,
    format: str,
    more: Any,
    dtype: str,
    m: int,
    k: int,
) -> None:
    monkeypatch.setattr(MachineBackend, "chip", chip_named(chip))
    packed = quantised.pack(rng.standard_normal((k, N)).astype(np.float32), format, **more)
    x, numbers = activations(rng, m, k, dtype), quantised.unpack(packed, "float64")
    for device in (None, "machine"):
        with sanitized(k):
            found = quantised.matmul(x, packed, device=device, **of_8_bits(dtype))
        require_near(found, x, numbers)


@pytest.mark.parametrize("format", surveyed_but(["e4m3", "mxfp4"], 0))
def test_decoded_weights_end_where_k_does(rng: np.random.Generator, format: str) -> None:
    """Also those that are decoded into e4m3, for many rows of it."""
    packed = quantised.pack(rng.standard_normal((100, N)).astype(np.float32), format)
    numbers = quantised.unpack(packed, "float64")
    x, many = activations(rng, 3, 100, "bfloat16"), activations(rng, 257, 100, E4M3)
    found = quantised.matmul(x, packed, decode=True, device="machine")
    allowed = 2.0**-7 * (np.abs(x.astype("f8")) @ np.abs(numbers))
    assert np.all(np.abs(found.astype("f8") - x.astype("f8") @ numbers) <= allowed)
    require_near(quantised.matmul(many, packed, scale_a=0.5, device="machine"), many, numbers)


# the chip, x, the weight, k, and rows that groups are expected to have
EXPERTS = [
    ("h200", "bfloat16", "int4", {"group": 32}, 96, 9),
    ("h200", E4M3, "mxfp4", {}, 160, 9),
    ("h200", "float16", "int4", {"group": 128}, 200, 2),
    ("a100", "bfloat16", "nvfp4", {}, 77, 9),
]


@pytest.mark.parametrize(("chip", "dtype", "format", "more", "k", "expected"), surveyed_but(EXPERTS, 0, 3))
def test_gathered_rows_end_where_k_does(
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
    chip: str,
    dtype: str,
    format: str,
    more: Any,
    k: int,
    expected: int,
) -> None:
    monkeypatch.setattr(MachineBackend, "chip", chip_named(chip))
    packed = quantised.pack(rng.standard_normal((3, k, N)).astype(np.float32), format, **more)
    x, rows = activations(rng, 5, k, dtype), rng.integers(0, 5, 11).astype(np.int32)
    rows[-1] = 4  # behind the last row of x nothing may be read
    how = {"gather_a": rows, "expected_rows": expected, **of_8_bits(dtype)}
    with sanitized(k):
        found = lapidist.grouped(x, packed, np.array([4, 4, 11], np.int32), **how, device="machine")
    for part, number in ((slice(4), 0), (slice(4, 11), 2)):
        require_near(found[part], x[rows[part]], quantised.unpack(packed[number], "float64"))


def test_no_rows_and_other_columns(rng: np.random.Generator) -> None:
    packed = quantised.pack(rng.standard_normal((100, N)).astype(np.float32), "int8")
    assert lapidist.matmul(np.zeros((2, 0, 100), np.float16), packed).shape == (2, 0, N)
    with pytest.raises(LapidistError, match=r"x: must have k = 100 columns, .*; got \(2, 128\)"):
        lapidist.matmul(np.zeros((2, 128), np.float16), packed)
