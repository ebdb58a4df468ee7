"""Waiting and ordering: what nobody completes, what races, what a seed replays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lapidist.machine import run_ptx
from lapidist.machine.faults import Deadlock, Race, Uninitialised, Unreset
from snippets import kernel, run_body

HALVES = """
    .shared .align 8 .b64 m; .shared .align 4 .b8 s[128]; mov.u32 %r1, m; mov.u32 %r2, s; setp.eq.u32 %p1,
    %t, 0;
    @%p1 mbarrier.init.shared.b64 [%r1], 32; bar.sync 0; and.b32 %r3, %t, 31; mad.lo.u32 %r3, %r3, 4, %r2;
    setp.ge.u32 %p2, %t, 32; @%p2 bra OTHER; and.b32 %r4, %t, 1; setp.eq.u32 %p3, %r4, 0; @%p3 bra EVEN;
    st.shared.u32 [%r3], %t; bra ODD; ODD: mbarrier.arrive.shared.b64 _, [%r1]; bra END;
    EVEN: st.shared.u32 [%r3], %t; bra REST; REST: mbarrier.arrive.shared.b64 _, [%r1]; bra END;
    OTHER: W: mbarrier.try_wait.parity.shared.b64 %p4, [%r1], 0; @!%p4 bra W;
    ld.shared.u32 %r5, [%r3]; mad.wide.u32 %rd1, %t, 4, %out; st.global.u32 [%rd1+-128], %r5; END:"""


PATIENCE = """
    mov.u32 %r1, %ctaid.x; setp.ne.u32 %p1, %r1, 0; @%p1 bra W;
    mov.u32 %r2, 0; L: add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 2000; @%p2 bra L; {raise} bra E;
    W: ld.acquire.gpu.global.u32 %r3, [%out]; setp.eq.u32 %p3, %r3, 0; @%p3 bra W; E:"""


# Lane 0 of the first warp waits for the second warp, which counts first; the others wait for it at a vote.
LATE_LANE = """
    .shared .align 8 .b64 m; mov.u32 %r1, m; setp.eq.u32 %p1, %t, 0;
    @%p1 mbarrier.init.shared.b64 [%r1], 1; bar.sync 0; setp.ge.u32 %p2, %t, 32; @%p2 bra OTHER;
    @!%p1 bra MEET; W: mbarrier.try_wait.parity.shared.b64 %p4, [%r1], 0; @!%p4 bra W;
    MEET: vote.sync.ballot.b32 %r4, %p1, 0xffffffff; mad.wide.u32 %rd1, %t, 4, %out;
    st.global.u32 [%rd1], %r4; bra END;
    OTHER: setp.ne.u32 %p5, %t, 32; @%p5 bra END;
    mov.u32 %r2, 0; L: add.u32 %r2, %r2, 1; setp.lt.u32 %p3, %r2, 300; @%p3 bra L;
    mbarrier.arrive.shared.b64 _, [%r1]; END:"""


RELEASE = """
    .shared .align 8 .b64 m; .shared .align 4 .b8 s[256]; mov.u32 %r1, m; mov.u32 %r2, s; mad.lo.u32 %r3, %t,
    4, %r2;
    setp.eq.u32 %p1, %t, 0; @%p1 mbarrier.init.shared.b64 [%r1], 1; st.shared.u32 [%r3], %t; bar.sync 0;
    setp.ge.u32 %p2, %t, 32; @%p2 bra OTHER;
    ld.shared.u32 %r4, [%r3]; {0} mad.wide.u32 %rd1, %t, 4, %out; st.global.u32 [%rd1], %r4;
    and.b32 %r5, %t, 31; setp.eq.u32 %p3, %r5, 0; @%p3 mbarrier.arrive.shared.b64 _, [%r1]; bra END;
    OTHER: W: mbarrier.try_wait.parity.shared.b64 %p4, [%r1], 0; @!%p4 bra W;
    add.u32 %r6, %r3, -128; st.shared.u32 [%r6], 99; END:"""


SHARED_READ = ".shared .b32 x; mov.u32 %r1, x; ld.shared.u32 %r2, [%r1];"


FLAG = """
    mov.u32 %r1, %ctaid.x; setp.eq.u32 %p1, %r1, 0; @!%p1 bra READER;
    st.global.u32 [%in], 42; {0} st.{1}.global.u32 [%out], 1; bra END;
    READER: ld.{2}.global.u32 %r2, [%out]; setp.eq.u32 %p2, %r2, 0; @%p2 bra READER;
    {3} ld.global.u32 %r3, [%in]; st.global.u32 [%out+4], %r3; st.{1}.global.u32 [%out], 0;
    END:"""


RACE = """
    .shared .align 4 .b8 s[256]; mov.u32 %r1, s; mad.lo.u32 %r2, %t, 4, %r1; st.shared.u32 [%r2], %t;
    {0}
    xor.b32 %r3, %r2, 128; ld.shared.u32 %r4, [%r3]; mad.wide.u32 %rd1, %t, 4, %out; st.global.u32 [%rd1],
    %r4;"""


def test_a_mbarrier_that_nobody_completes_is_a_deadlock_that_says_what_is_missing() -> None:
    body = """
        .shared .align 8 .b64 m; mov.u32 %r1, m; setp.eq.u32 %p1, %t, 0; @%p1 mbarrier.init.shared.b64 [%r1],
        3; bar.sync 0;
        @%p1 mbarrier.arrive.shared.b64 _, [%r1];
        W: mbarrier.try_wait.parity.shared.b64 %p2, [%r1], 0; @!%p2 bra W;"""
    with pytest.raises(Deadlock, match="2 of 3 arrivals"):
        run_body(body, np.zeros(4, "u4"), np.zeros(4, "u4"))


def test_a_missing_barrier_is_found_and_a_present_one_is_not() -> None:
    source, out = np.zeros(4, "u4"), np.zeros(64, "u4")
    for seed in range(5):
        run_body(RACE.format("bar.sync 0;"), source, out, threads=64, sanitize=True, seed=seed)
        with pytest.raises((Race, Uninitialised)) as caught:
            run_body(RACE.format(""), source, out, threads=64, sanitize=True, seed=seed)
        assert f"seed={seed}" in str(caught.value)


def test_a_seed_replays_its_schedule() -> None:
    """The order in which warps pass an atomic depends on the seed, and on nothing else."""

    def order(seed: int) -> list[int]:
        out = np.zeros(9, "u4")
        body = (
            "setp.eq.u32 %p1, %t, 0; @!%p1 bra E; mov.u32 %r1, %ctaid.x; atom.global.add.u32 %r2, [%out], 1;"
        )
        body += "mad.wide.u32 %rd1, %r1, 4, %out; st.global.u32 [%rd1+4], %r2; E:"
        run_body(body, np.zeros(2, "u4"), out, grid=8, sanitize=True, seed=seed)
        return out[1:].tolist()

    assert order(3) == order(3)
    assert len({tuple(order(seed)) for seed in range(6)}) > 1


@pytest.mark.parametrize(
    ("form", "sound"),
    [
        (("", "release.gpu", "acquire.gpu", ""), True),
        (("membar.gl;", "volatile", "volatile", "membar.gl;"), True),
        (("fence.acq_rel.gpu;", "relaxed.gpu", "relaxed.gpu", "fence.acq_rel.gpu;"), True),
        (("", "volatile", "volatile", "membar.gl;"), False),
        (("membar.gl;", "volatile", "volatile", ""), False),
        (("", "relaxed.gpu", "acquire.gpu", ""), False),
    ],
)
def test_messages_through_global_memory(form: tuple[str, str, str, str], sound: bool) -> None:
    text = FLAG.format(*form)
    found = 0
    for seed in range(3):
        try:
            run_body(
                text,
                np.zeros(1, "u4"),
                np.zeros(2, "u4"),
                grid=2,
                threads=1,
                sanitize=True,
                seed=seed,
                residency=2,
            )
        except Race:
            found += 1
    assert found == (0 if sound else 3)


def test_uninitialised_local_and_shared_memory() -> None:
    with pytest.raises(Uninitialised, match="local"):
        run_body(
            ".local .b32 x; mov.u64 %rd1, x; ld.local.u32 %r1, [%rd1]; st.global.u32 [%out], %r1;",
            np.zeros(2, "u4"),
            np.zeros(2, "u4"),
            sanitize=True,
            seed=0,
        )
    with pytest.raises(Uninitialised, match="no one wrote"):
        run_body(
            SHARED_READ + "st.global.u32 [%out], %r2;",
            np.zeros(2, "u4"),
            np.zeros(2, "u4"),
            sanitize=True,
            seed=0,
        )


def test_a_read_counts_once_its_value_is_used() -> None:
    """Operands fetched ahead and dropped are no fault; used one block later they are."""
    run_body(SHARED_READ, np.zeros(2, "u4"), np.zeros(2, "u4"), sanitize=True, seed=0)
    run_body(
        SHARED_READ + "bar.sync 0; mov.u32 %r2, 1; st.global.u32 [%out], %r2;",
        np.zeros(2, "u4"),
        np.zeros(2, "u4"),
        sanitize=True,
        seed=0,
    )
    with pytest.raises(Uninitialised):
        run_body(
            SHARED_READ + "bar.sync 0; st.global.u32 [%out], %r2;",
            np.zeros(2, "u4"),
            np.zeros(2, "u4"),
            sanitize=True,
            seed=0,
        )


def test_a_workspace_that_is_left_dirty_is_a_fault() -> None:
    text = (
        kernel("red.global.add.u32 [%out], 1;").replace("out)", "workspace)").replace("[out]", "[workspace]")
    )
    with pytest.raises(Unreset, match="workspace"):
        run_ptx(
            text,
            "k",
            (1, 1, 1),
            (32, 1, 1),
            {"in": np.zeros(1, "u4"), "workspace": np.zeros(1, "u4")},
            sanitize=True,
            seed=1,
        )


@pytest.mark.parametrize(
    ("address", "value", "sound"),
    [("%in", "%t", False), ("%in", "7", True), ("%rd2", "%r2", False), ("%rd2", "%r1", True)],
)
def test_lanes_that_write_one_place_must_agree(address: str, value: str, sound: bool) -> None:
    """%rd2 and %r1 belong to pairs of lanes, %r2 to single ones."""
    body = f"shr.u32 %r1, %t, 1; add.u32 %r2, %t, 5; mad.wide.u32 %rd2, %r1, 4, %in; mov.u32 %r3, {value};"
    body += f"st.global.u32 [{address}], %r3;"
    if sound:
        run_body(body, np.zeros(32, "u4"), np.zeros(1, "u4"), sanitize=True, seed=0)
        return
    with pytest.raises(Race, match="lanes of one instruction"):
        run_body(body, np.zeros(32, "u4"), np.zeros(1, "u4"), sanitize=True, seed=0)


def test_lanes_of_a_warp_need_a_barrier_between_a_store_and_another_s_load() -> None:
    for seed in range(3):
        exchange = RACE.replace("128", "64")  # with a lane of the same warp
        run_body(
            exchange.format("bar.warp.sync -1;"),
            np.zeros(1, "u4"),
            np.zeros(32, "u4"),
            sanitize=True,
            seed=seed,
        )
        with pytest.raises(Race, match="of this warp"):
            run_body(exchange.format(""), np.zeros(1, "u4"), np.zeros(32, "u4"), sanitize=True, seed=seed)


def test_a_lane_that_arrives_for_its_warp_needs_a_syncwarp() -> None:
    """Warp 0 reads, its first lane tells warp 1, which overwrites what the others read."""
    for seed in range(3):
        run_body(
            RELEASE.replace("{0}", "").replace("and.b32 %r5", "bar.warp.sync -1; and.b32 %r5"),
            np.zeros(1, "u4"),
            np.zeros(64, "u4"),
            threads=64,
            sanitize=True,
            seed=seed,
        )
        with pytest.raises(Race, match="read by warp 0"):
            run_body(
                RELEASE.replace("{0}", ""),
                np.zeros(1, "u4"),
                np.zeros(64, "u4"),
                threads=64,
                sanitize=True,
                seed=seed,
            )


def test_polling_is_a_deadlock_only_if_nobody_does_anything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Block 0 counts to 2000 before it raises the flag that all others look at."""
    monkeypatch.setattr("lapidist.machine.scheduler.POLL_LIMIT", 50)
    for mode in ({}, {"sanitize": True, "seed": 1, "residency": 3}):
        flag = np.zeros(1, "u4")
        raising = "red.release.gpu.global.add.u32 [%out], 1;"
        run_body(PATIENCE.replace("{raise}", raising), np.zeros(1, "u4"), flag, grid=3, threads=1, **mode)
        assert flag[0] == 1
        with pytest.raises(Deadlock, match="polled"):
            run_body(PATIENCE.replace("{raise}", ""), np.zeros(1, "u4"), flag * 0, grid=3, threads=1, **mode)


def test_warps_that_poll_in_vain_let_others_run() -> None:
    """Nine blocks wait for one that counts to 2,000. In turns with it they would look ten times as often."""
    raising = "st.release.gpu.global.u32 [%out], 1;"
    for seed in range(4):
        mode: dict[str, Any] = {"sanitize": True, "seed": seed, "residency": 10}
        body, flag = PATIENCE.replace("{raise}", raising), np.zeros(1, "u4")
        assert run_body(body, np.zeros(1, "u4"), flag, grid=10, **mode).steps < 3000


def test_a_vote_waits_for_a_lane_that_waits_elsewhere() -> None:
    for seed in range(4):
        out = np.zeros(32, "u4")
        run_body(LATE_LANE, np.zeros(1, "u4"), out, threads=64, sanitize=True, seed=seed)
        assert (out == 1).all()


def test_lanes_that_parted_may_arrive_each_for_itself() -> None:
    for seed in range(12):
        out = np.zeros(32, "u4")
        run_body(HALVES, np.zeros(1, "u4"), out, threads=64, sanitize=True, seed=seed)
        assert (out == np.arange(32)).all()


@pytest.mark.parametrize("mode", [{}, {"sanitize": True, "seed": 1}], ids=["plain", "sanitized"])
def test_arrivals_that_a_block_leaves_behind_are_not_the_next_ones(mode: dict[str, object]) -> None:
    """A warp arrives at a barrier that nobody waits at; the block behind it in its slot waits there for all
    of its own.
    """
    body = """mov.u32 %r1, %ctaid.x; setp.ge.u32 %p2, %t, 32; setp.eq.u32 %p1, %r1, 0; @!%p1 bra SYNC; @%p2
    bra E;
        bar.arrive 1, 64; bra E; SYNC: bar.sync 1, 64; E: mad.lo.u32 %r2, %r1, 64, %t;
        mad.wide.u32 %rd1, %r2, 4, %out; st.global.u32 [%rd1], 1;"""
    out = np.zeros(256, "u4")
    for _ in range(4):
        run_body(body, np.zeros(2, "u4"), out, grid=4, threads=64, residency=1, **mode)  # type: ignore[arg-type]
    assert (out == 1).all()
