"""Sets of lanes that act together: several in one warp, sets that lack the lane itself, and lanes that come
late.
"""

from __future__ import annotations

import numpy as np
import pytest

from lapidist.machine.faults import Divergence
from snippets import run_body

LANES = np.arange(32)
FIRST = LANES < 16
HALVES = "and.b32 %r2, %t, 16; mov.u32 %r4, 0xFFFF; shl.b32 %r4, %r4, %r2; setp.eq.u32 %p1, %t, 3;"
STORE = "mad.wide.u32 %rd3, %t, 4, %out; st.global.u32 [%rd3], %r6;"
MODES: list[dict[str, object]] = [{}, {"sanitize": True, "seed": 0}]


def answers(body: str, threads: int = 32, **mode: object) -> np.ndarray:
    out = np.zeros(64, "u4")
    run_body(body + STORE, np.zeros(64, "u4"), out, 1, threads, **mode)
    return out[:32]


SETS = np.where(FIRST, 0xFFFF, 0xFFFF0000)


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize(
    ("work", "expected"),
    [
        ("redux.sync.add.u32 %r6, %t, %r4;", np.where(FIRST, 120, 376)),
        ("redux.sync.min.u32 %r6, %t, %r4;", np.where(FIRST, 0, 16)),
        ("redux.sync.and.b32 %r6, %t, %r4;", np.where(FIRST, 0, 16)),
        ("vote.sync.any.pred %p2, %p1, %r4; selp.u32 %r6, 1, 0, %p2;", FIRST),
        ("vote.sync.all.pred %p2, !%p1, %r4; selp.u32 %r6, 1, 0, %p2;", ~FIRST),
        ("vote.sync.uni.pred %p2, %p1, %r4; selp.u32 %r6, 1, 0, %p2;", ~FIRST),
        ("vote.sync.ballot.b32 %r6, %p1, %r4;", np.where(FIRST, 8, 0)),
        ("mov.u32 %r5, 7; match.sync.any.b32 %r6, %r5, %r4;", SETS),
        ("match.all.sync.b32 %r6|%p2, %r2, %r4;", SETS),
        ("elect.sync %r6|%p2, %r4;", np.where(FIRST, 0, 16)),
        ("elect.sync _|%p2, %r4; selp.u32 %r6, 1, 0, %p2;", LANES % 16 == 0),
    ],
    ids=lambda value: value.split()[0] if isinstance(value, str) else "",
)
def test_two_sets_in_one_warp(work: str, expected: np.ndarray, mode: dict[str, object]) -> None:
    assert (answers(HALVES + work, **mode) == expected).all()


@pytest.mark.parametrize(
    "work",
    [
        "bar.warp.sync 0xFFFFFFFE;",
        "shfl.sync.bfly.b32 %r6, %t, 1, 31, 0xFFFF;",
        "vote.sync.any.pred %p2, %p1, 0xFFFF;",
        "redux.sync.add.u32 %r6, %t, 0x7FFFFFFF;",
        "not.b32 %r5, %r4; bar.warp.sync %r5;",
    ],
)
def test_a_lane_names_itself(work: str) -> None:
    with pytest.raises(Divergence, match="does not name the lane that executes"):
        answers(HALVES + work)


def test_lanes_of_a_set_agree_on_it() -> None:
    overlapping = "setp.lt.u32 %p2, %t, 16; selp.b32 %r5, 0xFFFFFFFF, 0xFFFF0000, %p2; bar.warp.sync %r5;"
    with pytest.raises(Divergence, match="names lane 16, whose own names other lanes"):
        answers(HALVES + overlapping)


LATE = """.shared .b64 m; mov.u32 %r1, m; setp.eq.u32 %p1, %t, 0; @%p1 mbarrier.init.shared.b64 [%r1], 1;
    bar.sync 0; setp.ge.u32 %p2, %t, 32; @%p2 bra OTHER; @!%p1 bra MEET; {wait}
    MEET: shfl.sync.bfly.b32 %r6, %t, 1, 31, -1; bra END;
    OTHER: mov.u32 %r7, 0; L: add.u32 %r7, %r7, 1; setp.lt.u32 %p4, %r7, 500; @%p4 bra L;
    setp.eq.u32 %p5, %t, 32; {arrive} mov.u32 %r6, 9; END:"""
WAYS = {
    "mbarrier": (
        "W: mbarrier.try_wait.parity.shared.b64 %p3, [%r1], 0; @!%p3 bra W;",
        "@%p5 mbarrier.arrive.shared.b64 _, [%r1];",
    ),
    "barrier": ("barrier.sync 1, 32;", "setp.ne.u32 %p5, %t, 32; @%p5 barrier.arrive 1, 32;"),
}


@pytest.mark.parametrize("seed", [None, *range(4)])
@pytest.mark.parametrize("way", WAYS)
def test_lanes_wait_for_one_that_waits_elsewhere(way: str, seed: int | None) -> None:
    """Lane 0 waits for another warp, and its warp waits for lane 0."""
    wait, arrive = WAYS[way]
    body = LATE.replace("{wait}", wait).replace("{arrive}", arrive)
    assert (answers(body, threads=64, sanitize=seed is not None, seed=seed) == LANES ^ 1).all()


@pytest.mark.parametrize("seed", [None, *range(2)])
def test_lanes_that_never_come_are_still_named(seed: int | None) -> None:
    body = LATE.replace("{wait}", WAYS["mbarrier"][0]).replace("{arrive}", "")
    with pytest.raises(Divergence, match="names lane 0, which is not at this instruction"):
        answers(body, threads=64, sanitize=seed is not None, seed=seed)
