"""Groups of other sizes than a warp or a block that meet: the whole grid, some warps, some lanes."""

from __future__ import annotations

import numpy as np
import pytest

from lapidist.machine import PtxError
from lapidist.machine.faults import Deadlock, OutOfBounds, Race
from snippets import run_body

SCHEDULES = [{}, *({"sanitize": True, "seed": seed} for seed in range(4))]
BLOCKS = 7

# Each block writes a number, all meet, each reads what the next block wrote. The first block counts so much
# that the top bit changes when the last one comes, as the headers of CUDA do it.
WHOLE_GRID = """
    mov.u32 %r1, %envreg1; mov.u32 %r2, %envreg2; mov.b64 %rd1, {%r2, %r1};
    setp.eq.u32 %p1, %t, 0; mov.u32 %r3, %ctaid.x; mov.u32 %r4, %nctaid.x;
    mad.wide.u32 %rd2, %r3, 4, %in; add.u32 %r5, %r3, 100; @%p1 st.global.u32 [%rd2], %r5;
    bar.sync 0; @!%p1 bra met;
    setp.eq.u32 %p2, %r3, 0; sub.u32 %r6, 0x80000001, %r4; selp.u32 %r7, %r6, 1, %p2;
    atom.add.release.gpu.u32 %r8, [%rd1+4], %r7;
    again: ld.acquire.gpu.u32 %r9, [%rd1+4]; xor.b32 %r9, %r9, %r8; setp.ge.s32 %p3, %r9, 0;
    @%p3 bra again;
    met: bar.sync 0;
    add.u32 %r10, %r3, 1; rem.u32 %r10, %r10, %r4; mad.wide.u32 %rd3, %r10, 4, %in;
    ld.global.u32 %r11, [%rd3]; mad.wide.u32 %rd4, %r3, 4, %out; @%p1 st.global.u32 [%rd4], %r11;
"""


def all_meet(body: str, **schedule: object) -> np.ndarray:
    numbers, out = np.zeros(BLOCKS, "u4"), np.zeros(BLOCKS, "u4")
    run_body(body, numbers, out, BLOCKS, 64, **schedule)
    return out


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_grid_meets_at_the_barrier_that_its_registers_name(schedule: dict[str, object]) -> None:
    assert all_meet(WHOLE_GRID, **schedule).tolist() == [*range(101, 100 + BLOCKS), 100]


@pytest.mark.parametrize("order", ["release", "acquire"])
def test_a_barrier_of_the_grid_that_orders_nothing_is_found(order: str) -> None:
    with pytest.raises(Race):
        all_meet(WHOLE_GRID.replace(f".{order}.", ".relaxed."), sanitize=True, seed=0)


# Two warps meet where the chip keeps room for that: it is zero when a block starts.
TWO_WARPS = """
    .shared .u32 s; mov.u32 %r1, %reserved_smem_offset_1; mov.u32 %r2, %laneid; setp.eq.u32 %p1, %r2, 0;
    mov.u32 %r3, s; shr.u32 %r4, %t, 5; setp.eq.u32 %p2, %t, 0; @%p2 st.shared.u32 [%r3], 7;
    bar.warp.sync -1; @!%p1 bra met;
    atom.add.acq_rel.cta.shared.u32 %r5, [%r1], 1;
    again: ld.acquire.cta.shared.u32 %r6, [%r1]; setp.lt.u32 %p3, %r6, 2; @%p3 bra again;
    met: bar.warp.sync -1;
    ld.shared.u32 %r7, [%r3]; mad.wide.u32 %rd1, %t, 4, %out; st.global.u32 [%rd1], %r7;
"""


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_warps_meet_in_the_memory_kept_for_groups(schedule: dict[str, object]) -> None:
    out = np.zeros(64, "u4")
    run_body(TWO_WARPS, np.zeros(1, "u4"), out, 1, 64, **schedule)
    assert (out == 7).all()


def test_the_rest_of_the_first_kib_stays_the_chip_s() -> None:
    with pytest.raises(OutOfBounds):
        run_body("mov.u32 %r1, 512; ld.shared.u32 %r2, [%r1];", np.zeros(1, "u4"), np.zeros(1, "u4"))


# A lane of the first warp polls what a pair of lanes of the second one stores after a shuffle between the
# two. All others wait for their warps meanwhile.
PAIR = """
    .shared .u32 flag; mov.u32 %r1, flag; mov.u32 %r2, %laneid; setp.eq.u32 %p1, %t, 0;
    @%p1 st.shared.u32 [%r1], 0; bar.sync 0;
    @%p1 bra poll;
    setp.lt.u32 %p2, %t, 34; setp.gt.u32 %p3, %t, 35; @%p2 bra met; @%p3 bra met;
    mov.u32 %r9, 0; slow: add.u32 %r9, %r9, 1; setp.lt.u32 %p4, %r9, 9; @%p4 bra slow;
    mov.u32 %r3, 3; shl.b32 %r3, %r3, 2; mov.u32 %r5, 0;
    shfl.sync.bfly.b32 %r4, %r2, 1, 31, %r3; setp.eq.u32 %p5, %r2, 2;
    @%p5 st.release.cta.shared.u32 [%r1], %r4; bra met;
    poll: ld.acquire.cta.shared.u32 %r5, [%r1]; setp.eq.u32 %p6, %r5, 0; @%p6 bra poll;
    met: bar.warp.sync -1;
    mad.wide.u32 %rd1, %t, 4, %out; @%p1 st.global.u32 [%rd1], %r5;
"""


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_lanes_of_one_mask_go_on_while_others_wait_for_their_warp(schedule: dict[str, object]) -> None:
    out = np.zeros(64, "u4")
    run_body(PAIR, np.zeros(1, "u4"), out, 1, 64, **schedule)
    assert out[0] == 3


@pytest.mark.parametrize(
    "text",
    [
        "vote.ballot.sync.b32 %r1, %p0, -1;",
        "shfl.idx.sync.b32 %r1, %t, 0, 31, -1;",
        "redux.add.sync.u32 %r1, %t, -1;",
    ],
)
def test_sync_stands_anywhere_but_is_needed(text: str) -> None:
    """The assembler takes both orders; without .sync these opcodes are of chips before Volta."""
    out = np.zeros(1, "u4")
    run_body(text, np.zeros(1, "u4"), out)
    with pytest.raises(PtxError, match="sync"):
        run_body(text.replace(".sync", ""), np.zeros(1, "u4"), out)


# Forty threads of a block of 96 turn a row round; the others leave before, or while these wait.
SOME_LEAVE = """
    .shared .align 4 .b8 s[160]; mov.u32 %r1, s; setp.lt.u32 %p1, %t, 40; @%p1 bra stay;
    mov.u32 %r9, 0; slow: add.u32 %r9, %r9, 1; setp.lt.u32 %p2, %r9, {turns}; @%p2 bra slow; exit;
    stay: mad.lo.u32 %r2, %t, 4, %r1; st.shared.u32 [%r2], %t; {barrier}
    sub.u32 %r3, 39, %t; mad.lo.u32 %r4, %r3, 4, %r1; ld.shared.u32 %r5, [%r4];
    mad.wide.u32 %rd1, %t, 4, %out; st.global.u32 [%rd1], %r5;
"""


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("turns", [1, 50])
@pytest.mark.parametrize("barrier", ["bar.sync 0{};", "bar.red.popc.u32 %r7, 0{}, %p1;"])
def test_a_barrier_of_a_block_does_not_wait_for_threads_that_have_left(
    barrier: str, turns: int, schedule: dict[str, object]
) -> None:
    """As since Volta. One that says how many threads it is for waits for that many."""
    out = np.zeros(96, "u4")
    body = SOME_LEAVE.format(barrier=barrier.format(""), turns=turns)
    run_body(body, np.zeros(1, "u4"), out, 1, 96, **schedule)
    assert out[:40].tolist() == [*range(40)][::-1]
    body = SOME_LEAVE.format(barrier=barrier.format(", 96"), turns=turns)
    with pytest.raises(Deadlock, match="have exited"):
        run_body(body, np.zeros(1, "u4"), out, 1, 96, **schedule)


# In block b the threads up to b count. A reduction brings each block its own number.
COUNTED = """
    mov.u32 %r1, %ctaid.x; setp.le.u32 %p1, %t, %r1; bar.red.popc.u32 %r2, 0, %p1;
    mad.lo.u32 %r3, %r1, 64, %t; mad.wide.u32 %rd1, %r3, 4, %out; st.global.u32 [%rd1], %r2;
"""


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_barrier_reduces_the_flags_of_its_block_alone(schedule: dict[str, object]) -> None:
    out = np.zeros((BLOCKS, 64), "u4")
    run_body(COUNTED, np.zeros(1, "u4"), out, BLOCKS, 64, **schedule)
    assert (out == 1 + np.arange(BLOCKS)[:, None]).all()


# Of two blocks one leaves, or arrives first and does not wait. The other one waits twice, and then counts.
A_BLOCK_LEAVES = """
    mov.u32 %r9, %cluster_ctarank; setp.eq.u32 %p1, %r9, 0; @%p1 bra stay; {last} exit;
    stay: barrier.cluster.arrive; barrier.cluster.wait; barrier.cluster.arrive; barrier.cluster.wait;
    mad.wide.u32 %rd1, %t, 4, %out; red.global.add.u32 [%rd1], 1;
"""


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("last", ["", "barrier.cluster.arrive;"])
def test_a_barrier_of_a_cluster_does_not_wait_for_threads_that_have_left(
    last: str, schedule: dict[str, object]
) -> None:
    """Nor does the next cluster find what they left: two of the three are not resident at first."""
    out = np.zeros(40, "u4")
    options = {"cluster": (2, 1, 1), "residency": 2, **schedule}
    run_body(A_BLOCK_LEAVES.format(last=last), np.zeros(1, "u4"), out, 6, 40, **options)
    assert out.tolist() == [3] * 40
