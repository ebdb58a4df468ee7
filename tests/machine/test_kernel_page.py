"""A lesson of an author's own kernel, as a page."""

from __future__ import annotations

import re

import numpy as np

from lapidist.machine import kernel_launch
from lapidist.machine.authors.checks import check_launch
from lapidist.machine.authors.kernel_page import page_of

STRIDED = """
extern "C" __global__ void turn(const float* x, float* y) {
    __shared__ float tile[32 * 32];
    tile[threadIdx.x * 32] = x[threadIdx.x * 32];
    BARRIER;
    if (x[0] > 1) y[0] = 2;
    y[threadIdx.x] = tile[(threadIdx.x + 1) % 64 % 32 * 32];
}
"""


def page(barrier: str) -> str:
    x, y = np.ones(64 * 32, "f4"), np.zeros(64, "f4")
    launch, text = kernel_launch(STRIDED, (1, 1, 1), (32, 1, 1), x, y, define={"BARRIER": barrier})
    found = check_launch(launch, text, 2, (), {})
    y[:] = 7
    content = page_of(launch, found, found.coverage[0])
    assert (y == 7).all()  # its runs are undone
    return content


def test_a_line_shows_what_its_requests_came_to() -> None:
    content = page("__syncthreads()")
    row = re.search(r'<tr id="kernel.cu:4" class="yes">.*', content)
    assert row is not None
    assert "global: 1 requests, 32.0 sectors each" in row[0]
    assert "shared: 1 requests, 32.0 wavefronts each" in row[0]
    assert "global: 1 requests, 4.0 sectors each" in content.split('id="kernel.cu:7"')[1]
    assert 'class="found"' not in content
    assert re.search(r'<rect data-line="kernel.cu:\d+"', content)
    assert "(x[0] &gt; 1)" in content


def test_findings_stand_below_their_lines() -> None:
    content = page("")
    assert re.search(r'class="found">kernel.cu:7: error: .*\[race\]', content)
