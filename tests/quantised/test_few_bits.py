"""Products with weights of few bits, sanitized in the machine: near those of decoded weights in float64."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import lapidist
from in_turns import in_turns, surveyed_but
from lapidist import quantised
from lapidist.backends.machine_backend import MachineBackend, sanitized
from lapidist.device import chip as chip_named
from lapidist.dtypes import numpy_dtype
from lapidist.errors import LapidistError
from lapidist.problems.modes import OF_ALL, Modes
from lapidist.problems.ragged import ROWS, Ragged
from lapidist.quantised import bound_product, launches, streamed_configs
from lapidist.quantised import product as products
from lapidist.quantised.kernel_parameters import End, Rows
from lapidist.quantised.product import product
from lapidist.quantised.streamed_configs import Streamed
from lapidist.quantised.weight_facts import Weight

ULP = {"bfloat16": 2.0**-8, "float16": 2.0**-11}  # of a rounding to nearest, relative


def activations(rng: np.random.Generator, m: int, k: int, dtype: str) -> Any:
    return rng.standard_normal((m, k)).astype(numpy_dtype(dtype))


def require_near(found: Any, x: Any, weight: Any, bias: Any = None, decoded: bool = False) -> None:
    """Sums are float32; the result is rounded once, and so is each decoded weight."""
    exact, terms = x.astype("f8") @ weight, np.abs(x.astype("f8")) @ np.abs(weight)
    if bias is not None:
        exact, terms = exact + bias.astype("f8"), terms + np.abs(bias.astype("f8"))
    ulp = ULP[x.dtype.name]
    allowed = np.abs(exact) * ulp + terms * (len(weight) * 2.0**-24 + (ulp if decoded else 0)) + 2.0**-24
    assert np.all(np.abs(found.astype("f8") - exact) <= allowed)


CASES = [
    ("int4", {"group": 32}, "bfloat16", 1),
    ("int4", {"group": 64, "zero_points": True}, "float16", 9),
    ("int4", {"group": 128, "zero_points": True}, "bfloat16", 17),
    ("int4", {}, "float16", 13),
    ("mxfp4", {}, "bfloat16", 8),
    ("mxfp4", {}, "float16", 10),
    ("nvfp4", {}, "bfloat16", 11),
    ("nvfp4", {}, "float16", 6),
    ("int8", {"group": 32}, "bfloat16", 12),
    ("int8", {}, "float16", 33),
    ("e4m3", {"group": 64}, "bfloat16", 2),
    ("e4m3", {}, "float16", 66),
]


def on_chips() -> Iterator[Any]:
    """Each case with and without decoding, on a chip with wgmma and bulk copies and on one without. In
    `make test` each format meets both; a survey has the other pairs."""
    for number, case in enumerate(CASES):
        for turn, chip in enumerate(["h200", "a100"]):
            for decode in (False, True):
                often = turn == (number + number // 2) % 2 and decode == number % 2
                yield pytest.param(chip, *case, decode, marks=[] if often else pytest.mark.survey)


@pytest.mark.often(2)
@pytest.mark.parametrize(("chip", "format", "more", "dtype", "m", "decode"), list(on_chips()))
def test_products_are_those_of_decoded_weights(
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
    chip: str,
    format: str,
    more: Any,
    dtype: str,
    m: int,
    decode: bool,
) -> None:
    monkeypatch.setattr(MachineBackend, "chip", chip_named(chip))
    k, n = 256, 40
    packed = quantised.pack(rng.standard_normal((k, n)).astype(np.float32), format, **more)
    x, bias = activations(rng, m, k, dtype), activations(rng, 1, n, dtype)[0]
    with sanitized(m):
        found = product(x, packed, bias, device="machine", decode=decode)
    require_near(found, x, quantised.unpack(packed, "float64"), bias, decode)
    plain = lapidist.matmul(x, packed, device="machine")
    require_near(plain, x, quantised.unpack(packed, "float64"))
    require_near(product(x, packed, bias), x, quantised.unpack(packed, "float64"), bias)


CONFIGS = [
    Streamed(8, 1, 2, 2, 2),
    Streamed(16, 1, 1, 2, 2),
    Streamed(16, 2, 3, 2, 1),
    Streamed(32, 3, 2, 2, 1),
    Streamed(64, 2, 5, 3, 1),
    Streamed(96, 3, 1, 2, 1),
    Streamed(128, 1, 2, 2, 1),
    Streamed(256, 2, 2, 3, 1, factors_first=True),
    Streamed(128, 3, 2, 3, 1, factors_first=True),
    Streamed(16, 2, 2, 2, 1, depth=4),
    Streamed(64, 1, 1, 2, 2, depth=4),
]
OFTEN = [(CONFIGS[0], "int4"), (CONFIGS[2], "mxfp4"), (CONFIGS[8], "int4"), (CONFIGS[10], "mxfp4")]


@pytest.mark.often(2)
@pytest.mark.parametrize(("config", "format"), in_turns(CONFIGS, ["int4", "mxfp4"], often=OFTEN))
def test_parts_of_k_and_columns_of_blocks(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, config: Streamed, format: str
) -> None:
    """k ends in half a stage, tiles behind the last are the last, rows are more than a block has. Those of D
    lie between vectors. Factors that come first round their products with codes.
    """
    monkeypatch.setattr(products, "streamed_config", lambda *_: config)
    k, n, m = 576 if config.depth == 2 else 768, 198, config.rows + 5
    more = {"group": 64, "zero_points": True} if format == "int4" else {}
    packed = quantised.pack(rng.standard_normal((k, n)).astype(np.float32), format, **more)
    x = activations(rng, m, k, "bfloat16")
    with sanitized(sum(config)):
        result = product(x, packed, device="machine", decode=False)
    require_near(result, x, quantised.unpack(packed, "float64"), decoded=config.factors_first)


def gptq(rng: np.random.Generator, k: int, n: int) -> Any:
    """int4 with zero points and factors of float16, in groups of 64."""
    words, zeros = (
        rng.integers(-(2**31), 2**31, shape).astype("i4") for shape in ((k // 8, n), (k // 64, n // 8))
    )
    return quantised.from_gptq(words, rng.uniform(0.01, 0.1, (k // 64, n)).astype(np.float16), zeros)


# Of weights with blocks of more than 128 rows: x, rows, and whether products of codes and factors are rounded
WIDE_CASES = [
    ("int4", {"group": 32, "zero_points": True}, "bfloat16", 130, True),
    ("int4", {"group": 64}, "bfloat16", 256, True),
    ("int4", {}, "float16", 200, False),
    ("gptq", {}, "float16", 144, True),
    ("mxfp4", {}, "bfloat16", 199, False),
    ("nvfp4", {}, "bfloat16", 131, False),
    ("nvfp4", {}, "float16", 256, False),
]
NARROW_CASES = [
    ("int8", {"group": 64}, "bfloat16", 130, False),  # three stages do not fit
    ("e4m3", {}, "bfloat16", 129, False),
    ("mxfp4", {}, "float16", 130, False),  # factors that float16 does not hold
]


@pytest.mark.often(1)
@pytest.mark.parametrize(("number", "case"), surveyed_but(enumerate([*WIDE_CASES, *NARROW_CASES]), 1, 4))
def test_wide_blocks(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, number: int, case: Any
) -> None:
    """Of the least rows that are enough; each stage is filled again. k ends in half a stage, n between tiles.
    A bias and a function follow in turn.
    """
    format, more, dtype, m, decoded = case
    monkeypatch.setattr(MachineBackend, "chip", dataclasses.replace(chip_named("h200"), sms=1))
    enough = [min(rows for rows in streamed_configs.ONE_SET if rows >= m)]
    if case in WIDE_CASES:
        monkeypatch.setattr(streamed_configs, "lines_of", lambda *_: enough)
    configs: list[Streamed] = []

    def chosen(*facts: Any) -> Streamed:
        configs.append(streamed_configs.streamed_config.__wrapped__(*facts))
        return configs[-1]

    monkeypatch.setattr(products, "streamed_config", chosen)
    for module in (products, bound_product):
        monkeypatch.setattr(module, "way_on", lambda *_, **more: "streamed")
    k, n = 960, 72
    plain = rng.standard_normal((k, n)).astype(np.float32)
    packed = gptq(rng, k, n) if format == "gptq" else quantised.pack(plain, format, **more)
    x, bias = activations(rng, m, k, dtype), activations(rng, 1, n, dtype)[0]
    with sanitized(m):
        if number % 2:
            found = product(x, packed, bias, device="machine")
        else:
            added = lapidist.epilogues.bias_relu(bias=bias)
            found = quantised.matmul(x, packed, epilogue=added, device="machine")
    weight, (config,) = quantised.unpack(packed, "float64"), configs
    assert config.rows == (128 if case in NARROW_CASES else enough[0])
    assert config.factors_first == decoded
    if number % 2:
        require_near(found, x, weight, bias, decoded)
        return
    rounded = np.maximum(x.astype("f8") @ weight + bias.astype("f8"), 0)
    terms = np.abs(x.astype("f8")) @ np.abs(weight) + np.abs(bias.astype("f8"))
    allowed = rounded * ULP[dtype] + terms * ((k + 2) * 2.0**-24 + decoded * ULP[dtype]) + 2.0**-24
    assert np.all(np.abs(found.astype("f8") - rounded) <= allowed)


INT4 = Weight(8192, 8192, "int4", 128, "bfloat16", False, "bfloat16")
# Rows, n, k, and what took the least time: rows and groups of columns of a block, parts of k, blocks on an SM
MEASURED = [
    (256, 8192, 8192, (256, 2, 2, 1)),
    (256, 6144, 4096, (128, 3, 2, 1)),
    (320, 6144, 4096, (160, 3, 2, 1)),
    (256, 4096, 7168, (128, 2, 2, 1)),
    (512, 6144, 4096, (128, 3, 1, 1)),
    (256, 5120, 5120, (128, 3, 2, 1)),
    (96, 6144, 4096, (96, 2, 2, 1)),
    (96, 4096, 7168, (96, 1, 2, 1)),
    (320, 1536, 2048, (64, 1, 2, 2)),
]


@pytest.mark.parametrize(("m", "n", "k", "fastest"), MEASURED)
@pytest.mark.parametrize("format", ["int4", "mxfp4"])
def test_blocks_are_those_that_were_faster(
    m: int, n: int, k: int, fastest: tuple[int, ...], format: str
) -> None:
    factors = {"group": 32, "scale_type": "e8m0"} if format == "mxfp4" else {}
    weight = INT4._replace(n=n, k=k, format=format, **factors)
    config = streamed_configs.streamed_config(Rows(m, n), weight, 132)
    assert (config.rows, config.column_groups, config.parts, config.resident) == fastest
    assert config.factors_first == (format == "int4" and m > 128 and config.rows > 64)


def test_who_takes_wide_blocks() -> None:
    def rows_of(m: int, exact: bool = False, **facts: Any) -> int:
        return streamed_configs.streamed_config(Rows(m, 8192), INT4._replace(**facts), 132, exact).rows

    assert [rows_of(m) for m in (128, 129, 192, 256, 320, 1024)] == [128, 160, 192, 256, 160, 256]
    assert rows_of(200, exact=True) == rows_of(1024, exact=True) == 128
    assert rows_of(200, exact=True, group=8192) == 224  # a factor for a column multiplies its sums
    assert rows_of(200, dtype="float16") == rows_of(200, scale_type="float32") == 128
    assert rows_of(200, dtype="float16", scale_type="float16") == 224
    for modes in (Modes(ragged=Ragged(ROWS, 4, 800)), Modes(gather_a=OF_ALL)):
        assert not streamed_configs.takes_wide_blocks(Rows(200, 8192, 200, modes), INT4, exact=False)


def test_grids_hold_all_blocks_of_rows() -> None:
    """Experts with room for many rows, of which few are expected: blocks of more rows are fewer."""
    masked = Rows(256 * 8192, 2048, 4, Modes(ragged=Ragged(ROWS, 256, 256 * 8192, 8192)))
    streamed = streamed_configs.streamed_config(masked, INT4, 132)
    skinny = launches.skinny_config(masked, INT4, 132)
    for lines in (streamed.rows, 8 * skinny.eights):
        assert masked.blocks(lines) <= 65535
    machine = MachineBackend()
    with pytest.raises(LapidistError, match="x: rows must fit in 65535 blocks of 128; got 8388609"):
        products.by_few_rows(Rows(2**23 + 1, 2048), INT4, End(), machine, exact=True)


def test_what_is_not_decoded_is_not_rounded(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """decode=False keeps codes as they are, also of rows whose blocks would multiply them by factors."""
    monkeypatch.setattr(MachineBackend, "chip", dataclasses.replace(chip_named("h200"), sms=1))
    packed = quantised.pack(rng.standard_normal((128, 72)).astype(np.float32), "int4", group=64)
    x = activations(rng, 130, 128, "bfloat16")
    weight = quantised.unpack(packed, "float64")
    for epilogue in (None, lapidist.epilogues.scaled(factor=1.0)):
        found = quantised.matmul(x, packed, epilogue=epilogue, device="machine", decode=False)
        require_near(found, x, weight)


# eights of rows, warps, tiles ahead and sixteens of columns: warps without a block, and turns that end early
SKINNY = [(1, 3, 2, 2), (1, 8, 1, 4), (2, 4, 2, 2), (1, 2, 3, 4)]
FORMATS = [
    ("int4", {"group": 128}),
    ("int4", {"group": 64, "zero_points": True}),
    ("mxfp4", {}),
    ("int8", {}),
]


@pytest.mark.often(2)
@pytest.mark.parametrize(("config", "case"), in_turns(SKINNY, FORMATS))
def test_tiles_of_more_columns(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, config: Any, case: Any
) -> None:
    monkeypatch.setattr(products, "skinny_config", lambda *_: launches.Skinny(*config))
    k, n, m = 1152, 134, 8 * config[0] - 5  # a warp loads in three turns
    packed = quantised.pack(rng.standard_normal((k, n)).astype(np.float32), case[0], **case[1])
    x = activations(rng, m, k, "bfloat16")
    monkeypatch.setattr(MachineBackend, "chip", chip_named("h200" if m <= 4 else "a100"))
    with sanitized(sum(config)):
        result = product(x, packed, device="machine", decode=False)
    require_near(result, x, quantised.unpack(packed, "float64"))


@pytest.mark.survey
@pytest.mark.parametrize("config", launches.EIGHT_ROWS)
def test_registers_hold_all_blocks_of_an_sm(config: launches.Skinny) -> None:
    binary = launches.multiplying(Rows(1, 512), INT4, End(), config, "sm_90a").binary
    assert "0 bytes spill stores" in binary.log
    used = int(re.findall(r"Used (\d+) registers", binary.log)[-1])
    assert -(-used // 8) * 8 * 32 * config.warps * config.resident <= streamed_configs.REGISTERS_OF_SM


BLOCKS = [
    *((rows, False) for rows in sorted(streamed_configs.COSTS_OF[2], reverse=True)),
    *((rows, True) for rows in sorted(streamed_configs.ONE_SET)),
]


@pytest.mark.often(1)
@pytest.mark.parametrize(("rows", "first"), surveyed_but(BLOCKS, 2, 6))
def test_warps_find_the_registers_they_take(rows: int, first: bool) -> None:
    """What warps take is what others of the block gave back: more would be waited for without an end."""
    weight = Weight(1024, 512, "int4", 128, "bfloat16", False, "bfloat16")
    for groups, resident in streamed_configs.blocks_of_sm(rows, weight, first):
        config = Streamed(rows, groups, 1, 2, resident, factors_first=first)
        config = config._replace(stages=config.most_stages(weight))
        binary = launches.streaming(Rows(rows, 512), weight, End(), config, "sm_90a").binary
        allotted = int(re.findall(r"Used (\d+) registers", binary.log)[-1])
        taken = 128 * (groups * config.registers + streamed_configs.REGISTERS_LEFT)
        assert "0 bytes spill stores" in binary.log or not first
        assert taken <= allotted * config.threads <= streamed_configs.REGISTERS_OF_SM // resident
        assert streamed_configs.REGISTERS_LEFT <= allotted <= config.registers


def test_factors_above_one(rng: np.random.Generator) -> None:
    """A power of two above 1 times 2^126 is no bfloat16: such factors are multiplied apart."""
    packed = quantised.pack(100 * rng.standard_normal((128, 64)).astype(np.float32), "mxfp4")
    x = activations(rng, 9, 128, "bfloat16")
    with sanitized(4):
        result = product(x, packed, device="machine")
    require_near(result, x, quantised.unpack(packed, "float64"))


@pytest.mark.often(1)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_each_code_of_four_bits_is_exact(dtype: str) -> None:
    """A row of x picks a step of k, which has every code."""
    k = 64
    codes = np.tile(np.arange(16, dtype=np.uint8), (16, 4))
    blocks = (codes[:, ::2] | codes[:, 1::2] << 4).reshape(16, 2, 16)
    powers = np.tile(np.array([127, 130], np.uint8), (16, 1))
    weights = [quantised.from_mxfp4(blocks, powers)]
    factors = np.tile(np.array([0x01, 0x38, 0x7E, 0x09], np.uint8), (16, 1))  # of e4m3: 2^-9, 1, 448, 9 / 512
    weights.append(quantised.from_nvfp4(blocks.reshape(16, 32), factors, np.float32(0.5)))
    words = np.full((k // 8, 16), 0x76543210, np.int32)
    words[1::2] = np.uint32(0xFEDCBA98).astype(np.int32)
    zeros = np.array([[0x76543210, 0x0EDCBA98]], np.int32)
    weights += [quantised.from_gptq(words, np.ones((1, 16), np.float16), zeros)]
    for packed in weights:
        x = np.eye(k).astype(numpy_dtype(dtype))
        with sanitized(1):
            found = product(x, packed, device="machine")
        assert np.array_equal(found.astype("f4"), quantised.unpack(packed))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(("format", "code_type"), [("int8", "int8"), ("e4m3", "float8_e4m3fn")])
def test_each_code_of_eight_bits_is_exact(dtype: str, format: str, code_type: str) -> None:
    """Codes that are NaN stay so, in their columns alone."""
    codes = np.arange(256, dtype=np.uint8).repeat(64).reshape(256, 64).T.view(numpy_dtype(code_type))
    packed = quantised.from_codes(codes, np.ones((1, 256), np.float32), format)
    x = np.eye(64).astype(numpy_dtype(dtype))[:3]
    with sanitized(2):
        found = product(x, packed, device="machine")
    assert np.array_equal(found.astype("f4"), quantised.unpack(packed)[:3], equal_nan=True)


@pytest.mark.parametrize("m", [1, 9])  # rows that different kernels multiply
def test_extreme_factors_of_mxfp4(m: int) -> None:
    """0 is 2^-127, 254 is 2^127, 255 is NaN."""
    blocks = np.full((4, 2, 16), 0x22, np.uint8)
    factors = np.array([[0, 0], [127, 0], [254, 0], [255, 127]], np.uint8)
    packed = quantised.from_mxfp4(blocks, factors)
    x = np.zeros((m, 64), numpy_dtype("bfloat16"))
    x[:, 0] = 1
    with sanitized(3):
        found = product(x, packed, device="machine").astype("f8")
    assert np.array_equal(found, [[2.0**-127, 1, 2.0**127, np.nan]] * m, equal_nan=True)


X = np.ones((2, 64), np.float16)


@pytest.mark.parametrize(
    ("x", "more", "words"),
    [
        (X.astype("f4"), {}, "x: must be bfloat16, float16, float8_e4m3fn or int8; got float32"),
        (X[:, :32], {}, r"x: must have k = 64 columns, .*; got \(2, 32\)"),
        (X, {"bias": np.ones(7, np.float16)}, r"bias: must have 8 elements of float16"),
        (X, {"out": np.ones((2, 7), np.float16)}, r"out: must be float16 of shape \(2, 8\)"),
        (X, {"out": np.ones((8, 2), np.float16).T}, "out: must be writable, its rows"),
        (X, {"bias": np.broadcast_to(np.float16(1), 8)}, "bias: must have 8 elements of float16, one after"),
    ],
)
def test_what_does_not_fit_is_refused(x: Any, more: Any, words: str) -> None:
    packed = quantised.pack(np.ones((64, 8)), "int8")
    with pytest.raises(LapidistError, match=words):
        product(x, packed, **more)
    with pytest.raises(LapidistError, match="weight: must be a PackedWeight; got ndarray"):
        product(x, np.ones((64, 8)))


def test_arrays_between_vectors_are_refused() -> None:
    packed = quantised.pack(np.ones((64, 8)), "int8")
    room = np.empty(packed.codes.size + 8, np.int32)
    first = -(room.ctypes.data // 4) % 4 + 1
    codes = room[first : first + packed.codes.size].reshape(packed.codes.shape)
    moved = dataclasses.replace(packed, codes=codes)
    with pytest.raises(LapidistError, match="weight: codes must begin at multiples of 16 bytes; got 4"):
        product(X, moved, device="machine")


def test_matmul_refuses_what_belongs_to_other_products() -> None:
    packed = quantised.pack(np.ones((64, 8)), "int8")
    for more in ({"acc_dtype": "float32"}, {"precision": "tf32"}, {"stream": 5}):
        with pytest.raises(LapidistError, match=f"{next(iter(more))}: (is not for )?weights of few bits"):
            lapidist.matmul(X, packed, **more)


def test_batches_of_rows_and_views() -> None:
    """Rows that do not begin at vectors are copied; dimensions before k are rows; no rows give none."""
    packed = quantised.pack(np.arange(512.0).reshape(64, 8), "int8")
    wide = np.ones((2, 3, 65), np.float16)
    found = lapidist.matmul(wide[..., 1:], packed, device="machine")
    assert found.shape == (2, 3, 8)
    assert np.allclose(found, quantised.unpack(packed).sum(0), rtol=1e-3)
    shifted = np.ones(129, np.float16)[1:].reshape(2, 64)
    assert np.array_equal(lapidist.matmul(shifted, packed, device="machine"), found[0, :2])
    assert lapidist.matmul(X[:0], packed, device="machine").shape == (0, 8)
