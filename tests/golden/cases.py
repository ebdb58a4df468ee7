"""Small kernels whose results are recorded on a GPU and replayed in the machine: arithmetic, warps, matrices,
tensor maps.

Inputs come from a fixed seed, so a recording holds outputs only, and the digest of what made them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from case import FLOATS, SIZES, Case, Fill, lane_case, random_for, rough, small
from copy_cases import copy_cases
from hopper_cases import tensors, wgmma_case, wgmmas
from wmma_cases import wmma_cases


def awkward(dtype: str, count: int, random: np.random.Generator) -> np.ndarray:
    """Normal numbers of many sizes, with zeros, infinities, NaN, subnormals and ties among them."""
    values = random.standard_normal(count) * 2.0 ** random.integers(-20, 20, count)
    special = [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        1e-40,
        -1e-40,
        65504.0,
        65520.0,
        1.00048828125,
        2.5,
        -2.5,
        448.0,
        464.0,
        57344.0,
        61440.0,
    ]
    values[: len(special)] = special
    return values.astype(dtype)


UNARY = {
    "cvt.rn.f16.f32 d0, a0;": ("f4", "u2"),
    "cvt.rz.f16.f32 d0, a0;": ("f4", "u2"),
    "cvt.rn.bf16.f32 d0, a0;": ("f4", "u2"),
    "cvt.rna.tf32.f32 d0, a0;": ("f4", "u4"),
    "cvt.rzi.s32.f32 d0, a0;": ("f4", "u4"),
    "cvt.rni.u32.f32 d0, a0;": ("f4", "u4"),
    "cvt.rzi.s64.f32 d0, a0;": ("f4", "u8"),
    "cvt.rzi.s32.f64 d0, a0;": ("f8", "u4"),
    "cvt.rn.f32.f64 d0, a0;": ("f8", "u4"),
    "cvt.rn.f32.s64 d0, a0;": ("i8", "u4"),
    "cvt.f32.f16 d0, a0;": ("u2", "u4"),
    "cvt.rn.satfinite.e4m3x2.f32 d0, a0, a0;": ("f4", "u2"),
    "cvt.rn.satfinite.e5m2x2.f32 d0, a0, a0;": ("f4", "u2"),
    "cvt.rn.f16x2.e4m3x2 d0, a0;": ("u2", "u4"),
    "cvt.rn.f16x2.e5m2x2 d0, a0;": ("u2", "u4"),
    "cvt.rn.bf16x2.f32 d0, a0, a0;": ("f4", "u4"),
    "sqrt.rn.f32 d0, a0;": ("f4", "u4"),
    "rcp.rn.f32 d0, a0;": ("f4", "u4"),
    "abs.f32 d0, a0;": ("f4", "u4"),
    "popc.b32 d0, a0;": ("u4", "u4"),
    "clz.b32 d0, a0;": ("u4", "u4"),
    "brev.b32 d0, a0;": ("u4", "u4"),
    "bfind.s32 d0, a0;": ("u4", "u4"),
}
BINARY = {
    "add.rn.f32 d0, a0, a1;": "f4",
    "mul.rn.f32 d0, a0, a1;": "f4",
    "min.f32 d0, a0, a1;": "f4",
    "max.NaN.f32 d0, a0, a1;": "f4",
    "add.ftz.f32 d0, a0, a1;": "f4",
    "add.f16x2 d0, a0, a1;": "h2",
    "mul.bf16x2 d0, a0, a1;": "h2",
    "min.f16x2 d0, a0, a1;": "h2",
    "mul.hi.s32 d0, a0, a1;": "u4",
    "div.s32 d0, a0, a1;": "u4",
    "rem.u32 d0, a0, a1;": "u4",
    "shl.b32 d0, a0, a1;": "u4",
    "shr.s32 d0, a0, a1;": "u4",
    "bfe.s32 d0, a0, a1, 9;": "u4",
    "bfe.u32 d0, a0, 5, a1;": "u4",
    "bfi.b32 d0, a0, a1, 7, 13;": "u4",
    "prmt.b32 d0, a0, a1, 0x9d42;": "u4",
    "shf.l.clamp.b32 d0, a0, a1, a1;": "u4",
    "lop3.b32 d0, a0, a1, a0, 0x2d;": "u4",
    "dp4a.s32.u32 d0, a0, a1, a0;": "u4",
}
TERNARY = {
    "fma.rn.f32": "f4",
    "fma.rn.f64": "f8",
    "fma.rn.f16x2": "h2",
    "fma.rn.bf16x2": "h2",
    "fma.rn.ftz.f32": "f4",
}


def operands(form: str, number: int, random: np.random.Generator, count: int) -> list[np.ndarray]:
    if form in ("f4", "f8"):
        return [random.permutation(awkward(form, count, random)) for _ in range(number)]
    if form == "h2":
        return [(random.standard_normal(2 * count) * 8).astype("f2").view("u4") for _ in range(number)]
    found = [random.integers(0, 1 << 32, count, dtype="u8").astype("u4") for _ in range(number)]
    return [
        found[0],
        *(np.where(np.arange(count) % 2, values, values % 40).astype("u4") for values in found[1:]),
    ]


def arithmetic() -> Iterator[Case]:
    count = 256
    for text, (source, out) in UNARY.items():
        random = random_for(text)
        if source[0] == "f":
            data = awkward(source, count, random)
        else:
            data = random.integers(0, 1 << 16 if source == "u2" else 1 << 32, count, dtype="u8").astype(
                source
            )
            data = (
                np.arange(count, dtype="u2") * 257
                if "e4m3x2 d0, a0;" in text or "e5m2x2 d0, a0;" in text
                else data
            )
        yield lane_case(text.split()[0], text, [data], [out], count)
    for text, form in BINARY.items():
        yield lane_case(text.rstrip(";"), text, operands(form, 2, random_for(text), count), ["u4"], count)
    for name, form in TERNARY.items():
        a, b, c = operands(form, 3, random_for(name), 1024)
        if form == "f4":
            c[512:] = -(a[512:] * b[512:])  # what is left is the product's rounding error
        yield lane_case(name, f"{name} d0, a0, a1, a2;", [a, b, c], ["u8" if form == "f8" else "u4"], 1024)


def warp_instructions() -> Iterator[Case]:
    random = random_for("warp")
    values, by = (
        random.integers(0, 1 << 32, 32, dtype="u8").astype("u4"),
        random.integers(0, 40, 32).astype("u4"),
    )
    for mode in ("up", "down", "bfly", "idx"):
        for clamp in ("0x1f", "0x0", "0x181f", "0x1807", "0x1c03"):
            text = f"shfl.sync.{mode}.b32 d0|%p1, a0, a1, {clamp}, -1; selp.u32 d1, 1, 0, %p1;"
            yield lane_case(f"shfl {mode} {clamp}", text, [values, by], ["u4", "u4"])
    yield lane_case("match any", "match.any.sync.b32 d0, a0, -1;", [by % np.uint32(5)], ["u4"])
    yield lane_case(
        "match all",
        "match.all.sync.b32 d0|%p1, a0, -1; selp.u32 d1, 1, 0, %p1;",
        [by * np.uint32(0)],
        ["u4", "u4"],
    )
    yield lane_case("elect", "elect.sync d0|%p1, -1; selp.u32 d1, 1, 0, %p1;", [], ["u4", "u4"])
    for operation in ("add.s32", "min.s32", "max.u32", "xor.b32"):
        yield lane_case(f"redux {operation}", f"redux.sync.{operation} d0, a0, -1;", [values], ["u4"])


# ---- matrices ----

MMA = [
    *((shape, "f32", kind, kind) for kind in ("f16", "bf16") for shape in ((16, 8, 8), (16, 8, 16))),
    *((shape, "f16", "f16", "f16") for shape in ((16, 8, 8), (16, 8, 16))),
    *((shape, "f32", "tf32", "tf32") for shape in ((16, 8, 4), (16, 8, 8))),
    *(
        (shape, "s32", a, b)
        for a, b in (("s8", "s8"), ("u8", "s8"))
        for shape in ((8, 8, 16), (16, 8, 16), (16, 8, 32))
    ),
    *(
        (shape, "f32", a, b)
        for a, b in (("e4m3", "e4m3"), ("e5m2", "e4m3"))
        for shape in ((16, 8, 32), (16, 8, 16))
    ),
    ((16, 8, 32), "f16", "e4m3", "e4m3"),
    *((shape, "f64", "f64", "f64") for shape in ((8, 8, 4), (16, 8, 4), (16, 8, 8), (16, 8, 16))),
]


def mma_case(shape: tuple[int, int, int], d: str, a: str, b: str, fill: Fill, ulps: int) -> Case:
    m, n, k = shape
    wide = 8 if d == "f64" else 4
    counts = [
        m * n // 32 * (2 if d == "f16" else wide) // wide,
        m * k * SIZES[a] // 32 // wide,
        n * k * SIZES[b] // 32 // wide,
    ]
    name = f"mma.sync.aligned.m{m}n{n}k{k}.row.col.{d}.{a}.{b}.{d}"
    random = random_for(name)
    sources = [
        fill(kind, 32 * wide, random).view(f"u{wide}")
        for kind, count in ((a, counts[1]), (b, counts[2]))
        for _ in range(count)
    ]
    zero = "0d0000000000000000" if d == "f64" else "0f00000000" if d == "f32" else "0"
    register = {"f64": "f64", "f32": "f32"}.get(d, "b32")
    lists = [
        ", ".join(f"{letter}{n}" for n in numbers)
        for letter, numbers in (
            ("e", range(counts[0])),
            ("a", range(counts[1])),
            ("a", range(counts[1], counts[1] + counts[2])),
        )
    ]
    moves = " ".join(f"mov.b{8 * wide} d{n}, e{n};" for n in range(counts[0]))
    zeros = f".reg .{register} z; mov.{register} z, {zero};"
    sums = ", ".join(["z"] * counts[0])
    multiply = f"{name} {{{lists[0]}}}, {{{lists[1]}}}, {{{lists[2]}}}, {{{sums}}};"
    text = f"{zeros} .reg .{register} e<{counts[0]}>; {multiply} {moves}"
    return lane_case(
        f"{name}{' rounding' if ulps else ''}",
        text,
        sources,
        [f"u{wide}"] * counts[0],
        ulps=ulps,
        floats=FLOATS.get(d, "f4"),
    )


def matrices() -> Iterator[Case]:
    for shape, d, a, b in MMA:
        yield mma_case(shape, d, a, b, small, 0)
        if d != "s32":
            yield mma_case(shape, d, a, b, rough, 2048 if a.startswith("e") else 4)
    tiles = random_for("tiles").integers(0, 1 << 16, 256).astype("u2").view("u1")
    copy_in = """mov.u32 %r1, s; mad.lo.u32 %r2, %t, 16, %r1; mad.wide.u32 %rd1, %t, 16, %in;
        ld.global.v4.u32 {%r3, %r4, %r5, %r6}, [%rd1];"""
    for count in (1, 2, 4):
        for turned in ("", ".trans"):
            names = ", ".join(f"%r{10 + n}" for n in range(count))
            text = f""".shared .align 128 .b8 s[512];
            {copy_in} st.shared.v4.u32 [%r2], {{%r3, %r4, %r5, %r6}}; bar.sync 0;
                ldmatrix.sync.aligned.m8n8.x{count}{turned}.shared.b16 {{{names}}}, [%r2];
                mad.wide.u32 %rd2, %t, {4 * count}, %out;
                {" ".join(f"st.global.u32 [%rd2+{4 * n}], %r{10 + n};" for n in range(count))}"""
            yield Case(f"ldmatrix x{count}{turned}", text, tiles, 128 * count)
            sources = ", ".join(f"%r{3 + n}" for n in range(count))
            text = f""".shared .align 128 .b8 s[512];
            {copy_in} st.shared.v4.u32 [%r2], {{%r3, %r4, %r5, %r6}}; bar.sync 0;
                stmatrix.sync.aligned.m8n8.x{count}{turned}.shared.b16 [%r2], {{{sources}}}; bar.sync 0;
                ld.shared.v4.u32 {{%r10, %r11, %r12, %r13}}, [%r2]; mad.wide.u32 %rd2, %t, 16, %out;
                st.global.v4.u32 [%rd2], {{%r10, %r11, %r12, %r13}};"""
            yield Case(f"stmatrix x{count}{turned}", text, tiles, 512)
    yield lane_case(
        "movmatrix", "movmatrix.sync.aligned.m8n8.trans.b16 d0, a0;", [tiles[:128].view("u4")], ["u4"]
    )


# ---- sums that go on, and their limits ----


def accumulating() -> Iterator[Case]:
    """Sums that start from an accumulator of another size: it is aligned with the products."""
    for shape, kind in (
        ((16, 8, 16), "f16"),
        ((16, 8, 16), "bf16"),
        ((16, 8, 8), "tf32"),
        ((16, 8, 32), "e4m3"),
    ):
        yield accumulating_mma(shape, kind)
    for shape in ((16, 8, 4), (16, 8, 16)):
        yield accumulating_mma(shape, "f64")
    for kind in ("f16", "bf16", "tf32", "e4m3"):
        yield wgmma_case(
            64,
            "f32",
            kind,
            kind,
            (128, 128),
            (0, 0),
            fill=rough,
            ulps=1 << 15 if kind == "e4m3" else 8,
            times=5,
        )


def accumulating_mma(shape: tuple[int, int, int], kind: str) -> Case:
    m, n, k = shape
    d, code = ("f64", "u8") if kind == "f64" else ("f32", "u4")
    wide = int(code[1])
    name = f"mma.sync.aligned.m{m}n{n}k{k}.row.col.{d}.{kind}.{kind}.{d}"
    random = random_for(name + " accumulating")
    count = (m + n) * k * SIZES[kind] // 32 // wide
    sources = [rough(kind, 32 * wide, random).view(code) for _ in range(count)]
    start = [random.standard_normal(32) * 2.0 ** random.integers(-12, 12, 32) for _ in range(4)]
    sources += [values.astype(FLOATS[d]).view(code) for values in start]
    first = m * k * SIZES[kind] // 32 // wide
    lists = [", ".join(f"a{number}" for number in numbers) for numbers in (range(first), range(first, count))]
    moves = [
        " ".join(f"mov.b{8 * wide} {to}{n}, {come};" for n, come in enumerate(names))
        for to, names in (("e", [f"a{count + n}" for n in range(4)]), ("d", [f"e{n}" for n in range(4)]))
    ]
    sums = "e0, e1, e2, e3"
    text = (
        f".reg .{d} e<4>; {moves[0]} {name} {{{sums}}}, {{{lists[0]}}}, {{{lists[1]}}}, {{{sums}}};"
        f" {moves[1]}"
    )
    return lane_case(f"{name} accumulating", text, sources, [code] * 4, ulps=16, floats=FLOATS[d])


def integer_limits() -> Iterator[Case]:
    """Sums of bytes that leave 32 bits: they wrap, or stop at the limit."""
    for mode in ("", ".satfinite"):
        name = f"mma.sync.aligned.m16n8k32.row.col{mode}.s32.s8.s8.s32"
        random = random_for(name)
        sources = [random.integers(0, 256, 128, dtype="u1").view("u4") for _ in range(6)]
        sources += [
            (values + edge).astype("u4")
            for edge in (0x7FFFE000, 0x80000000)
            for values in random.integers(0, 8192, (2, 32))
        ]
        text = (
            f".reg .b32 e<4>; {name} {{e0, e1, e2, e3}}, {{a0, a1, a2, a3}}, {{a4, a5}}, {{a6, a7, a8, a9}}; "
        )
        yield lane_case(
            f"{name} limits", text + " ".join(f"mov.b32 d{n}, e{n};" for n in range(4)), sources, ["u4"] * 4
        )


ATOMICS = {
    "add.u32": "u4",
    "add.f32": "f4",
    "add.f64": "f8",
    "add.noftz.f16x2": "h2",
    "add.noftz.bf16x2": "h2",
    "min.s32": "u4",
    "max.u32": "u4",
    "inc.u32": "u4",
    "dec.u32": "u4",
    "xor.b32": "u4",
    "exch.b32": "u4",
}


def atomics() -> Iterator[Case]:
    """What is returned, then what is left in memory; lane t works on element t."""
    for name, form in ATOMICS.items():
        code = "u8" if form == "f8" else "u4"
        sources = [values.view(code) for values in operands(form, 2, random_for(name), 32)]
        text = (
            f"mad.wide.u32 %rd3, %t, {code[1]}, %in; atom.global.{name} d0, [%rd3], a1;"
            f" ld.global.b{8 * int(code[1])} d1, [%rd3];"
        )
        yield lane_case(f"atom.{name}", text, sources, [code] * 2)


def all_cases() -> list[Case]:
    own = [
        *arithmetic(),
        *warp_instructions(),
        *atomics(),
        *matrices(),
        *wgmmas(),
        *tensors(),
        *accumulating(),
        *integer_limits(),
    ]
    return [*own, *wmma_cases(), *copy_cases()]
