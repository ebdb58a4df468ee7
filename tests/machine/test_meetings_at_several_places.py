"""bar.warp.sync counts lanes wherever they execute it: both sides of a branch may have one."""

from __future__ import annotations

import numpy as np
import pytest

from lapidist.machine import check
from snippets import kernel

# The low half and the high half each store, meet, and read what a lane of the other half stored.
HALVES = """.shared .align 4 .b8 s[256]; mov.u32 %r1, s; mad.lo.u32 %r2, %t, 4, %r1; xor.b32 %r3, %t, 16;
    mad.lo.u32 %r3, %r3, 4, %r1; and.b32 %r4, %t, 16; setp.eq.u32 %p1, %r4, 0; @%p1 bra LOW;
    add.u32 %r5, %t, 100; st.shared.u32 [%r2], %r5; HIGH_MEETS ld.shared.u32 %r6, [%r3]; bra BOTH;
    LOW: st.shared.u32 [%r2], %t; LOW_MEETS ld.shared.u32 %r6, [%r3]; AGAIN
    BOTH: mad.wide.u32 %rd3, %t, 4, %out; st.global.u32 [%rd3], %r6;"""
ALL = "bar.warp.sync -1;"
SEEDS = 6


def meeting(
    low: str = ALL, high: str = ALL, again: str = "", threads: int = 64
) -> tuple[set[str], np.ndarray]:
    body = HALVES.replace("LOW_MEETS", low).replace("HIGH_MEETS", high).replace("AGAIN", again)
    out = np.zeros(64, "u4")
    found = check(kernel(body), (1, 1, 1), (threads, 1, 1), np.zeros(64, "u4"), out, seeds=SEEDS)
    return {finding.rule for finding in found}, out


LANES = np.arange(64)
OTHERS = np.where(LANES % 32 < 16, (LANES ^ 16) + 100, LANES ^ 16)
IN_REGISTER = "mov.u32 %r7, %t; xor.b32 %r7, %r7, %t; not.b32 %r7, %r7; bar.warp.sync %r7;"


@pytest.mark.parametrize("low", [ALL, IN_REGISTER])
def test_both_sides_of_a_branch_meet(low: str) -> None:
    rules, out = meeting(low)
    assert rules == set()
    assert (out == OTHERS).all()


def test_a_warp_of_fewer_threads_meets_too() -> None:
    rules, out = meeting(threads=52)
    assert "divergence" not in rules
    assert (out[:32] == OTHERS[:32]).all()


@pytest.mark.parametrize(
    ("low", "high", "found"),
    [
        (ALL, "", "race"),  # the other side has exited then, and orders nothing
        ("bar.warp.sync 0xffff;", "bar.warp.sync 0xffff0000;", "race"),
        ("bar.warp.sync 0xffff;", ALL, "race"),
        ("setp.ne.u32 %p2, %t, 3; @%p2 bar.warp.sync -1;", ALL, "divergence"),
    ],
    ids=["one side alone", "each for itself", "other masks", "a lane goes on"],
)
def test_lanes_that_do_not_meet_are_found(low: str, high: str, found: str) -> None:
    assert found in meeting(low, high)[0]


def test_a_meeting_orders_only_what_lies_before_it() -> None:
    """What one side stores behind it races with what the other reads; a second meeting orders the two."""
    late = "add.u32 %r5, %t, 7; st.shared.u32 [%r2], %r5;"
    assert meeting(again=late)[0] == {"race"}
    read = "ld.shared.u32 %r7, [%r3];"
    assert meeting(high=ALL + read + ALL + ALL, again=ALL + late + ALL)[0] == set()


ROUNDS = """.shared .align 4 .b8 s[256]; mov.u32 %r1, s; shr.u32 %r2, %t, 5; mad.lo.u32 %r1, %r2, 4, %r1;
    mov.u32 %r5, 0; mov.u32 %r6, 0; and.b32 %r2, %t, 31; setp.eq.u32 %p1, %r2, 0; @%p1 bra GIVE;
    TAKE: bar.warp.sync -1; ld.shared.u32 %r3, [%r1]; bar.warp.sync -1; add.u32 %r6, %r6, %r3;
    add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, 4; @%p2 bra TAKE; bra END;
    GIVE: add.u32 %r6, %r6, 1; st.shared.u32 [%r1], %r6; bar.warp.sync -1; LAST
    add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, 4; @%p2 bra GIVE;
    END: mad.wide.u32 %rd3, %t, 4, %out; st.global.u32 [%rd3], %r6;"""


@pytest.mark.parametrize("last", [ALL, ""])
def test_one_lane_gives_to_the_others_in_rounds(last: str) -> None:
    out = np.zeros(64, "u4")
    body = kernel(ROUNDS.replace("LAST", last))
    found = check(body, (1, 1, 1), (64, 1, 1), np.zeros(64, "u4"), out, seeds=SEEDS)
    if last:
        assert not found.findings
        assert (out == np.where(LANES % 32 == 0, 4, 10)).all()
    else:
        assert found.findings  # the giver is ahead of those that read


def test_a_place_of_other_masks_is_no_meeting() -> None:
    """The low half meets itself first, stores, and then meets all."""
    again = "add.u32 %r5, %t, 200; st.shared.u32 [%r2], %r5;"
    rules, out = meeting(low="bar.warp.sync 0xffff;" + again + ALL)
    assert rules == set()
    assert (out == np.where(LANES % 32 < 16, OTHERS, OTHERS + 200)).all()


# The low half meets at ONE and at TWO, the high half at TWO and at THREE.
SHIFTED = """.shared .align 4 .b8 s[256]; mov.u32 %r1, s; mad.lo.u32 %r2, %t, 4, %r1; xor.b32 %r3, %t, 16;
    mad.lo.u32 %r3, %r3, 4, %r1; and.b32 %r4, %t, 16; setp.eq.u32 %p1, %r4, 0; mov.u32 %r7, %r4;
    st.shared.u32 [%r2], %t; @!%p1 bra TWO; ONE: bar.warp.sync -1; ld.shared.u32 %r6, [%r3]; mov.u32 %r7, 1;
    TWO: bar.warp.sync -1; setp.eq.u32 %p2, %r7, 1; @%p2 bra END; ld.shared.u32 %r6, [%r3];
    THREE: bar.warp.sync -1; END: mad.wide.u32 %rd3, %t, 4, %out; st.global.u32 [%rd3], %r6;"""


def test_lanes_that_were_let_go_do_not_count_for_the_next_meeting() -> None:
    out = np.zeros(64, "u4")
    found = check(kernel(SHIFTED), (1, 1, 1), (64, 1, 1), np.zeros(64, "u4"), out, seeds=2 * SEEDS)
    assert not found.findings
    assert (out == LANES ^ 16).all()
