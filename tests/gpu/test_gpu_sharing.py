"""On a GPU: shared tiles, workspaces and modes, with every type and layout, again and again, on streams and
in graphs.
"""

from __future__ import annotations

from typing import Any

import pytest

import lapidist
from lapidist.verify.sum_bound import judge
from on_gpu import normal, poisoned

pytestmark = pytest.mark.gpu

FAMILIES = [
    (kernel, dtype) for kernel in ("simt", "mma") for dtype in ("float16", "float32", "float64", "bfloat16")
]
FAMILIES = [pair for pair in FAMILIES if pair not in (("simt", "bfloat16"), ("mma", "float32"))]
WAYS = [
    {"split_k": 3},
    {"split_k": 5, "reduction": "separate"},
    {"split_k": 4, "reduction": "cluster"},
    {"split_k": 4, "reduction": "atomic", "deterministic": False},
    {"schedule": "stream_k"},
    {"schedule": "stream_k", "avail_sms": 7, "reduction": "separate"},
]
SHAPES = [(1, 1, 700), (130, 100, 1030), (257, 511, 777), (64, 2000, 900), (40, 40, 5000), (1100, 1300, 260)]


def words(value: Any) -> str:
    return " ".join(map(str, value.values())) if isinstance(value, dict) else str(value)


@pytest.mark.parametrize("way", WAYS, ids=words)
@pytest.mark.parametrize(("kernel", "dtype"), FAMILIES)
def test_shared_tiles_come_out_right(torch: Any, kernel: str, dtype: str, way: dict[str, Any]) -> None:
    """Twice on one workspace: flags must have reset themselves."""
    for m, n, k in SHAPES:
        a, b, c = (normal(torch, *shape, dtype=dtype) for shape in ((m, k), (k, n), (m, n)))
        try:
            plan = lapidist.plan(a, b, c, alpha=-0.5, beta=2.0, kernel=kernel, **way)
        except lapidist.RefusalError as error:
            if "split_k: must not be larger" not in str(error):
                raise
            continue
        for _ in range(2):
            out = poisoned(torch, m, n, dtype=dtype)
            plan.execute(a, b, c, out)
            assert judge(out, a, b, c, -0.5, 2.0).ok, (m, n, k)


@pytest.mark.parametrize("layouts", ["rrr", "crc", "rcr", "ccc", "rrc"])
@pytest.mark.parametrize("way", [WAYS[0], WAYS[2], {"schedule": "stream_k", "avail_sms": 5}], ids=words)
@pytest.mark.parametrize("kernel", ["simt", "mma"])
def test_layouts(torch: Any, kernel: str, way: dict[str, Any], layouts: str) -> None:
    def laid(matrix: Any, letter: str) -> Any:
        return matrix if letter == "r" else matrix.T.contiguous().T

    a, b = (
        laid(normal(torch, 203, 517, dtype="float16"), layouts[0]),
        laid(normal(torch, 517, 331, dtype="float16"), layouts[1]),
    )
    out = laid(poisoned(torch, 203, 331, dtype="float16"), layouts[2])
    lapidist.gemm(a, b, out=out, kernel=kernel, **way)
    assert judge(out, a, b).ok


def test_batches(torch: Any) -> None:
    a, b = normal(torch, 3, 4, 70, 600), normal(torch, 4, 600, 50)
    for way in WAYS:
        assert judge(lapidist.gemm(a, b, kernel="simt", **way), a, b).ok


@pytest.mark.parametrize("way", [way for way in WAYS if way.get("deterministic", True)], ids=words)
def test_the_same_bits_again(torch: Any, way: dict[str, Any]) -> None:
    a, b = normal(torch, 500, 3000), normal(torch, 3000, 400)
    found = [lapidist.gemm(a, b, kernel="simt", **way) for _ in range(20)]
    assert all(torch.equal(found[0], other) for other in found[1:])


@pytest.mark.parametrize("way", WAYS, ids=words)
def test_a_thousand_launches_back_to_back(torch: Any, way: dict[str, Any]) -> None:
    a, b, out = normal(torch, 200, 900), normal(torch, 900, 150), poisoned(torch, 200, 150)
    plan = lapidist.plan(a, b, kernel="simt", **way)
    for _ in range(1000):
        plan.execute(a, b, None, out)
    assert judge(out, a, b).ok


def test_streams_have_workspaces_of_their_own(torch: Any) -> None:
    streams = [torch.cuda.Stream() for _ in range(4)]
    inputs = [
        (normal(torch, 256, 1500), normal(torch, 1500, 256), poisoned(torch, 256, 256)) for _ in streams
    ]
    plan = lapidist.plan(*inputs[0][:2], kernel="simt", split_k=6, reduction="turnstile")
    torch.cuda.synchronize()
    for _ in range(100):
        for stream, (a, b, out) in zip(streams, inputs, strict=True):
            plan.execute(a, b, None, out, stream=stream)
    torch.cuda.synchronize()
    assert all(judge(out, a, b).ok for a, b, out in inputs)


def test_graphs_have_workspaces_of_their_own(torch: Any) -> None:
    """Two captures, replayed beside each other and beside plain launches."""
    graphs, inputs = [], []
    for _ in range(2):
        a, b, out = normal(torch, 256, 1500), normal(torch, 1500, 256), poisoned(torch, 256, 256)
        plan = lapidist.plan(a, b, kernel="simt", schedule="stream_k")
        plan.execute(a, b, None, out)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(4):
                plan.execute(a, b, None, out)
        graphs.append(graph)
        inputs.append((a, b, out))
    streams = [torch.cuda.Stream() for _ in graphs]
    for _, _, out in inputs:
        out.fill_(float("nan"))
    torch.cuda.synchronize()
    for _ in range(20):
        for stream, graph in zip(streams, graphs, strict=True):
            with torch.cuda.stream(stream):
                graph.replay()
    torch.cuda.synchronize()
    assert all(judge(out, a, b).ok for a, b, out in inputs)


def test_a_workspace_of_the_callers_own(torch: Any) -> None:
    a, b, out = normal(torch, 300, 2000), normal(torch, 2000, 200), poisoned(torch, 300, 200)
    needed = lapidist.plan(a, b, kernel="simt", split_k=4, reduction="turnstile").workspace_bytes
    workspace = torch.zeros(needed, dtype=torch.uint8, device="cuda")
    plan = lapidist.plan(a, b, kernel="simt", split_k=4, reduction="turnstile", workspace=workspace)
    for _ in range(3):
        plan.execute(a, b, None, out)
        assert judge(out, a, b).ok
    assert workspace.any()  # it was used
    with pytest.raises(lapidist.ArgumentError, match=r"workspace: must hold the plan's \d+ bytes"):
        lapidist.plan(a, b, kernel="simt", split_k=4, reduction="turnstile", workspace=workspace[:256])


@pytest.mark.alone
def test_memory_stays_flat(torch: Any) -> None:
    a, b, out = normal(torch, 300, 2000), normal(torch, 2000, 200), poisoned(torch, 300, 200)
    plan = lapidist.plan(a, b, kernel="simt", split_k=4, reduction="turnstile")
    plan.execute(a, b, None, out)
    torch.cuda.synchronize()
    free = torch.cuda.mem_get_info()[0]
    for _ in range(100):
        plan.execute(a, b, None, out)
        lapidist.gemm(a, b, out=out, kernel="simt", split_k=4, reduction="turnstile")
    torch.cuda.synchronize()
    assert torch.cuda.mem_get_info()[0] == free


# ---- modes ----


@pytest.mark.parametrize("way", [{}, {"split_k": 3}], ids=words)
@pytest.mark.parametrize("out_layout", ["row", "col"])
@pytest.mark.parametrize(("kernel", "dtype"), FAMILIES)
def test_rows_are_gathered_and_scattered(
    torch: Any, kernel: str, dtype: str, out_layout: str, way: dict[str, Any]
) -> None:
    a, b = normal(torch, 900, 320, dtype=dtype), normal(torch, 320, 700, dtype=dtype)
    rows, cols = torch.randint(0, 900, (333,), device="cuda"), torch.randint(0, 700, (250,), device="cuda")
    to = torch.randperm(600, device="cuda")[:333]
    out = normal(torch, 600, 250, dtype=dtype)
    out = out.T.contiguous().T if out_layout == "col" else out
    before = out.clone()
    asked = {"gather_a": rows, "gather_b": cols, "scatter_d": to, "check_indices": True}
    lapidist.gemm(a, b, out, alpha=0.5, beta=2.0, out=out, kernel=kernel, **asked, **way)
    assert judge(out[to], a[rows], b[:, cols], before[to], 0.5, 2.0).ok
    others = torch.ones(600, dtype=torch.bool, device="cuda")
    others[to] = False
    assert torch.equal(out[others], before[others])


def test_outputs_are_permuted(torch: Any) -> None:
    """Tokens x heads to heads x tokens, as attention wants it."""
    a, b = normal(torch, 6 * 80, 300), normal(torch, 300, 5 * 64)
    base = poisoned(torch, 6, 5, 80, 64)
    lapidist.gemm(a, b, out=base.permute(0, 2, 1, 3), permuted=True)
    assert judge(base.permute(0, 2, 1, 3).reshape(480, 320), a, b).ok


def test_scalars_are_read_when_the_kernel_runs(torch: Any) -> None:
    a, b, c = normal(torch, 90, 300), normal(torch, 300, 70), normal(torch, 90, 70)
    alpha, beta, out = (
        torch.tensor(2.0, device="cuda"),
        torch.tensor([0.5], device="cuda"),
        poisoned(torch, 90, 70),
    )
    plan = lapidist.plan(a, b, c, alpha=alpha, beta=beta, out=out)
    for value in (2.0, -3.0):
        alpha.fill_(value)
        plan.execute(a, b, c, out)
        assert judge(out, a, b, c, value, 0.5).ok


@pytest.mark.parametrize(("kernel", "dtype"), FAMILIES)
def test_lists(torch: Any, kernel: str, dtype: str) -> None:
    """More than one launch takes, again in a graph."""
    a, b = ([normal(torch, *shape, dtype=dtype) for _ in range(70)] for shape in ((60, 200), (200, 90)))
    out = [poisoned(torch, 60, 90, dtype=dtype) for _ in a]
    lapidist.gemm_lists(a, b, out=out, kernel=kernel)
    assert all(judge(d, x, y).ok for d, x, y in zip(out, a, b, strict=True))
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        lapidist.gemm_lists(a, b, out=out, kernel=kernel)
    for d in out:
        d.fill_(float("nan"))
    graph.replay()
    torch.cuda.synchronize()
    assert all(judge(d, x, y).ok for d, x, y in zip(out, a, b, strict=True))


@pytest.mark.parametrize("split_k", [1, 3])
@pytest.mark.parametrize(("kernel", "dtype"), FAMILIES)
def test_addresses_in_device_memory(torch: Any, kernel: str, dtype: str, split_k: int) -> None:
    """Read when the kernel runs: a graph replays with what the lists hold by then."""

    def listed(matrices: list[Any]) -> Any:
        addresses = torch.tensor([matrix.data_ptr() for matrix in matrices], device="cuda")
        return lapidist.Pointers(addresses, tuple(matrices[0].shape), dtype, alignment=16)

    a, b, c = (
        [normal(torch, *shape, dtype=dtype) for _ in range(300)] for shape in ((60, 200), (200, 88), (60, 88))
    )
    out = [poisoned(torch, 60, 88, dtype=dtype) for _ in a]
    given = [listed(matrices) for matrices in (a, b, c, out)]
    plan = lapidist.plan(
        *given[:3], out=given[3], alpha=0.5, beta=2.0, mode="array", kernel=kernel, split_k=split_k
    )
    plan.execute(*given)
    assert all(judge(d, x, y, z, 0.5, 2.0).ok for d, x, y, z in zip(out, a, b, c, strict=True))
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        plan.execute(*given)
    given[0].addresses.copy_(given[0].addresses.flip(0))
    graph.replay()
    torch.cuda.synchronize()
    assert all(judge(d, x, y, z, 0.5, 2.0).ok for d, x, y, z in zip(out, a[::-1], b, c, strict=True))


@pytest.mark.parametrize(("kernel", "dtype"), FAMILIES)
def test_the_same_rows_of_every_matrix_of_a_batch(torch: Any, kernel: str, dtype: str) -> None:
    a, b = normal(torch, 5, 90, 70, dtype=dtype), normal(torch, 70, 110, dtype=dtype)
    rows, to = torch.randint(0, 90, (64,), device="cuda"), torch.randperm(80, device="cuda")[:64]
    out = poisoned(torch, 5, 80, 110, dtype=dtype)
    lapidist.gemm(a, b, out=out, gather_a=rows, scatter_d=to, kernel=kernel)
    assert judge(out[:, to], a[:, rows], b).ok


def test_a_workspace_for_each_of_two_streams(torch: Any) -> None:
    """One plan a workspace; launches on the two overlap."""
    a, b = normal(torch, 300, 2000), normal(torch, 2000, 200)
    asked = {"kernel": "simt", "split_k": 4, "reduction": "turnstile"}
    needed = lapidist.plan(a, b, **asked).workspace_bytes
    plans, outs = [], [poisoned(torch, 300, 200) for _ in range(2)]
    for _ in outs:
        workspace = torch.zeros(needed, dtype=torch.uint8, device="cuda")
        plans.append(lapidist.plan(a, b, workspace=workspace, **asked))
    streams = [torch.cuda.Stream() for _ in plans]
    torch.cuda.synchronize()
    for _ in range(200):
        for plan, stream, out in zip(plans, streams, outs, strict=True):
            plan.execute(a, b, None, out, stream=stream)
    torch.cuda.synchronize()
    assert all(judge(out, a, b).ok for out in outs)
