"""Functions of CUDA's device library, which a module declares: numba calls them where a grid meets."""

from __future__ import annotations

import numpy as np
import pytest

from lapidist.machine import check
from lapidist.machine.faults import PtxError

MODULE = """.version 8.0
.target sm_90a
.address_size 64
.extern .func (.param .b64 func_retval0) cudaCGGetIntrinsicHandle
(
    .param .b32 cudaCGGetIntrinsicHandle_param_0
)
;
.extern .func (.param .b32 func_retval0) cudaCGSynchronize(.param .b64 p0, .param .b32 p1);
.visible .entry k(.param .u64 out, .param .u32 turns)
{
    .reg .pred %p<4>; .reg .b32 %r<9>; .reg .b64 %rd<9>;
    ld.param.u64 %rd1, [out]; ld.param.u32 %r5, [turns]; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x;
    mad.lo.u32 %r3, %r1, 64, %r2; mul.wide.u32 %rd2, %r3, 4; add.s64 %rd2, %rd2, %rd1;
    { .param .b32 a; st.param.b32 [a], 1; .param .b64 b;
      call.uni (b), cudaCGGetIntrinsicHandle, (a); ld.param.b64 %rd3, [b]; }
    mov.u32 %r6, %nctaid.x; add.u32 %r7, %r1, 1; setp.eq.u32 %p1, %r7, %r6; selp.b32 %r7, 0, %r7, %p1;
    mad.lo.u32 %r7, %r7, 64, %r2; mul.wide.u32 %rd4, %r7, 4; add.s64 %rd4, %rd4, %rd1; mov.u32 %r8, %r1;
    L: st.global.u32 [%rd2], %r8; {meet} ld.global.u32 %r8, [%rd4]; {meet}
    sub.u32 %r5, %r5, 1; setp.ne.u32 %p2, %r5, 0; @%p2 bra L; st.global.u32 [%rd2], %r8; ret;
}
"""
MEET = """{ .param .b64 c; st.param.b64 [c], %rd3; .param .b32 d; st.param.b32 [d], 0; .param .b32 e;
      call.uni (e), cudaCGSynchronize, (c, d); ld.param.b32 %r4, [e]; }"""


def test_blocks_of_a_grid_meet_again_and_again() -> None:
    """In each turn a block takes what the next one has stored."""
    out = np.zeros((5, 64), "u4")
    assert not list(check(MODULE.replace("{meet}", MEET), (5, 1, 1), (64, 1, 1), out, 3, seeds=4))
    assert (out == (np.arange(5)[:, None] + 3) % 5).all()


def test_without_a_meeting_blocks_race() -> None:
    out = np.zeros((5, 64), "u4")
    text = MODULE.replace("{meet}", MEET, 1).replace("{meet}", "")
    found = check(text, (5, 1, 1), (64, 1, 1), out, 3, seeds=4)
    assert {finding.rule for finding in found} == {"race"}


def test_a_block_that_does_not_come_is_a_deadlock() -> None:
    out = np.zeros((5, 64), "u4")
    guarded = f"setp.eq.u32 %p3, %r1, 2; @%p3 bra E; {MEET} E:"
    text = MODULE.replace("{meet}", guarded, 1).replace("{meet}", "")
    found = check(text, (5, 1, 1), (64, 1, 1), out, 1, seeds=1)
    assert "deadlock" in {finding.rule for finding in found}


def test_other_functions_without_a_body_are_refused() -> None:
    text = MODULE.replace("{meet}", MEET).replace("cudaCGSynchronize", "cudaCGSynchronizeGrid")
    with pytest.raises(PtxError, match=r"and functions with a body in the module. Link it first"):
        check(text, (5, 1, 1), (64, 1, 1), np.zeros((5, 64), "u4"), 3, seeds=1)
