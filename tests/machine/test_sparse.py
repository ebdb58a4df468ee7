"""mma.sp and wgmma.sp: A by half, with metadata in the lanes that PTX ISA's figures name."""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from lapidist.machine import PtxError
from lapidist.machine.faults import OutOfBounds, Site, Uninitialised
from lapidist.machine.ptx.matrix_shapes import shared_operand_bytes
from lapidist.machine.ptx.syntax_tree import Instruction, Reg, Vec
from snippets import run_body

Array = np.ndarray[Any, Any]
G, T = np.arange(32) // 4, np.arange(32) % 4
TYPES: dict[str, Any] = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "tf32": np.float32,
    "s8": np.int8,
    "u8": np.uint8,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
}
# type, k of mma.sp, selector
PRODUCTS = [
    *(("f16", 16, selector) for selector in range(4)),
    ("bf16", 16, 1),
    ("f16", 32, 1),
    ("bf16", 32, 0),
    ("tf32", 8, 3),
    ("tf32", 16, 1),
    ("s8", 32, 1),
    ("u8", 32, 0),
    ("s8", 64, 0),
    ("e4m3", 64, 0),
    ("e5m2", 64, 0),
]
PAIRS = list(itertools.combinations(range(4), 2))


class Sparse:
    """A random A of which half is stored, and what a warp's lanes hold of it."""

    def __init__(self, rows: int, depth: int, kind: str, seed: int, turned: bool = False) -> None:
        rng = np.random.default_rng(seed)
        chunk = 2 if kind == "tf32" else 4
        self.kind, self.depth, self.size = kind, depth, np.dtype(TYPES[kind]).itemsize
        self.stored = rng.integers(0 if kind == "u8" else -3, 4, (rows, depth // 2)).astype(TYPES[kind])
        self.dense = np.zeros((rows, depth))
        self.bits = np.zeros((rows, depth // chunk), np.int64)  # four for each chunk
        for row, number in np.ndindex(*self.bits.shape):
            if kind == "tf32":
                place = int(rng.integers(2))
                places, self.bits[row, number] = [place], (0b0100, 0b1110)[place]
            else:
                places = list(PAIRS[rng.integers(6)])[:: -1 if turned else 1]
                self.bits[row, number] = places[0] + 4 * places[1]
            for n, place in enumerate(places):
                value = self.stored[row, len(places) * number + n]
                self.dense[row, chunk * number + place] = float(value)

    def metadata(self, selector: int, first: int = 0) -> Array:
        """A word a lane, of the rows from `first` on; lanes that are not read hold ones."""
        words = np.full(32, 0xFFFFFFFF, np.int64)
        rows = self.bits[first : first + 16]
        quad = rows.shape[1] // 4
        for lane in range(32):
            place = lane % 4 - selector * quad
            if not 0 <= place < quad:
                continue
            if self.size > 1:  # 16 bits of row g, then of row g + 8
                halves = [rows[lane // 4 + 8 * h, 4 * place : 4 * place + 4] for h in range(2)]
                nibbles = np.concatenate(halves)
            else:
                nibbles = rows[lane // 4 + 8 * (place % 2), 8 * (place // 2) : 8 * (place // 2) + 8]
            words[lane] = (nibbles << np.arange(0, 32, 4)).sum()
        return words.astype("u4")

    def registers(self, first: int = 0) -> Array:
        """(32, registers) of A as it is stored."""
        p = 4 // self.size
        count = 16 * self.depth // 2 // 32
        i = np.arange(count)[None, :]
        rows = first + G[:, None] + 8 * (i // p % 2)
        columns = 4 * p * (i // (2 * p)) + p * T[:, None] + i % p
        return np.ascontiguousarray(self.stored[rows, columns]).view("u4")


def b_registers(b: Array) -> Array:
    p = 4 // b.dtype.itemsize
    i = np.arange(len(b) * 8 // 32)[None, :]
    return np.ascontiguousarray(b[4 * p * (i // p) + p * T[:, None] + i % p, G[:, None]]).view("u4")


def dense_b(depth: int, n: int, kind: str, seed: int) -> Array:
    low = 0 if kind == "u8" else -3
    return np.random.default_rng(seed).integers(low, 4, (depth, n)).astype(TYPES[kind])


def names(letter: str, count: int) -> str:
    return "{" + ", ".join(f"{letter}{n}" for n in range(count)) + "}"


def product(kind: str, depth: int, selector: int, words: Array, a: Array, b: Array, **how: Any) -> Array:
    """D of one mma.sp plus ones."""
    ordered = how.pop("ordered", True)
    total = "s32" if kind in ("s8", "u8") else "f32"
    held = np.concatenate([a, b, words[:, None]], axis=1)
    count = held.shape[1]
    loads = [
        f"ld.global.u32 {name}, [%rd1+{4 * n}];"
        for n, name in enumerate(
            [*(f"a{n}" for n in range(a.shape[1])), *(f"b{n}" for n in range(b.shape[1])), "e"]
        )
    ]
    wide, one = ("b32", "1") if total == "s32" else ("f32", "0f3F800000")
    body = f"""
        .reg .b32 a<8>, b<8>, e; .reg .{wide} d<4>;
        mad.wide.u32 %rd1, %t, {4 * count}, %in; {" ".join(loads)} {how.pop("before", "")}
        mma.sp.sync.aligned.m16n8k{depth}.row.col.{total}.{kind}.{kind}.{total} {names("d", 4)},
        {names("a", a.shape[1])}, {names("b", b.shape[1])}, {{{", ".join([one] * 4)}}}, e, {selector};
        mad.wide.u32 %rd2, %t, 16, %out; st.global.v4.{wide} [%rd2], {names("d", 4)};
    """
    body = body.replace("mma.sp.", "mma.sp::ordered_metadata.") if ordered else body
    out = np.zeros((32, 4), "i4" if total == "s32" else "f4")
    run_body(body, np.ascontiguousarray(held), out, **how)
    found = np.zeros((16, 8))
    for j in range(4):
        found[G + 8 * (j // 2), 2 * T + j % 2] = out[:, j]
    return found


@pytest.mark.parametrize(("kind", "depth", "selector"), PRODUCTS)
def test_products_of_a_warp(kind: str, depth: int, selector: int) -> None:
    a, b = Sparse(16, depth, kind, depth + selector), dense_b(depth, 8, kind, 1)
    parts = a.metadata(selector), a.registers(), b_registers(b)
    for mode in ({}, {"sanitize": True, "seed": 0}):
        found = product(kind, depth, selector, *parts, **mode)
        assert np.array_equal(found, a.dense @ b.astype("f8") + 1)


@pytest.mark.parametrize(("places", "lane"), [(0b1001, 4), (0b0110, 13)])
def test_metadata_names_two_places_of_each_four(places: int, lane: int) -> None:
    """In order, if the instruction says so; otherwise in any."""
    a, b = Sparse(16, 32, "f16", 3, turned=True), dense_b(32, 8, "f16", 1)
    parts = a.registers(), b_registers(b)
    assert np.array_equal(product("f16", 32, 0, a.metadata(0), *parts, ordered=False), a.dense @ b + 1)
    with pytest.raises(OutOfBounds, match=r"the lower one first; row \d+ of the warp's 16 has 0b"):
        product("f16", 32, 0, a.metadata(0), *parts)
    words = Sparse(16, 32, "f16", 4).metadata(0)
    words[lane] = words[lane] & ~np.uint32(0xF << 20) | np.uint32((places & 3) * 5 << 20)
    place = rf"row {lane // 4 + 8} .*for the elements from {4 + 16 * (lane % 4)} on"
    with pytest.raises(OutOfBounds, match=f"two different places of each four elements; {place}") as fault:
        product("f16", 32, 0, words, *parts, ordered=False)
    assert fault.value.name == "sparse-metadata"


def test_metadata_of_tf32_has_two_values() -> None:
    a, b = Sparse(16, 8, "tf32", 3), dense_b(8, 8, "tf32", 1)
    words = a.metadata(1)
    words[5] ^= 0b1000
    with pytest.raises(OutOfBounds, match="has 0b0100 or 0b1110 for each two elements of tf32; row 1"):
        product("tf32", 8, 1, words, a.registers(), b_registers(b))


@pytest.mark.parametrize("lane", range(4))
def test_undefined_metadata_is_found_where_it_is_read(lane: int) -> None:
    a, b = Sparse(16, 16, "f16", 3), dense_b(16, 8, "f16", 1)
    parts = a.metadata(2), a.registers(), b_registers(b)
    unset = f".reg .b32 u; and.b32 %r1, %t, 3; setp.eq.u32 %p1, %r1, {lane}; @%p1 or.b32 e, e, u;"
    judged = pytest.raises(Uninitialised, match="u, which was never set") if lane == 2 else nullcontext()
    with judged:
        found = product("f16", 16, 2, *parts, before=unset, sanitize=True, seed=0)
        assert np.array_equal(found, a.dense @ b + 1)


def test_other_selectors_are_refused() -> None:
    a, b = Sparse(16, 32, "f16", 3), dense_b(32, 8, "f16", 1)
    with pytest.raises(PtxError, match="is a literal number from 0 to 1"):
        product("f16", 32, 2, a.metadata(0), a.registers(), b_registers(b))


# ---- wgmma: 64 rows, A by half in shared memory or in registers, pieces of 16 bytes without swizzle ----


def laid(matrix: Array) -> Array:
    """Atoms of 8 rows of 16 bytes, one after another along a row."""
    octets = np.ascontiguousarray(matrix).view("u1").reshape(len(matrix) // 8, 8, -1, 16)
    return octets.swapaxes(1, 2).reshape(-1)


WGMMA = """
    .shared .align 128 .b8 s[2560]; .reg .b64 %da, %db; .reg .b32 %q<4>, a<4>, e; .reg .{kind} d<4>;
    mov.u32 %r1, s; mul.lo.u32 %r2, %t, 16; add.u32 %r3, %r1, %r2; cvt.u64.u32 %rd3, %r2;
    add.u64 %rd1, %in, %rd3; setp.lt.u32 %p1, %t, 32;
    ld.global.v4.u32 {{%q0, %q1, %q2, %q3}}, [%rd1]; st.shared.v4.u32 [%r3], {{%q0, %q1, %q2, %q3}};
    @%p1 ld.global.v4.u32 {{%q0, %q1, %q2, %q3}}, [%rd1+2048];
    @%p1 st.shared.v4.u32 [%r3+2048], {{%q0, %q1, %q2, %q3}};
    ld.global.v4.u32 {{a0, a1, a2, a3}}, [%rd1+2560]; mad.wide.u32 %rd2, %t, 4, %in;
    ld.global.u32 e, [%rd2+4608]; fence.proxy.async; bar.sync 0;
    shr.u32 %r4, %r1, 4; cvt.u64.u32 %da, %r4; or.b64 %da, %da, 0x0000001000080000; add.u64 %db, %da, 128;
    wgmma.fence.sync.aligned; setp.eq.u32 %p2, 0, 1;
    wgmma.mma_async.sp.sync.aligned.m64n8k{depth}.{total}.{type}.{type} {{d0, d1, d2, d3}}, {first}, %db,
    e, {selector}, %p2{numbers};
    wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
    add.u64 %rd3, %out, %rd3; st.global.v4.{kind} [%rd3], {{d0, d1, d2, d3}};
"""
OF_FOUR = [("f16", 32, 0), ("bf16", 32, 1), ("tf32", 16, 1), ("s8", 64, 0), ("e4m3", 64, 0)]


def wgmma_product(
    kind: str, depth: int, selector: int, first: str, turned: bool = False, spoiled: bool = False
) -> tuple[Array, Array]:
    """D as the machine finds it, and as it must be."""
    a, b = Sparse(64, depth, kind, 7), dense_b(depth, 8, kind, 2)
    tile = laid(a.stored)
    if turned:  # 8 rows of A, 16 bytes, for each of k
        tile = np.ascontiguousarray(a.stored.reshape(8, 8, -1).swapaxes(1, 2)).view("u1").reshape(-1)
    words = np.concatenate([a.metadata(selector, 16 * warp) for warp in range(4)])
    words[77] = 0 if spoiled else words[77]
    registers = np.concatenate([a.registers(16 * warp) for warp in range(4)])
    parts = [tile, laid(b.T), registers.view("u1").reshape(-1), words.view("u1")]
    integers = kind == "s8"
    numbers = "" if integers else ", 1, 1"
    if kind in ("f16", "bf16"):
        numbers += f", {int(turned)}, 0" if first == "%da" else ", 0"
    body = WGMMA.format(
        kind="b32" if integers else "f32", total="s32" if integers else "f32", type=kind, depth=depth,
        selector=selector, first=first, numbers=numbers,
    )  # fmt: skip
    out, found = np.zeros((4, 32, 4), "i4" if integers else "f4"), np.zeros((64, 8))
    run_body(body, np.concatenate(parts), out, threads=128, sanitize=True, seed=0)
    for j in range(4):
        rows = 16 * np.arange(4)[:, None] + G + 8 * (j // 2)
        found[rows, 2 * T + j % 2] = out[:, :, j]
    return found, a.dense @ b.astype("f8")


@pytest.mark.parametrize("first", ["%da", "{a0, a1, a2, a3}"])
@pytest.mark.parametrize(("kind", "depth", "selector"), OF_FOUR)
def test_products_of_four_warps(kind: str, depth: int, selector: int, first: str) -> None:
    found, expected = wgmma_product(kind, depth, selector, first)
    assert np.array_equal(found, expected)


def test_a_turned_tile_is_stored_by_half_too() -> None:
    found, expected = wgmma_product("f16", 32, 1, "%da", turned=True)
    assert np.array_equal(found, expected)


def test_metadata_of_four_warps_is_checked() -> None:
    with pytest.raises(OutOfBounds, match="two different places"):
        wgmma_product("f16", 32, 0, "%da", spoiled=True)


@pytest.mark.parametrize(("first", "rows"), [(Reg("%da"), 64), (Vec((Reg("a0"),) * 4), 0)])
def test_a_sparse_a_is_read_beside_twice_as_much_of_b(first: Any, rows: int) -> None:
    """In bytes of one warp's part; k is what the name says, of A with its zeros."""
    operands = Vec((Reg("d0"),) * 4), first, Reg("%db")
    for mods, columns in ((("mma_async", "m64n8k16"), 8), (("mma_async", "sp", "m64n8k32"), 16)):
        product = Instruction("wgmma", mods, operands, None, False, Site("k", 1, ""))
        assert shared_operand_bytes(product) == 32 * (rows + columns) // 4
