"""What an instruction may name: how many operands and of which kind, and where its address may point."""

from __future__ import annotations

import numpy as np
import pytest

from lapidist.machine import PtxError, run_ptx
from lapidist.machine.faults import OutOfBounds
from snippets import kernel, run_body

STORE = "mad.wide.u32 %rd3, %t, 4, %out; st.global.u32 [%rd3], %r6;"
SOURCE = np.arange(1024, dtype="u4")


def answers(body: str, **mode: object) -> np.ndarray:
    out = np.zeros(64, "u4")
    run_body(body + STORE, SOURCE, out, 1, 32, **mode)
    return out[:32]


# ---- number and kind ----

WRONG = [
    "ld.global.u32 %r6, [%in], %r7, %r8",
    "ld.global.L2::cache_hint.u32 %r6, [%in]",
    "ld.global.u32 %r6, [%in], %rd1",
    "st.global.u32 [%out], %t, %rd1",
    "st.global.u32 %out, %t",
    "ld.global.u32 [%in], %r6",
    "ld.global.u32 %r6, %in",
    "atom.global.add.u32 %r6, [%out], 1, 2, 3",
    "atom.global.add.u32 %r6, [%out], 1, 2",
    "red.global.add.u32 [%out], 1, 2",
    "atom.global.add.u32 [%out], 1",
    "atom.global.cas.b32 %r6, [%out], 1",
    "red.global.add.u32 %r6, 1",
    "bar.sync 0, 32, 5",
    "bar.sync",
    "bar.arrive 0",
    "bar.red.popc.u32 %r6, 0",
    "barrier.cluster.arrive 0",
    "bar.warp.sync",
    "cvt.u32.u32 %r6, %t, %t",
    "cvt.u32.u32 %r6, [%in]",
    "cvt.rn.f16x2.f32 %r6, %f1",
    "cvt.u32.u32 %r6",
    "mov.u32 %r6, [%in]",
    "mov.u32 %r6",
    "mov.u32 %r6, %t, %t",
    "add.u32 %r6, {%t, %t}, 1",
    "add.u32 %r6|%r7, %t, 1",
    "mbarrier.init.shared.b64 [%r1], 1, 2",
    "mbarrier.inval.shared.b64 [%r1], 1",
    "mbarrier.arrive.shared.b64 %r1",
    "mbarrier.arrive.expect_tx.shared.b64 _, [%r1]",
    "mbarrier.test_wait.shared.b64 %p1, [%r1]",
    "nanosleep.u32 1, 2",
    "fence.acq_rel.gpu 1",
    "exit 1",
    "prefetch.global.L2 [%in], 4",
    "wgmma.fence.sync.aligned 3",
    "setp.eq.u32 %p1, %t, 3, %p2",
    "setp.eq.and.u32 %p1, %t, 3",
    "lop3.b32 %r6, %t, %t, %t, 3, %p1",
    "selp.b32 %r6, 1, 2",
    "shfl.sync.bfly.b32 %r6, %t, 1, 31",
    "vote.sync.any.pred %p1, %p2",
    "match.sync.any.b32 %r6, %t",
    "elect.sync %r6",
    "cp.async.ca.shared.global [%r1], [%in]",
    "cp.async.ca.shared.global [%r1], [%in], 4, 4, 4",
    "cp.async.ca.shared.global.L2::cache_hint [%r1], [%in], 4",
    "cp.async.wait_group",
    "cp.async.commit_group 1",
    "cp.async.bulk.global.shared::cta.bulk_group [%in], [%r1], 16, [%r1]",
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%in], 16",
    "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r6}, %r1",
    "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r1]",
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1, %f2, %f3, %f4}, {%r1}, {%r5, %r6}",
    "wmma.load.a.sync.aligned.row.m16n16k16.f16 {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, %in",
]


@pytest.mark.parametrize("instruction", WRONG)
def test_operands_that_the_opcode_does_not_take(instruction: str) -> None:
    """Each ran once, or failed in NumPy: the rest of the operands was left aside."""
    with pytest.raises(PtxError, match=r"does not take these \d operands?. It takes|needs two destinations"):
        answers(f".shared .b64 m; mov.u32 %r1, m; {instruction};")


@pytest.mark.parametrize(
    "instruction",
    ["fence.acq_rel.somewhere", "fence.proxy.nothing", "createpolicy.fractional.b64 %rd1", "membar.gpu.gl"],
)
def test_kinds_that_are_not_known(instruction: str) -> None:
    with pytest.raises(PtxError, match="of this kind is not known"):
        answers(f"{instruction};")


# ---- what a policy is ----

COPY = """.shared .align 16 .b8 s[1024]; mov.u32 %r1, s; mad.lo.u32 %r3, %t, 16, %r1;
    mad.wide.u32 %rd1, %t, 16, %in; mov.u64 %rd2, 4; mov.u32 %r7, 8; setp.lt.u32 %p1, %t, 32;
    cp.async.cg.shared.global.L2::cache_hint [%r3], [%rd1], 16, {sizes}%rd2;
    cp.async.wait_all; ld.shared.u32 %r6, [%r3+8]; ld.shared.u32 %r8, [%r3+4]; add.u32 %r6, %r6, %r8;"""


@pytest.mark.parametrize("seed", [None, 0])
def test_a_policy_is_no_source_size(seed: int | None) -> None:
    """Words 1 and 2 of the four that each lane copies, whole, by 8 of 16 bytes, and by none."""
    mode: dict[str, object] = {"sanitize": seed is not None, "seed": seed}
    lane = np.arange(32)
    assert (answers(COPY.replace("{sizes}", ""), **mode) == 8 * lane + 3).all()
    assert (answers(COPY.replace("{sizes}", "%r7, "), **mode) == 4 * lane + 1).all()
    assert (answers(COPY.replace("{sizes}", "%p1, "), **mode) == 0).all()


# ---- generic addresses ----

GENERIC = ".shared .align 16 .b8 s[1024]; mov.u64 %rd1, s; cvta.shared.u64 %rd1, %rd1; mov.u32 %r1, s;"
TILES = """mad.lo.u32 %r3, %t, 4, %r1; st.shared.u32 [%r3], %t; bar.sync 0; and.b32 %r5, %t, 7;
    mad.wide.u32 %rd2, %r5, 16, {base}; {work}"""


@pytest.mark.parametrize("seed", [None, 0])
def test_tiles_at_generic_addresses(seed: int | None) -> None:
    mode: dict[str, object] = {"sanitize": seed is not None, "seed": seed}
    load = TILES.replace("{work}", "ldmatrix.sync.aligned.m8n8.x1.b16 {%r6}, [%rd2];")
    assert (answers(GENERIC + load.replace("{base}", "%rd1"), **mode) == np.arange(32)).all()
    store = "stmatrix.sync.aligned.m8n8.x1.b16 [%rd2], {%r8}; bar.sync 0; ld.shared.u32 %r6, [%r3];"
    stored = TILES.replace("{work}", f"add.u32 %r8, %t, 5; {store}").replace("{base}", "%rd1")
    assert (answers(GENERIC + stored, **mode) == np.arange(5, 37)).all()
    with pytest.raises(OutOfBounds, match="the rows must lie in shared memory"):
        answers(GENERIC + load.replace("{base}", "%in"), **mode)


@pytest.mark.parametrize("seed", [None, 0])
def test_mbarriers_at_generic_addresses(seed: int | None) -> None:
    body = f"""{GENERIC} setp.eq.u32 %p1, %t, 0; @%p1 mbarrier.init.b64 [%rd1], 32; bar.sync 0;
        mbarrier.arrive.b64 %rd2, [%rd1]; W: mbarrier.try_wait.b64 %p2, [%rd1], %rd2; @!%p2 bra W;
        mov.u32 %r6, 1;"""
    assert (answers(body, sanitize=seed is not None, seed=seed) == 1).all()


# ---- how it is written ----


@pytest.mark.parametrize("end", ["", "\0", "\0\0\n\0"])
def test_white_space_and_what_ends_a_string_of_c(end: str) -> None:
    text = kernel(f"mov .u32\t%r6 , 5 ; bar . sync\n0 ; {STORE} ret .uni ;") + end
    out = np.zeros(64, "u4")
    run_ptx(text, "k", (1, 1, 1), (32, 1, 1), {"in": SOURCE, "out": out})
    assert (out[:32] == 5).all()
