"""On a GPU: operands whose rows do not start on 16 bytes, packed by blocks that wait for each other; launch
after launch, on several streams at once, in graphs."""

from __future__ import annotations

from typing import Any

import pytest

import lapidist
from lapidist.kernels.wgmma.configs import tile

pytestmark = pytest.mark.gpu

# One block of work or many, a tile's peers in a cluster, lines of less than a piece and of many chunks.
EXTENTS = [
    (305, 182, 3422),
    (131, 77, 135),
    (1001, 514, 65),
    (9, 2001, 1003),
    (2763, 1353, 259),
    (4099, 67, 9),
    (64, 3, 5),
]


def lines(torch: Any, rows: int, cols: int, dtype: str, by_rows: bool, gap: int) -> Any:
    """Small whole numbers: every sum is exact. Lines lie `gap` elements further apart than they are long."""
    count, length = (rows, cols) if by_rows else (cols, rows)
    values = torch.randint(-4, 5, (count, length + gap), device="cuda").to(getattr(torch, dtype))[:, gap:]
    return values if by_rows else values.T


@pytest.mark.parametrize(
    "layouts", [(True, True), (True, False), (False, True), (False, False)], ids=["rr", "rc", "cr", "cc"]
)
@pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
@pytest.mark.parametrize("extents", EXTENTS, ids=str)
def test_lines_that_start_anywhere(
    torch: Any, extents: tuple[int, int, int], dtype: str, layouts: tuple[bool, bool]
) -> None:
    m, n, k = extents
    for gap in (0, 1, 5):
        a, b = lines(torch, m, k, dtype, layouts[0], gap), lines(torch, k, n, dtype, layouts[1], gap)
        d = lapidist.gemm(a, b, kernel="wgmma", out_dtype="int32" if dtype == "int8" else "float32")
        assert torch.equal(d.float(), a.float() @ b.float()), gap


def test_launch_after_launch_on_streams_and_in_graphs(torch: Any) -> None:
    """Each stream and each graph has a workspace of its own, whose flags every launch leaves as it found
    them. Its blocks meet whatever other streams want, the more urgent ones too."""
    streams = [torch.cuda.Stream(priority=priority) for priority in (0, -1, 0)]
    plans, products, graphs = [], [], []
    for m, n, k in EXTENTS:
        a, b = lines(torch, m, k, "bfloat16", True, 0), lines(torch, k, n, "bfloat16", True, 0)
        outs = [torch.full((m, n), float("nan"), device="cuda") for _ in streams]
        plans.append(lapidist.plan(a, b, out=outs[0], kernel="wgmma"))
        products.append((a, b, outs, a.float() @ b.float()))
    torch.cuda.synchronize()
    for stream in streams:
        with torch.cuda.stream(stream):
            for plan, (a, b, outs, _) in zip(plans, products, strict=True):
                plan.execute(a, b, None, outs[0])  # nothing is allocated in the graph
            stream.synchronize()
            graphs.append(torch.cuda.CUDAGraph())
            with torch.cuda.graph(graphs[-1], stream=stream):
                for _ in range(20):
                    for plan, (a, b, outs, _) in zip(plans, products, strict=True):
                        plan.execute(a, b, None, outs[len(graphs) - 1])
    for _ in range(3):
        for *_, outs, _ in products:
            for out in outs:
                out.fill_(float("nan"))
        torch.cuda.synchronize()
        for index, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                graphs[index].replay()
                for _ in range(20):
                    for plan, (a, b, outs, _) in zip(plans, products, strict=True):
                        plan.execute(a, b, None, outs[index])
        torch.cuda.synchronize()
        for *_, outs, wanted in products:
            assert all(torch.equal(out, wanted) for out in outs)


@pytest.mark.parametrize("layouts", [(True, True), (False, True), (True, False)], ids=["rr", "cr", "rc"])
@pytest.mark.parametrize("extents", [(4099, 5003, 1031), (2051, 2115, 2303), (1301, 6441, 1029)], ids=str)
def test_parts_packed_beside_products(
    torch: Any, extents: tuple[int, int, int], layouts: tuple[bool, bool]
) -> None:
    """Rounds of tiles, of which later ones read what is packed meanwhile; or one, which begins with the first
    panels of k. One launch after another: each finds its flags as the first did."""
    m, n, k = extents
    a, b = lines(torch, m, k, "bfloat16", layouts[0], 1), lines(torch, k, n, "bfloat16", layouts[1], 0)
    wanted = (a.float() @ b.float()).bfloat16()
    for shape in ((128, 256, 4, (2, 1)), (128, 192, 4), (256, 160, 3, (1, 2)), (256, 128, 3)):
        config = tile("bfloat16", *shape)
        out = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
        plan = lapidist.plan(a, b, out=out, kernel="wgmma", config=config, schedule="data_parallel")
        for _ in range(20):
            out.fill_(float("nan"))
            plan.execute(a, b, out=out)
            assert torch.equal(out, wanted), config
