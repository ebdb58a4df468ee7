"""What TMA writes: tensor stores and reductions, bulk reductions, copies to several blocks of a
cluster; and what addresses of shared memory look like there."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from case import Case, random_for, rough

from lapidist.launch import TensorMap

# Element type of the map, operation, PTX type of the plain bulk form.
REDUCTIONS = (
    *(("float32", "add", "f32"), ("float64", "add", "f64")),
    *(("float16", operation, "f16") for operation in ("add", "min", "max")),
    *(("bfloat16", operation, "bf16") for operation in ("add", "min", "max")),
    *(("int32", operation, "s32") for operation in ("add", "min", "max")),
    *(("uint32", operation, "u32") for operation in ("add", "inc", "dec", "max")),
    *(("uint32", operation, "b32") for operation in ("and", "or", "xor")),
)
SIZES = {"float16": 2, "bfloat16": 2, "float64": 8}


def content(dtype: str, count: int, random: np.random.Generator) -> np.ndarray:
    """Normal numbers, with ties to round and, for integers, some that leave the range."""
    kind = {"float16": "f16", "bfloat16": "bf16", "float64": "f64"}.get(dtype)
    if kind:
        return rough(kind, count * SIZES[dtype], random)
    if dtype == "float32":
        values = random.standard_normal(count)
        values[::16] = 1e-40
        return values.astype("f4").view("u1")
    values = random.integers(0, 1 << 32, count, dtype="u8").astype("u4")
    return np.where(np.arange(count) % 3, values, values % np.uint32(7)).astype("u4").view("u1")


def store_kernel(room: int, out_bytes: int, action: str) -> str:
    """The output is filled from the input, shared memory from what lies behind it; then one thread stores."""
    return f"""
        .shared .align 1024 .b8 s[{room}]; mov.u32 %r1, s; mov.u32 %r4, %t;
        A: shl.b32 %r6, %r4, 2; cvt.u64.u32 %rd2, %r6; add.u64 %rd3, %in, %rd2; add.u64 %rd4, %out, %rd2;
        ld.global.u32 %r7, [%rd3]; st.global.u32 [%rd4], %r7; add.u32 %r4, %r4, 32;
        setp.lt.u32 %p3, %r4, {out_bytes // 4};
        @%p3 bra A;
        mov.u32 %r4, %t;
        B: shl.b32 %r6, %r4, 2; cvt.u64.u32 %rd2, %r6; add.u64 %rd3, %in, %rd2; add.u32 %r5, %r1, %r6;
        ld.global.u32 %r7, [%rd3+{out_bytes}]; st.shared.u32 [%r5], %r7; add.u32 %r4, %r4, 32;
        setp.lt.u32 %p3, %r4, {room // 4}; @%p3 bra B;
        fence.proxy.async; bar.sync 0; setp.ne.u32 %p1, %t, 0; @%p1 bra D;
        {action} cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
        D:"""


def tensor_store(
    name: str,
    dtype: str,
    shape: tuple[int, ...],
    box: tuple[int, ...],
    corner: tuple[int, ...],
    swizzle: int,
    operation: str = "",
    gap: int = 0,
) -> Case:
    """Rows have a gap of so many elements behind them."""
    size = SIZES.get(dtype, 4)
    places = (shape[0] + gap, *shape[1:])
    room, out_bytes = size * int(np.prod(box)), size * int(np.prod(places))
    strides = tuple(int(stride) for stride in (np.cumprod(places) * size)[:-1])
    opcode = f"cp.reduce.async.bulk.tensor.{len(box)}d.global.shared::cta.{operation}" if operation else ""
    opcode = opcode or f"cp.async.bulk.tensor.{len(box)}d.global.shared::cta"
    action = f"{opcode}.tile.bulk_group [%map, {{{', '.join(map(str, corner))}}}], [%r1];"
    data = content(dtype, (room + out_bytes) // size, random_for(name))
    tensor = TensorMap(0, dtype, shape, strides, box, swizzle)
    return Case(name, store_kernel(room, out_bytes, action), data, out_bytes, 32, tensor, writes=True)


def bulk_reduction(dtype: str, operation: str, kind: str) -> Case:
    size, nbytes = SIZES.get(dtype, 4), 512
    rounding = ".noftz" if operation == "add" and kind in ("f16", "bf16") else ""
    name = f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{operation}{rounding}.{kind}"
    data = content(dtype, 2 * nbytes // size, random_for(name))
    return Case(name, store_kernel(nbytes, nbytes, f"{name} [%out], [%r1], {nbytes};"), data, nbytes)


def multicast(mask: int) -> Case:
    """The first block of two loads a box for the blocks of the mask; each shows its shared memory."""
    tensor = TensorMap(0, "float16", (64, 16), (128,), (32, 16), 64)
    data = random_for("multicast").integers(0, 256, 2048, dtype="u1")
    room = 1024
    text = f"""
        .shared .align 1024 .b8 s[{room}]; .shared .align 8 .b64 m; .reg .b16 %mask;
        mov.u32 %r1, s; mov.u32 %r2, m; mov.u32 %r9, %cluster_ctarank; mov.u32 %r4, %t;
        A: shl.b32 %r6, %r4, 2; add.u32 %r5, %r1, %r6; st.shared.u32 [%r5], 7; add.u32 %r4, %r4, 32;
        setp.lt.u32 %p3, %r4, {room // 4}; @%p3 bra A;
        fence.proxy.async; setp.ne.u32 %p1, %t, 0; @%p1 bra B;
        mbarrier.init.shared.b64 [%r2], 1; fence.mbarrier_init.release.cluster;
        mbarrier.arrive.expect_tx.shared.b64 _, [%r2], {room};
        B: barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
        or.b32 %r10, %r9, %t; setp.ne.u32 %p1, %r10, 0; @%p1 bra C; mov.b16 %mask, {mask};
        cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster
            [%r1], [%map, {{32, 0}}], [%r2], %mask;
        C: shl.b32 %r10, 1, %r9; and.b32 %r10, %r10, {mask}; setp.eq.u32 %p1, %r10, 0; @%p1 bra E;
        D: mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0; @!%p2 bra D;
        E: barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
        mad.wide.u32 %out, %r9, {room}, %out; mov.u32 %r4, %t;
        F: shl.b32 %r6, %r4, 2; add.u32 %r5, %r1, %r6; ld.shared.u32 %r7, [%r5]; cvt.u64.u32 %rd2, %r6;
        add.u64 %rd3, %out, %rd2;
        st.global.u32 [%rd3], %r7; add.u32 %r4, %r4, 32; setp.lt.u32 %p3, %r4, {room // 4}; @%p3 bra F;"""
    return Case(f"tma multicast {mask:02b}", text, data, 2 * room, 32, tensor, cluster=2)


def remote() -> Case:
    """Each of four blocks stores into its neighbour's shared memory and arrives there; ranks and addresses
    are shown.
    """
    text = """
        .shared .align 16 .b8 s[128]; .shared .align 8 .b64 m;
        mov.u32 %r1, s; mov.u32 %r2, m; mov.u32 %r9, %cluster_ctarank; setp.ne.u32 %p1, %t, 0; @%p1 bra A;
        mbarrier.init.shared.b64 [%r2], 32; fence.mbarrier_init.release.cluster;
        A: barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
        add.u32 %r10, %r9, 1; and.b32 %r10, %r10, 3; mapa.shared::cluster.u32 %r11, %r1, %r10;
        mapa.shared::cluster.u32 %r12, %r2, %r10; getctarank.shared::cluster.u32 %r13, %r11;
        mad.lo.u32 %r14, %r9, 1000, %t; mad.lo.u32 %r14, %r13, 100000, %r14;
        mad.lo.u32 %r15, %t, 4, %r11; st.shared::cluster.u32 [%r15], %r14;
        mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r12];
        B: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [%r2], 0; @!%p2 bra B;
        mad.lo.u32 %r15, %t, 4, %r1; ld.shared.u32 %r16, [%r15]; mad.lo.u32 %r17, %r9, 32, %t;
        mad.wide.u32 %rd3, %r17, 4, %out;
        st.global.u32 [%rd3], %r16; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"""
    return Case("distributed shared memory", text, np.zeros(8, np.uint8), 512, cluster=4)


# What each thread shows: of its own variable (%r1, generic %rd5) and the same in block `thread % 4` (%r5,
# %rd6); %r4 has no rank.
ADDRESSES = (
    *(
        "mov.u32 %r16, %r1;",
        "mov.u32 %r16, %r5;",
        "mapa.shared::cluster.u32 %r16, %r4, %r3;",
        "cvt.u32.u64 %r16, %rd5;",
    ),
    *("cvt.u32.u64 %r16, %rd6;", "cvta.to.shared.u64 %rd7, %rd6; cvt.u32.u64 %r16, %rd7;"),
    *(f"getctarank.shared::cluster.u32 %r16, {address};" for address in ("%r1", "%r4", "%r5")),
    *(
        f"isspacep.{space} %p2, %rd6; selp.u32 %r16, 1, 0, %p2;"
        for space in ("shared", "shared::cta", "shared::cluster")
    ),
    "mapa.shared::cluster.u32 %r16, %r1, 7;",
)
READS = (
    *(
        "ld.shared.u32 %r16, [%r1];",
        "ld.shared.u32 %r16, [s];",
        "ld.u32 %r16, [%rd5];",
        "ld.u32 %r16, [%rd6];",
    ),
    *(f"ld.shared::cluster.u32 %r16, [{address}];" for address in ("%r1", "%r4", "%r5")),
)


def addresses(cluster: int) -> Case:
    """Each block's variable has the block's rank; what lies there is read wherever the chip reads it."""
    shown = (*ADDRESSES, *READS) if cluster > 1 else ADDRESSES
    width = 4 * len(shown)
    stores = " ".join(f"{text} st.global.u32 [%rd3+{4 * number}], %r16;" for number, text in enumerate(shown))
    text = f"""
        .shared .align 16 .b8 s[128]; mov.u32 %r1, s; mov.u32 %r9, %cluster_ctarank; setp.ne.u32 %p1, %t, 0;
        @%p1 bra A;
        add.u32 %r2, %r9, 100; st.shared.u32 [%r1], %r2;
        A: barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
        and.b32 %r3, %t, 3; and.b32 %r4, %r1, 0xffffff; mapa.shared::cluster.u32 %r5, %r1, %r3;
        cvta.shared.u64 %rd5, s; mapa.u64 %rd6, %rd5, %r3; mad.lo.u32 %r17, %r9, 32, %t;
        mad.wide.u32 %rd3, %r17, {width}, %out;
        {stores} barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"""
    return Case(
        f"shared addresses in a cluster of {cluster}",
        text,
        np.zeros(8, np.uint8),
        32 * width * cluster,
        cluster=cluster,
    )


def copy_cases() -> Iterator[Case]:
    for swizzle in (0, 32, 64, 128):
        width = (swizzle or 64) // 2
        yield tensor_store(f"tma store swizzle {swizzle}", "float16", (64, 32), (width, 16), (8, 4), swizzle)
    yield tensor_store("tma store border", "float32", (20, 10), (16, 8), (12, 5), 0)
    for dtype, length, gap in (
        ("float32", 17, 7),
        ("float32", 18, 2),
        ("float16", 17, 7),
        ("bfloat16", 23, 9),
    ):
        yield tensor_store(
            f"tma store row of {length} {dtype}", dtype, (length, 6), (16, 4), (16, 1), 0, "", gap
        )
    yield tensor_store("tma reduce add row of 17", "float32", (17, 6), (16, 4), (16, 1), 0, "add", 7)
    yield tensor_store("tma store 4d", "float32", (8, 3, 4, 3), (4, 2, 2, 4), (4, 1, 3, 0), 0)
    for dtype, operation, kind in REDUCTIONS:
        yield tensor_store(
            f"tma reduce {operation} {dtype} {kind}", dtype, (24, 9), (16, 8), (16, 2), 0, operation
        )
        yield bulk_reduction(dtype, operation, kind)
    yield from (multicast(mask) for mask in (0b10, 0b11))
    yield remote()
    yield from (addresses(cluster) for cluster in (1, 4))
