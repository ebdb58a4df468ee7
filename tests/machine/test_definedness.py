"""Undefined values: followed from where nobody wrote to an address, a branch or a stored result. Each fault
stands beside a kernel that loads the same and lets it decide nothing."""

from __future__ import annotations

import numpy as np
import pytest

from lapidist.machine import check
from lapidist.machine.faults import MachineFault, Uninitialised
from snippets import kernel, run_body

STORE = "mad.wide.u32 %rd3, %t, 4, %out; st.global.u32 [%rd3], %r6;"
# %r5 is a word of shared memory that nobody wrote; %r1 the address of 256 bytes of it.
SHARED = """.shared .align 16 .b8 s[256]; .shared .align 8 .b64 m; mov.u32 %r1, s; mad.lo.u32 %r2, %t, 4, %r1;
    ld.shared.u32 %r5, [%r2]; mov.u32 %r6, 7;"""
LOCAL = ".local .align 8 .b8 x[16]; mov.u64 %rd1, x;"


FLOATS = "cvt.rn.f32.u32 %f1, %t; mov.f32 %f3, %f1;"


def fault(body: str, threads: int = 32) -> MachineFault | None:
    try:
        source, out = np.arange(1024, dtype="u4"), np.zeros(1024, "u4")
        run_body(body, source, out, threads=threads, sanitize=True, seed=1)
    except MachineFault as raised:
        return raised
    return None


@pytest.mark.parametrize(
    ("use", "what"),
    [
        ("add.u32 %r6, %r5, 1;", "a stored result"),
        ("and.b32 %r6, %r5, 0xFF;", "a stored result"),
        ("setp.lt.u32 %p1, %r5, 9; @%p1 bra E; mov.u32 %r6, 8; E:", "a stored result"),
        ("setp.lt.u32 %p1, %r5, 9; @%p1 bra A; mov.u32 %r6, 8; bra E; A: mov.u32 %r6, 9; E:",
         "a stored result"),
        ("setp.lt.u32 %p1, %r5, 9; @!%p1 bra E; setp.lt.u32 %p2, %t, 5; @%p2 bra E; mov.u32 %r6, 8; E:",
         "a stored result"),
        ("setp.lt.u32 %p1, %r5, 9; @%p1 bra E; ld.global.u32 %r6, [%in]; E:", "a branch"),
        ("setp.lt.u32 %p1, %r5, 9; @%p1 bra E; bar.sync 0; E:", "a branch"),
        ("L: setp.lt.u32 %p1, %r5, 9; add.u32 %r5, %r5, 1; @%p1 bra L;", "a branch"),
        ("setp.lt.u32 %p1, %r5, 9; @%p1 bra E; mov.u32 %r7, 8; E: shl.b32 %r7, %r7, 2; cvt.u64.u32 %rd1, %r7;"
         "add.u64 %rd1, %rd1, %in; ld.global.u32 %r6, [%rd1];", "an address"),
        ("setp.lt.u32 %p1, %r5, 9; selp.u32 %r6, 1, 2, %p1;", "a stored result"),
        ("setp.lt.u32 %p1, %r5, 9; @%p1 mov.u32 %r6, 8;", "a stored result"),
        ("setp.lt.u32 %p1, %r5, 9; @%p1 st.shared.u32 [%r1], %t;", "a branch"),
        ("cvt.u64.u32 %rd1, %r5; and.b64 %rd1, %rd1, 4; add.u64 %rd1, %rd1, %in; ld.global.u32 %r6, [%rd1];",
         "an address"),
        ("shfl.sync.bfly.b32 %r6, %r5, 1, 31, -1;", "a stored result"),
        ("cvt.rn.f32.u32 %f1, %r5; fma.rn.f32 %f1, %f1, %f1, %f1; mov.b32 %r6, %f1;", "a stored result"),
        ("cvt.rn.f16x2.f32 %r6, %f1, %f1; cvt.rn.f32.u32 %f2, %r5; cvt.rn.f16x2.f32 %r6, %f2, %f3;"
         "and.b32 %r6, %r6, 0xFFFF0000;", "a stored result"),
        ("cvt.rn.f32.u32 %f2, %r5; cvt.rn.satfinite.e4m3x2.f32 %h1, %f3, %f2; cvt.u32.u16 %r6, %h1;"
         "and.b32 %r6, %r6, 0xFF;", "a stored result"),
        ("cvt.u16.u32 %h1, %r5; cvt.rn.f16x2.e4m3x2 %r6, %h1;", "a stored result"),
        ("st.shared.u32 [%r2], %r5; ld.shared.u32 %r6, [%r2];", "a stored result"),
        ("mov.b64 %rd1, {%r6, %r5}; mov.b64 {%r7, %r6}, %rd1;", "a stored result"),
        ("atom.global.add.u32 %r6, [%out], %r5;", "a stored result"),
        ("bar.sync 0, %r5;", "a branch"),
    ],
)  # fmt: skip
def test_what_nobody_wrote_is_found_where_it_decides(use: str, what: str) -> None:
    found = fault(FLOATS + SHARED + use + STORE)
    assert found is not None
    assert found.name == "uninitialised"
    assert found.rule.startswith(f"{what} depends on shared memory that no one wrote (read at PTX line ")


@pytest.mark.parametrize(
    "use",
    [
        "",
        "add.u32 %r7, %r5, 1; xor.b32 %r7, %r7, %r5;",
        "and.b32 %r6, %r5, 0;",
        "or.b32 %r6, %r5, 0xFFFFFFFF;",
        "and.b32 %r7, %r5, 0xFF00; shr.u32 %r7, %r7, 8; shl.b32 %r7, %r7, 16; and.b32 %r6, %r7, 0xFF;",
        "lop3.b32 %r6, %r5, %r5, 0, 0xA0;",
        "setp.lt.u32 %p1, %t, 40; selp.u32 %r6, 1, %r5, %p1;",
        "setp.lt.u32 %p1, %t, 40; selp.u32 %r7, 1, %r5, %p1; @!%p1 mov.u32 %r6, %r5;",
        "mov.b64 %rd1, {%r6, %r5}; mov.b64 {%r6, %r7}, %rd1;",
        "st.shared.u32 [%r2], %r5; st.shared.u32 [%r2], %t; ld.shared.u32 %r6, [%r2];",
        "prmt.b32 %r6, %r5, %t, 0x7654;",
        "shl.b32 %r7, %r5, 8; cvt.u8.u32 %h1, %r7; cvt.u32.u8 %r6, %h1;",
        "cvt.rn.f32.u32 %f2, %r5; cvt.rn.f16x2.f32 %r6, %f2, %f1; and.b32 %r6, %r6, 0xFFFF;",
        "cvt.rn.f32.u32 %f2, %r5; cvt.rn.bf16x2.f32 %r6, %f1, %f2; shr.u32 %r6, %r6, 16;",
        "cvt.rn.f32.u32 %f2, %r5; cvt.rn.satfinite.e4m3x2.f32 %h1, %f2, %f1; cvt.u32.u16 %r6, %h1;"
        "and.b32 %r6, %r6, 0xFF;",
        "and.b32 %r7, %r5, 0xFF; cvt.u16.u32 %h1, %r7; cvt.rn.f16x2.e4m3x2 %r6, %h1; shr.u32 %r6, %r6, 16;",
        "and.b32 %r7, %r5, 0xFF00; cvt.u16.u32 %h1, %r7; cvt.rn.f16x2.e4m3x2 %r6, %h1;"
        "and.b32 %r6, %r6, 0xFFFF;",
        "setp.lt.u32 %p1, %r5, 9; @%p1 bra E; mov.u32 %r7, 8; E:",
        "setp.lt.u32 %p1, %r5, 9; @%p1 bra A; mov.u32 %r7, 8; bra E; A: mov.u32 %r7, 9; E:"
        "setp.lt.u32 %p2, %t, 40; selp.u32 %r6, 1, %r7, %p2;",
        "setp.eq.u32 %p1, %r5, 1; setp.lt.and.u32 %p2, 40, %t, %p1; selp.u32 %r6, 1, 2, %p2;",
    ],
)
def test_what_decides_nothing_is_no_fault(use: str) -> None:
    assert fault(FLOATS + SHARED + use + STORE) is None


def test_half_a_register_that_is_dropped() -> None:
    half = ".shared .align 4 .b8 s[256]; mov.u32 %r1, s; mad.lo.u32 %r2, %t, 4, %r1; st.shared.u16 [%r2], 7;"
    for mask, sound in (("0xFFFF", True), ("0x1FFFF", False)):
        found = fault(f"{half} ld.shared.u32 %r5, [%r2]; and.b32 %r6, %r5, {mask};" + STORE)
        assert (found is None) == sound


def test_registers_that_were_never_set() -> None:
    found = fault("mad.lo.u32 %r6, %r7, %r7, %t;" + STORE)
    assert found is not None
    assert found.name == "unset-register"
    assert found.rule == "a stored result depends on %r7, which was never set"
    # set by one of two branches
    one = "setp.lt.u32 %p1, %t, {}; @%p1 bra A; bra B; A: mov.u32 %r6, 1; B:"
    assert fault(one.format(32) + STORE) is None
    found = fault(one.format(20) + STORE)
    assert found is not None
    assert "lane 20" in str(found)
    # an undefined predicate
    found = fault("@%p7 bra E; mov.u32 %r6, 1;" + STORE + "E:")
    assert found is not None
    assert found.rule == "a branch depends on %p7, which was never set"


def test_a_guarded_load_and_its_other_side() -> None:
    pair = "setp.lt.u32 %p1, %t, 20; mad.wide.u32 %rd1, %t, 4, %in; @%p1 ld.global.u32 %r6, [%rd1]; {}"
    assert fault(pair.format("@!%p1 mov.u32 %r6, 0;") + STORE) is None
    found = fault(pair.format("") + STORE)
    assert found is not None
    assert found.name == "unset-register"


def test_local_memory_and_what_malloc_gives() -> None:
    for sound in (True, False):
        text = LOCAL + "st.local.u32 [%rd1], %t; ld.local.v2.u32 {%r5, %r6}, [%rd1];"
        found = fault(text + ("mov.u32 %r6, %r5;" if sound else "") + STORE)
        assert (found is None) == sound
        assert found is None or "local memory that this thread never wrote" in found.rule
    heap = """.param .b64 q; st.param.b64 [q], 64; .param .b64 p; call (p), malloc, (q);
        ld.param.b64 %rd1, [p]; st.u32 [%rd1], %t; ld.u32 %r6, [%rd1+{}];"""
    declared = ".extern .func (.param .b64 p) malloc (.param .b64 q);"
    empty = np.zeros(4, "u4")
    run_body(heap.format(0) + STORE, empty, np.zeros(64, "u4"), declarations=declared, sanitize=True, seed=1)
    with pytest.raises(Uninitialised, match="memory of malloc's that no one wrote"):
        run_body(
            heap.format(4) + STORE, empty, np.zeros(64, "u4"), declarations=declared, sanitize=True, seed=1
        )


# Rows 0 to 7 of A are written, rows 8 to 15 are not: of D they make rows 8 to 15 undefined.
TILES = """.shared .align 16 .b8 s[512]; mov.u32 %r1, s; mad.lo.u32 %r2, %t, 4, %r1; mov.u32 %r3, 0;
    st.shared.u32 [%r2], %r3; st.shared.u32 [%r2+128], %r3; bar.warp.sync -1;
    and.b32 %r4, %t, 15; mad.lo.u32 %r2, %r4, 32, %r1; shr.u32 %r4, %t, 4; mad.lo.u32 %r2, %r4, 16, %r2;
    ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r2];
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r10, %r11, %r12, %r13},
    {%r3, %r3}, {%f9, %f9, %f9, %f9}; mov.b32 %r6, %f{row};"""


def test_products_are_undefined_by_rows() -> None:
    zero = "mov.f32 %f9, 0f00000000;"
    assert fault(zero + TILES.replace("{row}", "2") + STORE) is None
    found = fault(zero + TILES.replace("{row}", "3") + STORE)
    assert found is not None
    assert "shared memory that no one wrote" in found.rule
    assert fault(TILES.replace("{row}", "2") + STORE) is not None  # sums that begin in %f9


def test_a_finding_is_reported_once() -> None:
    """A value counts as defined behind its report."""
    text = kernel(SHARED + "mov.u32 %r6, %r5;" + STORE + "\nst.global.u32 [%rd3], %r6;")
    found = check(text, (1, 1, 1), (32, 1, 1), np.zeros(64, "u4"), np.zeros(64, "u4"), seeds=2)
    assert [finding.rule for finding in found] == ["uninitialised"]


def test_what_one_block_leaves_undefined_is_its_own() -> None:
    """Block 1 stores what nobody wrote into its shared memory, at a line by which block 0 stores its own."""
    source = """extern "C" __global__ void sums(const int* x, int* y, int n) {
        __shared__ int tile[256];
        if (blockIdx.x == 0) tile[threadIdx.x] = x[threadIdx.x];
        #pragma unroll 1
        for (int i = 0; i < n; i++) {
            __syncthreads();
            if (threadIdx.x % 2) tile[threadIdx.x] += 1;
        }
        if (blockIdx.x == 0) y[threadIdx.x] = tile[threadIdx.x];
    }"""
    x, y = np.arange(256, dtype="i4"), np.zeros(256, "i4")
    assert not list(check(source, (2, 1, 1), (256, 1, 1), x, y, 8, seeds=4))
    assert (y == x + x % 2 * 8).all()
