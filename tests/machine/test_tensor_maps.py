"""Tensor maps that a kernel copies, changes and publishes."""

from __future__ import annotations

import numpy as np
import pytest

from lapidist.launch import TensorMap
from lapidist.machine import PtxError, check, run_ptx
from lapidist.machine.faults import MissingProxyFence, OutOfBounds
from lapidist.machine.tensor_map_bytes import decoded, encoded
from snippets import compiled, kernel, run_body

BLOCKS, ROWS = 3, np.array([5, 12, 3], "i4")
SEEDS = range(3)


def boxes(fault: int = 0, **mode: object) -> tuple[np.ndarray, np.ndarray]:
    """What each block copied of its matrix from row 2 on, and what that should be: zeros behind its rows."""
    matrices = [np.arange(12 * 16, dtype="f4").reshape(12, 16) + 1000 * n for n in range(BLOCKS)]
    table = np.array([matrix.ctypes.data for matrix in matrices], "u8")
    out, expected = np.full((BLOCKS, 8, 16), np.nan, "f4"), np.zeros((BLOCKS, 8, 16), "f4")
    for n, rows in enumerate(np.minimum(ROWS, 10) - 2):
        expected[n, :rows] = matrices[n][2 : 2 + rows]
    base = TensorMap(matrices[0].ctypes.data, "float32", (16, 1), (64,), (16, 8))
    maps = np.zeros((BLOCKS, 128), "u1")
    arguments = dict(enumerate([base, maps, table, ROWS, out]))
    text = compiled("tensor_map_changes.cu", "moved_boxes", FAULT=fault).ptx
    run_ptx(text, "moved_boxes", (BLOCKS, 1, 1), (32, 1, 1), arguments, memory=matrices, **mode)  # type: ignore[arg-type]
    return out, expected


@pytest.mark.parametrize("seed", [None, *SEEDS])
def test_a_map_of_each_block(seed: int | None) -> None:
    out, expected = boxes(sanitize=seed is not None, seed=seed)
    assert (out == expected).all()


@pytest.mark.parametrize("fault", [1, 2, 3])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_map_that_is_not_published(fault: int, seed: int) -> None:
    """What a plain store wrote is not released; without a fence of its own, no copy has acquired it."""
    words = r"fence\.proxy\.tensormap::generic\." + ("release" if fault & 1 else "acquire")
    with pytest.raises(MissingProxyFence, match=words):
        boxes(fault, sanitize=True, seed=seed)


def test_a_map_goes_through_its_bytes() -> None:
    for tensor in (
        TensorMap(1 << 40, "bfloat16", (7, 5, 3), (16, 1 << 33), (8, 4, 1), 128),
        TensorMap(16, "float8_e4m3fn", (1 << 32,), (), (16,), 0, 64),
    ):
        read = decoded(encoded(tensor))
        assert read is not None
        assert read == tensor
    assert decoded(bytes(128)) is None


def test_what_is_no_map_and_no_field() -> None:
    place = np.ones(128, "u4")
    replace = "tensormap.replace.tile.{}.global.b1024.{};"
    with pytest.raises(OutOfBounds, match="no tensor map with such a field lies at this address"):
        run_body(replace.format("rank", "b32 [%in], 1"), place, place)
    for field, words in (
        ("swizzle_mode", "b32 [%in], 7"),
        ("fill_mode", "b32 [%in], 1"),
        ("global_dim", "b32 [%in], 1"),
        ("global_address", "b32 [%in], 1"),
    ):
        with pytest.raises(PtxError, match=r"no such \.|does not take|no value of these bits"):
            run_body(replace.format(field, words), place, place)


def test_dimensions_behind_the_rank_count_once_it_says_so() -> None:
    """CUTLASS sets three dimensions of a map that its host code made with two."""
    room = np.zeros(64 + 24, "u4")
    place = room[-room.ctypes.data % 128 // 4 :][:32]
    tensor = TensorMap(1 << 40, "float16", (128, 64), (256,), (64, 32), 128)
    fields = (("global_dim", "b32", "2, 7"), ("box_dim", "b32", "2, 3"), ("global_stride", "b64", "1, 32768"))
    body = "".join(
        f"tensormap.replace.tile.{field}.global.b1024.{kind} [%in], {value};" for field, kind, value in fields
    )
    ranked = body + "tensormap.replace.tile.rank.global.b1024.b32 [%in], 2;"
    deep = TensorMap(1 << 40, "float16", (128, 64, 7), (256, 32768), (64, 32, 3), 128)
    for text, expected in ((body, tensor), (ranked, deep)):
        place[:] = np.frombuffer(encoded(tensor), "u4")
        run_body(text, place, place)
        assert decoded(place.tobytes()) == expected
    for wrong in ("rank.global.b1024.b32 [%in], 5", "global_stride.global.b1024.b64 [%in], 4, 64"):
        with pytest.raises(OutOfBounds, match="no tensor map with such a field lies at this address"):
            run_body(f"tensormap.replace.tile.{wrong};", place, place)


# A warp builds the map from zeros in shared memory, publishes it, and copies through it, as Triton does.
FIELDS = (
    ("global_address", "b64", "%in"),
    ("rank", "b32", "0"),
    ("box_dim", "b32", "0, 32"),
    ("global_dim", "b32", "0, 20"),
    ("element_stride", "b32", "0, 1"),
    ("elemtype", "b32", "7"),
    ("interleave_layout", "b32", "0"),
    ("swizzle_mode", "b32", "0"),
    ("fill_mode", "b32", "0"),
)
BUILT = (
    """.shared .align 128 .b8 s[128]; .shared .align 128 .b8 map[128]; .shared .align 8 .b64 m;
    mov.u32 %r1, s; mov.u32 %r2, m; mov.u32 %r3, map; setp.eq.u32 %p1, %t, 0; setp.lt.u32 %p2, %t, 32;
    @%p1 mbarrier.init.shared.b64 [%r2], 1; @%p1 fence.mbarrier_init.release.cluster;
    mad.lo.u32 %r4, %t, 4, %r3; @%p2 st.shared.u32 [%r4], 0; bar.sync 0; """
    + "".join(
        f"@%p1 tensormap.replace.tile.{field}.shared::cta.b1024.{kind} [%r3], {value};"
        for field, kind, value in FIELDS
    )
    + """bar.warp.sync -1;
    @%p2 tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned
    [%out+256], [%r3], 128; bar.sync 0; add.u64 %rd1, %out, 256;
    @%p1 fence.proxy.tensormap::generic.acquire.gpu [%rd1], 128;
    @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 128; mov.u32 %r5, 0;
    @%p1 cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes
    [%r1], [%rd1, {%r5}], [%r2]; W: mbarrier.try_wait.parity.shared.b64 %p3, [%r2], 0; @!%p3 bra W;
    and.b32 %r6, %t, 31; mad.lo.u32 %r6, %r6, 4, %r1; ld.shared.u32 %r7, [%r6];
    mad.wide.u32 %rd3, %t, 4, %out; @%p2 st.global.u32 [%rd3], %r7;"""
)


def test_a_map_is_built_from_zeros_and_published_by_the_warp_whose_guard_holds() -> None:
    """The other warp's guard does not hold: it publishes nothing."""
    room = np.zeros(128 + 24, "u4")
    out = room[-room.ctypes.data % 128 // 4 :][:128]
    x = np.arange(1, 33, dtype="f4")
    assert list(check(kernel(BUILT), (1, 1, 1), (64, 1, 1), x, out, seeds=4)) == []
    assert (out[:32].view("f4") == np.where(np.arange(32) < 20, x, 0)).all()


# The first warp acquires the map for both, and a thread of the other one copies through it.
ACQUIRE = "@%p1 fence.proxy.tensormap::generic.acquire.gpu [%rd1], 128;"
FOR_BOTH = BUILT.replace(ACQUIRE, "FENCES setp.eq.u32 %p4, %t, 32;")
FOR_BOTH = FOR_BOTH.replace("@%p1 mbarrier.arrive", "@%p4 mbarrier.arrive").replace(
    "@%p1 cp.async", "@%p4 cp.async"
)

# A relaxed flag without fences: what one warp did is earlier, and orders nothing.
UNORDERED = """mov.u32 %r8, 1; @%p1 st.relaxed.gpu.global.u32 [%out+600], %r8;
    POLL: ld.relaxed.gpu.global.u32 %r8, [%out+600]; setp.eq.u32 %p5, %r8, 0; @%p5 bra POLL;"""


@pytest.mark.parametrize(
    ("fences", "found"),
    [
        (ACQUIRE + "bar.sync 0;", set()),
        ("bar.sync 0;" + ACQUIRE, {"tensor-map-fence"}),  # nothing orders the copy behind the fence
        ("bar.sync 0;", {"tensor-map-fence"}),
        ("bar.sync 0;" + ACQUIRE + UNORDERED, {"tensor-map-fence"}),
        (ACQUIRE.replace("rd1]", "rd1+128]") + "bar.sync 0;", {"tensor-map-fence"}),
    ],
    ids=["acquired", "too late", "not acquired", "earlier alone", "another one acquired"],
)
def test_one_warp_acquires_a_map_for_those_that_meet_it(fences: str, found: set[str]) -> None:
    room = np.zeros(128 + 24 + 32, "u4")
    out = room[-room.ctypes.data % 128 // 4 :][:160]
    x = np.arange(1, 33, dtype="f4")
    body = kernel(FOR_BOTH.replace("FENCES", fences))
    assert {finding.rule for finding in check(body, (1, 1, 1), (64, 1, 1), x, out, seeds=4)} == found


# ---- ragged maps ----

BILLION, FAR = 1 << 30, 0x7FFF0000
RAGGED = """.shared .align 128 .b8 s[512]; .shared .align 8 .b64 m; mov.u32 %r1, s; mov.u32 %r2, m;
    setp.eq.u32 %p1, %t, 0; @%p1 mbarrier.init.shared.b64 [%r2], 1; fence.mbarrier_init.release.cluster;
    fence.proxy.async; bar.sync 0; @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 512;
    mov.u32 %r3, 0; mov.u32 %r4, {x}; mov.u32 %r5, {y}; mov.u32 %r6, {z};
    @%p1 cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1],
    [%in, {{%r3, %r4, %r5, %r6}}], [%r2];
    W: mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0; @!%p2 bra W; mad.lo.u32 %r3, %t, 4, %r1;
    mad.wide.u32 %rd3, %t, 4, %out;
    {load}"""
LOAD = "ld.shared.u32 %r7, [%r3+{0}]; st.global.u32 [%rd3+{0}], %r7;"


@pytest.mark.parametrize("seed", [None, *SEEDS])
@pytest.mark.parametrize(
    ("first", "rows", "row"), [(3, 5, 0), (3, 5, 2), (3, 5, 4), (0, 1, 0), (20, 12, 8), (7, 0, 0)]
)
def test_a_box_of_a_ragged_map_ends_with_its_slice(first: int, rows: int, row: int, seed: int | None) -> None:
    """Two dimensions more, whose addresses wrap round 64 bits: one coordinate says where a slice of rows
    ends, the other lets rows behind it lie outside. So one map serves slices of all lengths."""
    source, out = np.arange(32 * 16, dtype="f4").reshape(32, 16) + 1, np.full((8, 16), np.nan, "f4")
    stride = source.strides[0]
    tensor = TensorMap(
        source.ctypes.data,
        "float32",
        (16, BILLION, FAR, FAR),
        (stride, stride, (1 << 36) - stride),
        (16, 8, 1, 1),
    )
    load = " ".join(LOAD.format(128 * n) for n in range(4))
    text = kernel(RAGGED.format(x=BILLION - rows + row, y=first + rows, z=BILLION, load=load))
    arguments = {"in": tensor, "out": out}
    run_ptx(
        text, "k", (1, 1, 1), (32, 1, 1), arguments, memory=[source], sanitize=seed is not None, seed=seed
    )
    expected = np.zeros((8, 16), "f4")
    taken = max(min(rows - row, 8), 0)
    expected[:taken] = source[first + row : first + row + taken]
    assert (out == expected).all()
