"""Where a lane has gone past a barrier, by how control flows."""

import pytest

from lapidist.machine.ptx.basic_blocks import build_blocks
from lapidist.machine.ptx.parse import parse_kernel
from lapidist.machine.ptx.passed_barriers import is_past

HEADER = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out) { .reg .pred %p<6>; .reg .b32 %r<9>; .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [out];
"""
STORE = "st.global.u32 [%rd1], %r1;"


@pytest.mark.parametrize(
    ("body", "past"),
    [
        # An if around the barrier: what follows it is past it.
        (f"@%p1 bra E; bar.sync 0; E: {STORE} ret;", ["st"]),
        (f"@%p1 bra E; {STORE} bar.sync 0; {STORE} E: ret;", ["st"]),
        # Whoever stands at a return, or at a jump to one, leaves early.
        ("@%p1 bra E; bar.sync 0; E: ret;", []),
        ("@%p1 bra F; bar.sync 0; F: bra E; E: ret;", []),
        (f"@%p1 bra E; bar.sync 0; {STORE} ret; E: {STORE} ret;", ["st"]),
        # In a loop lanes may have been there in the turn before; behind the loop they have gone past.
        (f"L: @%p1 bra E; bar.sync 0; E: add.u32 %r1, %r1, 1; @%p2 bra L; {STORE} ret;", ["st"]),
        (f"L: @%p2 bra E; @%p1 bra E; bar.sync 0; bra L; E: {STORE} ret;", ["st"]),
        # A return does not go on to the code below it.
        (f"bra L; K: bar.sync 0; E: {STORE} ret; L: @%p1 bra E; bra K;", ["st"]),
    ],
)
def test_where_a_lane_has_left_a_barrier_out(body: str, past: list[str]) -> None:
    kernel = parse_kernel(HEADER + body + "}", "k")
    blocks, code = build_blocks(kernel), kernel.instructions
    (barrier,) = (block.index for block in blocks if block.kind == "barrier")
    places = [block.index for block in blocks if is_past(barrier, block.index, blocks, code)]
    assert [code[blocks[place].start].opcode for place in places] == past
