"""Synchronisation that is almost right: each kernel ran clean once, and is found now. Beside it stands the
sound one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lapidist.machine import check, run_ptx
from lapidist.machine.faults import BarrierMisuse, Deadlock, Divergence, MachineFault
from lapidist.machine.ptx.parse import parse_kernel
from snippets import kernel, run_body

SEEDS = range(6)
STORE = "mad.wide.u32 %rd3, %t, 4, %out; st.global.u32 [%rd3], %r6;"
OWN_PLACE = "mov.u32 %r9, %ctaid.x; mad.lo.u32 %r9, %r9, 64, %t; mad.wide.u32 %rd3, %r9, 4, %out;"


def faults(body: str, threads: int = 32, **launch: Any) -> list[MachineFault]:
    """What each schedule raises, or warns of."""
    found = []
    for seed in SEEDS:
        arrays = {"in": np.zeros(1024, "u4"), "out": np.zeros(1024, "u4")}
        grid = launch.get("grid", 1), 1, 1
        cluster = launch.get("cluster", 1), 1, 1
        text = kernel(body).replace(launch.get("before", "\n{"), launch.get("after", "\n{"), 1)
        try:
            report = run_ptx(
                text, "k", grid, (threads, 1, 1), arrays, cluster=cluster, sanitize=True, seed=seed
            )
            found += [warning.fault for warning in report.warnings]
        except MachineFault as fault:
            found.append(fault)
    return found


def names(found: list[MachineFault]) -> set[str]:
    return {fault.name for fault in found}


# ---- waits ----

COPY = (
    """.shared .align 128 .b8 s[1024]; .shared .align 8 .b64 m; mov.u32 %r1, s; mov.u32 %r2, m;
    setp.eq.u32 %p1, %t, 0; @%p1 mbarrier.init.shared.b64 [%r2], 1; fence.mbarrier_init.release.cluster;
    bar.sync 0; @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 128;
    @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%in], 128, [%r2];
    {wait} mad.lo.u32 %r3, %t, 4, %r1; ld.shared.u32 %r6, [%r3];"""
    + STORE
)
TRIED = "W: mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0;"


def test_a_try_wait_may_answer_false() -> None:
    """Without its loop, a wait goes on before the copy has come."""
    assert not faults(COPY.replace("{wait}", TRIED + "@!%p2 bra W;"))
    assert names(faults(COPY.replace("{wait}", TRIED))) == {"uninitialised"}


STORED = """.shared .align 128 .b8 s[1024]; mov.u32 %r1, s; mad.lo.u32 %r3, %t, 4, %r1;
    st.shared.u32 [%r3], %t; fence.proxy.async; bar.sync 0; setp.ne.u32 %p1, %t, 0; @%p1 bra READ;
    cp.async.bulk.global.shared::cta.bulk_group [%out], [%r1], 128; cp.async.bulk.commit_group; {wait}
    READ: bar.sync 0; xor.b32 %r9, %t, 32; mad.wide.u32 %rd3, %r9, 4, %out; ld.global.u32 %r6, [%rd3];
    mad.wide.u32 %rd4, %t, 4, %in; st.global.u32 [%rd4], %r6;"""


def test_a_wait_with_read_does_not_wait_for_the_write() -> None:
    """What others read from global memory then is not there yet."""
    assert not faults(STORED.replace("{wait}", "cp.async.bulk.wait_group 0;"), threads=64)
    found = faults(STORED.replace("{wait}", "cp.async.bulk.wait_group.read 0;"), threads=64)
    assert len(found) == len(SEEDS)
    assert names(found) == {"race"}


def test_a_wait_with_read_frees_the_source() -> None:
    """It may be written again, and what leaves is what was there before."""
    again = "bar.sync 0; add.u32 %r6, %t, 7; st.shared.u32 [%r3], %r6;"
    body = STORED.split("READ:")[0].replace("{wait}", "cp.async.bulk.wait_group.read 0;") + "READ: " + again
    for seed in SEEDS:
        out = np.zeros(64, "u4")
        run_body(body, np.zeros(64, "u4"), out, 1, 64, sanitize=True, seed=seed)
        assert (out[:32] == np.arange(32)).all()


REMOTE = f""".shared .b32 s; mov.u32 %r1, s; mov.u32 %r2, %cluster_ctarank; xor.b32 %r3, %r2, 1;
    mapa.shared::cluster.u32 %r4, %r1, %r3; setp.eq.u32 %p1, %t, 0; @%p1 st.shared::cluster.u32 [%r4], 7;
    {{order}} barrier.cluster.wait.acquire.aligned; ld.shared.u32 %r6, [%r1];
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; {OWN_PLACE} st.global.u32 [%rd3], %r6;"""


@pytest.mark.parametrize("threads", [32, 64])
def test_a_relaxed_arrival_of_a_cluster_publishes_nothing(threads: int) -> None:
    launch = {"threads": threads, "grid": 2, "cluster": 2}
    relaxed = "barrier.cluster.arrive.relaxed.aligned;"
    assert not faults(REMOTE.format(order="barrier.cluster.arrive.release.aligned;"), **launch)
    assert names(faults(REMOTE.format(order=relaxed), **launch)) == {"race"}
    if threads == 32:
        assert not faults(REMOTE.format(order=f"fence.acq_rel.cluster; {relaxed}"), **launch)


# ---- mbarriers ----

INIT = (
    ".shared .align 8 .b64 m; mov.u32 %r2, m; setp.eq.u32 %p1, %t, 0; @%p1 mbarrier.init.shared.b64 [%r2], 2;"
)


def test_an_mbarrier_initialised_twice() -> None:
    again = "@%p1 mbarrier.init.shared.b64 [%r2], 2;"
    assert not faults(f"{INIT} @%p1 mbarrier.inval.shared.b64 [%r2]; {again}")
    assert names(faults(f"{INIT} {again}")) == {"mbarrier-init-again"}
    busy = f"{INIT} @%p1 mbarrier.arrive.shared.b64 _, [%r2]; {again}"
    assert names(faults(busy)) == {"barrier"}
    with pytest.raises(BarrierMisuse, match="initialised again, in the middle of a phase"):
        run_body(busy, np.zeros(4, "u4"), np.zeros(4, "u4"))
    run_body(f"{INIT} {again}", np.zeros(4, "u4"), np.zeros(4, "u4"))  # chips do not mind


def test_an_init_twice_is_a_warning() -> None:
    again = kernel(f"{INIT} @%p1 mbarrier.init.shared.b64 [%r2], 2;")
    found = check(again, (1, 1, 1), (32, 1, 1), np.zeros(4, "u4"), np.zeros(4, "u4"), seeds=1)
    assert found
    assert [finding.level for finding in found] == ["warning"]


# ---- barriers of a block ----


@pytest.mark.parametrize("opcode", ["bar.sync", "barrier.sync"])
def test_an_aligned_barrier_at_two_places(opcode: str) -> None:
    """The classical divergent __syncthreads: both sides of an if have one."""
    body = f"setp.lt.u32 %p1, %t, 40; @%p1 bra A; {opcode} 0; bra E; A: {opcode} 0; E:"
    found = faults(body, threads=64)
    assert names(found) == ({"aligned-barrier"} if opcode == "bar.sync" else set())
    assert all("at several places" in str(fault) for fault in found)


@pytest.mark.parametrize("opcode", ["bar.sync", "barrier.sync"])
def test_an_aligned_barrier_by_parts_of_warps(opcode: str) -> None:
    body = f"and.b32 %r1, %t, 16; setp.ne.u32 %p1, %r1, 0; @%p1 bra E; {opcode} 1, 32; E: {opcode} 0;"
    found = faults(body, threads=64)
    assert names(found) == ({"aligned-barrier"} if opcode == "bar.sync" else set())
    assert all("without lane 16" in str(fault) for fault in found)
    assert not faults(body.replace("@%p1 bra E;", "setp.ge.u32 %p1, %t, 32; @%p1 bra E;"), threads=64)


@pytest.mark.parametrize("opcode", ["bar.sync", "barrier.sync"])
def test_a_barrier_that_a_part_of_a_warp_leaves_out_for_good(opcode: str) -> None:
    """The rest goes on and exits, which lets the barrier open: it looks as if it had left early."""
    odd = "and.b32 %r1, %t, 1; setp.ne.u32 %p1, %r1, 0; @%p1 bra E;"
    store = "mad.wide.u32 %rd3, %t, 4, %out; st.global.u32 [%rd3], %t;"
    found = faults(f"{odd} {opcode} 0; E: {store}", threads=64)
    assert names(found) == ({"aligned-barrier"} if opcode == "bar.sync" else set())
    assert all("without lane 1;" in str(fault) for fault in found)


@pytest.mark.parametrize(
    "leave",
    [
        "@%p1 bra E; bar.sync 0; {store} E:",  # an if around all of the rest
        "@%p1 bra O; bar.sync 0; {store} bra E; O: {store} ret; E:",  # a store before it leaves
        "L: {store} @%p1 bra E; bar.sync 0; add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 3; @%p2 bra L; E:",
        # Lanes that stand at A come to the branch behind it, and leave there.
        "L: @%p3 bra A; {store} A: @%p1 bra E; bar.sync 0; add.u32 %r2, %r2, 1;"
        " setp.lt.u32 %p2, %r2, 3; @%p2 bra L; E:",
    ],
)
def test_lanes_that_leave_early_do_not_leave_a_barrier_out(leave: str) -> None:
    odd = "and.b32 %r1, %t, 1; setp.ne.u32 %p1, %r1, 0; setp.eq.u32 %p3, %r1, 0; mov.u32 %r2, 0;"
    store = "mad.wide.u32 %rd3, %t, 4, %out; st.global.u32 [%rd3], %t;"
    assert not faults(f"{odd} {leave.format(store=store)}", threads=64)


# ---- warpgroups ----

PRODUCT = """.shared .align 1024 .b8 s[8192]; mov.u32 %r1, s; shr.u32 %r2, %r1, 4; cvt.u64.u32 %rd1, %r2;
    mov.u64 %rd2, 0x4000004000010000; or.b64 %rd1, %rd1, %rd2; mad.lo.u32 %r3, %t, 16, %r1; mov.u32 %r5, 0;
    L: st.shared.v4.u32 [%r3], {%r5, %r5, %r5, %r5}; add.u32 %r3, %r3, 2048; add.u32 %r4, %r4, 1;
    setp.lt.u32 %p1, %r4, 4; @%p1 bra L; fence.proxy.async; bar.sync 0; {set}
    {guard} wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3, %f4}, %rd1, %rd1, %p3, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; E: bar.sync 0;
    mad.wide.u32 %rd3, %t, 4, %out; st.global.f32 [%rd3], %f1;"""
SET = (
    "mov.f32 %f1, 0f00000000; mov.f32 %f2, %f1; mov.f32 %f3, %f1; mov.f32 %f4, %f1; setp.eq.u32 %p3, %t, %t;"
)
THREE = "setp.ge.u32 %p4, %t, 96; @%p4 bra E;"


def product(**parts: str) -> list[MachineFault]:
    body = "mov.u32 %r4, 0;" + PRODUCT.replace("{set}", parts.get("set", SET))
    return faults(body.replace("{guard}", parts.get("guard", "")), threads=128)


def test_wgmma_by_three_of_four_warps() -> None:
    assert not product()
    found = product(guard=THREE)
    assert names(found) == {"warpgroup"}
    assert "warp 3 0 times: all four warps" in str(found[0])


REUSE = """setp.ge.u32 %p5, %t, 32; @%p5 bra E; mad.lo.u32 %r3, %t, 64, %r1; add.u32 %r3, %r3, 6144;
    st.shared.u32 [%r3], %t;"""


def test_wgmma_is_complete_for_all_four_warps() -> None:
    """A warp that waited may write where the others' wgmma read, of A (rows of theirs) and of B."""
    waits = "wgmma.wait_group.sync.aligned 0;"
    for wait, sound in ((waits, True), ("", False)):
        body = PRODUCT.replace(waits, wait + REUSE).replace("E: bar", f"{'' if wait else waits} E: bar")
        found = faults("mov.u32 %r4, 0;" + body.replace("{set}", SET).replace("{guard}", ""), threads=128)
        assert (not found) == sound
        assert len(found) == (0 if sound else len(SEEDS))


def test_accumulators_that_were_never_set() -> None:
    found = product(set="setp.eq.u32 %p3, %t, %t;")
    assert names(found) == {"unset-register"}
    assert "a stored result depends on %f1, which was never set" in str(found[0])
    sums = """mov.u32 %r7, 0; L: fma.rn.f32 %f2, %f3, %f3, %f2; add.u32 %r7, %r7, 1; setp.lt.u32 %p1, %r7, 4;
        @%p1 bra L;"""
    begin = "mov.f32 %f3, 0f3F800000; mov.f32 %f2, {};"
    store = "mad.wide.u32 %rd3, %t, 4, %out; st.global.f32 [%rd3], %f2;"
    assert names(faults(begin.format("%f9") + sums + store)) == {"unset-register"}
    assert not faults(begin.format("0f00000000") + sums + store)


RESIZE = "setp.ge.u32 %p1, %t, {first}; @%p1 bra C; {producer} bra E; C: {consumer} E:"


def resized(
    first: int = 128, producer: str = "dec 40", consumer: str = "inc 232", threads: int = 384
) -> set[str]:
    words = [
        f"setmaxnreg.{w.split()[0]}.sync.aligned.u32 {w.split()[1]};" if w else ""
        for w in (producer, consumer)
    ]
    return names(faults(RESIZE.format(first=first, producer=words[0], consumer=words[1]), threads=threads))


def test_registers_that_warps_exchange() -> None:
    assert resized() == set()
    assert resized(consumer="inc 240") == {"setmaxnreg"}  # 240 for 256 threads, and 40 for 128: over 64 K
    assert resized(producer="") == {"setmaxnreg"}
    assert resized(first=32) == {"warpgroup"}
    assert resized(first=64, consumer="dec 40", threads=128) == {"setmaxnreg-places"}
    assert "divergence" in resized(first=144)  # of a warp, half of the lanes
    assert names(faults("setmaxnreg.dec.sync.aligned.u32 40; setmaxnreg.dec.sync.aligned.u32 80;", 128)) == {
        "setmaxnreg"
    }


def test_a_plain_run_finds_registers_that_nobody_has() -> None:
    """A config hung on the card that had run here: what a chip waits for shows in every run."""

    def run(consumer: str, producer: str = "setmaxnreg.dec.sync.aligned.u32 40;", grid: int = 3) -> None:
        body = RESIZE.format(first=128, producer=producer, consumer=consumer)
        run_body(body, np.zeros(4, "u4"), np.zeros(4, "u4"), grid=grid, threads=384)

    run("setmaxnreg.inc.sync.aligned.u32 232;")
    with pytest.raises(Deadlock, match=r"waits for ever: the warps take 66560 registers in all.* 64512"):
        run("setmaxnreg.inc.sync.aligned.u32 240;")
    with pytest.raises(Deadlock, match="dec is missing"):
        run("setmaxnreg.inc.sync.aligned.u32 232;", producer="")
    with pytest.raises(Divergence, match="by warp 4, and not in the same way by warp 5"):
        run("setp.lt.u32 %p2, %t, 160; @!%p2 bra E; setmaxnreg.inc.sync.aligned.u32 232;")
    with pytest.raises(BarrierMisuse, match="dec to 232 registers by warps that have 80"):
        run("setmaxnreg.dec.sync.aligned.u32 80; setmaxnreg.dec.sync.aligned.u32 232;")


def test_blocks_that_share_an_sm_share_its_registers() -> None:
    text = kernel("").replace("\n{", "\n.maxntid 384\n.minnctapersm 2\n{", 1)
    assert parse_kernel(text, "k").least_blocks == 2
    body = RESIZE.format(
        first=128,
        producer="setmaxnreg.dec.sync.aligned.u32 24;",
        consumer="setmaxnreg.inc.sync.aligned.u32 {};",
    )
    launch = {"threads": 384, "before": "\n{", "after": "\n.maxntid 384\n.minnctapersm 2\n{"}
    assert not faults(body.format(104), **launch)
    assert names(faults(body.format(112), **launch)) == {"setmaxnreg"}


@pytest.mark.parametrize("count", [100, 16, 264, 0])
def test_registers_come_by_eights(count: int) -> None:
    with pytest.raises(ValueError, match=f"a multiple of 8 from 24 to 256, got {count}"):
        run_body(f"setmaxnreg.inc.sync.aligned.u32 {count};", np.zeros(4, "u4"), np.zeros(4, "u4"))


def test_what_a_kernel_was_compiled_for_bounds_its_pool() -> None:
    text = kernel("").replace("\n{", "\n.maxnreg 128\n{", 1)
    assert parse_kernel(text, "k").most_registers == 128
    body = RESIZE.format(
        first=128,
        producer="setmaxnreg.dec.sync.aligned.u32 24;",
        consumer="setmaxnreg.inc.sync.aligned.u32 {};",
    )
    launch = {"threads": 384, "before": "\n{", "after": "\n.maxnreg 128\n{"}
    assert not faults(body.format(176), **launch)
    assert names(faults(body.format(184), **launch)) == {"setmaxnreg"}


# ---- updates ----

UPDATE = "ld.{how}.u32 %r6, [{place}]; add.u32 %r6, %r6, 1; st.{how}.u32 [{place}], %r6;"
ONE = "setp.ne.u32 %p1, %t, 0; @%p1 bra E; {} E:"


@pytest.mark.parametrize("how", ["relaxed.gpu.global", "volatile.global", "global"])
def test_sums_that_are_lost(how: str) -> None:
    update = UPDATE.format(how=how, place="%out")
    assert names(faults(update)) == {"lost-update"}
    assert names(faults(ONE.format(update), grid=2)) <= {"lost-update", "race"}
    assert len(faults(ONE.format(update), grid=2)) == len(SEEDS)
    assert not faults(ONE.format(update + update))
    assert not faults(OWN_PLACE + UPDATE.format(how=how, place="%rd3"), grid=2)


def test_an_update_in_a_lock_is_none() -> None:
    lock = "L: atom.acquire.gpu.global.cas.b32 %r1, [%in], 0, 1; setp.ne.u32 %p2, %r1, 0; @%p2 bra L;"
    free = "st.release.gpu.global.u32 [%in], 0;"
    inside = UPDATE.format(how="relaxed.gpu.global", place="%out")
    assert not faults(ONE.format(lock + inside + free), grid=3)
    assert names(faults(ONE.format(lock + free + inside), grid=3)) == {"lost-update"}
