"""Lanes of one warp are parties of their own: what orders them, what one may say for others, and what each
read ahead.
"""

from __future__ import annotations

import numpy as np
import pytest

from lapidist.machine.faults import Race
from snippets import run_body

SEEDS = range(6)
SHARED = ".shared .align 16 .b8 s[1024]; mov.u32 %r1, s; and.b32 %r2, %t, 31; mad.lo.u32 %r3, %r2, 4, %r1;"


def races(body: str, threads: int = 32) -> int:
    """How many schedules find a race."""
    found = 0
    for seed in SEEDS:
        try:
            run_body(body, np.zeros(64, "u4"), np.zeros(64, "u4"), 1, threads, sanitize=True, seed=seed)
        except Race:
            found += 1
    return found


# ---- what orders lanes ----

NEIGHBOUR = "xor.b32 %r4, %r2, 1;"
IN_SHARED = (
    f"{SHARED} {NEIGHBOUR} mad.lo.u32 %r5, %r4, 4, %r1; st.shared.u32 [%r3], %t; {{meet}} ld.shared.u32 %r6,"
    " [%r5];"
)
IN_GLOBAL = f"""{SHARED} {NEIGHBOUR} mad.wide.u32 %rd1, %r2, 4, %in; mad.wide.u32 %rd2, %r4, 4, %in;
    st.global.u32 [%rd1], %t; {{meet}} ld.global.u32 %r6, [%rd2];"""
USE = "mad.wide.u32 %rd3, %t, 4, %out; st.global.u32 [%rd3], %r6;"
MEETINGS = {
    "": len(SEEDS),
    "bar.warp.sync -1;": 0,
    "bar.sync 0;": 0,
    "shfl.sync.bfly.b32 %r7, %t, 1, 31, -1;": len(SEEDS),
    "vote.sync.any.pred %p1, %p0, -1;": len(SEEDS),
}


@pytest.mark.often(2)
@pytest.mark.parametrize("meet", MEETINGS)
@pytest.mark.parametrize("body", [IN_SHARED, IN_GLOBAL], ids=["shared", "global"])
def test_lanes_are_ordered_by_barriers_alone(body: str, meet: str) -> None:
    """Shuffles and votes wait for the warp, but PTX does not say that they order memory."""
    assert races(body.replace("{meet}", meet) + USE) == MEETINGS[meet]


@pytest.mark.parametrize("space", ["shared", "global"])
def test_lanes_that_write_one_place_after_another_need_an_order(space: str) -> None:
    first, second = ("[%r3]", "[%r5]") if space == "shared" else ("[%rd1]", "[%rd2]")
    body = (IN_SHARED if space == "shared" else IN_GLOBAL).partition("st.")[0]
    twice = f"{body} st.{space}.u32 {first}, %t; {{}} st.{space}.u32 {second}, %t;"
    assert races(twice.replace("{}", "")) == len(SEEDS)
    assert races(twice.replace("{}", "bar.warp.sync -1;")) == 0


@pytest.mark.parametrize(("value", "found"), [("%t", len(SEEDS)), ("7", 0)])
@pytest.mark.parametrize("store", ["st.shared.u32 [%r1]", "st.global.u32 [%out]", "st.global.v2.u32 [%out]"])
def test_lanes_of_one_store_agree_on_what_they_write_to_one_place(store: str, value: str, found: int) -> None:
    stored = f"{{7, {value}}}" if ".v2" in store else value
    assert races(f"{SHARED} {store}, {stored};") == found


# ---- what a lane may say for others ----

BARRIER = """.shared .align 8 .b64 m; mov.u32 %r20, m; setp.eq.u32 %p1, %t, 0;
    @%p1 mbarrier.init.shared.b64 [%r20], 16; bar.sync 0;"""
ARRIVE = "mbarrier.arrive.shared.b64 _, [%r20];"
READER = "READ: W: mbarrier.try_wait.parity.shared.b64 %p2, [%r20], 0; @!%p2 bra W; ld.shared.u32 %r6, [%r8];"
COPY = "cp.async.ca.shared.global [%r3], [%in], 4;"
COPIED = "cp.async.mbarrier.arrive.noinc.shared.b64 [%r20];"


def half_arrives(work: str, arrival: str, read: int) -> int:
    """Half of the lanes of warp 0 arrive for their own work, while the others do theirs; warp 1 waits and
    reads some place.
    """
    return races(
        f"""{SHARED} {BARRIER} add.u32 %r8, %r1, {4 * read}; setp.ge.u32 %p3, %t, 32; @%p3 bra READ;
        {work.replace("%r3", "%r3+256")} bar.warp.sync -1; setp.ge.u32 %p4, %t, 16; @%p4 bra OTHERS;
        {work} {arrival} bra END; OTHERS: st.shared.u32 [%r3], %t; bra END; {READER} {USE} END:
        cp.async.wait_all;""",
        threads=64,
    )


@pytest.mark.parametrize(
    ("work", "arrival"),
    [("st.shared.u32 [%r3], %t;", ARRIVE), (COPY, COPIED)],
    ids=["stores", "asynchronous copies"],
)
def test_lanes_that_arrive_speak_for_themselves(work: str, arrival: str) -> None:
    """Neither does what others do at the same time make their own work unordered, nor does it become
    ordered.
    """
    assert half_arrives(work, arrival, read=3) == 0
    assert half_arrives(work, arrival, read=19) == len(SEEDS)


# ---- what each read ahead ----

AHEAD = f"""{SHARED} setp.ge.u32 %p1, %t, 32; @!%p1 st.shared.u32 [%r3], %t; bar.sync 0; @%p1 bra LATER;
    ld.shared.u32 %r6, [%r3]; bra N; N: {{then}} {USE} bra END;
    LATER: mov.u32 %r7, 0; L: add.u32 %r7, %r7, 1; setp.lt.u32 %p4, %r7, 60; @%p4 bra L; st.shared.u32 [%r3],
    %t; END:"""


def test_what_was_read_and_dropped_may_be_overwritten() -> None:
    """A use in some lanes keeps the load alive; the others drop its value, before or after somebody writes
    there.
    """
    drop = "setp.gt.u32 %p3, %t, 99; @%p3 bra M; mov.u32 %r6, 0; M:"
    assert races(AHEAD.replace("{then}", drop), threads=64) == 0
    assert races(AHEAD.replace("{then}", ""), threads=64) == len(SEEDS)


def test_lanes_at_different_rounds_of_a_loop_drop_only_their_own() -> None:
    """Lane 0 falls behind: in one instruction it fetches what it will use, and the others what they will
    drop.
    """
    loop = f"""{SHARED} setp.lt.u32 %p3, %t, 6; @%p3 st.shared.u32 [%r3], %t; setp.eq.u32 %p1, %t, 0;
    bar.sync 0;
        ld.shared.u32 %r6, [%r1]; mov.u32 %r7, 0; mov.u32 %r9, 0; bra L;
        L: add.u32 %r9, %r9, %r6; add.u32 %r7, %r7, 1; mad.lo.u32 %r8, %r7, 4, %r1; ld.shared.u32 %r6, [%r8];
        @!%p1 bra S; nanosleep.u32 1; S: setp.lt.u32 %p2, %r7, 6; @%p2 bra L; mov.u32 %r6, %r9; {USE}"""
    for seed in range(24):
        out = np.zeros(64, "u4")
        run_body(loop, np.zeros(64, "u4"), out, sanitize=True, seed=seed)
        assert (out[:32] == 15).all()
