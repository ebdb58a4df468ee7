"""Asynchronous copies, clusters and what waits on them."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lapidist.errors import ArgumentError
from lapidist.launch import TensorMap
from lapidist.machine import Report, run_ptx
from lapidist.machine.faults import (
    BarrierMisuse,
    Deadlock,
    MachineFault,
    Misaligned,
    MissingProxyFence,
    OutOfBounds,
    Race,
    Uninitialised,
)
from lapidist.machine.instructions.copies import swizzled
from snippets import compiled, kernel, run_body

MODES: list[dict[str, object]] = [{}, *({"sanitize": True, "seed": seed} for seed in range(3))]


@pytest.fixture(params=MODES, ids=lambda mode: f"seed {mode['seed']}" if mode else "plain")
def mode(request: pytest.FixtureRequest) -> dict[str, object]:
    return request.param


def cluster_run(
    entry: str,
    grid: int,
    mode: dict[str, object],
    threads: int = 64,
    cluster: int = 2,
    arrive: str = "",
    **arrays: object,
) -> Report:
    binary = compiled("cluster.cu", entry, **({"ARRIVE": f'"{arrive}"'} if arrive else {}))
    arguments = dict(enumerate(arrays.values()))
    return run_ptx(
        binary.ptx, entry, (grid, 1, 1), (threads, 1, 1), arguments, cluster=(cluster, 1, 1), **mode
    )  # type: ignore[arg-type]


def test_distributed_shared_memory(mode: dict[str, object]) -> None:
    out = np.zeros((4, 64), "i4")
    cluster_run("exchange", 4, mode, out=out)
    assert (out == 1000 * np.array([1, 0, 1, 0])[:, None] + np.arange(64)).all()


RELAXED = "barrier.cluster.arrive.relaxed.aligned;"


def test_a_relaxed_arrival_publishes_what_a_fence_did() -> None:
    out, sanitized = np.zeros((4, 64), "i4"), {"sanitize": True, "seed": 0}
    cluster_run("exchange", 4, sanitized, arrive=f"fence.acq_rel.cluster; {RELAXED}", out=out)
    with pytest.raises(Race):
        cluster_run("exchange", 4, sanitized, arrive=RELAXED, out=out)


def test_remote_barriers(mode: dict[str, object]) -> None:
    out = np.zeros((4, 64), "i4")
    cluster_run("tell", 4, mode, out=out)
    assert (out == 100 * np.array([1, 0, 1, 0])[:, None] + (np.arange(64) ^ 1)).all()


def test_stores_that_report_to_a_barrier_of_another_block(mode: dict[str, object]) -> None:
    out = np.zeros((4, 256), "i4")
    cluster_run("post", 4, mode, out=out)
    assert (out == 1000 * np.array([1, 0, 1, 0])[:, None] + np.arange(256)).all()


EIGHT = np.arange(8)
REDUCED = {  # threads e, e + 8, ... e + 56 meet at element e, which was zero
    "add.s32": (0, 224 + 8 * EIGHT),
    "max.s32": (0, 56 + EIGHT),
    "min.s32": (0, 0 * EIGHT),
    "or.b32": (0, 56 | EIGHT),
    "xor.b32": (0, 0 * EIGHT),
    "inc.u32": (5, 0 * EIGHT + 2),  # 1 2 3 4 5 0 1 2
    "dec.u32": (5, 0 * EIGHT + 4),  # 5 4 3 2 1 0 5 4
}


@pytest.mark.often(3)
@pytest.mark.parametrize("operation", REDUCED)
def test_reductions_that_report_to_a_barrier_of_another_block(
    mode: dict[str, object], operation: str
) -> None:
    value, expected = REDUCED[operation]
    out = np.zeros((2, 8), "i4")
    binary = compiled("cluster.cu", "tally", REDUCTION=f'"{operation}"')
    run_ptx(binary.ptx, "tally", (2, 1, 1), (64, 1, 1), {0: out, 1: value}, cluster=(2, 1, 1), **mode)  # type: ignore[arg-type]
    assert (out == expected).all()


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        (1, (Uninitialised, Race), "shared memory"),
        (2, BarrierMisuse, "another block of the cluster"),
        (3, BarrierMisuse, "the block that the bytes go to"),
    ],
)
def test_remote_stores_by_the_rules_only(fault: int, kind: type[MachineFault], words: str) -> None:
    binary = compiled("cluster.cu", "post", FAULT=fault)
    with pytest.raises(kind, match=words):
        run_ptx(
            binary.ptx,
            "post",
            (2, 1, 1),
            (64, 1, 1),
            {0: np.zeros(512, "i4")},
            cluster=(2, 1, 1),
            sanitize=True,
            seed=1,
        )


def test_multicast_with_a_border(mode: dict[str, object]) -> None:
    """The box hangs over two edges: what lies outside arrives as zeros, in both blocks."""
    source, out = np.arange(480, dtype="f4").reshape(20, 24), np.full((2, 16, 16), np.nan, "f4")
    binary = compiled("cluster.cu", "multicast")
    tensor = TensorMap(source.ctypes.data, "float32", (24, 20), (96,), (16, 16))
    arguments = {0: tensor, 1: out}
    run_ptx(
        binary.ptx, "multicast", (2, 1, 1), (64, 1, 1), arguments, cluster=(2, 1, 1), memory=[source], **mode
    )  # type: ignore[arg-type]
    expected = np.zeros((16, 16))
    expected[:12, 4:] = source[8:20, :12]
    assert (out == expected).all()


def test_bulk_copies_and_reductions(mode: dict[str, object]) -> None:
    copies, sums = np.zeros((3, 64), "f4"), np.ones(64, "f4")
    cluster_run("bulk", 3, mode, cluster=1, copies=copies, sums=sums)
    assert (copies == np.arange(64) + np.arange(3)[:, None]).all()
    assert (sums == 1 + copies.sum(axis=0)).all()


def test_a_turnstile_needs_all_its_blocks_resident(mode: dict[str, object]) -> None:
    parts, total, flag = (
        np.random.default_rng(0).standard_normal((5, 64)).astype("f4"),
        np.zeros(64, "f4"),
        np.zeros(1, "i4"),
    )
    cluster_run(
        "turnstile", 5, {**mode, "residency": 5}, cluster=1, total=total, parts=parts, flag=flag, blocks=5
    )
    expected = np.zeros(64, "f4")
    for part in parts:
        expected = expected * np.float32(0.5) + part
    assert (total == expected).all()
    assert flag[0] == 0


def test_a_turnstile_without_room_is_a_deadlock() -> None:
    arrays = {
        "total": np.zeros(64, "f4"),
        "parts": np.zeros((5, 64), "f4"),
        "flag": np.full(1, 4, "i4"),
        "blocks": 5,
    }
    with pytest.raises(Deadlock, match="resident"):
        cluster_run("turnstile", 5, {"residency": 2}, cluster=1, **arrays)


def test_counting_barriers(mode: dict[str, object]) -> None:
    out, histogram = np.zeros(96, "i4"), np.zeros(3, "u4")
    cluster_run("votes", 1, mode, threads=96, cluster=1, out=out, histogram=histogram)
    assert (out == 481).all()
    assert (histogram == 32).all()


# ---- cp.async ----

CP_ASYNC = """
    .shared .align 16 .b8 s[1024]; mov.u32 %r1, s; mad.lo.u32 %r2, %t, 16, %r1; mad.wide.u32 %rd1, %t, 16,
    %in;
    {copy} cp.async.commit_group; {wait}
    ld.shared.v4.u32 {{%r3, %r4, %r5, %r6}}, [%r2]; mad.wide.u32 %rd2, %t, 16, %out;
    st.global.v4.u32 [%rd2], {{%r3, %r4, %r5, %r6}};"""
WHOLE = "cp.async.cg.shared.global [%r2], [%rd1], 16;"


def test_cp_async(mode: dict[str, object]) -> None:
    source, out = np.arange(128, dtype="u4"), np.zeros(128, "u4")
    run_body(CP_ASYNC.format(copy=WHOLE, wait="cp.async.wait_group 0;"), source, out, **mode)
    assert (out == source).all()


def test_cp_async_fills_up_with_zeros_and_does_not_touch_what_it_skips(mode: dict[str, object]) -> None:
    """Lane t takes t % 4 words; lanes that take none may point anywhere."""
    source, out = np.arange(128, dtype="u4"), np.zeros((32, 4), "u4")
    copy = """and.b32 %r7, %t, 3; shl.b32 %r7, %r7, 2; setp.eq.u32 %p1, %r7, 0; selp.b64 %rd1, 0, %rd1, %p1;
        cp.async.cg.shared.global [%r2], [%rd1], 16, %r7;"""
    run_body(CP_ASYNC.format(copy=copy, wait="cp.async.wait_all;"), source, out, **mode)
    assert (out == np.where(np.arange(4) < np.arange(32)[:, None] % 4, source.reshape(32, 4), 0)).all()


def test_cp_async_starts_on_its_size_however_little_it_reads(mode: dict[str, object]) -> None:
    """An H200 brings wrong numbers, and says nothing."""
    copy = "add.u64 %rd1, %rd1, 8; mov.u32 %r7, 4; cp.async.cg.shared.global [%r2], [%rd1], 16, %r7;"
    with pytest.raises(
        Misaligned, match="access of 16 bytes at a global address that is not a multiple of it"
    ):
        run_body(
            CP_ASYNC.format(copy=copy, wait="cp.async.wait_all;"),
            np.zeros(256, "u4"),
            np.zeros(256, "u4"),
            **mode,
        )


@pytest.mark.parametrize("wait", ["", "cp.async.wait_group 1;"])
def test_a_copy_not_waited_for_is_found(wait: str) -> None:
    with pytest.raises(Uninitialised, match="not waited for"):
        run_body(
            CP_ASYNC.format(copy=WHOLE, wait=wait),
            np.arange(128, dtype="u4"),
            np.zeros(128, "u4"),
            sanitize=True,
            seed=0,
        )


def test_cp_async_may_report_to_an_mbarrier(mode: dict[str, object]) -> None:
    body = """
        .shared .align 8 .b64 m; mov.u32 %r9, m; setp.eq.u32 %p1, %t, 0; @%p1 mbarrier.init.shared.b64 [%r9],
        32;
        bar.sync 0;""" + CP_ASYNC.format(
        copy=WHOLE,
        wait=(
            "cp.async.mbarrier.arrive.noinc.shared.b64 [%r9]; "
            "W: mbarrier.try_wait.parity.shared.b64 %p2, [%r9], 0; @!%p2 bra W;"
        ),
    )
    source, out = np.arange(128, dtype="u4"), np.zeros(128, "u4")
    run_body(body, source, out, **mode)
    assert (out == source).all()


# ---- bulk stores and their fences ----

STORE = """
    .shared .align 128 .b8 s[512]; mov.u32 %r1, s; mad.lo.u32 %r2, %t, 16, %r1; st.shared.v4.u32 [%r2], {{%t,
    %t, %t, %t}};
    {fence} bar.sync 0; setp.eq.u32 %p1, %t, 0; @!%p1 bra E;
    cp.async.bulk.global.shared::cta.bulk_group [%out], [%r1], 512; cp.async.bulk.commit_group; {wait}
    E: {after}"""


def store_case(
    fence: str = "fence.proxy.async;", wait: str = "cp.async.bulk.wait_group 0;", after: str = ""
) -> str:
    return STORE.format(fence=fence, wait=wait, after=after)


@pytest.mark.parametrize("fence", ["fence.proxy.async;", "fence.proxy.async.shared::cta;"])
def test_bulk_store(fence: str, mode: dict[str, object]) -> None:
    out = np.zeros((32, 4), "u4")
    run_body(store_case(fence), np.zeros(2, "u4"), out, **mode)
    assert (out == np.arange(32)[:, None]).all()


@pytest.mark.parametrize(
    ("kind", "case"),
    [
        (MissingProxyFence, store_case(fence="")),
        (MissingProxyFence, store_case(fence="fence.proxy.async.global;")),
        (Race, store_case(wait="st.shared.u32 [%r1], %t;")),
    ],
)
def test_bulk_stores_done_wrong(kind: type[Exception], case: str) -> None:
    with pytest.raises(kind):
        run_body(case, np.zeros(2, "u4"), np.zeros((32, 4), "u4"), sanitize=True, seed=0)


def test_an_exit_before_the_store_has_read_is_a_warning() -> None:
    for wait, rules in (("", ["store-at-exit"]), ("cp.async.bulk.wait_group.read 0;", [])):
        out = np.zeros((32, 4), "u4")
        report = run_body(store_case(wait=wait), np.zeros(2, "u4"), out, sanitize=True, seed=0)
        assert [finding.rule for finding in report.warnings] == rules
        assert (out == np.arange(32)[:, None]).all()


@pytest.mark.parametrize(
    ("kind", "size", "place"),
    [
        (None, 64, "%in"),
        (None, 0, "%in"),
        (Misaligned, 24, "%in"),
        (Misaligned, 16, "%in + 8"),
        (OutOfBounds, 80, "%in"),
    ],
)
def test_bulk_prefetches_stay_inside(
    kind: type[Exception] | None, size: int, place: str, mode: dict[str, object]
) -> None:
    """Nobody sees what they fetch, so nothing else would tell."""
    body = f"mov.u32 %r1, {size}; cp.async.bulk.prefetch.L2.global [{place}], %r1;"
    with pytest.raises(kind) if kind else nullcontext():
        run_body(body, np.zeros(16, "u4"), np.zeros(2, "u4"), **mode)


@pytest.mark.parametrize("seed", range(4))
def test_who_waited_for_a_bulk_store_speaks_for_itself_alone(seed: int) -> None:
    """The others may fill its source again once they have met that lane; a vote waits for it, but orders no
    memory.
    """
    vote = "vote.sync.ballot.b32 %r7, %p1, -1;"
    met, voted = (store_case(after=f"{meet} st.shared.u32 [%r2], 7;") for meet in ("bar.warp.sync -1;", vote))
    run_body(met, np.zeros(2, "u4"), np.zeros((32, 4), "u4"), sanitize=True, seed=seed)
    with pytest.raises(Race, match=r"written here, and read by lane 0 of this warp|was not waited for"):
        run_body(voted, np.zeros(2, "u4"), np.zeros((32, 4), "u4"), sanitize=True, seed=seed)


# ---- tensor maps ----


def test_swizzles_by_hand() -> None:
    """Row r of 128 bytes: piece p goes to p ^ (r % 8); with 64 bytes every second row pair counts, with 32
    every fourth.
    """
    rows = np.arange(0, 1024, 16).reshape(8, 8)
    assert (swizzled(rows, 128) // 16 % 8 == np.arange(8)[None, :] ^ np.arange(8)[:, None]).all()
    assert (swizzled(rows, 64) // 16 % 8 == np.arange(8)[None, :] ^ (np.arange(8)[:, None] % 4)).all()
    assert (swizzled(rows, 32) // 16 % 8 == np.arange(8)[None, :] ^ (np.arange(8)[:, None] % 2)).all()
    assert (swizzled(rows, 0) == rows).all()


TENSOR = """
    .shared .align 1024 .b8 s[2048]; .shared .align 8 .b64 m; .reg .b64 %map;
    mov.b64 %map, map; mov.u32 %r1, s; mov.u32 %r2, m; setp.eq.u32 %p1, %t, 0; @!%p1 bra W;
    mbarrier.init.shared.b64 [%r2], 1; fence.mbarrier_init.release.cluster;
    mbarrier.arrive.expect_tx.shared.b64 _, [%r2], {nbytes};
    cp.async.bulk.tensor.{dims}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%map,
    {{{corner}}}], [%r2];
    W: bar.sync 0; L: mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0; @!%p2 bra L;
    mad.lo.u32 %r3, %t, {each}, %r1; mad.wide.u32 %rd1, %t, {each}, %out; mov.u32 %r4, 0;
    C: add.u32 %r5, %r3, %r4; cvt.u64.u32 %rd2, %r4; add.u64 %rd3, %rd1, %rd2; ld.shared.u8 %h1, [%r5];
    st.global.u8 [%rd3], %h1;
    add.u32 %r4, %r4, 1; setp.lt.u32 %p3, %r4, {each}; @%p3 bra C;"""


def load_box(
    source: np.ndarray,
    box: tuple[int, ...],
    corner: tuple[int, ...],
    swizzle: int = 0,
    room: int = 0,
    dtype: str = "",
    **mode: object,
) -> np.ndarray:
    """A tensor copy of a box (innermost extent first) as the bytes that arrive in shared memory, `room` of
    them.
    """
    size = source.itemsize
    for extent in box:
        size *= extent
    out = np.full(room or size, 0xEE, "u1")
    body = TENSOR.format(nbytes=size, dims=len(box), corner=", ".join(map(str, corner)), each=len(out) // 32)
    text = (
        kernel(body)
        .replace(".param .u64 in,", ".param .align 64 .b8 map[128],")
        .replace("ld.param.u64 %in, [in];", "")
    )
    name, strides = dtype or source.dtype.name, source.strides[::-1][1:]
    tensor = TensorMap(source.ctypes.data, name, source.shape[::-1], strides, box, swizzle)
    run_ptx(text, "k", (1, 1, 1), (32, 1, 1), {"map": tensor, "out": out}, memory=[source], **mode)  # type: ignore[arg-type]
    return out


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
def test_tensor_loads_with_swizzle(swizzle: int, mode: dict[str, object]) -> None:
    source = np.arange(32 * 64, dtype="u2").reshape(32, 64)
    width = (swizzle or 128) // 2
    got = load_box(source, (width, 8), (8, 3), swizzle, **mode)
    expected = np.empty(16 * width, "u1")
    expected[swizzled(np.arange(16 * width), swizzle)] = (
        np.pad(source, ((0, 0), (0, 64)))[3:11, 8 : 8 + width].copy().view("u1").reshape(-1)
    )
    assert (got == expected).all()


def test_tensor_loads_round_to_tf32(mode: dict[str, object]) -> None:
    source = np.full((8, 16), 1 + 3 * 2.0**-12, "f4")
    assert (load_box(source, (16, 8), (0, 0), dtype="tfloat32", **mode).view("f4") == 1 + 2.0**-10).all()


def test_tensor_loads_in_three_dimensions_over_every_edge(mode: dict[str, object]) -> None:
    source = np.random.default_rng(3).standard_normal((3, 5, 12)).astype("f4")
    got = load_box(source, (8, 4, 4), (-4, -1, 1), **mode).view("f4").reshape(4, 4, 8)
    assert (got == np.pad(source, ((0, 4), (1, 4), (4, 8)))[1:5, 0:4, 0:8]).all()


@pytest.mark.parametrize(
    ("corner", "kind"), [((1, 0), Misaligned), ((-2, 0), Misaligned), ((2, 3), Misaligned)]
)
def test_a_tensor_copy_starts_at_sixteen_bytes(corner: tuple[int, int], kind: type[MachineFault]) -> None:
    with pytest.raises(kind, match="16 bytes"):
        load_box(np.zeros((32, 64), "f4"), (16, 8), corner)


@pytest.mark.parametrize(("corner", "refused"), [((0, -1), True), ((-4, 0), True), ((60, 30), False)])
def test_a_tensor_store_hangs_over_the_far_borders_only(corner: tuple[int, int], refused: bool) -> None:
    target = np.zeros((32, 64), "f4")
    tensor = TensorMap(target.ctypes.data, "float32", (64, 32), (256,), (16, 8))
    body = f""".shared .align 128 .b8 s[512]; .reg .b64 %map; mov.b64 %map, map; mov.u32 %r1, s;
        setp.eq.u32 %p1, %t, 0; @!%p1 bra E;
        cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%map, {{{corner[0]}, {corner[1]}}}],
        [%r1];
        cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; E:"""
    text = (
        kernel(body)
        .replace(".param .u64 in,", ".param .align 64 .b8 map[128],")
        .replace("ld.param.u64 %in, [in];", "")
    )
    arguments = {"map": tensor, "out": target}
    if refused:
        with pytest.raises(OutOfBounds, match="far borders"):
            run_ptx(text, "k", (1, 1, 1), (32, 1, 1), arguments)
    else:
        run_ptx(text, "k", (1, 1, 1), (32, 1, 1), arguments)
        assert np.isnan(target).sum() == 4 * 2


def test_a_tensor_map_must_be_the_launch_s_own() -> None:
    body = "setp.eq.u32 %p1, %t, 0; .shared .align 128 .b8 s[256]; mov.u32 %r1, s;"
    body += "@%p1 cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [%in, {%t}], [%r1];"
    with pytest.raises(OutOfBounds, match="no tensor map"):
        run_body(body, np.zeros(2, "u4"), np.zeros(2, "u4"))
    with pytest.raises(ArgumentError):
        run_ptx(kernel(body), "k", (1, 1, 1), (32, 1, 1), {"in": np.zeros(2, "u4")})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"address": 8}, "multiple of 16"),
        ({"strides": (40,)}, "strides"),
        ({"box": (512, 4)}, "from 1 to 256"),
        ({"box": (2, 4)}, "box rows of a multiple of 16"),
        ({"box": (64, 4), "swizzle": 128}, "no longer than the swizzle"),
        ({"swizzle": 16}, "swizzle of 0, 32, 64 or 128"),
        ({"strides": ()}, "a stride for each"),
    ],
)
def test_maps_that_the_driver_refuses_are_refused(change: dict[str, Any], words: str) -> None:
    good = TensorMap(0, "float32", (64, 64), (256,), (32, 8), 128)
    text = (
        kernel("")
        .replace(".param .u64 in,", ".param .align 64 .b8 map[128],")
        .replace("ld.param.u64 %in, [in];", "")
    )
    with pytest.raises(ArgumentError, match=words):
        run_ptx(text, "k", (1, 1, 1), (32, 1, 1), {"map": replace(good, **change), "out": np.zeros(1, "u4")})


def test_rows_narrower_than_their_swizzle_take_its_width() -> None:
    source = np.arange(16 * 32, dtype="u2").reshape(16, 32)
    got = load_box(source, (16, 4), (0, 0), 64, room=256).reshape(4, 64)
    lines = swizzled(np.arange(256), 64).reshape(4, 64)
    plain = got.reshape(-1)[lines]
    assert (plain[:, :32].copy().view("u2") == source[:4, :16]).all()


ELSEWHERE = """
    .shared .align 16 .b8 s[128]; .shared .align 8 .b64 m; mov.u32 %r1, s; mov.u32 %r9, %cluster_ctarank;
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    setp.eq.u32 %p1, %r9, 0; @%p1 bra E;
    and.b32 %r2, %r1, 0xffffff; mapa.shared::cluster.u32 %r3, %r1, 2; {access}
    E: barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"""
ACCESSES = (
    "ld.shared.u32 %r4, [{0}];",
    "st.shared::cta.u32 [{0}], 1;",
    "atom.shared.add.u32 %r4, [{0}], 1;",
    "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r4}}, [{0}];",
    "cp.async.ca.shared.global [{0}], [%in], 8;",
    "mbarrier.init.shared.b64 [{0}], 1;",
)


@pytest.mark.parametrize("address", ["%r2", "%r3"], ids=["without a rank", "of another block"])
@pytest.mark.parametrize("access", ACCESSES)
def test_own_shared_memory_has_addresses_of_the_own_rank(access: str, address: str) -> None:
    """Each of these is an illegal instruction to an H200."""
    arguments = {"in": np.zeros(2, "u4"), "out": np.zeros(1, "u4")}
    own, other = (kernel(ELSEWHERE.replace("{access}", access.format(place))) for place in ("%r1", address))
    run_ptx(own, "k", (2, 1, 1), (32, 1, 1), arguments, cluster=(2, 1, 1))
    with pytest.raises(OutOfBounds, match="of another block of the cluster, or without a rank"):
        run_ptx(other, "k", (2, 1, 1), (32, 1, 1), arguments, cluster=(2, 1, 1))
