"""On a GPU: operands and results of wgmma with more than 2^31 elements, aligned and not, whose ends lie
beyond 32 bits.
"""

from __future__ import annotations

import fcntl
import tempfile
from pathlib import Path
from typing import Any

import pytest

import lapidist
from lapidist.verify.sum_bound import judge
from on_gpu import poisoned

pytestmark = [pytest.mark.gpu, pytest.mark.large]
LONG, WIDE, DTYPE = (1 << 17) + 8, 1 << 14, "bfloat16"  # LONG x WIDE = 2^31 + 2^17 elements, 4 GB
ENDS = slice(0, 3), slice((1 << 16) - 2, (1 << 16) + 2), slice(LONG - 5, LONG)


@pytest.fixture(autouse=True)
def _room(torch: Any) -> Any:
    """Each test needs up to 20 GB, and leaves them; of several processes one at a time runs these."""
    with (Path(tempfile.gettempdir()) / "lapidist-large.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        free = torch.cuda.mem_get_info()[0]
        assert free >= 24 << 30, (
            f"{free >> 30} GB of GPU memory are free: run the others with -m 'gpu and not large'"
        )
        yield
        torch.cuda.empty_cache()


def large(torch: Any, odd: int, columns: bool = False) -> Any:
    """LONG x (WIDE + odd), by rows, or by columns of LONG + odd."""
    if columns:
        return torch.randn(WIDE, LONG + odd, device="cuda", dtype=getattr(torch, DTYPE)).T
    return torch.randn(LONG, WIDE + odd, device="cuda", dtype=getattr(torch, DTYPE))


def small(torch: Any, *shape: int) -> Any:
    return torch.randn(*shape, device="cuda", dtype=getattr(torch, DTYPE))


@pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("odd", [0, 1], ids=["aligned", "packed"])
def test_of_a_and_of_b(torch: Any, odd: int, columns: bool) -> None:
    """B = A': the same memory, and each the longest that there is, along m, n and, by columns, from line to
    line of k.
    """
    a = large(torch, odd, columns)
    other = small(torch, a.shape[1], 24)
    plan = lapidist.plan(a, other, kernel="wgmma")
    assert (plan.workspace_bytes > 1 << 32) == bool(odd)
    for d in (plan.execute(a, other), lapidist.gemm(other.T, a.T, kernel="wgmma").T):
        for rows in ENDS:
            assert judge(d[rows], a[rows], other).ok


@pytest.mark.parametrize("odd", [0, 1], ids=["by TMA", "by hand"])
def test_of_c_and_d(torch: Any, odd: int) -> None:
    a, b, c = small(torch, LONG, 72), small(torch, 72, WIDE + odd), large(torch, odd)
    d = lapidist.gemm(a, b, c, beta=-2.0, kernel="wgmma", out=poisoned(torch, *c.shape, dtype=DTYPE))
    for rows in ENDS:
        assert judge(d[rows], a[rows], b, c[rows], 1.0, -2.0).ok


def test_of_a_batch(torch: Any) -> None:
    """Of 2^16 + 8 matrices of 2^15 elements: steps from matrix to matrix beyond 32 bits, in A, C and D."""
    count = (1 << 16) + 8
    a, b = small(torch, count, 128, 256), small(torch, 256, 256)
    d = lapidist.gemm(a, b, kernel="wgmma", out=poisoned(torch, count, 128, 256, dtype=DTYPE))
    for matrices in (slice(0, 1), slice((1 << 15) - 1, (1 << 15) + 1), slice(count - 2, count)):
        for index in range(*matrices.indices(count)):
            assert judge(d[index], a[index], b).ok
