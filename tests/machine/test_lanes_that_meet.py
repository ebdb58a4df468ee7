"""Lanes of a warp that meet in part, shuffle with lanes that take no part, or ask who is active."""

from __future__ import annotations

import numpy as np
import pytest

from lapidist.machine import check
from snippets import kernel

OUT = "mad.wide.u32 %rd3, %t, 4, %out; st.global.u32 [%rd3], %r6;"
# Each lane stores, lanes of a half meet, each lane reads what the lane `other` stored.
HALVES = (
    """.shared .align 4 .b8 s[256]; mov.u32 %r1, s; mad.lo.u32 %r2, %t, 4, %r1; st.shared.u32 [%r2], %t;
    setp.lt.u32 %p1, %t, 16; selp.b32 %r3, 0xffff, 0xffff0000, %p1; {meet} xor.b32 %r4, %t, {other};
    mad.lo.u32 %r4, %r4, 4, %r1; ld.shared.u32 %r6, [%r4];"""
    + OUT
)
MEET = "bar.warp.sync %r3;"
IN_BRANCHES = "@%p1 bra LOW; bar.warp.sync 0xffff0000; bra BOTH; LOW: bar.warp.sync 0xffff; BOTH:"


def rules(body: str, threads: int = 32, seeds: int = 4) -> set[str]:
    arrays = np.zeros(64, "u4"), np.zeros(64, "u4")
    return {finding.rule for finding in check(kernel(body), (1, 1, 1), (threads, 1, 1), *arrays, seeds=seeds)}


@pytest.mark.parametrize("meet", [MEET, IN_BRANCHES])
@pytest.mark.parametrize(("other", "found"), [(1, set()), (15, set()), (16, {"race"}), (31, {"race"})])
def test_lanes_of_two_masks_meet_only_among_themselves(meet: str, other: int, found: set[str]) -> None:
    assert rules(HALVES.replace("{meet}", meet).replace("{other}", str(other))) == found


def test_meetings_in_part_add_up() -> None:
    """Lanes that met a lane come after all whom that one had met."""
    across = """shr.u32 %r5, %t, 3; and.b32 %r5, %r5, 1; setp.eq.u32 %p2, %r5, 0;
        selp.b32 %r5, 0x00ff00ff, 0xff00ff00, %p2; bar.warp.sync %r5;"""
    assert rules(HALVES.replace("{meet}", MEET + across).replace("{other}", "24")) == set()
    assert rules(HALVES.replace("{meet}", across).replace("{other}", "24")) == {"race"}
    assert rules(HALVES.replace("{meet}", across + MEET).replace("{other}", "24")) == set()


def test_a_lane_arrives_for_those_whom_it_met() -> None:
    """One lane of each half arrives for it. Where one arrives for both, the other half has not met it."""
    body = (
        """.shared .align 4 .b8 s[256]; .shared .align 8 .b64 m; mov.u32 %r1, s; mov.u32 %r2, m;
        setp.eq.u32 %p1, %t, 0; @%p1 mbarrier.init.shared.b64 [%r2], COUNT; bar.sync 0;
        setp.ge.u32 %p2, %t, 32; @%p2 bra READ; mad.lo.u32 %r3, %t, 4, %r1; st.shared.u32 [%r3], %t;
        setp.lt.u32 %p3, %t, 16; selp.b32 %r4, 0xffff, 0xffff0000, %p3; bar.warp.sync %r4;
        and.b32 %r5, %t, EACH; setp.eq.u32 %p4, %r5, 0; @%p4 mbarrier.arrive.shared.b64 _, [%r2]; bra END;
        READ: W: mbarrier.try_wait.parity.shared.b64 %p5, [%r2], 0; @!%p5 bra W; sub.u32 %r4, 63, %t;
        mad.lo.u32 %r4, %r4, 4, %r1; ld.shared.u32 %r6, [%r4];"""
        + OUT
        + "END:"
    )
    assert rules(body.replace("COUNT", "2").replace("EACH", "15"), threads=64) == set()
    assert rules(body.replace("COUNT", "1").replace("EACH", "31"), threads=64) == {"race"}


SHUFFLED = {
    "outside the mask": """setp.ge.u32 %p1, %t, 16; @%p1 bra END;
        shfl.sync.bfly.b32 %r6, %t, 16, 31, 0xffff;""",
    "exited": "setp.ge.u32 %p1, %t, 20; @%p1 exit; shfl.sync.down.b32 %r6, %t, 16, 31, -1;",
    "of another set": """setp.lt.u32 %p1, %t, 16; selp.b32 %r3, 0xffff, 0xffff0000, %p1;
        shfl.sync.idx.b32 %r6, %t, 3, 31, %r3;""",
}


@pytest.mark.parametrize("body", SHUFFLED.values(), ids=SHUFFLED)
def test_what_a_lane_gives_that_takes_no_part_is_undefined(body: str) -> None:
    assert rules(body + OUT + "END:") == {"uninitialised"}
    dropped = "mov.u32 %r6, %t;" + OUT + "END:"  # and nobody uses it
    assert rules(body + dropped) == set()


def test_a_warp_of_fewer_threads_has_no_others_to_shuffle_with() -> None:
    down = "shfl.sync.down.b32 %r6, %t, 8, 31, -1;" + OUT
    assert rules(down, threads=32) == set()
    assert rules(down, threads=20) == {"uninitialised"}


ASKING = """.shared .align 4 .b8 s[256]; mov.u32 %r1, s; mad.lo.u32 %r2, %t, 4, %r1;
    activemask.b32 %r3; st.shared.u32 [%r2], %t; bar.warp.sync %r3; {use}"""


def test_lanes_may_be_active_without_those_that_came_with_them() -> None:
    other = "xor.b32 %r4, %t, 1; mad.lo.u32 %r4, %r4, 4, %r1; ld.shared.u32 %r6, [%r4];" + OUT
    assert "race" in rules(ASKING.replace("{use}", other))
    # counts its own, whoever they are
    own = "popc.b32 %r6, %r3; setp.gt.u32 %p1, %r6, 32; @%p1 trap; ld.shared.u32 %r6, [%r2];" + OUT
    assert rules(ASKING.replace("{use}", own + "bar.sync 0;")) == set()
