"""What a kernel's runs came to, line by line; and what its warps did, as a trace."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lapidist.machine import check, kernel_launch, trace_of
from snippets import kernel

SOURCE = """
extern "C" __global__ void shift(const float* x, float* y, int n) {
    __shared__ float tile[64];
    for (int i = threadIdx.x; i < n; i += 64) {
        tile[threadIdx.x] = x[i];
        __syncthreads();
        y[i] = tile[threadIdx.x ^ 32];
        __syncthreads();
    }
    if (n < 0) {
        y[0] = atomicAdd(y, 1.0f);
        __syncthreads();
        y[1] = 3;
    }
}
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "shift.cu"
    path.write_text(SOURCE)
    return path


def shifted(source: Path, n: int) -> Any:
    x, y = np.arange(128, dtype="f4"), np.zeros(128, "f4")
    (coverage,) = check(source, (1, 1, 1), (64, 1, 1), x, y, n, seeds=1).coverage
    return coverage


def test_lines_that_ran_and_lines_that_did_not(source: Path) -> None:
    coverage = shifted(source, 128)
    lines = coverage.files["shift.cu"]
    assert all(lines[number].ran for number in (5, 7))
    assert not any(lines[number].ran for number in (11, 13))
    assert 1 not in lines
    text = str(coverage)
    assert "\n+     5         tile[threadIdx.x] = x[i];" in text
    assert "\n-    13         y[1] = 3;" in text
    ran, every = coverage.lines
    assert 0 < ran < every
    assert text.endswith(
        f"shift: {ran} of {every} lines, {coverage.branches[0]} of {coverage.branches[1]} ways of branches"
    )
    assert '<tr class="no"><td>13</td>' in coverage.html()
    assert coverage.data()["shift.cu"]["13"]["ran"] is False


def test_branches_by_the_ways_that_lanes_went() -> None:
    body = "setp.lt.u32 %p1, %t, {}; @%p1 bra A;\nmov.u32 %r1, 1; A:"
    for limit, went, words in ((16, 3, "both ways"), (0, 2, "never"), (32, 1, "always")):
        arrays = np.zeros(4, "u4"), np.zeros(4, "u4")
        (coverage,) = check(kernel(body.format(limit)), (1, 1, 1), (32, 1, 1), *arrays, seeds=1).coverage
        (branch,) = [line for line in coverage.files["PTX"].values() if line.branches]
        assert branch.branches == [went]
        assert str(branch) == words
        assert branch.kind == ("yes" if went == 3 else "half")


def test_a_trace_has_each_warp_s_turns_and_waits(source: Path) -> None:
    x, y = np.arange(128, dtype="f4"), np.zeros(128, "f4")
    launch, _ = kernel_launch(source, (2, 1, 1), (64, 1, 1), x, y, 128)
    trace = json.loads(trace_of(launch, seed=1))
    events = trace["traceEvents"]
    named = {(e["pid"], e["args"]["name"]) for e in events if e["name"] == "thread_name"}
    assert named == {(block, f"warp {warp}") for block in (0, 1) for warp in (0, 1)}
    spans = [e for e in events if e["ph"] == "X"]
    assert all(e["dur"] > 0 for e in spans)
    # one warp at a time: turns never overlap
    turns = sorted((e["ts"], e["dur"]) for e in spans if not e["name"].startswith("wait"))
    assert all(start + length <= after for (start, length), (after, _) in pairwise(turns))
    waits = [e for e in spans if e["name"].startswith("wait: bar")]
    assert {e["args"]["source"] for e in waits} <= {"shift.cu:6", "shift.cu:8"}
    assert waits
    assert any(re.match(r"shift\.cu:\d+", e["name"]) for e in spans)


def test_a_trace_ends_at_a_fault() -> None:
    text = kernel("ld.global.u32 %r1, [%in+4096];")
    launch, _ = kernel_launch(text, (1, 1, 1), (32, 1, 1), np.zeros(4, "u4"), np.zeros(4, "u4"))
    trace = json.loads(trace_of(launch))
    (fault,) = [e for e in trace["traceEvents"] if e["name"] == "out-of-bounds"]
    assert "outside all memory" in fault["args"]["fault"]
