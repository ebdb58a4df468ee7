"""Packed weights: each code comes back, from plain weights and from files' packings; what does not fit."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest

import lapidist
from lapidist import quantised
from lapidist.dtypes import numpy_dtype
from lapidist.errors import LapidistError
from lapidist.quantised.number_formats import E2M1, FORMATS, GROUP_OF, scales_as_numbers
from lapidist.quantised.packing import AWQ_ORDER

K, N = 128, 40


def words_along_k(codes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    words = np.zeros((codes.shape[0] // 8, codes.shape[1]), np.uint32)
    for step in range(8):
        words |= codes[step::8].astype(np.uint32) << 4 * step
    return words.view(np.int32)


def words_along_n(codes: np.ndarray[Any, Any], order: tuple[int, ...]) -> np.ndarray[Any, Any]:
    words = np.zeros((codes.shape[0], codes.shape[1] // 8), np.uint32)
    for nibble, column in enumerate(order):
        words |= codes[:, column::8].astype(np.uint32) << 4 * nibble
    return words.view(np.int32)


@pytest.mark.parametrize("offset", [0, 1])
def test_gptq_gives_its_numbers(rng: np.random.Generator, offset: int) -> None:
    codes, zeros = rng.integers(0, 16, (K, N)), rng.integers(offset, 16, (K // 32, N))
    scales = rng.standard_normal((K // 32, N)).astype(np.float16)
    words, of_zeros = words_along_k(codes), words_along_n(zeros - offset, tuple(range(8)))
    packed = quantised.from_gptq(words, scales, of_zeros, np.arange(K) // 32, zero_offset=offset)
    expected = (codes - np.repeat(zeros, 32, 0)) * np.repeat(scales.astype("f8"), 32, 0)
    assert np.array_equal(quantised.unpack(packed), expected)


def test_gptq_s_zero_points_less_one_borrow(rng: np.random.Generator) -> None:
    """As words have it: GPTQModel takes 0x11111111 off each, and adds it again."""
    codes, zeros = rng.integers(0, 16, (K, N)), rng.integers(0, 16, (K // 32, N))
    words = words_along_n(zeros, tuple(range(8))).view(np.uint32) - np.uint32(0x11111111)
    scales = np.ones((K // 32, N), np.float16)
    packed = quantised.from_gptq(words_along_k(codes), scales, words.view(np.int32), zero_offset=1)
    assert np.array_equal(quantised.unpack(packed), codes - np.repeat(zeros, 32, 0))


@pytest.mark.parametrize("group", [32, 64, 128])
def test_gptq_s_groups_of_the_largest_activations(rng: np.random.Generator, group: int) -> None:
    """Of desc_act: rows of a group lie anywhere, and the last group is short. x follows."""
    k = 328
    codes, groups = rng.integers(0, 16, (k, N)), rng.permutation(np.arange(k) // group)
    scales = rng.standard_normal((-(-k // group), N)).astype(np.float16)
    zeros = rng.integers(1, 16, scales.shape)
    of_zeros = words_along_n(zeros - 1, tuple(range(8)))
    packed = quantised.from_gptq(words_along_k(codes), scales, of_zeros, groups.astype(np.int32))
    expected = (codes - zeros[groups]) * scales.astype("f8")[groups]
    assert np.array_equal(quantised.unpack(packed, "float64"), expected)
    again = quantised.load(packed.state_dict())
    assert repr(again) == repr(packed)
    assert repr(packed).endswith(", zero points, in the order of activations)")
    x = rng.standard_normal((3, k)).astype(np.float16)
    for weight in (packed, again):
        near = np.abs(lapidist.matmul(x, weight) - x.astype("f8") @ expected)
        assert np.all(near <= 2.0**-9 * np.abs(x) @ np.abs(expected))


def test_awq_gives_its_numbers(rng: np.random.Generator) -> None:
    codes, zeros = rng.integers(0, 16, (K, N)), rng.integers(0, 16, (1, N))
    scales = rng.standard_normal((1, N)).astype(np.float16)
    packed = quantised.from_awq(words_along_n(codes, AWQ_ORDER), scales, words_along_n(zeros, AWQ_ORDER))
    assert np.array_equal(quantised.unpack(packed), (codes - zeros) * scales.astype("f8"))


def test_mxfp4_gives_every_code_by_every_factor() -> None:
    codes = np.tile(np.arange(16, dtype=np.uint8), (256, 4))
    factors = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 2, 1)
    blocks = (codes[:, ::2] | codes[:, 1::2] << 4).reshape(256, 2, 16)
    packed = quantised.from_mxfp4(blocks, factors)
    signed = np.concatenate((E2M1, -E2M1))[codes.T]
    expected = signed * scales_as_numbers(factors[:, 0], "e8m0")
    assert np.array_equal(quantised.unpack(packed, "float64"), expected, equal_nan=True)


def test_nvfp4_gives_every_code_by_every_factor() -> None:
    """A column for each factor of e4m3, in which each of its two groups has all codes."""
    codes = np.tile(np.arange(16, dtype=np.uint8), (256, 4))
    pairs, factors = (
        codes[:, ::2] | codes[:, 1::2] << 4,
        np.arange(256, dtype=np.uint8).repeat(4).reshape(256, 4),
    )
    packed = quantised.from_nvfp4(pairs, factors, 3.0)
    e2m1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    numbers = np.concatenate([e2m1, -e2m1])
    expected = numbers[codes] * factors[:, :1].view(numpy_dtype("float8_e4m3fn")).astype("f8") * 3
    assert np.array_equal(quantised.unpack(packed, "float64"), expected.T, equal_nan=True)


@pytest.mark.parametrize(("format", "dtype"), [("int8", "int8"), ("e4m3", "float8_e4m3fn")])
def test_eight_bits_give_every_code(format: str, dtype: str) -> None:
    codes = np.arange(256, dtype=np.uint8).repeat(5).reshape(256, 5).view(numpy_dtype(dtype))
    scales = np.array([[1, 2, 0, -1, 3]], np.float32)
    packed = quantised.from_codes(codes, scales, format)
    assert np.array_equal(quantised.unpack(packed), codes.astype(np.float32) * scales, equal_nan=True)


@pytest.mark.parametrize(
    ("format", "more", "error"),
    [
        ("int4", {"group": 32}, 1 / 14),
        ("int4", {"group": 128, "zero_points": True}, 1 / 13),
        ("int4", {}, 1 / 14),
        ("mxfp4", {}, 1 / 4),
        ("nvfp4", {}, 1 / 5),  # a factor of e4m3 is off by a sixteenth
        ("int8", {"group": 64}, 1 / 250),
        ("e4m3", {}, 1 / 16),
    ],
)
def test_plain_weights_stay_near(rng: np.random.Generator, format: str, more: Any, error: float) -> None:
    """`error`: half a step of codes, over the largest of a group."""
    weight = rng.uniform(-1, 1, (K, N)).astype(np.float32)
    weight[:, 3] = 0
    packed = quantised.pack(weight, format, **more)
    assert np.abs(quantised.unpack(packed) - weight).max() <= error * 1.01
    assert not quantised.unpack(packed)[:, 3].any()
    again = quantised.load(packed.state_dict())
    assert again.shape == (K, N)
    assert np.array_equal(quantised.unpack(again), quantised.unpack(packed))


@pytest.mark.parametrize("k", [1, 15, 16, 31, 33, 63, 65, 100, 192, 200, 321])
def test_any_k_is_packed(rng: np.random.Generator, k: int) -> None:
    """The last group has what is left; a factor is that of its own steps."""
    sizes = np.exp2(-np.arange(k) // 32).astype(np.float32)
    weight = rng.uniform(0.5, 1, (k, 3)).astype(np.float32) * sizes[:, None]
    for format in FORMATS:
        for group in (None,) if format in GROUP_OF else (None, 32, 64, 128):
            packed = quantised.pack(weight, format, group=group)
            numbers = quantised.unpack(packed)
            assert numbers.shape == packed.shape == (k, 3)
            size = GROUP_OF.get(format, group or k)
            for begin in range(0, k, size):
                part = slice(begin, begin + size)
                largest = np.abs(weight[part]).max(0)
                assert np.all(np.abs(numbers[part] - weight[part]) <= largest * 0.26)
            again = quantised.load(packed.state_dict())
            assert np.array_equal(quantised.unpack(again), numbers)


WORDS = np.zeros((16, 8), np.int32)


@pytest.mark.parametrize("format", ["mxfp4", "nvfp4"])
def test_halfway_goes_to_the_even_code(format: str) -> None:
    """Factors are 1: the largest of each group is 6, by a factor of 448 of the weight, which stands apart."""
    numbers = np.zeros((64, 64 * 2))
    numbers[::16] = 6
    numbers[1:8, ::2] = numbers[17:24, 1::2] = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5])[:, None]
    numbers[:, 64:] *= -1
    if format == "nvfp4":
        numbers[0, 0] = 6 * 448
    expected = np.array([0, 1, 1, 2, 2, 4, 4])[:, None]
    found = quantised.unpack(quantised.pack(numbers.astype(np.float32), format))
    assert np.all(found[1:8, 2:64:2] == expected)
    assert np.all(found[17:24, 1:64:2] == expected)
    assert np.all(found[1:8, 64::2] == -expected)


@pytest.mark.parametrize(
    ("format", "more", "sums"),
    [
        ("int4", {"group": 32}, [2437352617, 2913069629]),
        ("int4", {"group": 64, "zero_points": True}, [1066180703, 838472331, 3956305925]),
        ("mxfp4", {}, [3715005986, 1346425491]),
        ("nvfp4", {}, [3314770051, 4112552490, 409599496]),
        ("int8", {"group": 128}, [376074394, 2265593442]),
        ("e4m3", {}, [3328676102, 3629558062]),
    ],
)
def test_packed_bits_stay_as_they_were(format: str, more: Any, sums: list[int]) -> None:
    """Files hold them: check sums of codes, factors and zero points of numbers of many sizes."""
    bits = np.arange(256 * 24, dtype=np.uint32).reshape(256, 24) * np.uint32(2654435761)
    fractions = (bits >> 8).astype(np.float32) / 2**23 - 1
    packed = quantised.pack(np.ldexp(fractions, (bits % 24).astype(np.int32) - 12), format, **more)
    arrays = (packed.codes, packed.scales, packed.zeros)
    assert [zlib.crc32(array.tobytes()) for array in arrays if array is not None] == sums


PACKED, X = quantised.pack(np.ones((64, 8)), "int4"), np.ones((2, 64), np.float16)
STATE = PACKED.state_dict()
PAIRS, WIDE = np.zeros((8, 32), np.uint8), np.repeat([[3e38], [-3e38]], 8, 1)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: quantised.pack(np.ones((64, 8)), "int3"), "format: must be one of int4, .*; got 'int3'"),
        (lambda: quantised.pack(np.ones((64, 8)), "int4", group=48), "32, 64 or 128, or all k = 64; got 48"),
        (lambda: quantised.pack(np.ones((0, 8)), "int8"), r"rows and columns; got shape \(0, 8\)"),
        (
            lambda: quantised.from_gptq(
                np.zeros((16, 8), np.int32), np.ones((1, 8), np.float16), g_idx=np.zeros(64)
            ),
            r"g_idx: must have 8 entries for each row of qweight, .*: 128; got shape \(64,\)",
        ),
        (lambda: quantised.from_gptq(WORDS, np.ones((1, 8), "f4"), g_idx=5), r"g_idx: .*; got shape \(\)"),
        (
            lambda: quantised.from_gptq(WORDS, 0, zero_offset=np.ones(2)),
            "zero_offset: must be 0 or 1; got nd",
        ),
        (lambda: quantised.from_mxfp4(np.zeros((0, 2, 16), "u1"), 0), r"blocks: .* got uint8 of \(0, 2, 16"),
        (lambda: quantised.from_nvfp4(PAIRS, PAIRS[:, ::8], 1j), "factor: must be one finite number; got 1j"),
        (
            lambda: quantised.from_nvfp4(PAIRS, PAIRS[:, ::8], "2"),
            "factor: must be one finite number; got '2'",
        ),
        (lambda: quantised.pack(np.ma.ones((64, 8)), "int8"), "weight: must be a plain array; a masked one"),
        (
            lambda: quantised.from_gptq(WORDS, np.ma.ones((1, 8), "f4")),
            "scales: must be a plain array; a masked one",
        ),
        (
            lambda: quantised.pack(WIDE, "int4", zero_points=True),
            "weight: with zero_points, ranges of groups",
        ),
        (lambda: quantised.pack(np.ones((64, 8)), "mxfp4", group=64), "mxfp4 has a factor for 32"),
        (lambda: quantised.pack(np.ones((64, 8)), "e4m3", zero_points=True), "zero_points: are for int4"),
        (lambda: quantised.pack(np.full((64, 8), np.nan), "int8"), "weight: must be finite"),
        (lambda: quantised.from_gptq(WORDS, np.ones((3, 8), "f4")), r"scales: must have shape \(groups"),
        (lambda: quantised.from_gptq(WORDS, np.ones((1, 8))), "scales: must be float32, float16"),
        (
            lambda: quantised.from_gptq(WORDS, np.ones((4, 8), "f4"), None, np.arange(128)[::-1] // 43),
            r"g_idx: must name groups 0 to 3 for 32 rows each, .*; got \[43, 43, 42\]",
        ),
        (lambda: quantised.from_mxfp4(np.zeros((2, 8, 2, 16), "u1"), 0), "blocks: must be bytes"),
        (
            lambda: quantised.load({}),
            "state: must have layout, codes and scales; without codes, layout, scales",
        ),
        (lambda: quantised.load("weight.npz"), "state: must be a mapping .*; got str. Read a file first"),
        (lambda: quantised.load(STATE | {"layout": None}), "state: layout must be .* got None"),
        (lambda: quantised.load(STATE | {"layout": "int4"}), "state: layout must be .* got 'int4'"),
        (lambda: quantised.load(STATE | {"codes": None}), "state: codes must be an array; got None"),
        (lambda: quantised.load(STATE | {"zeros": [8]}), r"state: zeros must be an array; got \[8\]"),
        (lambda: quantised.stack(None), "weights: must be a list of one PackedWeight or more.* got None"),
        (lambda: quantised.stack([np.ones((64, 8))]), "weights: must be a list of one PackedWeight"),
        (
            lambda: quantised.pack(np.ones((64, 8)), "int4", zero_points=2),
            "zero_points: must be True or False; got 2",
        ),
        (lambda: quantised.unpack(PACKED, np.ones(2)), "dtype: must be float32 or float64"),
        (lambda: quantised.matmul(X, PACKED, decode="yes"), "decode: must be True or False; got 'yes'"),
        (lambda: quantised.matmul(X, PACKED, device=np.ones(2)), 'device: must be "gpu", a GPU\'s number'),
        (lambda: lapidist.matmul(X, PACKED, precision=np.ones(2)), "precision: is not for weights of few"),
        (lambda: PACKED.to("cuda"), "device: is for weights of torch; got 'cuda' and arrays of numpy"),
    ],
)
def test_what_does_not_fit_is_refused(call: Any, words: str) -> None:
    with pytest.raises(LapidistError, match=words):
        call()
