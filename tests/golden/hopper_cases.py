"""Cases of what Hopper brought: wgmma with every descriptor, and tensor maps."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from case import FLOATS, SIZES, Case, Fill, random_for, rough, small

from lapidist.launch import TensorMap

# ---- wgmma: shared memory is full of small integers, so any descriptor reads numbers ----

SHARED = 32768
WGMMA_DEPTH = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32, "s8": 32, "u8": 32}


def descriptor(start: int, leading: int, stride: int, swizzle: int) -> int:
    mode = {0: 0, 128: 1, 64: 2, 32: 3}[swizzle]
    return start >> 4 | (leading >> 4) << 16 | (stride >> 4) << 32 | mode << 62


def wgmma_case(
    n: int,
    d: str,
    a: str,
    b: str,
    forms: tuple[int, int],
    turned: tuple[int, int],
    in_registers: bool = False,
    fill: Fill = small,
    ulps: int = 0,
    times: int = 1,
) -> Case:
    """A from 0, B from 16 KiB of a 32 KiB buffer; `forms` are the swizzles of A and B. `times` products are
    summed.
    """
    k = WGMMA_DEPTH[a]
    name = f"wgmma.mma_async.sync.aligned.m64n{n}k{k}.{d}.{a}.{b}"
    full = (
        f"{name} swizzles {forms} turned"
        f" {turned}{' registers' if in_registers else ''}{' rounding' if ulps else ''}"
    )
    full += f" {times} times" if times > 1 else ""
    random = random_for(full)
    data = fill(a, SHARED, random)
    if SIZES[a] == SIZES[b] and a != b:
        data[SHARED // 2 :] = fill(b, SHARED // 2, random)
    strides = [(8 * (form or 16), 256 if form == 0 else 16, 2048) for form in forms]
    sides = []
    for (atom, near, far), turn, form in zip(strides, turned, forms, strict=True):
        leading, stride = (
            (far, atom)
            if turn and form
            else (near, 512)
            if not turn and not form
            else (16, atom)
            if not turn
            else (256, 1024)
        )
        sides.append((leading, stride))
    count = n // (4 if d == "f16" else 2)
    kind = "f32" if d == "f32" else "b32"
    names = ", ".join(f"e{number}" for number in range(count))
    zero = "0f00000000" if kind == "f32" else "0"
    first = "{a0, a1, a2, a3}" if in_registers else "%rd5"
    majors = "" if SIZES[a] != 2 else f", {turned[1]}" if in_registers else f", {turned[0]}, {turned[1]}"
    scales = ", 1, 1" if d != "s32" else ""
    stores = " ".join(f"st.global.b32 [%rd2+{4 * number}], e{number};" for number in range(count))
    next_step = " add.u64 %rd6, %rd6, 2; "  # ptxas drops f16 products that repeat each other
    text = f"""
        .shared .align 1024 .b8 s[{SHARED}]; .reg .{kind} e<{count}>; .reg .b32 a<4>;
        mov.u32 %r1, s; mad.lo.u32 %r2, %t, 16, %r1; mad.wide.u32 %rd1, %t, 16, %in; mov.u32 %r7, 0;
        L: ld.global.v4.u32 {{%r3, %r4, %r5, %r6}}, [%rd1]; st.shared.v4.u32 [%r2], {{%r3, %r4, %r5, %r6}};
        add.u64 %rd1, %rd1, 2048; add.u32 %r2, %r2, 2048; add.u32 %r7, %r7, 2048;
        setp.lt.u32 %p1, %r7, {SHARED}; @%p1 bra L;
        mad.wide.u32 %rd1, %t, 16, %in; ld.global.v4.b32 {{a0, a1, a2, a3}}, [%rd1];
        {" ".join(f"mov.b32 e{number}, {zero};" for number in range(count))}
        fence.proxy.async; bar.sync 0; shr.u32 %r8, %r1, 4; cvt.u64.u32 %rd3, %r8; setp.eq.u32 %p2, 0, 0;
        add.u64 %rd5, %rd3, {descriptor(0, *sides[0], forms[0])};
        add.u64 %rd6, %rd3, {descriptor(SHARED // 2, *sides[1], forms[1])};
        wgmma.fence.sync.aligned;
        {next_step.join([f"{name} {{{names}}}, {first}, %rd6, %p2{scales}{majors};"] * times)}
        wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
        mad.wide.u32 %rd2, %t, {4 * count}, %out; {stores}"""
    return Case(full, text, data, 128 * 4 * count, 128, None, ulps, FLOATS.get(d, "f4"))


def wgmmas() -> Iterator[Case]:
    every = (0, 32, 64, 128)
    for form in every:
        for turned in ((0, 0), (0, 1), (1, 0), (1, 1)):
            yield wgmma_case(64, "f32", "bf16", "bf16", (form, form), turned)
        yield wgmma_case(64, "f32", "f16", "f16", (128, form), (0, 1), in_registers=True)
    for d, a, b in (
        ("f16", "f16", "f16"),
        ("f32", "tf32", "tf32"),
        ("f32", "e4m3", "e5m2"),
        ("f32", "e5m2", "e5m2"),
        ("s32", "s8", "s8"),
        ("s32", "u8", "s8"),
    ):
        yield wgmma_case(32, d, a, b, (128, 128), (0, 0))
        yield wgmma_case(8, d, a, b, (0, 0), (0, 0), in_registers=True)
    for a in ("f16", "bf16", "tf32", "e4m3"):
        yield wgmma_case(64, "f32", a, a, (128, 128), (0, 0), fill=rough, ulps=2048 if a == "e4m3" else 4)
    for a in ("f16", "e4m3"):
        yield wgmma_case(64, "f16", a, a, (128, 128), (0, 0), fill=rough, ulps=4)
        yield wgmma_case(64, "f16", a, a, (128, 128), (0, 0), fill=rough, ulps=4, times=3)
    for a, b in (("s8", "u8"), ("u8", "u8")):
        yield wgmma_case(64, "s32", a, b, (64, 32), (0, 0))
    for n in (24, 96, 256):
        yield wgmma_case(n, "f32", "bf16", "bf16", (128, 128), (0, 1))


# ---- tensor maps ----


def tensor_case(
    name: str, dtype: str, shape: tuple[int, ...], box: tuple[int, ...], corner: tuple[int, ...], swizzle: int
) -> Case:
    """A box loaded into shared memory, then shared memory as it lies."""
    size = np.dtype(dtype).itemsize
    nbytes = size * int(np.prod(box))
    # a row narrower than the swizzle takes its width
    room = max(nbytes // box[0] // size * swizzle, nbytes, 1024)
    strides = tuple(int(stride) for stride in (np.cumprod(shape) * size)[:-1])
    data = random_for(name).integers(0, 256, size * int(np.prod(shape)), dtype="u1")
    text = f"""
        .shared .align 1024 .b8 s[{room}]; .shared .align 8 .b64 m;
        mov.u32 %r1, s; mov.u32 %r2, m; setp.eq.u32 %p1, %t, 0; @!%p1 bra W;
        mbarrier.init.shared.b64 [%r2], 1; fence.mbarrier_init.release.cluster;
        mbarrier.arrive.expect_tx.shared.b64 _, [%r2], {nbytes};
        cp.async.bulk.tensor.{len(box)}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
            [%r1], [%map, {{{", ".join(map(str, corner))}}}], [%r2];
        W: bar.sync 0; L: mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0; @!%p2 bra L;
        mov.u32 %r4, %t;
        C: shl.b32 %r6, %r4, 2; add.u32 %r5, %r1, %r6; ld.shared.u32 %r7, [%r5]; cvt.u64.u32 %rd2, %r6;
        add.u64 %rd3, %out, %rd2;
        st.global.u32 [%rd3], %r7; add.u32 %r4, %r4, 32; setp.lt.u32 %p3, %r4, {nbytes // 4}; @%p3 bra C;"""
    return Case(name, text, data, nbytes, 32, TensorMap(0, dtype, shape, strides, box, swizzle))


def tensors() -> Iterator[Case]:
    for swizzle in (0, 32, 64, 128):
        width = (swizzle or 64) // 2
        yield tensor_case(f"tma swizzle {swizzle}", "float16", (64, 48), (width, 16), (8, 4), swizzle)
        if swizzle > 32:
            yield tensor_case(
                f"tma swizzle {swizzle} narrow", "float16", (64, 48), (width // 2, 16), (8, 4), swizzle
            )
    yield tensor_case("tma border", "float32", (20, 10), (16, 8), (12, -3), 0)
    yield tensor_case("tma outside", "float32", (20, 10), (16, 8), (40, 0), 0)
    yield tensor_case("tma 1d", "float32", (100,), (64,), (60,), 0)
    yield tensor_case("tma 3d", "float32", (12, 5, 3), (8, 4, 4), (-4, -1, 1), 0)
    yield tensor_case("tma 5d", "float32", (4, 3, 3, 2, 3), (4, 2, 2, 2, 2), (0, 1, 2, 0, -1), 0)
