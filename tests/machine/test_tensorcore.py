"""Matrix instructions: lane layouts by hand, whole kernels against NumPy."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from lapidist.launch import Launch, Memory, TensorMap
from lapidist.machine import run, run_ptx
from lapidist.machine.faults import Divergence, MissingProxyFence, Race
from lapidist.machine.foreign import make_launch
from snippets import compiled, lanes, run_body

MODES: list[dict[str, object]] = [{}, *({"sanitize": True, "seed": seed} for seed in range(2))]
LANE = np.arange(32)


@pytest.fixture(params=MODES, ids=lambda mode: f"seed {mode['seed']}" if mode else "plain")
def mode(request: pytest.FixtureRequest) -> dict[str, object]:
    return request.param


def one_element(
    name: str,
    registers: tuple[int, int, int, int],
    a_at: tuple[int, int, int],
    b_at: tuple[int, int, int],
    result: str,
) -> list[np.ndarray]:
    """mma with a single one in A and in B, given as (lane, register, bits); the D registers that come
    back.
    """
    d, a, b, c = registers
    kind = {"f4": "f32", "u4": "b32", "f8": "f64"}[result]
    wide = "b64" if result == "f8" else "b32"
    zero = {"f4": "0f00000000", "u4": "0", "f8": "0d0000000000000000"}[result]
    lines = [
        (
            f".reg .{wide} a<{a}>, b<{b}>;"
            if False
            else f".reg .{wide if wide == 'b32' else 'f64'} a<{a}>, b<{b}>; .reg .{kind} e<{d}>;"
        )
    ]
    for letter, count, (lane, register, bits) in (("a", a, a_at), ("b", b, b_at)):
        for number in range(count):
            value = bits if number == register else 0
            if wide == "b64":
                lines.append(
                    f"setp.eq.u32 %p1, %t, {lane}; selp.f64 {letter}{number}, 0d{value:016x}, 0d{0:016x},"
                    " %p1;"
                )
            else:
                lines.append(f"setp.eq.u32 %p1, %t, {lane}; selp.b32 {letter}{number}, {value}, 0, %p1;")
    names = [
        ", ".join(f"{letter}{n}" for n in range(count)) for letter, count in (("e", d), ("a", a), ("b", b))
    ]
    lines.append(f"{name} {{{names[0]}}}, {{{names[1]}}}, {{{names[2]}}}, {{{', '.join([zero] * c)}}};")
    found = []
    for number in range(d):
        found.append(lanes("\n".join([*lines, f"mov.{kind} d, e{number};"]), [], result))
    return found


# A[row, k] and B[k, column] as the PTX ISA's tables place them; D must be one at [row, column] only. f16 k16:
# A register 3 holds row g + 8, columns 2t + 8: lane 6 (g = 1, t = 2), upper half: A[9, 13]. B register 1 of
# lane 30 (g = 7, t = 2), upper half: B[13, 7]. D[9, 7]: g = 1, t = 3, register 3.
CASES = [
    (
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
        (4, 4, 2, 4),
        (6, 3, 0x3C000000),
        (30, 1, 0x3C000000),
        "f4",
        (7, 3),
    ),
    (
        "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32",
        (4, 2, 1, 4),
        (6, 1, 0x3F800000),
        (30, 0, 0x3F800000),
        "f4",
        (7, 3),
    ),
    # tf32 k8: register 2 holds row g, column t + 4: lane 6: A[1, 6]; B register 1 of lane 30: B[6, 7]. D[1,
    # 7]: register 1.
    (
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
        (4, 4, 2, 4),
        (6, 2, 0x3F800000),
        (30, 1, 0x3F800000),
        "f4",
        (7, 1),
    ),
    # s8 k32: register 2 holds row g, columns 4t + 16: lane 6, byte 1: A[1, 25]; B register 1, byte 1: B[25,
    # 7].
    (
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32",
        (4, 4, 2, 4),
        (6, 2, 0x0100),
        (30, 1, 0x0100),
        "u4",
        (7, 1),
    ),
    (
        "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32",
        (4, 4, 2, 4),
        (6, 2, 0x3800),
        (30, 1, 0x3800),
        "f4",
        (7, 1),
    ),
    # f64 m8n8k4: A[g, t], B[t, g], D[g, 2t + j].
    (
        "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64",
        (2, 1, 1, 2),
        (6, 0, 0x3FF0000000000000),
        (30, 0, 0x3FF0000000000000),
        "f8",
        (7, 1),
    ),
]


@pytest.mark.parametrize(
    ("name", "registers", "a", "b", "result", "place"), CASES, ids=[c[0][17:] for c in CASES]
)
def test_mma_lane_layouts(
    name: str,
    registers: tuple[int, int, int, int],
    a: tuple[int, int, int],
    b: tuple[int, int, int],
    result: str,
    place: tuple[int, int],
) -> None:
    found = one_element(name, registers, a, b, result)
    for register, values in enumerate(found):
        assert values.tolist() == [1 if (lane, register) == place else 0 for lane in range(32)]


def test_mma_sums_are_truncated() -> None:
    """1 + 2^-24 + 2^-24 rounds to 1 + 2^-23 exactly; 1 + 3 * 2^-25 truncates to 1 (to nearest it would be 1 +
    2^-23).
    """
    body = """.reg .b32 a, b; .reg .f32 e<4>; setp.eq.u32 %p1, %t, 0; selp.b32 a, 0x00003c00, 0, %p1; mov.b32
    b, 0x00000{0};
        mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {{e0, e1, e2, e3}}, {{a, 0}}, {{b}}, {{0f3f800000,
        0f0, 0f0, 0f0}};
        mov.f32 d, e0;"""
    body = body.replace("0f0,", "0f00000000,").replace("0f0}", "0f00000000}")
    assert lanes(body.format("002"), [], "f4")[0] == np.float32(1 + 2.0**-23)  # the half 2^-23
    assert lanes(body.format("001"), [], "f4")[0] == 1.0  # 2^-24: half an ulp, cut off


def test_ldmatrix_and_stmatrix() -> None:
    """Row r of tile i comes from lane 8i + r; register i of lane l holds its row l / 4, elements 2 (l % 4)
    and one more.
    """
    body = """
        .shared .align 16 .b8 s[512]; .shared .align 16 .b8 u[512]; mov.u32 %r1, s; mov.u32 %r2, u;
        mad.lo.u32 %r3, %t, 16, %r1; mad.lo.u32 %r4, %t, 16, %r2; mad.wide.u32 %rd1, %t, 16, %in;
        ld.global.v4.u32 {%r5, %r6, %r7, %r8}, [%rd1]; st.shared.v4.u32 [%r3], {%r5, %r6, %r7, %r8};
        bar.warp.sync -1;
        ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r3];
        ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r14, %r15}, [%r3];
        stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%r4], {%r10, %r11, %r12, %r13}; bar.warp.sync -1;
        ld.shared.v4.u32 {%r20, %r21, %r22, %r23}, [%r4];
        mad.wide.u32 %rd2, %t, 40, %out; st.global.v2.u32 [%rd2], {%r10, %r11}; st.global.v2.u32 [%rd2+8],
        {%r12, %r13};
        st.global.v2.u32 [%rd2+16], {%r14, %r15}; st.global.v2.u32 [%rd2+24], {%r20, %r21};
        st.global.v2.u32 [%rd2+32], {%r22, %r23};"""
    tiles = np.arange(256, dtype="u2").reshape(4, 8, 8)
    out = np.zeros((32, 20), "u2")
    run_body(body, tiles, out)
    row, column = LANE // 4, LANE % 4 * 2
    for tile in range(4):
        for j in range(2):
            assert (out[:, 2 * tile + j] == tiles[tile, row, column + j]).all()
            if tile < 2:
                assert (out[:, 8 + 2 * tile + j] == tiles[tile, column + j, row]).all()
    assert (out[:, 12:] == tiles.swapaxes(1, 2).reshape(32, 8)).all()


def test_matrix_instructions_need_the_whole_warp() -> None:
    with pytest.raises(Divergence):
        run_body(
            ".shared .align 16 .b8 s[512]; mov.u32 %r1, s; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2},"
            " [%r1];",
            np.zeros(2, "u4"),
            np.zeros(2, "u4"),
            threads=20,
        )


def integers(shape: tuple[int, int], dtype: object, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)


@pytest.mark.often(2)
@pytest.mark.parametrize("column_major", [0, 1])
def test_wmma_kernel(column_major: int, mode: dict[str, object]) -> None:
    a, b, c = integers((16, 48), "f2", 1), integers((48, 16), "f2", 2), np.zeros((16, 16), "f4")
    binary = compiled("wmma.cu", "tile", "sm_80", B_IS_COL=column_major)
    stored = np.ascontiguousarray(b.T) if column_major else b
    run_ptx(binary.ptx, "tile", (1, 1, 1), (32, 1, 1), {0: a, 1: stored, 2: c, 3: 48}, **mode)  # type: ignore[arg-type]
    assert (c == 2 * (a.astype("f4") @ b.astype("f4"))).all()


def test_mma_kernel_with_cp_async_and_ldmatrix(mode: dict[str, object]) -> None:
    a, b, c = integers((64, 96), "f2", 1), integers((96, 64), "f2", 2), np.zeros((64, 64), "f4")
    binary = compiled("mma.cu", "multiply", "sm_80")
    run_ptx(binary.ptx, "multiply", (2, 1, 1), (128, 1, 1), {0: a, 1: b, 2: c, 3: 64, 4: 96}, **mode)  # type: ignore[arg-type]
    assert (c == a.astype("f4") @ b.astype("f4")).all()


def wgmma_launch(
    turned: int, ptx_change: tuple[str, str] = ("", ""), k: int = 192
) -> tuple[Launch, np.ndarray, np.ndarray]:
    m, n = 128, 64
    a, b, c = (
        integers((m, k), ml_dtypes.bfloat16, 1),
        integers((k, n), ml_dtypes.bfloat16, 2),
        np.full((m, n), np.nan, "f4"),
    )
    stored = b if turned else np.ascontiguousarray(b.T)
    maps = [
        TensorMap(x.ctypes.data, "bfloat16", x.shape[::-1], (x.strides[0],), (64, 64), 128)
        for x in (a, stored)
    ]
    binary = compiled("wgmma.cu", "multiply", B_TURNED=turned)
    ptx = binary.ptx.replace(*ptx_change) if ptx_change[0] else binary.ptx
    launch = make_launch(
        ptx, "multiply", (1, 2, 1), (160, 1, 1), {0: maps[0], 1: maps[1], 2: c, 3: n, 4: k}, 33_000
    )
    memory = tuple(Memory(name, x.ctypes.data, x.nbytes, x) for name, x in (("a", a), ("b", stored)))
    return replace(launch, memory=launch.memory + memory), c, a.astype("f4") @ b.astype("f4")


@pytest.mark.often(2)
@pytest.mark.parametrize("turned", [0, 1])
def test_wgmma_kernel_with_tma(turned: int, mode: dict[str, object]) -> None:
    launch, c, expected = wgmma_launch(turned)
    run(launch, **mode)  # type: ignore[arg-type]
    assert (c == expected).all()


def test_wgmma_without_its_fence_or_wait_is_found() -> None:
    launch, _, _ = wgmma_launch(0, ("wgmma.fence.sync.aligned;", ""))
    with pytest.raises(MissingProxyFence, match=r"without wgmma\.fence"):
        run(launch, sanitize=True, seed=0)
    launch, c, expected = wgmma_launch(0, ("wgmma.wait_group.sync.aligned 0;", ""))
    with contextlib.suppress(Race):
        run(launch, sanitize=True, seed=0)
    assert not (c == expected).all()


BITS = """
    .shared .align 128 .b8 s[2304]; .reg .b64 %da, %db; .reg .b32 %q<4>, %a<4>;
    mov.u32 %r1, s; mad.wide.u32 %rd1, %t, 16, %in; mad.lo.u32 %r2, %t, 16, %r1; setp.lt.u32 %p1, %t, 16;
    ld.global.v4.u32 {%q0, %q1, %q2, %q3}, [%rd1]; st.shared.v4.u32 [%r2], {%q0, %q1, %q2, %q3};
    @%p1 ld.global.v4.u32 {%q0, %q1, %q2, %q3}, [%rd1+2048]; @%p1 st.shared.v4.u32 [%r2+2048], {%q0, %q1,
    %q2, %q3};
    fence.proxy.async; bar.sync 0;
    shr.u32 %r3, %r1, 4; cvt.u64.u32 %da, %r3; or.b64 %da, %da, 0x0000001000080000; add.u64 %db, %da, 128;
    shr.u32 %r5, %t, 5; shr.u32 %r6, %t, 2; and.b32 %r6, %r6, 7; and.b32 %r7, %t, 3;
    mad.lo.u32 %r9, %r5, 512, %r1; mad.lo.u32 %r9, %r6, 16, %r9; mad.lo.u32 %r9, %r7, 4, %r9;
    ld.shared.u32 %a0, [%r9]; ld.shared.u32 %a1, [%r9+256]; ld.shared.u32 %a2, [%r9+128]; ld.shared.u32 %a3,
    [%r9+384];
    wgmma.fence.sync.aligned; setp.eq.u32 %p2, 0, 1;
    wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.and.popc {%q0, %q1, %q2, %q3}, FIRST, %db, %p2;
    wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
    mad.lo.u32 %r8, %r5, 16, %r6; mul.lo.u32 %r8, %r8, 32; mad.lo.u32 %r8, %r7, 8, %r8; cvt.u64.u32 %rd2, %r8;
    add.u64 %rd3, %out, %rd2; st.global.v2.u32 [%rd3], {%q0, %q1}; st.global.v2.u32 [%rd3+256], {%q2, %q3};
"""


@pytest.mark.parametrize("first", ["%da", "{%a0, %a1, %a2, %a3}"])
def test_sums_that_start_anew_need_a_fence_too(first: str) -> None:
    body = BITS.replace("FIRST", first).replace("wgmma.fence.sync.aligned;", "")
    with pytest.raises(
        MissingProxyFence, match=r"registers that other instructions used, without wgmma\.fence"
    ):
        run_body(body, np.zeros(2304, "u1"), np.zeros((64, 8), "i4"), threads=128, sanitize=True, seed=0)


@pytest.mark.parametrize("first", ["%da", "{%a0, %a1, %a2, %a3}"])
def test_wgmma_counts_the_bits_that_both_have(first: str, mode: dict[str, object]) -> None:
    """No swizzle: atoms of 8 rows of 16 bytes, 128 bytes apart along k, 256 along rows."""
    random = np.random.default_rng(3)
    a, b = (random.integers(0, 256, (rows, 32)).astype("u1") for rows in (64, 8))
    tiles = np.concatenate([each.reshape(-1, 8, 2, 16).swapaxes(1, 2).reshape(-1) for each in (a, b)])
    out = np.zeros((64, 8), "i4")
    run_body(BITS.replace("FIRST", first), tiles, out, threads=128, **mode)
    assert (out == np.unpackbits(a, axis=1).astype(int) @ np.unpackbits(b, axis=1).astype(int).T).all()
