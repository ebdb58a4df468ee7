"""Arithmetic against values worked out by hand or by exact rational arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from lapidist.machine import check
from snippets import lanes

U4 = np.arange(32, dtype="u4")


def u4(*values: int) -> np.ndarray:
    return np.resize(np.array([value % (1 << 32) for value in values], "u4"), 32)


def f4(*values: float) -> np.ndarray:
    return np.resize(np.array(values, "f4"), 32)


INTEGERS = [
    ("add.u32 d, a0, a1;", (0xFFFFFFFF, 2), 1),
    ("sub.s32 d, a0, a1;", (3, 5), 0xFFFFFFFE),
    ("mul.lo.u32 d, a0, a1;", (0x10001, 0x10001), 0x20001),
    ("mul.hi.u32 d, a0, a1;", (0x80000000, 6), 3),
    ("mul.hi.s32 d, a0, a1;", (-2, 3), 0xFFFFFFFF),
    ("mad.lo.s32 d, a0, a1, a1;", (-2, 3), 0xFFFFFFFD),
    ("div.s32 d, a0, a1;", (-7, 2), 0xFFFFFFFD),
    ("rem.s32 d, a0, a1;", (-7, 2), 0xFFFFFFFF),
    ("div.s32 d, a0, a1;", (7, -2), 0xFFFFFFFD),
    ("rem.s32 d, a0, a1;", (7, -2), 1),
    ("div.s32 d, a0, a1;", (-7, -2), 3),
    ("div.u32 d, a0, a1;", (7, 2), 3),
    ("min.s32 d, a0, a1;", (-1, 1), 0xFFFFFFFF),
    ("min.u32 d, a0, a1;", (-1, 1), 1),
    ("shr.s32 d, a0, 40;", (-5, 0), 0xFFFFFFFF),
    ("shr.u32 d, a0, a1;", (0x80000000, 31), 1),
    ("shl.b32 d, a0, a1;", (1, 32), 0),
    ("shf.l.wrap.b32 d, a0, a1, 8;", (0xAABBCCDD, 0x11223344), 0x223344AA),
    ("shf.r.wrap.b32 d, a0, a1, 8;", (0xAABBCCDD, 0x11223344), 0x44AABBCC),
    ("bfe.u32 d, a0, 8, 4;", (0x00000F00, 0), 15),
    ("bfe.s32 d, a0, 8, 4;", (0x00000F00, 0), 0xFFFFFFFF),
    ("bfe.s32 d, a0, 28, 8;", (0xF0000000, 0), 0xFFFFFFFF),
    ("bfi.b32 d, a0, a1, 4, 8;", (0xAB, 0xFFFFFFFF), 0xFFFFFABF),
    ("brev.b32 d, a0;", (1, 0), 0x80000000),
    ("clz.b32 d, a0;", (0x00010000, 0), 15),
    ("popc.b32 d, a0;", (0xF0F0, 0), 8),
    ("bfind.u32 d, a0;", (0x00010000, 0), 16),
    ("lop3.b32 d, a0, a1, 12, 0x96;", (0b1010, 0b0110), 0b0000),
    ("lop3.b32 d, a0, a1, 12, 0xE8;", (0b1010, 0b0110), 0b1110),
    ("prmt.b32 d, a0, a1, 0x7531;", (0x33221100, 0x77665544), 0x77553311),
    ("prmt.b32 d, a0, a1, 0x9876;", (0x00008000, 0x77665544), 0xFF007766),
    ("dp4a.s32.s32 d, a0, a1, 5;", (0x01FF0203, 0x01010101), 5 + 1 - 1 + 2 + 3),
    ("sad.u32 d, a0, a1, 1;", (3, 8), 6),
    ("vabsdiff4.u32.u32.u32 d, a0, a1, a0;", (0xFF010203, 0x01FF0502), 0xFEFE0301),
    ("vabsdiff4.u32.u32.u32.add d, a0, a1, 9;", (0xFF010203, 0x01FF0502), 0xFE + 0xFE + 3 + 1 + 9),
    ("vabsdiff2.u32.u32.u32.add d, a0, a1, a1;", (0x0001FFFF, 0x00030000), 0x00030000 + 2 + 0xFFFF),
    ("add.sat.s32 d, a0, a1;", (0x7FFFFFFF, 1), 0x7FFFFFFF),
    ("cvt.u32.u8 d, a0;", (0x1FF, 0), 0xFF),
    ("cvt.s32.s8 d, a0;", (0x1FF, 0), 0xFFFFFFFF),
    ("selp.b32 d, a0, a1, p; ", (1, 2), 1),
    ("bmsk.clamp.b32 d, a0, a1;", (4, 3), 0x70),
    ("bmsk.clamp.b32 d, a0, a1;", (4, 0), 0),
    ("bmsk.clamp.b32 d, a0, a1;", (4, 40), 0xFFFFFFF0),
    ("bmsk.clamp.b32 d, a0, a1;", (36, 3), 0),
    ("bmsk.wrap.b32 d, a0, a1;", (36, 35), 0x70),
    ("bmsk.wrap.b32 d, a0, a1;", (30, 9), 0xC0000000),
    ("szext.clamp.s32 d, a0, a1;", (0x1C, 4), 0xFFFFFFFC),
    ("szext.clamp.u32 d, a0, a1;", (0x1C, 4), 0xC),
    ("szext.clamp.s32 d, a0, a1;", (-7, 32), 0xFFFFFFF9),
    ("szext.wrap.s32 d, a0, a1;", (-7, 32), 0),
    ("szext.wrap.s32 d, a0, a1;", (1, 33), 0xFFFFFFFF),
    ("fns.b32 d, a0, a1, 0;", (0b1001000, 3), 3),
    ("fns.b32 d, a0, a1, 0;", (0b1001000, 4), 0xFFFFFFFF),
    ("fns.b32 d, a0, a1, 1;", (0b1001000, 4), 6),
    ("fns.b32 d, a0, a1, 2;", (0b1001000, 3), 6),
    ("fns.b32 d, a0, a1, -2;", (0b1001010, 6), 3),
    ("fns.b32 d, a0, a1, -4;", (0b1001010, 6), 0xFFFFFFFF),
    ("mad.hi.sat.s32 d, a0, 0x7fffffff, a1;", (0x7FFFFFFF, 0x60000000), 0x7FFFFFFF),
    ("mad.hi.sat.s32 d, a0, a0, a1;", (0x10000, -9), 0xFFFFFFF8),
    ("mad24.hi.sat.s32 d, a0, a0, a1;", (0x7FFFFF, 0x7FFFFFFF), 0x7FFFFFFF),
    ("max.relu.s32 d, a0, a1;", (-5, -2), 0),
    ("min.relu.s32 d, a0, a1;", (5, 7), 5),
    ("add.s16x2 d, a0, a1;", (0x7FFFFFFF, 0x00010002), 0x80000001),
    ("max.s16x2 d, a0, a1;", (0x80000001, 0x00010002), 0x00010002),
    ("max.u16x2 d, a0, a1;", (0x80000001, 0x00010002), 0x80000002),
    ("min.relu.s16x2 d, a0, a1;", (0x80000003, 0x00010002), 0x00000002),
    ("lop3.and.b32 d|q, a0, a1, 0, 0xC0, p; @!q mov.u32 d, 99;", (6, 3), 2),
    ("lop3.and.b32 d|q, a0, a1, 0, 0xC0, p; @!q mov.u32 d, 99;", (4, 3), 99),
    ("lop3.or.b32 d|q, a0, a1, 0, 0xC0, p; @!q mov.u32 d, 99;", (4, 3), 0),
    ("prmt.b32.f4e d, a0, a1, 9;", (0x33221100, 0x77665544), 0x44332211),
    ("prmt.b32.b4e d, a0, a1, 2;", (0x33221100, 0x77665544), 0x77001122),
    ("prmt.b32.rc8 d, a0, a1, 3;", (0x33221100, 0x77665544), 0x33333333),
    ("prmt.b32.ecl d, a0, a1, 1;", (0x33221100, 0x77665544), 0x33221111),
    ("prmt.b32.ecr d, a0, a1, 1;", (0x33221100, 0x77665544), 0x11111100),
    ("prmt.b32.rc16 d, a0, a1, 1;", (0x33221100, 0x77665544), 0x33223322),
]


@pytest.mark.parametrize(("text", "values", "expected"), INTEGERS, ids=str)
def test_integer_instructions(text: str, values: tuple[int, int], expected: int) -> None:
    body = ".reg .pred p, q; setp.lt.u32 p, %t, 99;" + text
    assert hex(lanes(body, [u4(values[0]), u4(values[1])], "u4")[5]) == hex(expected)


def test_wide_products_and_high_64() -> None:
    assert lanes("mul.wide.s32 d, a0, a1;", [u4(-3), u4(7)], "i8")[0] == -21
    a, b = np.full(32, 0xFFFFFFFFFFFFFFF1, "u8"), np.full(32, 0xABCDEF0123456789, "u8")
    assert (
        int(lanes("mul.hi.u64 d, a0, a1;", [a, b], "u8")[0]) == 0xFFFFFFFFFFFFFFF1 * 0xABCDEF0123456789 >> 64
    )
    assert (
        int(lanes("mul.hi.s64 d, a0, a1;", [a, b], "i8")[0]) == (-15 * (0xABCDEF0123456789 - (1 << 64))) >> 64
    )


def rounded(value: Fraction, digits: int) -> float:
    """The nearest number with `digits` significant bits, ties to even (no overflow, no subnormals)."""
    if value == 0:
        return 0.0
    exponent = 0
    scaled = abs(value)
    while scaled >= 1 << digits:
        scaled, exponent = scaled / 2, exponent + 1
    while scaled < 1 << (digits - 1):
        scaled, exponent = scaled * 2, exponent - 1
    whole = round(scaled)
    return float(whole * Fraction(2) ** exponent * (1 if value > 0 else -1))


@pytest.mark.parametrize(("kind", "dtype", "digits"), [("f32", "f4", 24), ("f64", "f8", 53)])
def test_fma_is_fused(kind: str, dtype: str, digits: int) -> None:
    """An unfused product would be wrong in about a quarter of the lanes."""
    random = np.random.default_rng(7)
    a, b, c = (random.standard_normal(256).astype(dtype) for _ in range(3))
    c = (-(a * b)).astype(dtype) + c * np.finfo(dtype).eps.astype(dtype)
    got = lanes(f"fma.rn.{kind} d, a0, a1, a2;", [a, b, c], dtype, threads=256)
    wanted = [
        rounded(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)), digits)
        for x, y, z in zip(a, b, c, strict=True)
    ]
    assert got.tolist() == wanted


def test_half_arithmetic_rounds_once() -> None:
    one_and_ulp = np.full(32, 0x3C013C01, "u4")  # 1 + 2^-10, twice
    assert hex(lanes("mul.rn.f16x2 d, a0, a0;", [one_and_ulp], "u4")[0]) == "0x3c023c02"
    # 2048 + 1 is a tie in f16: to even, 2048. Fused, 2048 + 1 + 2^-10 is above it: 2050.
    big, one = np.full(32, 0x6800, "u2"), np.full(32, 0x3C00, "u2")
    assert lanes("add.f16 d, a0, a1;", [big, one], "u2")[0] == 0x6800
    assert lanes("fma.rn.f16 d, a0, a0, a1;", [np.full(32, 0x3C01, "u2"), big], "u2")[0] == 0x6801


CONVERSIONS = [
    ("cvt.rn.f16.f32 d, a0;", f4(65520.0), "u2", 0x7C00),
    ("cvt.rz.f16.f32 d, a0;", f4(65519.9), "u2", 0x7BFF),
    ("cvt.rm.f16.f32 d, a0;", f4(70000.0), "u2", 0x7BFF),
    ("cvt.rp.f16.f32 d, a0;", f4(1e-9), "u2", 0x0001),
    ("cvt.rm.f16.f32 d, a0;", f4(-1e-9), "u2", 0x8001),
    ("cvt.rp.f16.f64 d, a0;", np.full(32, -1.0004), "u2", 0xBC00),
    ("cvt.rm.bf16.f32 d, a0;", f4(-1.001), "u2", 0xBF81),
    ("cvt.rn.satfinite.f16.f32 d, a0;", f4(-1e9), "u2", 0xFBFF),
    ("cvt.rn.satfinite.f16x2.f32 d, a0, 0f7f800000;", f4(1.0), "u4", 0x3C007BFF),
    ("cvt.rn.relu.satfinite.bf16x2.f32 d, a0, 0fbf800000;", f4(float("inf")), "u4", 0x7F7F0000),
    ("cvt.rna.satfinite.tf32.f32 d, a0;", f4(float("inf")), "u4", 0x7F7FE000),
    ("cvt.rn.bf16.f32 d, a0;", f4(1.00390625), "u2", 0x3F80),  # a tie, to even
    ("cvt.rn.bf16.f32 d, a0;", f4(1.01171875), "u2", 0x3F82),
    ("cvt.rn.bf16x2.f32 d, a0, 0f40000000;", f4(1.0), "u4", 0x3F804000),
    ("cvt.rzi.s32.f32 d, a0;", f4(-2.7), "u4", 0xFFFFFFFE),
    ("cvt.rni.s32.f32 d, a0;", f4(2.5), "u4", 2),
    ("cvt.rzi.s32.f32 d, a0;", f4(3e9), "u4", 0x7FFFFFFF),
    ("cvt.rzi.u32.f32 d, a0;", f4(-1.0), "u4", 0),
    ("cvt.rzi.s32.f32 d, a0;", f4(float("nan")), "u4", 0),
    ("cvt.rzi.s32.f64 d, a0;", np.full(32, np.nan), "u4", 0x80000000),
    ("cvt.rzi.u64.f32 d, a0;", f4(float("nan")), "u8", 1 << 63),
    ("cvt.rna.tf32.f32 d, a0;", f4(1.00048828125), "u4", 0x3F802000),  # 1 + 2^-11: a tie, away from zero
    ("cvt.rn.satfinite.e4m3x2.f32 d, a0, 0f3f800000;", f4(1000.0), "u2", 0x7E38),
    ("cvt.rn.satfinite.e5m2x2.f32 d, a0, 0fbf800000;", f4(1.5), "u2", 0x3EBC),
    ("cvt.rn.f32.s32 d, a0;", u4(0x1000001), "f4", 16777216.0),
]


@pytest.mark.parametrize(
    ("text", "source", "result", "expected"), CONVERSIONS, ids=[c[0] for c in CONVERSIONS]
)
def test_conversions(text: str, source: np.ndarray, result: str, expected: float) -> None:
    assert lanes(text, [source], result)[3] == expected


def test_fp8_comes_back() -> None:
    codes = np.arange(256, dtype="u2")
    finite = codes[(codes & 0x7F) != 0x7F]
    back = lanes(
        ".reg .b32 w; .reg .b16 l, h; .reg .f32 x; cvt.rn.f16x2.e4m3x2 w, a0; mov.b32 {l, h}, w; cvt.f32.f16"
        " x, l;cvt.rn.satfinite.e4m3x2.f32 d, x, x;",
        [finite],
        "u2",
        threads=len(finite),
    )
    assert (back & 0xFF).tolist() == finite.tolist()
    assert (back >> 8).tolist() == finite.tolist()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("lt", [1, 0, 0, 0]),
        ("le", [1, 1, 0, 0]),
        ("gt", [0, 0, 1, 0]),
        ("ltu", [1, 0, 0, 1]),
        ("ne", [1, 0, 1, 0]),
        ("neu", [1, 0, 1, 1]),
        ("num", [1, 1, 1, 0]),
    ],
)
def test_float_comparisons_with_nan(name: str, expected: list[int]) -> None:
    a, b = f4(1.0, 2.0, 3.0, float("nan")), f4(2.0)
    got = lanes(f".reg .pred p; setp.{name}.f32 p, a0, a1; selp.u32 d, 1, 0, p;", [a, b], "u4")
    assert got[:4].tolist() == expected


def test_guarded_instructions_keep_the_old_value() -> None:
    got = lanes(
        ".reg .pred p; setp.lt.u32 p, %t, 4; mov.u32 d, 7; @p add.u32 d, d, %t; @!p mov.u32 d, 9;", [], "u4"
    )
    assert got[:6].tolist() == [7, 8, 9, 10, 9, 9]


def test_packing_and_unpacking() -> None:
    got = lanes(
        ".reg .b64 w; .reg .b32 l, h; mov.b64 w, {a0, a1}; shr.u64 w, w, 16; mov.b64 {l, h}, w; mov.b32"
        " d, l;",
        [u4(0x11112222), u4(0x33334444)],
        "u4",
    )
    assert hex(got[0]) == "0x44441111"


def test_the_headers_own_absolute_differences_run() -> None:
    """nvcc writes __vabs4, __vsads4 and their like as vabsdiff4, though no chip since sm_50 has it."""
    source = """extern "C" __global__ void apart(const unsigned* a, const unsigned* b, unsigned* out) {
        int i = threadIdx.x;
        out[i] = __vabs4(a[i]); out[32 + i] = __vsads4(a[i], b[i]); out[64 + i] = __vsadu2(a[i], b[i]); }"""
    a, b = np.random.default_rng(5).integers(0, 2**32, (2, 32), dtype="u4")
    out = np.zeros((3, 32), "u4")
    assert check(source, (1, 1, 1), (32, 1, 1), a, b, out, seeds=1)
    assert (out[0].view("i1") == np.abs(a.view("i1"))).all()
    bytes_apart = np.abs(a.view("i1").astype("i4") - b.view("i1")).reshape(32, 4)
    halves_apart = np.abs(a.view("u2").astype("i4") - b.view("u2")).reshape(32, 2)
    assert (out[1] == bytes_apart.sum(axis=1)).all()
    assert (out[2] == halves_apart.sum(axis=1)).all()
