"""Many rows of e4m3 by weights of few bits, whose codes are decoded into e4m3, in the machine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lapidist
from in_turns import surveyed
from lapidist import quantised
from lapidist.backends.machine_backend import sanitized
from lapidist.backends.selection import MACHINE, backend_at
from lapidist.dtypes import numpy_dtype
from lapidist.frameworks.arrays import operand_of
from lapidist.quantised import bound_product, decoded_codes, ways
from lapidist.quantised import product as products
from lapidist.quantised.kernel_parameters import Rows
from lapidist.quantised.launches import streaming
from lapidist.quantised.product import described_for, product
from lapidist.quantised.streamed_configs import Streamed
from lapidist.quantised.weight_facts import Weight

CASES = [
    ("int4", {"group": 128, "zero_points": True}, True),
    ("int4", {"group": 128}, False),
    ("int4", {}, True),
    ("e4m3", {"group": 128}, True),
    ("mxfp4", {}, True),
]


@pytest.mark.often(2)
@pytest.mark.parametrize(("format", "more", "of_rows"), CASES)
def test_codes_are_exact(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, format: str, more: Any, of_rows: bool
) -> None:
    m, k, n = 9, 256, 40
    x = rng.standard_normal((m, k)).astype(numpy_dtype("float8_e4m3fn"))
    packed = quantised.pack(rng.standard_normal((k, n)).astype(np.float32), format, **more)
    factors = rng.uniform(0.5, 2, (m, 1)).astype(np.float32) if of_rows else np.float32(0.75)
    bias = rng.standard_normal(n).astype(np.float32)
    monkeypatch.setattr(products, "way_on", lambda *_: "decoded")
    how: Any = {"scale_a": factors if of_rows else 0.75, "out_dtype": "float32", "device": "machine"}
    with sanitized(1):
        found = product(x, packed, bias, **how)
    left, weight = x.astype("f8") * factors, quantised.unpack(packed, "float64")
    terms = abs(left) @ abs(weight) + abs(bias)
    assert np.all(abs(found - (left @ weight + bias)) <= 2.0**-12 * terms)


def test_epilogues_follow(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    m, k, n = 5, 128, 40
    x = rng.standard_normal((m, k)).astype(numpy_dtype("float8_e4m3fn"))
    packed = quantised.pack(rng.standard_normal((k, n)).astype(np.float32), "int4", group=128)
    factors, bias = rng.uniform(0.5, 2, m).astype(np.float32), rng.standard_normal(n).astype(np.float32)
    exact = x.astype("f8") * factors[:, None] @ quantised.unpack(packed, "float64") + bias
    monkeypatch.setattr(bound_product, "way_on", lambda *_, may_decode: "decoded")
    added = lapidist.epilogues.bias(bias=bias)
    found = quantised.matmul(x, packed, scale_a=factors, epilogue=added, device="machine")
    assert found.dtype == np.float32
    assert np.allclose(found, exact, rtol=1e-3, atol=1e-3)


def test_factors_that_scaled_products_have() -> None:
    int4 = Weight(1024, 4096, "int4", 128, "bfloat16", False, "float8_e4m3fn", "float32")
    mxfp4 = int4._replace(format="mxfp4", group=32, scale_type="e8m0")
    assert all(map(ways.decodes_into_codes, (int4, int4._replace(group=1024), mxfp4)))
    others = int4._replace(group=64), int4._replace(dtype="int8"), int4._replace(dtype="bfloat16")
    assert not any(map(ways.decodes_into_codes, others))
    for weight in (int4, int4._replace(group=64), mxfp4):
        assert ways.way_of(Rows(8192, 4096), weight, 132) == ("decoded" if weight.group != 64 else "streamed")


@pytest.mark.often(1)
@pytest.mark.parametrize(("k", "parts"), [(64, 1), (192, 2), (512, 2), *surveyed([(384, 1)])])
def test_factors_of_any_span(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, k: int, parts: int
) -> None:
    """Groups whose factors are far below others of 128 steps count as they are: x has zeros elsewhere. Blocks
    that multiply such columns again have three times 16 rows each.
    """
    m, n, groups = 41, 200, k // 32
    scales = rng.integers(120, 133, (n, groups)).astype(np.uint8)
    scales[70:90] = rng.integers(60, 200, (20, groups))  # in the second tile of 64 columns
    scales[70, 1], scales[71, :] = 30, 0
    pairs = rng.integers(0, 256, (n, groups, 16)).astype(np.uint8)
    packed = quantised.from_mxfp4(pairs, scales)
    x = np.zeros((m, k), numpy_dtype("float8_e4m3fn"))
    for row in range(m):
        group = row % groups
        x[row, 32 * group : 32 * group + 32] = rng.standard_normal(32)
    config = Streamed(16, 1, parts, 2, 1, 4 if k % 256 == 0 else 2)
    monkeypatch.setattr(products, "way_on", lambda *_: "decoded")
    monkeypatch.setattr(products, "streamed_config", lambda *_: config)
    monkeypatch.setattr(products, "streaming", lambda *given: streaming(*given[:-1], at_once=1))
    with sanitized(1):
        found = product(x, packed, scale_a=1.0, out_dtype="float32", device="machine")
    weight = quantised.unpack(packed, "float64")
    terms = abs(x.astype("f8")) @ abs(weight)
    assert np.all(abs(found - x.astype("f8") @ weight) <= 2.0**-12 * terms)


def test_zeros_are_exact_by_any_factor() -> None:
    scales = np.full((64, 4), 127, np.uint8)
    scales[:, 1] = 0
    pairs = np.full((64, 4, 16), 0x22, np.uint8)
    pairs[:, 1] = 0x80  # 0 and -0
    packed = quantised.from_mxfp4(pairs, scales)
    like = operand_of(np.zeros((3, 128), numpy_dtype("float8_e4m3fn")), "x")
    described = described_for(packed, "float16")
    decoded = decoded_codes.decode(packed, described, like, backend_at(MACHINE))
    assert not decoded.inexact.any()
    assert np.array_equal(
        decoded.codes.astype("f8") * decoded.factors.T, quantised.unpack(packed, "float64").T
    )


def test_a_code_is_exact_up_to_the_smallest_of_e4m3(rng: np.random.Generator) -> None:
    """Of columns 0 and 64 the first group has 2^14 and 2^15 less than others of 128 steps."""
    x = rng.standard_normal((3, 128)).astype(numpy_dtype("float8_e4m3fn"))
    scales = np.full((128, 4), 127, np.uint8)
    scales[0, 0], scales[64, 0] = 127 - 14, 127 - 15
    packed = quantised.from_mxfp4(rng.integers(0, 256, (128, 4, 16)).astype(np.uint8), scales)
    described = described_for(packed, "float16")
    decoded = decoded_codes.decode(packed, described, operand_of(x, "x"), backend_at(MACHINE))
    marks = np.zeros((2, 2, 4), np.uint8)
    marks[1, 0, 0] = 1
    assert np.array_equal(decoded.inexact, marks)
    numbers = decoded.codes.astype("f8") * decoded.factors.T
    assert np.array_equal(numbers[:64], quantised.unpack(packed, "float64").T[:64])


def test_nan_factors_give_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    scales = np.full((64, 4), 127, np.uint8)
    scales[3, 2] = 255
    packed = quantised.from_mxfp4(np.full((64, 4, 16), 0x22, np.uint8), scales)
    x = np.ones((2, 128), numpy_dtype("float8_e4m3fn"))
    monkeypatch.setattr(products, "way_on", lambda *_: "decoded")
    found = product(x, packed, scale_a=1.0, out_dtype="float32", device="machine")
    assert np.isnan(found[:, 3]).all()
    assert np.all(np.delete(found, 3, axis=1) == 128)
