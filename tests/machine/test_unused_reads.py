"""Kernels that update in place, whose threads also load what others write: a race where the value is used."""

from __future__ import annotations

import numpy as np
import pytest

from lapidist.machine import check
from snippets import kernel

# As llm.c's softmax: threads behind the row's end load its last element, and drop it.
CLAMPED = """extern "C" __global__ void scale(float* y, float* out, float by, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x * 4) {
        float held[4];
        for (int u = 0; u < 4; u++) held[u] = y[min(n - 1, i + u * blockDim.x)];
        for (int u = 0; u < 4; u++)
            if (i + u * blockDim.x < n) y[i + u * blockDim.x] = held[u] / by;
        USE
    }
}"""
# As Triton's kernels in place: a tile of 16 elements is held by 64 threads, and 16 of them store.
REPEATED = """extern "C" __global__ void centre(float* x, float* out, float by, int n) {
    int at = threadIdx.x % 16, owner = threadIdx.x / 16 == OWNER;
    float value = x[at], total = value;
    for (int by = 8; by; by /= 2) total += __shfl_xor_sync(-1, total, by);
    if (owner) x[at] = value - total / n;
    USE
}"""
SOURCES = {"CLAMPED": CLAMPED, "REPEATED": REPEATED}
# What depends on a value that others write: a store elsewhere, an address, a branch, a lane that stores.
CLAMPED_USES = {
    "stored": "out[i] = held[3];",
    "an address": "out[int(held[3]) & 63] = 1.0f;",
    "a branch": "if (held[3] > 3.5f) out[i] = 1.0f;",
    "shared": "__shared__ volatile float s[64]; s[threadIdx.x] = held[3]; out[i] = s[threadIdx.x];",
    "an atomic": "atomicAdd(out, held[3]);",
    "a sum": "out[i] = held[0] * 0.5f + held[3];",
}
REPEATED_USES = {
    "stored": "if (threadIdx.x == 50) out[0] = value;",
    "from another lane": "float next = __shfl_down_sync(-1, value, 1); if (threadIdx.x == 50) out[0] = next;",
    "of all lanes": "float other = __shfl_xor_sync(-1, value, 16); if (threadIdx.x < 16) out[at] = other;",
}


def rules(source: str, threads: int = 64, use: str = "", n: int = 150, owner: int = 0) -> set[str]:
    x, out = np.arange(1, 161, dtype="f4"), np.zeros(64, "f4")
    text = source.replace("USE", use).replace("OWNER", str(owner))
    return {finding.rule for finding in check(text, (1, 1, 1), (threads, 1, 1), x, out, 4.0, n, seeds=4)}


@pytest.mark.parametrize("owner", [0, 3])
@pytest.mark.parametrize("name", SOURCES)
def test_a_value_that_is_dropped_is_no_race(name: str, owner: int) -> None:
    assert rules(SOURCES[name], owner=owner) == set()


@pytest.mark.often(2)
@pytest.mark.parametrize("use", CLAMPED_USES.values(), ids=CLAMPED_USES)
def test_a_value_behind_the_end_that_is_used_is_a_race(use: str) -> None:
    assert "race" in rules(CLAMPED, use=use)


@pytest.mark.parametrize("use", REPEATED_USES.values(), ids=REPEATED_USES)
def test_a_repeated_value_that_is_used_is_a_race(use: str) -> None:
    assert "race" in rules(REPEATED, use=use)


# Lanes load the word of the next lane, and store to it later; %p1 says whose value is used.
NEXT = """
    mad.wide.u32 %rd1, %t, 4, %in; xor.b32 %r1, %t, {by}; mad.wide.u32 %rd2, %r1, 4, %in;
    ld.global.f32 %f1, [%rd2]; {wait} setp.{holds}.u32 %p1, %t, 2; selp.f32 %f2, %f1, 0f00000000, %p1;
    {use} st.global.f32 [%rd1], 0f3f800000; {late}"""
STORE = "mad.wide.u32 %rd3, %t, 4, %out; st.global.f32 [%rd3], {};"


@pytest.mark.parametrize("by", [1, 32], ids=["in one warp", "of two warps"])
def test_one_read_of_many_is_used(by: int) -> None:
    def found(**parts: str) -> list[str]:
        body = NEXT.format(**{"by": by, "wait": "", "holds": "eq", "use": "", "late": ""} | parts)
        arrays = np.zeros(64, "f4"), np.zeros(64, "f4")
        findings = check(kernel(body), (1, 1, 1), (64, 1, 1), *arrays, seeds=4)
        assert all("read" in finding.fault.rule for finding in findings)
        return sorted({finding.rule for finding in findings})

    assert found() == []
    assert found(holds="ge", wait="bar.sync 0;", use=STORE.format("%f2")) == []
    assert found(use=STORE.format("%f2")) == ["race"]
    assert found(late=STORE.format("%f2")) == ["race"]
    assert found(use="mov.f32 %f2, 0f00000000;", late=STORE.format("%f2")) == []
    chosen = "setp.lt.f32 %p2, %f1, 0f00000000; mov.f32 %f3, 0f3f800000; @{}%p2 mov.f32 %f3, 0f40000000;"
    for negated in ("", "!"):
        use = chosen.format(negated)
        assert found(holds="ge", wait="bar.sync 0;", use=use, late=STORE.format("%f3")) == []
        assert found(use=use, late=STORE.format("%f3")) == ["race"]
    assert found(use="setp.lt.f32 %p2, %f1, 0f00000000; @%p2 bar.sync 1, 32;") == ["race"]
    guarded = "@%p1 add.f32 %f3, %f1, %f1; @!%p1 mov.f32 %f3, %f2;"
    assert found(use=guarded, late=STORE.format("%f3")) == ["race"]


@pytest.mark.parametrize("used", [False, True])
def test_a_read_beyond_those_that_are_followed_counts_as_used(used: bool) -> None:
    loads = " ".join(f"ld.global.f32 w{number}, [%in+{4 * number}];" for number in range(80))
    sums = " ".join(f"add.f32 %f1, %f1, w{number};" for number in range(80))
    store = "setp.eq.u32 %p1, %t, 0; @%p1 st.global.f32 [%in], %f1;"
    body = f".reg .f32 w<80>; {loads} {sums if used else ''} {store}"
    arrays = np.zeros(80, "f4"), np.zeros(64, "f4")
    found = check(kernel(body), (1, 1, 1), (64, 1, 1), *arrays, seeds=3, ignore=["unset-register"])
    assert [finding.rule for finding in found] == ["race"]
