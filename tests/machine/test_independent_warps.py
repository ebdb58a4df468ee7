"""Large launches whose warps neither wait nor ask: many blocks are resident, and compute together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lapidist.launch import Launch
from lapidist.machine import kernel_launch
from lapidist.machine.faults import MachineFault
from lapidist.machine.residency import INDEPENDENT_WARPS
from lapidist.machine.run import run
from lapidist.machine.sanitize.joint_runs import JointRuns
from lapidist.machine.sanitize.random_orders import FuzzedScheduler
from lapidist.machine.sanitize.sanitized_launch import Earlier
from snippets import kernel

THREADS, BLOCKS, ROUNDS = 64, 160, 100  # more warps than are resident
# Each thread adds a column of the source, row after row, with a bound that no row reaches.
SUMS = """
    mov.u32 %r1, %ctaid.x; mad.lo.u32 %r2, %r1, 64, %t; and.b32 %r3, %r2, 255; mov.f32 %f1, 0f00000000;
    mad.wide.u32 %rd1, %r3, 4, %in; mad.wide.u32 %rd2, %r2, 4, %out; mov.u32 %r5, 0;
    L: setp.ge.u32 %p2, %r5, {bound}; @%p2 bra N; ld.global.f32 %f2, [%rd1]; add.f32 %f1, %f1, %f2;
    N: add.s64 %rd1, %rd1, 1024; add.s32 %r5, %r5, 1; setp.lt.s32 %p1, %r5, {rounds}; @%p1 bra L;
    {last} st.global.f32 [%rd2], %f1;"""
SOUND = {"bound": 9999, "rounds": ROUNDS, "last": ""}
FAULTS = {
    "race": {"last": "mov.b64 %rd2, %out;"},
    "outside all memory": {"rounds": ROUNDS + 1},
    "never set": {"last": "add.f32 %f1, %f1, %f9;"},
}


def launch_of(body: str) -> tuple[Launch, np.ndarray, np.ndarray]:
    source = np.arange(256 * ROUNDS, dtype="f4").reshape(ROUNDS, 256) % 7
    out = np.zeros(THREADS * BLOCKS, "f4")
    launch, _ = kernel_launch(kernel(body), (BLOCKS, 1, 1), (THREADS, 1, 1), source, out)
    return launch, source, out


@pytest.fixture
def schedulers(monkeypatch: pytest.MonkeyPatch) -> list[FuzzedScheduler]:
    runs, begin = list[FuzzedScheduler](), FuzzedScheduler.__init__

    def keep(scheduler: FuzzedScheduler, *how: Any) -> None:
        begin(scheduler, *how)
        runs.append(scheduler)

    monkeypatch.setattr(FuzzedScheduler, "__init__", keep)
    return runs


def test_independent_warps_compute_together_to_their_ends(
    schedulers: list[FuzzedScheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    launch, source, out = launch_of(SUMS.format(**SOUND))
    plain = run(launch, counting=False)
    out[...] = 0
    computed, compute = [0], JointRuns.computed

    def counted(*where: Any) -> Any:
        computed[0] += 1
        return compute(*where)

    monkeypatch.setattr(JointRuns, "computed", counted)
    report = run(launch, sanitize=True, seed=0, counting=False, earlier=Earlier(known=True))
    np.testing.assert_array_equal(out, np.resize(source.sum(axis=0), out.shape))
    assert (report.warp_steps, report.ways) == (plain.warp_steps, plain.ways)
    assert report.steps == report.warp_steps  # each warp by itself
    assert schedulers[0].m.slots * THREADS // 32 == INDEPENDENT_WARPS
    waves, warps = 2, BLOCKS * THREADS // 32
    assert computed[0] <= waves * report.warp_steps / warps  # all warps of a wave at once
    # What was read is logged: each element of the source by the one load there is.
    (reads,) = [noted for noted in schedulers[0].sanitizer.only_read.values() if noted.reader.any()]
    assert len(np.unique(reads.reader)) == 1


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_those_of_warps_alone(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    faults = []
    for alone in (False, True):
        launch, _, _ = launch_of(SUMS.format(**SOUND | FAULTS[fault]))
        if alone:
            monkeypatch.setattr(JointRuns, "turn", lambda *where: None)
        with pytest.raises(MachineFault) as raised:
            run(launch, sanitize=True, seed=0, counting=False)
        faults.append((raised.value.name, str(raised.value).split("\n")[1]))
    assert faults[0] == faults[1]


@pytest.mark.parametrize("meeting", ["bar.sync 0;", "red.global.add.f32 [%out], %f1;", "fence.acq_rel.gpu;"])
def test_warps_that_may_hear_of_others_start_as_the_seed_says(
    meeting: str, schedulers: list[FuzzedScheduler]
) -> None:
    launch, _, _ = launch_of(SUMS.format(**SOUND | {"rounds": 2, "last": meeting + "add.s64 %rd2, %rd2, 0;"}))
    with pytest.raises(MachineFault) if "red" in meeting else np.errstate():
        run(launch, sanitize=True, seed=1, counting=False)
    assert schedulers[0].m.slots == 2
