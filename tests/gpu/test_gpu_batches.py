"""On a GPU: batches whose matrices have indices of their own, permuted outputs in batches, workspaces of
array batches.
"""

from __future__ import annotations

from typing import Any

import pytest

import lapidist
from lapidist.verify.sum_bound import judge
from on_gpu import normal, whole

pytestmark = pytest.mark.gpu

FAMILIES = [
    ("simt", "float32"),
    ("simt", "float16"),
    ("mma", "float16"),
    ("mma", "bfloat16"),
    ("mma", "float64"),
]


@pytest.mark.parametrize("split_k", [1, 3])
@pytest.mark.parametrize(("kernel", "dtype"), FAMILIES)
def test_each_matrix_has_its_own_indices(torch: Any, kernel: str, dtype: str, split_k: int) -> None:
    """Other indices in the same place, by a replayed graph."""
    a, b = normal(torch, 300, 256, dtype=dtype), normal(torch, 7, 256, 110, dtype=dtype)
    rows = torch.randint(0, 300, (7, 130), device="cuda")
    to = torch.stack([torch.randperm(200, device="cuda")[:130] for _ in range(7)])
    out = torch.full((7, 200, 110), float("nan"), device="cuda", dtype=a.dtype)
    asked: dict[str, Any] = {"gather_a": rows, "scatter_d": to, "kernel": kernel, "split_k": split_k}
    lapidist.gemm(a, b, out=out, check_indices=True, **asked)
    # without a look at all indices, which a capture would forbid
    plan = lapidist.plan(a, b, out=out, **asked)
    scattered = torch.stack([matrix[own] for matrix, own in zip(out, to, strict=True)])
    assert judge(scattered, a[rows], b).ok
    assert torch.isnan(out).sum() == 7 * 70 * 110
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        plan.execute(a, b, None, out)
    rows.copy_(rows.flip(0))
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    assert judge(torch.stack([matrix[own] for matrix, own in zip(out, to, strict=True)]), a[rows], b).ok


@pytest.mark.parametrize("layouts", ["rr", "rc", "cr", "cc"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_batches_of_small_matrices(torch: Any, dtype: str, layouts: str) -> None:
    """Every config, on and off 16 bytes, in new arrays and given ones, with C."""
    for batch, m, n, k in (
        (140001, 3, 2, 5),
        (70000, 4, 4, 4),
        (900, 16, 16, 16),
        (300, 33, 7, 60),
        (7, 60, 64, 3),
    ):
        made = []
        for rows, cols, by in ((m, k, layouts[0]), (k, n, layouts[1])):
            flat = whole(torch, dtype, 1 + batch * rows * cols)[1:]  # starts after 16 bytes
            matrices = flat.view(batch, rows, cols) if by == "r" else flat.view(batch, cols, rows).mT
            made.append((matrices, matrices.clone(memory_format=torch.preserve_format)))
        for a, b in zip(*made, strict=True):
            wanted = (a.double() @ b.double()).to(a.dtype)
            assert torch.equal(lapidist.matmul(a, b), wanted)
            c = whole(torch, dtype, batch, m, n)
            for config, _ in lapidist.kernel_named("small").configs_for(dtype):
                if m <= config.bm and n <= config.bn:
                    out = torch.full((batch, m + 1, n + 1), float("nan"), device="cuda", dtype=a.dtype)
                    inner = out[:, 1:, 1:]
                    given: dict[str, Any] = {"out": inner, "beta": 2.0, "kernel": "small", "config": config}
                    lapidist.gemm(a, b, c, **given)
                    assert torch.equal(inner, (a.double() @ b.double() + 2 * c.double()).to(a.dtype))
                    assert torch.isnan(out).sum() == batch * (m + n + 1)


def test_permuted_outputs_in_batches(torch: Any) -> None:
    """Batch x tokens x heads to batch x heads x tokens, with shared weights: groups of rows are not
    stacked.
    """
    a, b = normal(torch, 3, 6 * 80, 300), normal(torch, 300, 5 * 64)
    out = torch.full((3, 6, 5, 80, 64), float("nan"), device="cuda").permute(0, 1, 3, 2, 4)
    lapidist.gemm(a, b, out=out, permuted=True)
    assert judge(out.reshape(3, 480, 320), a, b).ok


@pytest.mark.parametrize("kernel", ["simt", "mma"])
def test_array_batches_with_workspaces_on_two_streams(torch: Any, kernel: str) -> None:
    """Launches overlap; then a graph of one of them is replayed beside the other. Flags are zero again
    afterwards.
    """
    a, b = ([normal(torch, *shape, dtype="float16") for _ in range(70)] for shape in ((60, 900), (900, 90)))
    asked: dict[str, Any] = {"mode": "array", "kernel": kernel, "split_k": 4, "reduction": "turnstile"}
    needed = lapidist.plan(a, b, **asked).workspace_bytes
    spaces = [torch.zeros(needed, dtype=torch.uint8, device="cuda") for _ in range(2)]
    outs = [[torch.full_like(x[:, :1].expand(60, 90), float("nan")).contiguous() for x in a] for _ in spaces]
    plans = [
        lapidist.plan(a, b, out=out, workspace=own, **asked) for own, out in zip(spaces, outs, strict=True)
    ]
    streams = [torch.cuda.Stream() for _ in plans]
    torch.cuda.synchronize()
    for _ in range(20):
        for plan, stream, out in zip(plans, streams, outs, strict=True):
            plan.execute(a, b, None, out, stream=stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        plans[0].execute(a, b, None, outs[0])
    for d in (*outs[0], *outs[1]):
        d.fill_(float("nan"))
    torch.cuda.synchronize()
    for _ in range(20):
        with torch.cuda.stream(streams[0]):
            graph.replay()
        plans[1].execute(a, b, None, outs[1], stream=streams[1])
    torch.cuda.synchronize()
    assert all(judge(d, x, y).ok for out in outs for d, x, y in zip(out, a, b, strict=True))
    assert all(own.any() for own in spaces)  # they were used
