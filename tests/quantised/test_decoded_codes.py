"""Many rows of e4m3 by weights of few bits, whose codes are decoded into e4m3, in the machine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lapidist import quantised
from lapidist.backends.machine_backend import sanitized
from lapidist.dtypes import numpy_dtype
from lapidist.frameworks.arrays import operand_of
from lapidist.quantised import decoded_codes
from lapidist.quantised.activations import activations_of
from lapidist.quantised.product import product

CASES = [
    ("int4", {"group": 128, "zero_points": True}, True),
    ("int4", {"group": 128}, False),
    ("int4", {}, True),
    ("e4m3", {"group": 128}, True),
]


@pytest.mark.parametrize(("format", "more", "of_rows"), CASES)
def test_codes_are_exact(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, format: str, more: Any, of_rows: bool
) -> None:
    m, k, n = 9, 256, 40
    x = rng.standard_normal((m, k)).astype(numpy_dtype("float8_e4m3fn"))
    packed = quantised.pack(rng.standard_normal((k, n)).astype(np.float32), format, **more)
    factors = rng.uniform(0.5, 2, (m, 1)).astype(np.float32) if of_rows else np.float32(0.75)
    bias = rng.standard_normal(n).astype(np.float32)
    monkeypatch.setattr(decoded_codes, "MORE_ROWS", 0)
    how: Any = {"scale_a": factors if of_rows else 0.75, "out_dtype": "float32", "device": "machine"}
    with sanitized(1):
        found = product(x, packed, bias, **how)
    left, weight = x.astype("f8") * factors, quantised.unpack(packed, "float64")
    terms = abs(left) @ abs(weight) + abs(bias)
    assert np.all(abs(found - (left @ weight + bias)) <= 2.0**-12 * terms)


def test_factors_that_scaled_products_have(rng: np.random.Generator) -> None:
    x = np.zeros((300, 256), numpy_dtype("float8_e4m3fn"))
    weight = rng.standard_normal((256, 64)).astype(np.float32)
    cases: list[tuple[str, Any, bool]] = [
        ("int4", {"group": 128}, True),
        ("int4", {"group": 64}, False),
        ("mxfp4", {}, False),
    ]
    for format, more, taken in cases:
        packed = quantised.pack(weight, format, **more)
        activations = activations_of(operand_of(x, "x"), packed, 1.0, None, None)
        assert decoded_codes.takes(packed, activations, 300) == taken
        assert not decoded_codes.takes(packed, activations, 256)
