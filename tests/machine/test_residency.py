"""Blocks that wait for other blocks: a warning where a chip would have started those, else a deadlock."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lapidist.machine import check, residency, run_ptx
from lapidist.machine.authors.cuda_sources import of_cuda
from lapidist.machine.authors.findings import Findings
from lapidist.machine.faults import Deadlock, Uninitialised
from snippets import run_body

SCAN = """
__device__ int wait_for(const int* flag) {
    int raised;
    do asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(raised) : "l"(flag) : "memory");
    while (!raised);
    return raised;
}
__device__ void raise(int* flag) {
    asm volatile("st.release.gpu.global.s32 [%0], 1;" :: "l"(flag) : "memory");
}
extern "C" __global__ void scan(const int* x, int* sums, int* flags) {
    int block = blockIdx.x, before = 0;
    if (threadIdx.x) return;
    int awaited = FORWARD ? (block + 1) % gridDim.x : block - 1;
    if (FORWARD ? block == 0 : block > 0) {
        wait_for(flags + awaited);
        before = sums[awaited];
    }
    if (EARLY) raise(flags + block);
    sums[block] = before + x[block];
    if (!EARLY && !NEVER) raise(flags + block);
}
"""
MEETING = """
extern "C" __global__ void meet(int* count, const int* x, int* y) {
    if (threadIdx.x) return;
    y[blockIdx.x] = x[blockIdx.x];
    __threadfence();
    atomicAdd(count, 1);
    while (LOOK < gridDim.x);
    __threadfence();
    y[gridDim.x + blockIdx.x] = y[(blockIdx.x + 1) % gridDim.x];
}
"""
X = np.arange(1, 7, dtype="i4")


@pytest.fixture(autouse=True)
def early_deadlocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lapidist.machine.scheduler.POLL_LIMIT", 300)


def scanned(forward: int = 0, early: int = 0, never: int = 0) -> tuple[Findings, np.ndarray]:
    sums, define = np.zeros(6, "i4"), {"FORWARD": forward, "EARLY": early, "NEVER": never}
    found = check(SCAN, (6, 1, 1), (32, 1, 1), X, sums, np.zeros(6, "i4"), seeds=4, define=define)
    return found, sums


def test_waiting_for_the_block_before_is_a_warning() -> None:
    found, sums = scanned()
    (finding,) = found
    assert (finding.rule, finding.level) == ("residency", "warning")
    assert "have not started" in finding.fault.rule
    assert (sums == np.cumsum(X)).all()


def test_run_ptx_goes_on_with_more_blocks() -> None:
    """What the run before wrote is undone. Where nobody ever comes, it is an error still."""
    ptx = of_cuda(MEETING, "meet.cu", "", [], {"LOOK": "atomicAdd(count, 0)"}, "sm_90a").ptx
    count, y = np.zeros(1, "i4"), np.zeros(12, "i4")
    how: Any = {"grid": (6, 1, 1), "block": (32, 1, 1), "sanitize": True, "seed": 0}
    report = run_ptx(ptx, "meet", args={0: count, 1: X, 2: y}, **how)
    assert [finding.rule for finding in report.warnings] == ["residency"]
    assert (count == 6).all()
    assert (y[6:] == np.roll(X, -1)).all()
    ptx = of_cuda(SCAN, "scan.cu", "", [], {"FORWARD": 0, "EARLY": 0, "NEVER": 1}, "sm_90a").ptx
    with pytest.raises(Deadlock, match="deadlock"):
        run_ptx(ptx, "scan", args={0: X, 1: np.zeros(6, "i4"), 2: np.zeros(6, "i4")}, **how)


def test_schedules_go_on_with_more_blocks() -> None:
    """A flag that is raised too early is found, though blocks wait for some that had not started."""
    rules = {finding.rule for finding in scanned(early=1)[0]}
    assert "race" in rules


def test_who_never_comes_is_a_deadlock() -> None:
    assert {finding.rule for finding in scanned(never=1)[0].errors} == {"deadlock"}


def test_a_block_behind_may_be_waited_for_if_a_chip_holds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [finding.rule for finding in scanned(forward=1)[0]] == ["residency"]
    monkeypatch.setattr(residency, "CHIP", replace(residency.CHIP, sms=1, blocks_per_sm=1))
    assert [finding.rule for finding in scanned(forward=1)[0].errors] == ["deadlock"]


@pytest.mark.parametrize("look", ["atomicAdd(count, 0)", "atomicCAS(count, 9, 9)", "atomicOr(count, 0)"])
def test_atomics_that_change_nothing_are_looks(look: str) -> None:
    y = np.zeros(12, "i4")
    found = check(MEETING, (6, 1, 1), (32, 1, 1), np.zeros(1, "i4"), X, y, seeds=2, define={"LOOK": look})
    assert [(finding.rule, finding.seeds) for finding in found] == [("residency", (0,))]
    assert (y[6:] == np.roll(X, -1)).all()


def test_a_walk_through_memory_waits_for_nobody() -> None:
    source = """extern "C" __global__ void total(const volatile int* x, int* y, int n) {
        int sum = 0;
        for (int i = 0; i < n; i++) sum += x[i];
        y[blockIdx.x] = sum;
    }"""
    x, y = np.arange(400, dtype="i4"), np.zeros(2, "i4")
    assert not list(check(source, (2, 1, 1), (32, 1, 1), x, y, 400, seeds=2, ignore=["equal-stores"]))
    assert (y == x.sum()).all()


# Warp 0 walks for long; then it reads what warp 1 stored at once. Volatile accesses do not race, by PTX.
FAR = """.shared .u32 s[64]; mov.u32 %r1, s; mad.lo.u32 %r2, %t, 4, %r1; mov.u32 %r3, 0;
    setp.ge.u32 %p3, %t, 32; @%p3 bra STORE;
    L: add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, 130; @%p1 bra L;
    STORE: st.volatile.shared.u32 [%r2], %t; {wait} @%p3 bra END;
    ld.volatile.shared.u32 %r4, [%r2+128]; mad.wide.u32 %rd1, %t, 4, %out; st.global.u32 [%rd1], %r4; END:"""


def test_of_many_warps_one_may_be_far_ahead() -> None:
    """They do not take turns: a warp may come to its end before another one of its block begins."""
    arrays, levels = (np.zeros(1, "u4"), np.zeros(32, "u4")), {"race": "off", "equal-stores": "off"}
    how: Any = {"grid": 32, "threads": 64, "sanitize": True, "residency": 32, "levels": levels}
    run_body(FAR.format(wait="bar.sync 0;"), *arrays, seed=0, **how)
    for seed in range(3):
        with pytest.raises(Uninitialised):
            run_body(FAR.format(wait=""), *arrays, seed=seed, **how)


@pytest.mark.parametrize("work", ["", "for (int i = 0; i < n; i++) v = v * 5 + (v >> 3 & i);"])
def test_lanes_that_wait_for_one_which_polls_another_block_are_no_divergence(work: str) -> None:
    """The rest of its warp stands at __syncwarp, until the other block has started, or has computed long."""
    source = f"""extern "C" __global__ void pass(volatile int* flag, int* data, int n) {{
        if (blockIdx.x == 0) {{
            unsigned v = threadIdx.x; {work}
            data[threadIdx.x] = v; __threadfence(); __syncwarp();
            if (threadIdx.x == 0) *flag = 1;
        }} else {{
            if (threadIdx.x == 0) {{ while (*flag == 0); __threadfence(); }}
            __syncwarp();
            data[32 + threadIdx.x] = data[threadIdx.x];
        }} }}"""
    data = np.zeros(64, "i4")
    found = check(source, (2, 1, 1), (32, 1, 1), np.zeros(1, "i4"), data, 4000, seeds=8)
    assert {finding.rule for finding in found} == {"residency"}
    assert (data[32:] == data[:32]).all()
