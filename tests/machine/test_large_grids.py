"""Sanitized launches of more warps than could all have clocks at once."""

from __future__ import annotations

import numpy as np
import pytest

from lapidist.errors import ArgumentError
from lapidist.machine import run_ptx
from lapidist.machine.faults import Race
from lapidist.machine.sanitize.clocks import Clocks, Message
from snippets import kernel

# Each block writes its number. The one that counts last adds the first's and the last's.
LAST_ADDS = """
    mov.u32 %r1, %ctaid.x; setp.ne.u32 %p1, %t, 0; @%p1 bra DONE;
    mad.wide.u32 %rd1, %r1, 4, %out; st.global.u32 [%rd1+4], %r1; mov.u32 %r5, %nctaid.x; sub.u32 %r5, %r5, 1;
    atom.add.acq_rel.gpu.global.u32 %r2, [%in], 1; setp.ne.u32 %p2, %r2, %r5; @%p2 bra DONE;
    mad.wide.u32 %rd2, %r5, 4, %out; ld.global.u32 %r3, [%out+4]; ld.global.u32 %r4, [%rd2+4];
    add.u32 %r3, %r3, %r4; st.global.u32 [%out], %r3;
    DONE:
"""


def launch(text: str, blocks: int, threads: int, **how: object) -> np.ndarray:
    counter, out = np.zeros(1, "u4"), np.zeros(blocks + 1, "u4")
    shape = (blocks, 1, 1), (threads, 1, 1)
    run_ptx(kernel(text), "k", *shape, {"in": counter, "out": out}, sanitize=True, **how)  # type: ignore[arg-type]
    return out


def test_clocks_are_kept_of_resident_warps(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a block published is known when it has long ended."""
    row, kept = Clocks.row, []

    def counted(clocks: Clocks, warp: int) -> Message:
        found = row(clocks, warp)
        kept.append(len(clocks.rows))
        return found

    monkeypatch.setattr(Clocks, "row", counted)
    out = launch(LAST_ADDS, 132, 1024, seed=1, memory_budget=64 << 20)  # 4,224 warps, two blocks at a time
    assert out[0] == 131
    assert max(kept) <= 2 * 32


def test_a_race_with_a_block_that_has_ended_is_found() -> None:
    assert launch(LAST_ADDS, 40, 32, seed=0)[0] == 39
    with pytest.raises(Race, match="read here, and written by warp 0 of block"):
        launch(LAST_ADDS.replace("acq_rel", "relaxed"), 40, 32, seed=0)


def test_a_grid_that_meets_is_resident_as_a_whole() -> None:
    meets = "mov.b32 %r1, %envreg1; mov.b32 %r2, %envreg2;"
    with pytest.raises(ArgumentError, match="memory_budget: must hold what 132 resident blocks"):
        launch(meets, 132, 1024, seed=1, memory_budget=256 << 20)
