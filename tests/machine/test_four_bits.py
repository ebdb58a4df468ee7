"""mma of four-bit elements, dense and with a sparse A: fragments as PTX ISA's text has them, by element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lapidist.machine import PtxError
from lapidist.machine.faults import OutOfBounds, Uninitialised
from snippets import run_body

Array = np.ndarray[Any, Any]
G, T = np.arange(32)[:, None] // 4, np.arange(32)[:, None] % 4
PLACES = [(first, second) for first in range(4) for second in range(first + 1, 4)]


def drawn(rng: np.random.Generator, kind: str, *shape: int) -> Array:
    return rng.integers(0, 16, shape) if kind == "u4" else rng.integers(-8, 8, shape)


def words(elements: Array) -> Array:
    """(32, registers) of (32, elements): eight a register, the first lowest."""
    nibbles = (elements & 15).reshape(32, -1, 8).astype("u4")
    return np.bitwise_or.reduce(nibbles << np.arange(0, 32, 4, dtype="u4"), axis=2)


def a_words(a: Array) -> Array:
    """Of A as it is stored: row g for a0 to a7 and a16 to a23, else g + 8."""
    i = np.arange(a.size // 32)[None, :]
    rows = (G + 8 * (i // 8 % 2)) if len(a) == 16 else G + 0 * i
    columns = 8 * T + i % 8 + 32 * (i // 16)
    return words(a[rows, columns])


def b_words(b: Array) -> Array:
    i = np.arange(b.size // 32)[None, :]
    return words(b[8 * T + i % 8 + 32 * (i // 8), G + 0 * i])


def product(name: str, held: list[Array], kinds: str, count: int, selector: int = 0, **how: Any) -> Array:
    """D plus ones, by lane: `held` are the registers of A and B, and the metadata of a sparse A."""
    a, b = held[0].shape[1], held[1].shape[1]
    registers = np.ascontiguousarray(np.concatenate(held, axis=1))
    listed = [*(f"a{n}" for n in range(a)), *(f"b{n}" for n in range(b)), "e"][: registers.shape[1]]
    loads = " ".join(f"ld.global.u32 {r}, [%rd1+{4 * n}];" for n, r in enumerate(listed))
    d, ones = (", ".join(each) for each in ([f"d{n}" for n in range(count)], ["1"] * count))
    metadata = f", e, {selector}" if "sp" in name else ""
    body = f"""
        .reg .b32 a<8>, b<8>, d<4>, e, u;
        mad.wide.u32 %rd1, %t, {4 * registers.shape[1]}, %in; {loads} {how.pop("before", "")}
        {name}.row.col.s32.{kinds}.s32 {{{d}}}, {{{", ".join(listed[:a])}}},
        {{{", ".join(listed[a : a + b])}}}, {{{ones}}}{metadata}; {how.pop("after", "")}
        mad.wide.u32 %rd2, %t, {4 * count}, %out; st.global.v{count}.u32 [%rd2], {{{d}}};
    """
    out = np.zeros((32, count), "i4")
    run_body(body, registers, out, **how)
    found = np.zeros((4 * count, 8), "i8")
    for j in range(count):
        found[G[:, 0] + 8 * (j // 2), 2 * T[:, 0] + j % 2] = out[:, j]
    return found


@pytest.mark.parametrize(
    ("rows", "depth", "kinds"), [(8, 32, "s4.s4"), (16, 32, "u4.s4"), (16, 64, "s4.u4"), (16, 64, "u4.u4")]
)
def test_dense_products(rows: int, depth: int, kinds: str) -> None:
    rng = np.random.default_rng(depth)
    a, b = (drawn(rng, k, *s) for k, s in zip(kinds.split("."), ((rows, depth), (depth, 8)), strict=True))
    held, name = [a_words(a), b_words(b)], f"mma.sync.aligned.m{rows}n8k{depth}"
    for how in ({}, {"sanitize": True, "seed": 0}):
        assert (product(name, held, kinds, rows // 4, **how) == a @ b + 1).all()


def sparse(depth: int, kind: str, selector: int) -> tuple[Array, Array, Array]:
    """A whole, as it is stored, and its metadata: of each eight neighbours two pairs are stored."""
    rng = np.random.default_rng(depth + selector)
    stored, whole = drawn(rng, kind, 16, depth // 2), np.zeros((16, depth), "i8")
    bits = np.zeros((16, depth // 8), np.uint32)
    for row, chunk in np.ndindex(*bits.shape):
        places = PLACES[rng.integers(6)]
        bits[row, chunk] = places[0] | places[1] << 2
        for n, place in enumerate(places):
            for m in range(2):
                whole[row, 8 * chunk + 2 * place + m] = stored[row, 4 * chunk + 2 * n + m]
    metadata = np.full((32, 1), 0xFFFFFFFF, "u4")
    for lane in range(32):
        part = lane % 4 - 2 * selector if depth == 64 else lane % 4
        if depth == 128 or 0 <= part < 2:
            row, first = lane // 4 + 8 * (part % 2), 8 * (part // 2)
            metadata[lane] = (bits[row, first : first + 8] << np.arange(0, 32, 4, dtype="u4")).sum()
    return whole, stored, metadata


@pytest.mark.parametrize(
    ("depth", "kinds", "selector"), [(64, "s4.s4", 0), (64, "u4.s4", 1), (128, "s4.u4", 0)]
)
def test_sparse_products(depth: int, kinds: str, selector: int) -> None:
    whole, stored, metadata = sparse(depth, kinds[:2], selector)
    b = drawn(np.random.default_rng(1), kinds[3:], depth, 8)
    held = [a_words(stored), b_words(b), metadata]
    name = f"mma.sp::ordered_metadata.sync.aligned.m16n8k{depth}"
    for how in ({}, {"sanitize": True, "seed": 0}):
        assert (product(name, held, kinds, 4, selector, **how) == whole @ b + 1).all()
    held[2] = metadata ^ (metadata & 15)
    with pytest.raises(OutOfBounds, match="row 0 of the warp's 16 has 0b0000"):
        product(name, held, kinds, 4, selector)


def test_undefined_bits_reach_their_row_alone() -> None:
    """Register 0 of A in lane 5 is of row 1, whose sums lie in d0 and d1 of lanes 4 to 7."""
    held = [a_words(np.ones((16, 64), "i8")), b_words(np.ones((64, 8), "i8"))]
    name = "mma.sync.aligned.m16n8k64"
    how: dict[str, Any] = {
        "before": "setp.eq.u32 %p1, %t, 5; @%p1 or.b32 a0, a0, u;",
        "sanitize": True,
        "seed": 0,
    }
    with pytest.raises(Uninitialised, match="u, which was never set"):
        product(name, held, "s4.s4", 4, **how)
    drop = "and.b32 %r1, %t, 28; setp.eq.u32 %p2, %r1, 4; @%p2 mov.b32 d0, 0; @%p2 mov.b32 d1, 0;"
    found = product(name, held, "s4.s4", 4, after=drop, **how)
    assert (found == np.where(np.arange(16) == 1, 0, 65)[:, None]).all()


def test_other_types_and_shapes_are_refused() -> None:
    held = [np.zeros((32, 4), "u4"), np.zeros((32, 2), "u4")]
    for kinds, depth in (("s4.s8", 64), ("s8.s4", 32), ("s4.s4", 128), ("e2m1.e2m1", 64)):
        with pytest.raises(PtxError):
            product(f"mma.sync.aligned.m16n8k{depth}", held, kinds, 4)
