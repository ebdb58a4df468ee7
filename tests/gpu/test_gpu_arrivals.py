"""Rows that arrive while wgmma runs, on a card: copies from the host tell by flags that they are there."""

from __future__ import annotations

from typing import Any

import pytest

from lapidist.device import chip
from lapidist.distributed.product_options import USUAL
from lapidist.problems.arrivals import Arrivals

pytestmark = pytest.mark.gpu
ROWS, K, PARTS, STEP = 1024, 512, 4, 2


def hopper(torch: Any) -> None:
    if torch.cuda.get_device_capability() != chip("h200").capability:
        pytest.skip("only Hopper has kernels that wait")


def arriving(torch: Any, rows: Any, b: Any, flags: Any, report: Any, limit: int) -> Any:
    from lapidist.distributed.row_products import arriving

    arrivals = Arrivals(flags.data_ptr(), report.data_ptr(), limit, ROWS // PARTS, STEP)
    out = torch.empty(ROWS, b.shape[1], device="cuda", dtype=torch.float32)
    return arriving(rows, b, None, out, USUAL, arrivals, (None, None), None)


@pytest.mark.parametrize("n", [24, 1040, 8192])
def test_kernels_wait_for_what_the_copy_engine_brings(torch: Any, n: int) -> None:
    """The kernel is enqueued first, and holds all SMs meanwhile."""
    hopper(torch)
    host = torch.randint(-3, 4, (ROWS, K), dtype=torch.bfloat16).pin_memory()
    raised = torch.ones(1, dtype=torch.int32).pin_memory()
    b = torch.randint(-3, 4, (K, n), device="cuda").bfloat16()
    report, copies = torch.zeros(1, dtype=torch.int64).pin_memory(), torch.cuda.Stream()
    for turn in range(3):
        rows = torch.full((ROWS, K), float("nan"), device="cuda", dtype=torch.bfloat16)
        flags = torch.zeros(PARTS * STEP, device="cuda", dtype=torch.int32)
        torch.cuda.synchronize()
        limit = 10**10 if turn else 10**11  # nanoseconds; the first launch loads the kernel
        result = arriving(torch, rows, b, flags, report, limit)
        with torch.cuda.stream(copies):
            for part in reversed(range(PARTS)) if turn == 2 else range(PARTS):
                lines = slice(part * ROWS // PARTS, (part + 1) * ROWS // PARTS)
                rows[lines].copy_(host[lines], non_blocking=True)
                flags[part * STEP :][:1].copy_(raised, non_blocking=True)
        torch.cuda.synchronize()
        assert int(report[0]) == 0
        assert torch.equal(result, host.cuda().float() @ b.float())


def test_a_wait_ends_at_its_limit(torch: Any) -> None:
    """The first part that is not there is told, and the card goes on."""
    hopper(torch)
    rows = torch.ones(ROWS, K, device="cuda", dtype=torch.bfloat16)
    b = torch.ones(K, 64, device="cuda", dtype=torch.bfloat16)
    report = torch.zeros(1, dtype=torch.int64).pin_memory()
    flags = torch.ones(PARTS * STEP, device="cuda", dtype=torch.int32)
    flags[2 * STEP] = 0
    torch.cuda.synchronize()
    result = arriving(torch, rows, b, flags, report, 10**7)
    torch.cuda.synchronize()
    assert int(report[0]) == 1 + 2 * STEP
    assert torch.equal(result[: ROWS // 2], torch.full((ROWS // 2, 64), float(K), device="cuda"))


@pytest.mark.parametrize("blocks", [1, K // 128], ids=["of rows", "along k"])
def test_factors_arrive_with_their_rows(torch: Any, blocks: int) -> None:
    """The copy engine brings all of them before the first part's flag, while the kernel holds all SMs."""
    from lapidist.distributed.row_products import arriving

    hopper(torch)
    eight, n = torch.float8_e4m3fn, 1040
    host = torch.randint(-3, 4, (ROWS, K)).to(eight).pin_memory()
    factors = (2.0 ** torch.randint(-2, 3, (ROWS, blocks))).pin_memory()
    b = torch.randint(-3, 4, (n, K), device="cuda").to(eight).t()
    raised, copies = torch.ones(1, dtype=torch.int32).pin_memory(), torch.cuda.Stream()
    report = torch.zeros(1, dtype=torch.int64).pin_memory()
    spread = host.cuda().double() * factors.cuda().double().repeat_interleave(K // blocks, 1)
    for _ in range(3):
        rows = torch.full((ROWS, K), 127, device="cuda", dtype=torch.uint8).view(eight)  # NaN
        scale = torch.full((ROWS, blocks), float("nan"), device="cuda")
        flags = torch.zeros(PARTS * STEP, device="cuda", dtype=torch.int32)
        out = torch.empty(ROWS, n, device="cuda", dtype=torch.float32)
        torch.cuda.synchronize()
        arrivals = Arrivals(flags.data_ptr(), report.data_ptr(), 10**11, ROWS // PARTS, STEP)
        arriving(rows, b, None, out, USUAL, arrivals, (scale, None), None)
        with torch.cuda.stream(copies):
            scale.copy_(factors, non_blocking=True)
            for part in range(PARTS):
                lines = slice(part * ROWS // PARTS, (part + 1) * ROWS // PARTS)
                rows[lines].view(torch.uint8).copy_(host[lines].view(torch.uint8), non_blocking=True)
                flags[part * STEP :][:1].copy_(raised, non_blocking=True)
        torch.cuda.synchronize()
        assert int(report[0]) == 0
        assert torch.equal(out.double(), spread @ b.double())
