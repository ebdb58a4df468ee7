"""What is used before the wait that would make it ready: results of wgmma, and targets of bulk stores."""

from __future__ import annotations

import numpy as np
import pytest

from lapidist.machine import Findings, check
from snippets import kernel

DESCRIPTOR = 1 << 62 | 64 << 32 | 1 << 16  # swizzle of 128 bytes, K-major
PRODUCT = (
    f""".shared .align 1024 .b8 s[16384]; mov.u32 %r1, s; mad.lo.u32 %r2, %t, 128, %r1; mov.u32 %r3, 0;
    Z: st.shared.u32 [%r2], 0; add.u32 %r2, %r2, 4; add.u32 %r3, %r3, 1;
    setp.lt.u32 %p1, %r3, 32; @%p1 bra Z;
    fence.proxy.async; bar.sync 0; shr.u32 %r1, %r1, 4;
    cvt.u64.u32 %rd1, %r1; or.b64 %rd1, %rd1, {DESCRIPTOR};
    setp.ne.u32 %p2, 0, 0; wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{%r10, %r11, %r12, %r13}}, %rd1, %rd1, %p2, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned;"""
    "{early} wgmma.wait_group.sync.aligned 0; mad.wide.u32 %rd3, %t, 4, %out; {late}"
)
MOVED = "mov.u32 %r14, %r12;"


def found(body: str, threads: int) -> Findings:
    arrays = np.zeros(1024, "u4"), np.zeros(1024, "u4")
    return check(kernel(body), (1, 1, 1), (threads, 1, 1), *arrays, seeds=3)


def product(early: str, late: str) -> Findings:
    return found(PRODUCT.replace("{early}", early).replace("{late}", late), 128)


def test_results_of_wgmma_are_read_behind_the_wait() -> None:
    store = "st.global.u32 [%rd3], {};"
    assert not list(product("", store.format("%r12")))
    assert not list(product(MOVED, store.format("%r14")))
    early = "mad.wide.u32 %rd3, %t, 4, %out;" + store
    for use, first in (("%r12", ""), ("%r14", MOVED)):
        findings = product(first + early.format(use), "")
        assert [finding.rule for finding in findings] == ["uninitialised"]
        assert f"{use} is read while the wgmma of" in findings[0].fault.rule
    (finding,) = product("add.u32 %r6, %r13, 1;", "")
    assert finding.rule == "uninitialised"


def test_a_guard_that_holds_for_nobody_reads_nothing() -> None:
    assert not list(product("@%p2 add.u32 %r6, %r13, 1;", ""))
    assert len(product("@!%p2 add.u32 %r6, %r13, 1;", "")) == 1


STORE = """.shared .align 128 .b8 s[128]; mov.u32 %r1, s; mad.lo.u32 %r2, %t, 4, %r1; st.shared.u32 [%r2], %t;
    fence.proxy.async; bar.warp.sync -1; setp.eq.u32 %p1, %t, 0; @!%p1 bra END;
    {before} cp.async.bulk.global.shared::cta.bulk_group [%out], [%r1], 128; cp.async.bulk.commit_group;
    cp.async.bulk.wait_group{read} 0; {use} END:"""
USES = {
    "read": "ld.global.u32 %r6, [%out+8]; st.global.u32 [%in], %r6;",
    "write": "st.global.u32 [%out+8], %r1;",
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_thread_leaves_the_target_of_its_store_alone_until_it_is_written(use: str) -> None:
    def rules(**parts: str) -> list[str]:
        body = STORE
        for name in ("before", "read", "use"):
            body = body.replace(f"{{{name}}}", parts.get(name, ""))
        return [finding.rule for finding in found(body, 32)]

    assert rules(use=use) == []
    assert rules(read=".read") == []
    assert rules(read=".read", before=use) == []
    assert rules(read=".read", use=use) == ["race"]
    assert rules(read=".read", use=f"cp.async.bulk.wait_group 0; {use}") == []


# Warp 0 loads tiles, as where a loop fetches ahead; warp 1 writes there.
TILES = """.shared .align 16 .b8 s[512]; mov.u32 %r1, s; and.b32 %r9, %t, 31; mad.lo.u32 %r2, %r9, 16, %r1;
    setp.ge.u32 %p1, %t, 32; @!%p1 st.shared.v4.u32 [%r2], {{%t, %t, %t, %t}}; bar.sync 0; @%p1 bra WRITE;
    ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r4, %r5, %r6, %r7}}, [%r2]; bra END;
    WRITE: st.shared.u32 [%r2], 0;
    END: mad.wide.u32 %rd3, %t, 4, %out; {use}"""


@pytest.mark.parametrize(("use", "rules"), [("", []), ("@!%p1 st.global.u32 [%rd3], %r6;", ["race"])])
def test_tiles_that_nobody_uses_were_not_read(use: str, rules: list[str]) -> None:
    assert sorted({finding.rule for finding in found(TILES.format(use=use), 64)}) == rules


# Each lane reads a word, and another lane's word whose value it drops; it writes its own.
DROPPED = """.shared .align 16 .b8 s[128]; mov.u32 %r1, s; mad.lo.u32 %r2, %t, 4, %r1;
    st.shared.u32 [%r2], %t; xor.b32 %r3, %t, {by}; mad.lo.u32 %r3, %r3, 4, %r1;
    xor.b32 %r7, %t, 2; mad.lo.u32 %r7, %r7, 4, %r1; bar.warp.sync -1;
    {loads} add.u32 %r6, %r4, 1; NEXT: mov.u32 %r5, 0; st.shared.u32 [%r2], %r6;"""
LOADS = ["ld.shared.u32 %r4, [%r3];", "ld.shared.u32 %r5, [%r7];"]


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(("by", "rules"), [(0, []), (1, ["race"])])
def test_a_read_beside_one_that_is_dropped_counts_still(by: int, rules: list[str], order: int) -> None:
    body = DROPPED.format(by=by, loads=" ".join(LOADS[::order]))
    assert [finding.rule for finding in found(body, 32)] == rules
