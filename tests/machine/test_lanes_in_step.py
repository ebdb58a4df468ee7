"""Reductions of a warp through volatile shared memory, as they were written before Volta: lanes in step."""

from __future__ import annotations

import numpy as np
import pytest

from lapidist.machine import check

REDUCE = """extern "C" __global__ void reduce(const float* x, float* out) {
    __shared__ KIND float s[64];
    int t = threadIdx.x;
    s[t] = x[t] + x[t + 64];
    __syncthreads();
    if (t < 32) {
        #pragma unroll
        for (int by = 32; by; by /= 2) { float sum = s[t] + s[t + by]; FIRST s[t] = sum; SECOND }
    }
    if (t == 0) out[0] = s[0];
}"""
FLAG = """extern "C" __global__ void flag(float* x, float* out) {
    __shared__ volatile int ready;
    if (threadIdx.x == 0) ready = 0;
    __syncwarp();
    if (threadIdx.x == 0) ready = 1;
    else while (!ready) {}
    out[threadIdx.x] = 1;
}"""


def found(source: str, **words: str) -> set[tuple[str, str]]:
    x, out = np.arange(128, dtype="f4"), np.zeros(64, "f4")
    for name, word in words.items():
        source = source.replace(name, word)
    findings = check(source, (1, 1, 1), (64 if "reduce" in source else 32, 1, 1), x, out, seeds=3)
    return {(finding.rule, finding.level) for finding in findings}


@pytest.mark.parametrize("first", ["", "__syncwarp();"])
def test_lanes_in_step_are_a_warning_where_memory_is_volatile(first: str) -> None:
    assert found(REDUCE, KIND="volatile", FIRST=first, SECOND="") == {("lanes-in-step", "warning")}
    assert found(REDUCE, KIND="", FIRST=first, SECOND="") == {("race", "error")}


@pytest.mark.parametrize("kind", ["", "volatile"])
def test_lanes_that_meet_are_sound(kind: str) -> None:
    assert found(REDUCE, KIND=kind, FIRST="__syncwarp();", SECOND="__syncwarp();") == set()


def test_a_lane_that_waits_for_another_is_sound() -> None:
    assert found(FLAG) == set()
