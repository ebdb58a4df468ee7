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
# Lanes write to what other lanes read; in the last case all lanes read one place.
OVERWRITING = {
    "read before": "float sum = s[t ^ 1] + s[t]; MIDDLE s[t] = sum;",
    "read last": "float sum = s[t] + s[t ^ 1]; MIDDLE s[t] = sum;",
    "read by all": "float sum = s[5] + x[t]; MIDDLE if (t == 31) s[5] = sum; x[t] = sum;",
    "read by a few": "float sum = s[t / 16]; MIDDLE if (t == 0) s[t] = 0; x[t] = sum;",
}
STEP = """extern "C" __global__ void step(float* x, float* out) {
    __shared__ KIND float s[32];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncwarp();
    BODY
    __syncwarp();
    out[t] = s[31 - t];
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


@pytest.mark.often(2)
@pytest.mark.parametrize("case", OVERWRITING)
def test_a_write_to_what_another_lane_reads(case: str) -> None:
    """Whoever read last, and however many did: another lane than the one that writes is among them."""
    source = STEP.replace("BODY", OVERWRITING[case])
    assert found(source, KIND="", MIDDLE="") == {("race", "error")}
    assert found(source, KIND="", MIDDLE="__syncwarp();") == set()
    assert found(source, KIND="volatile", MIDDLE="") <= {("lanes-in-step", "warning")}
    assert found(source, KIND="volatile", MIDDLE="__syncwarp();") == set()


@pytest.mark.parametrize("kind", ["", "volatile"])
def test_lanes_that_meet_are_sound(kind: str) -> None:
    assert found(REDUCE, KIND=kind, FIRST="__syncwarp();", SECOND="__syncwarp();") == set()


def test_a_lane_that_waits_for_another_is_sound() -> None:
    assert found(FLAG) == set()
