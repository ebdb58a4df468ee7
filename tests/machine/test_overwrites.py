"""TMA that overwrites what ordinary stores wrote: PTX asks for a proxy fence between the two."""

from __future__ import annotations

import numpy as np
import pytest

from lapidist.machine import check, run_ptx
from lapidist.machine.faults import MissingProxyFence
from snippets import kernel

REFILL = """
    .shared .align 128 .b8 room[128]; .shared .align 8 .b64 full;
    mov.u32 %r1, room; mad.lo.u32 %r2, %t, 4, %r1; mov.u32 %r3, full; setp.eq.u32 %p1, %t, 0;
    @%p1 mbarrier.init.shared.b64 [full], 1; fence.mbarrier_init.release.cluster;
    st.shared.u32 [%r2], 7; {fence}
    bar.sync 0;
    @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [full], 128;
    @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%in], 128, [%r3];
    W: mbarrier.try_wait.parity.shared.b64 %p2, [full], 0; @!%p2 bra W;
    ld.shared.u32 %r4, [%r2]; mad.wide.u32 %rd1, %t, 4, %out; st.global.u32 [%rd1], %r4;"""


@pytest.mark.parametrize(
    ("fence", "rules"),
    [
        ("fence.proxy.async;", []),
        ("fence.proxy.async.shared::cta;", []),
        ("fence.proxy.async.global;", ["overwrite-fence"]),
        ("", ["overwrite-fence"]),
    ],
)
def test_tma_overwrites_ordinary_stores_behind_a_fence(fence: str, rules: list[str]) -> None:
    source, out = np.arange(32, dtype="u4"), np.zeros(32, "u4")
    text = kernel(REFILL.format(fence=fence))
    found = check(text, (1, 1, 1), (32, 1, 1), source, out, seeds=2)
    assert [finding.rule for finding in found] == rules
    assert found
    assert (out == source).all()


def test_a_run_goes_on_behind_warnings_and_ends_at_errors() -> None:
    source, out = np.arange(32, dtype="u4"), np.zeros(32, "u4")
    launch = kernel(REFILL.format(fence="")), "k", (1, 1, 1), (32, 1, 1), {"in": source, "out": out}
    report = run_ptx(*launch, sanitize=True, seed=5)
    assert [(one.rule, one.level, one.seeds) for one in report.warnings] == [
        ("overwrite-fence", "warning", (5,))
    ]
    assert (out == source).all()
    assert "warning: the asynchronous proxy overwrites" in str(report)
    assert not run_ptx(*launch, sanitize=True, levels={"overwrite-fence": "off"}).warnings
    with pytest.raises(MissingProxyFence, match="overwrites what generic stores wrote"):
        run_ptx(*launch, sanitize=True, levels={"overwrite-fence": "error"})
