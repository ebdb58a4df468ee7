"""Functions of CUDA's device library, which modules declare and the linker brings: what numba calls where a
grid meets. A module that declares one without a body gets it."""

from __future__ import annotations

import re

# Where blocks meet, a word counts them; its upper bit turns once all have come. The first block adds what
# makes it turn.
HANDLE = """.func (.param .b64 handle) cudaCGGetIntrinsicHandle(.param .b32 scope)
{
    .reg .b32 %low, %high; .reg .b64 %place;
    mov.u32 %high, %envreg1; mov.u32 %low, %envreg2; mov.b64 %place, {%low, %high};
    st.param.b64 [handle], %place; ret;
}
"""
MEETING = """.func (.param .b32 status) cudaCGSynchronize(.param .b64 handle, .param .b32 flags)
{
    .reg .pred %other, %early, %begins; .reg .b32 %r<9>; .reg .b64 %place;
    ld.param.b64 %place, [handle]; barrier.sync 0;
    mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z; or.b32 %r1, %r1, %r2; or.b32 %r1, %r1, %r3;
    setp.ne.u32 %other, %r1, 0; @%other bra behind;
    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ctaid.y; mov.u32 %r3, %ctaid.z; or.b32 %r1, %r1, %r2;
    or.b32 %r1, %r1, %r3; setp.eq.u32 %begins, %r1, 0;
    mov.u32 %r4, %nctaid.x; mov.u32 %r5, %nctaid.y; mov.u32 %r6, %nctaid.z; mul.lo.u32 %r4, %r4, %r5;
    mul.lo.u32 %r4, %r4, %r6; sub.u32 %r4, 0x80000001, %r4; selp.b32 %r4, %r4, 1, %begins;
    atom.add.release.gpu.u32 %r7, [%place+4], %r4;
again: ld.acquire.gpu.u32 %r8, [%place+4]; xor.b32 %r8, %r8, %r7;
    setp.ge.s32 %early, %r8, 0; @%early bra again;
behind: barrier.sync 0; st.param.b32 [status], 0; ret;
}
"""
FUNCTIONS = {"cudaCGGetIntrinsicHandle": HANDLE, "cudaCGSynchronize": MEETING}
DECLARED = re.compile(rf"\.extern\s+\.func\b[^;{{]*?\b({'|'.join(FUNCTIONS)})\b")


def linked(text: str) -> str:
    """A module with the functions that it declares and the library has, behind its last line."""
    names = dict.fromkeys(DECLARED.findall(text))
    return "\n".join([text, *(FUNCTIONS[name] for name in names)]) if names else text
