"""Instructions that few kernels have, one by one, and the list of all of them."""

from __future__ import annotations

import numpy as np
import pytest
from instruction_list import PAGE, page, rows

from lapidist.machine import PtxError
from lapidist.machine.ptx.instruction_set import REFUSED
from snippets import lanes, run_body

LANES = np.arange(32)
F = ".reg .f32 x, y; cvt.rn.f32.u32 x, %t; "
BARRIER = """.shared .b64 m; mov.u32 %r1, m; setp.eq.u32 %p1, %t, 0; @%p1 mbarrier.init.shared.b64 [%r1], {};
    bar.sync 0; """
INTEGERS = {
    "mul24.lo.u32 d, %t, 3;": LANES * 3,
    "mul24.hi.u32 %r1, 0xABCDEF, 0x10000; add.u32 d, %r1, %t;": (0xABCDEF * 0x10000 >> 16) + LANES,
    "dp2a.lo.s32.s32 d, %t, 5, 7;": LANES * 5 + 7,
    "dp2a.hi.u32.u32 d, 0x20003, 0x04050000, %t;": 3 * 5 + 2 * 4 + LANES,
    "cnot.b32 d, %t;": LANES == 0,
    "sub.u32 %r1, %t, 3; slct.u32.s32 d, 7, 9, %r1;": np.where(LANES >= 3, 7, 9),
    "sub.u32 %r1, %t, 3; cvt.rn.f32.s32 %f1, %r1; slct.u32.f32 d, 7, 9, %f1;": np.where(LANES >= 3, 7, 9),
    "set.lt.u32.u32 d, %t, 5;": np.where(LANES < 5, 0xFFFFFFFF, 0),
    "ldu.global.u32 d, [%in]; add.u32 d, d, %t;": LANES,
    "activemask.b32 d;": np.full(32, 0xFFFFFFFF),
    F + ".reg .pred p; mul.f32 x, x, 0f7F000000; testp.infinite.f32 p, x; selp.u32 d, 1, 0, p;": LANES >= 2,
    F + ".reg .pred p; testp.normal.f32 p, x; selp.u32 d, 1, 0, p;": LANES > 0,
    "prefetchu.L1 [%in]; applypriority.global.L2::evict_normal [%in], 128; mov.u32 d, 3;": np.full(32, 3),
    "discard.global.L2 [%out], 128; pmevent 3; brkpt; nanosleep.u32 5; mov.u32 d, 4;": np.full(32, 4),
    BARRIER.format(32)
    + """mbarrier.arrive.shared.b64 %rd1, [%r1]; W: mbarrier.test_wait.shared.b64 %p2, [%r1], %rd1;
    @!%p2 bra W; mov.u32 d, 1;""": np.ones(32),
    BARRIER.format(1)
    + """@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 128;
    mbarrier.complete_tx.relaxed.cta.shared.b64 [%r1], 4;
    mbarrier.test_wait.parity.shared.b64 %p2, [%r1], 0; selp.u32 d, 1, 0, %p2;""": np.ones(32),
    BARRIER.format(33)
    + """mbarrier.expect_tx.relaxed.cta.shared.b64 [%r1], 0; mbarrier.arrive.shared.b64 %rd1, [%r1];
    @%p1 mbarrier.arrive_drop.shared.b64 %rd1, [%r1]; mbarrier.arrive.noComplete.shared.b64 %rd1, [%r1], 1;
    mbarrier.test_wait.parity.shared.b64 %p2, [%r1], 1; selp.u32 d, 1, 0, %p2;""": np.ones(32),
    BARRIER.format(1) + "@%p1 mbarrier.inval.shared.b64 [%r1]; mov.u32 d, 2;": np.full(32, 2),
    "atom.global.v2.f32.add {%f1, %f2}, [%in], {0f3F800000, 0f40000000}; cvt.rzi.u32.f32 d, %f2;": 2 * LANES,
}
FLOATS = {
    "copysign.f32 d, 0fBF800000, x;": -LANES.astype("f8"),
    "rsqrt.approx.f32 d, x;": 1 / np.sqrt(np.maximum(LANES, 1)),
    "sin.approx.f32 d, x;": np.sin(LANES),
    "cos.approx.f32 d, x;": np.cos(LANES),
    "lg2.approx.f32 d, x;": np.log2(np.maximum(LANES, 1)),
    "ex2.approx.f32 d, x;": 2.0**LANES,
    "tanh.approx.f32 d, x;": np.tanh(LANES),
}


@pytest.mark.parametrize("body", INTEGERS)
def test_integers(body: str) -> None:
    assert (lanes(body, [np.zeros(32, "u4")], "u4") == INTEGERS[body]).all()


@pytest.mark.parametrize("body", FLOATS)
def test_floats(body: str) -> None:
    found = lanes(F + body, [], "f4")[1:]
    assert np.abs(found - FLOATS[body][1:]).max() <= 1e-6 * np.abs(FLOATS[body][1:]).max()


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_says_why(name: str) -> None:
    with pytest.raises(PtxError, match="the machine does not run") as refused:
        run_body(f"{name}.b32 %r1, %r2;", np.zeros(1), np.zeros(1))
    assert REFUSED[name] in str(refused.value)


def test_textures_are_refused_where_they_are_declared() -> None:
    with pytest.raises(PtxError, match="no textures and surfaces"):
        run_body("mov.u32 %r1, 0;", np.zeros(1), np.zeros(1), declarations=".global .texref image;")


def test_the_list_is_that_of_the_code() -> None:
    assert PAGE.read_text() == page()


def test_what_runs_is_tested() -> None:
    untested = [row for row in rows() if "| runs" in row and row.rstrip(" |").endswith("none")]
    assert not untested
    assert not [row for row in rows() if "without a reason" in row]
