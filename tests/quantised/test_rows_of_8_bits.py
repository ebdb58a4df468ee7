"""Products of x in e4m3 and int8 with weights of few bits, sanitized in the machine, beside float64."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import lapidist
from lapidist import quantised
from lapidist.backends.machine_backend import MachineBackend, sanitized
from lapidist.device import chip as chip_named
from lapidist.dtypes import numpy_dtype
from lapidist.errors import LapidistError
from lapidist.quantised import bound_product, launches, streamed_configs
from lapidist.quantised import product as products
from lapidist.quantised.kernel_parameters import End, Rows
from lapidist.quantised.product import product
from lapidist.quantised.weight_facts import Weight

E4M3, INT8 = "float8_e4m3fn", "int8"
# wgmma keeps 2^-13 of the largest product of 32 and of the sum before; int8 it sums exactly.
KEPT = {E4M3: 2.0**-12, INT8: 0}


def activations(rng: np.random.Generator, m: int, k: int, dtype: str) -> Any:
    return (rng.standard_normal((m, k)) * (30 if dtype == INT8 else 1)).astype(numpy_dtype(dtype))


def require_near(found: Any, x: Any, factors: Any, packed: Any, bias: Any = 0, ulp: float = 0) -> None:
    """Factors of groups, columns and rows multiply in float32."""
    left, weight = x.astype("f8") * factors, quantised.unpack(packed, "float64")
    exact, terms = left @ weight + bias, np.abs(left) @ np.abs(weight) + np.abs(bias)
    groups = packed.shape[0] / min(packed.group, 128) + 4
    allowed = np.abs(exact) * ulp + terms * (groups * 2.0**-24 + KEPT[x.dtype.name])
    assert np.all(np.abs(found.astype("f8") - exact) <= allowed)


CASES = [
    (E4M3, "int4", {"group": 32}, 1),
    (E4M3, "int4", {"group": 128, "zero_points": True}, 17),
    (E4M3, "int4", {}, 9),
    (E4M3, "mxfp4", {}, 8),
    (E4M3, "mxfp4", {}, 3),
    (E4M3, "e4m3", {"group": 64}, 20),
    (INT8, "int4", {"group": 64, "zero_points": True}, 3),
    (INT8, "int4", {"group": 128}, 11),
    (INT8, "int8", {"group": 32}, 33),
    (INT8, "int8", {}, 2),
]


@pytest.mark.often(2)
@pytest.mark.parametrize(("dtype", "format", "more", "m"), CASES)
def test_products_are_those_of_decoded_weights(
    rng: np.random.Generator, dtype: str, format: str, more: Any, m: int
) -> None:
    k, n = 256, 40
    packed = quantised.pack(rng.standard_normal((k, n)).astype(np.float32), format, **more)
    x, bias = activations(rng, m, k, dtype), rng.standard_normal(n).astype(numpy_dtype("bfloat16"))
    factors = rng.uniform(0.5, 2, (m, 1)).astype(np.float32)
    with sanitized(m):
        found = product(x, packed, bias, scale_a=factors, out_dtype="bfloat16", device="machine")
    assert found.dtype.name == "bfloat16"
    require_near(found, x, factors, packed, bias.astype("f8"), 2.0**-8)
    on_host = lapidist.matmul(x, packed, scale_a=factors)
    assert on_host.dtype == np.float32
    left, weight = x.astype("f8") * factors, quantised.unpack(packed, "float64")
    assert np.allclose(on_host, left @ weight, rtol=0, atol=(np.abs(left) @ np.abs(weight)).max() * 1e-5)


@pytest.mark.parametrize("fused", [False, True])
def test_rows_become_bfloat16(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, fused: bool) -> None:
    """Sums are float32 then, so that nothing of them is left out. Factors of rows follow, then a bias."""
    monkeypatch.setattr(bound_product if fused else products, "way_on", lambda *_, **more: "converted")
    m, k, n = 21, 192, 72
    packed = quantised.pack(rng.standard_normal((k, n)).astype(np.float32), "mxfp4")
    x, bias = activations(rng, m, k, E4M3), rng.standard_normal(n).astype(np.float32)
    factors = rng.uniform(0.5, 2, m).astype(np.float32)
    ending: Any = {"epilogue": lapidist.epilogues.bias(bias=bias)} if fused else {"bias": bias}
    with sanitized(m):
        found = quantised.matmul(x, packed, scale_a=factors, device="machine", **ending)
    left, weight = x.astype("f8") * factors[:, None], quantised.unpack(packed, "float64")
    terms = abs(left) @ abs(weight) + abs(bias)
    assert found.dtype == np.float32
    assert np.all(abs(found - (left @ weight + bias)) <= (k + 4) * 2.0**-24 * terms)


@pytest.mark.often(1)
@pytest.mark.parametrize(("dtype", "format", "more"), [(E4M3, "mxfp4", {}), (INT8, "int4", {"group": 64})])
def test_chips_without_wgmma_multiply_halves(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, dtype: str, format: str, more: Any
) -> None:
    """As mma.sync does, with any number of rows: sums are float32."""
    monkeypatch.setattr(MachineBackend, "chip", chip_named("a100"))
    m, k, n = 70, 128, 72
    packed = quantised.pack(rng.standard_normal((k, n)).astype(np.float32), format, **more)
    x, factors = activations(rng, m, k, dtype), rng.uniform(0.5, 2, m).astype(np.float32)
    with sanitized(m):
        found = product(x, packed, scale_a=factors, device="machine")
    require_near(found, x, factors[:, None], packed, ulp=2.0**-23)


CONFIGS = [(16, 1, 3, 2, 2), (32, 3, 1, 2, 1), (64, 1, 2, 3, 1), (192, 2, 1, 4, 1)]


@pytest.mark.often(1)
@pytest.mark.parametrize(("config", "dtype"), list(zip(CONFIGS, (E4M3, INT8, E4M3, INT8), strict=True)))
def test_parts_of_k_and_columns_of_blocks(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, config: Any, dtype: str
) -> None:
    """k ends in half a stage, tiles behind the last are the last, and rows are more than a block has. They
    have factors. With one a column, floats are summed by 128 of k, and those of half a stage too.
    """
    monkeypatch.setattr(products, "streamed_config", lambda *_: streamed_configs.Streamed(*config))
    k, n, m = 192 * config[2], 64 * config[1] + 8, config[0] + 5
    more: Any = {"group": 64, "zero_points": True} if config[0] in (32, 64) else {}
    packed = quantised.pack(rng.standard_normal((k, n)).astype(np.float32), "int4", **more)
    x, factors = activations(rng, m, k, dtype), rng.uniform(0.5, 2, m).astype(np.float32)
    with sanitized(sum(config)):
        result = product(x, packed, scale_a=factors, device="machine")
    require_near(result, x, factors[:, None], packed)


def test_many_rows_have_wide_blocks_that_find_their_registers() -> None:
    """What warps take is what others of the block gave back; blocks of one wave after another share no k."""
    weight = Weight(4096, 28672, "int4", 128, "bfloat16", False, E4M3, "bfloat16")
    rows = Rows(4096, 28672)
    config = streamed_configs.streamed_config(rows, weight, 132)
    assert (config.rows, config.column_groups, config.parts) == (192, 2, 1)
    int8 = weight._replace(format="int8", dtype="bfloat16")
    assert streamed_configs.streamed_config(rows, int8, 132).rows == 128  # three stages of more do not fit
    log = launches.streaming(rows, weight, End(), config, "sm_90a").binary.log
    allotted = int(re.findall(r"Used (\d+) registers", log)[-1])
    taken = 128 * (2 * config.registers + streamed_configs.REGISTERS_LEFT)
    assert taken <= allotted * config.threads <= streamed_configs.REGISTERS_OF_SM
    assert " 0 bytes spill stores" in log


def test_sums_of_whole_numbers_are_exact(rng: np.random.Generator) -> None:
    """So a step of k that met another one's weight is seen, whatever a bound allows."""
    k, n = 128, 70
    codes = rng.integers(0, 16, (16, k, n)).astype(np.uint8)[0]
    scales = np.full((n, k // 32), 127, np.uint8)
    blocks = (codes[::2] | codes[1::2] << 4).T.reshape(n, k // 32, 16)
    x = rng.integers(-4, 5, (5, k)).astype(numpy_dtype(E4M3))
    with sanitized(3):
        found = product(x, quantised.from_mxfp4(blocks, scales), scale_a=1, device="machine")
    assert np.array_equal(found, x.astype("f8") @ quantised.unpack(quantised.from_mxfp4(blocks, scales)))


@pytest.mark.often(1)
@pytest.mark.parametrize("dtype", [E4M3, INT8])
def test_each_code_is_exact(dtype: str) -> None:
    """A row of x picks a step of k, which has every code."""
    k = 64
    codes = np.tile(np.arange(16, dtype=np.uint8), (16, 4))
    words = np.full((k // 8, 16), 0x76543210, np.int32)
    words[1::2] = np.uint32(0xFEDCBA98).astype(np.int32)
    zeros = np.array([[0x76543210, 0x0EDCBA98]], np.int32)  # and one more: 1 to 16
    ones = np.ones((1, 16), np.float16)
    weights = [quantised.from_gptq(words, ones, zeros), quantised.from_gptq(words, ones)]
    if dtype == E4M3:
        blocks = (codes[:, ::2] | codes[:, 1::2] << 4).reshape(16, 2, 16)
        weights.append(quantised.from_mxfp4(blocks, np.tile(np.array([127, 130], np.uint8), (16, 1))))
    format = {E4M3: "e4m3", INT8: "int8"}[dtype]
    all_codes = np.arange(256, dtype=np.uint8).repeat(k).reshape(256, k).T.view(numpy_dtype(dtype))
    weights.append(quantised.from_codes(all_codes, np.ones((1, 256), np.float32), format))
    for packed in weights:
        x = np.eye(k).astype(numpy_dtype(dtype))[: 32 if packed.shape[1] == 16 else 2]
        with sanitized(1):
            found = product(x, packed, scale_a=1.0, device="machine")
        assert np.array_equal(found, quantised.unpack(packed)[: len(x)], equal_nan=True)


def test_extreme_factors_of_mxfp4() -> None:
    """0 is 2^-127, 254 is 2^127, 255 is NaN: decoded codes are 2^-6 of what they mean."""
    blocks = np.full((4, 2, 16), 0x22, np.uint8)
    factors = np.array([[0, 0], [127, 0], [254, 0], [255, 127]], np.uint8)
    x = np.zeros((1, 64), numpy_dtype(E4M3))
    x[:, 0] = 1
    with sanitized(3):
        found = product(x, quantised.from_mxfp4(blocks, factors), scale_a=1.0, device="machine")
    assert np.array_equal(found, [[2.0**-127, 1, 2.0**127, np.nan]], equal_nan=True)


def test_functions_follow_sums(rng: np.random.Generator) -> None:
    """Any leading dimensions; one factor in an array; a result of another type."""
    k, n = 128, 41
    packed = quantised.pack(rng.standard_normal((k, n)).astype(np.float32), "int4", group=64)
    x, bias = activations(rng, 6, k, E4M3).reshape(2, 3, k), rng.standard_normal(n).astype(np.float32)
    factor = np.array([0.5], np.float32)
    after = lapidist.epilogues.bias_relu(bias=bias)
    more: Any = {"scale_a": factor, "epilogue": after, "out_dtype": "float16"}
    with sanitized(4):
        found = lapidist.matmul(x, packed, device="machine", **more)
    near = np.maximum(x.astype("f8") * 0.5 @ quantised.unpack(packed) + bias, 0)
    for result in (found, lapidist.matmul(x, packed, **more)):
        assert result.dtype == np.float16
        assert np.allclose(result, near, rtol=2e-3, atol=2e-2)
    with pytest.raises(LapidistError, match="epilogue: after x of 8 bits it has no second pass"):
        lapidist.matmul(x, packed, scale_a=factor, epilogue=lapidist.epilogues.amax(), device="machine")


def test_groups_of_packed_experts(rng: np.random.Generator) -> None:
    """Each row has its factor; rows behind the last group stay as they are."""
    experts, k, n = 3, 128, 40
    packed = quantised.pack(rng.standard_normal((experts, k, n)).astype(np.float32), "mxfp4")
    x, factors = activations(rng, 24, k, E4M3), rng.uniform(0.5, 2, 24).astype(np.float32)
    ends, out = np.array([18, 18, 21], np.int32), np.full((24, n), 7, np.float32)
    with sanitized(5):
        lapidist.grouped(x, packed, ends, scale_a=factors, out=out, device="machine")
    for number, (begin, end) in enumerate(((0, 18), (18, 18), (18, 21))):
        require_near(out[begin:end], x[begin:end], factors[begin:end, None], packed[number])
    assert np.all(out[21:] == 7)
    on_host = lapidist.grouped(x, packed, ends, scale_a=factors, out_dtype="bfloat16")
    assert np.allclose(on_host[:21].astype("f4"), out[:21], rtol=2**-8, atol=1e-3)
    with pytest.raises(LapidistError, match="scale_a: rows of x in 8 bits have factors"):
        lapidist.grouped(x, packed, ends)


X = np.ones((2, 64), numpy_dtype(E4M3))
WHOLE = np.ones((2, 64), np.int8)


@pytest.mark.parametrize(
    ("x", "format", "more", "words"),
    [
        (X.astype("float8_e5m2"), "int4", {"scale_a": 1.0}, "x: must be bfloat16, float16, float8_"),
        (X, "int4", {}, "scale_a: rows of x in 8 bits have factors; got None. Pass a number for all rows"),
        (X, "int8", {"scale_a": 1.0}, "x: float8_e4m3fn is multiplied by weights of int4, mxfp4, e4m3"),
        (X, "nvfp4", {"scale_a": 1.0}, "got nvfp4. Convert x to bfloat16"),
        (WHOLE, "e4m3", {"scale_a": 1.0}, "x: int8 is multiplied by weights of int4, int8"),
        (X, "int4", {"scale_a": np.ones(3, np.float32)}, r"scale_a: must be one factor, or .* \(2, 1\)"),
        (X, "int4", {"scale_a": np.ones(2)}, "scale_a: factors must be float32; got float64"),
        (X, "int4", {"scale_a": 1.0, "out_dtype": "int8"}, "out_dtype: must be one of float32, bfloat16"),
        (X, "int4", {"scale_a": 1.0, "decode": True}, "decode: weights are decoded for x of 16 bits alone"),
        (X.astype(np.float16), "int4", {"scale_a": 1.0}, "scale_a: is for x of 8 bits; got x of float16"),
        (X.astype(np.float16), "int4", {"out_dtype": "float32"}, "out_dtype: must be that of x, float16"),
        (X, "int4", {"scale_a": 1.0, "out": np.ones((2, 8), np.int32)}, "out_dtype: must .* got int32"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(x: Any, format: str, more: Any, words: str) -> None:
    packed = quantised.pack(np.ones((64, 8)), format)
    with pytest.raises(LapidistError, match=words):
        product(x, packed, **more)


def test_factors_of_columns_are_refused() -> None:
    packed = quantised.pack(np.ones((64, 8)), "int4")
    with pytest.raises(LapidistError, match="scale_b: is not for weights of few bits"):
        lapidist.matmul(WHOLE, packed, scale_a=1.0, scale_b=np.ones(8, np.float32))


def test_long_columns_of_int8_are_refused() -> None:
    """A sum of products of 2^14 would pass 2^31."""
    k = 1 << 17
    scales = np.ones((1, 1), np.float32)
    packed = quantised.from_codes(np.ones((k, 1), np.int8), scales, "int8")
    with pytest.raises(LapidistError, match="weight: sums of int8 have 32 bits, for up to 131071 of k"):
        product(np.ones((1, k), np.int8), packed, scale_a=1.0)
