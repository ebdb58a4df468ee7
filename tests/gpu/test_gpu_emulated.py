"""precision="emulated" on a GPU: largest errors over inputs of many spans, graphs, equal bits each time."""

from __future__ import annotations

from typing import Any

import pytest

import lapidist

pytestmark = pytest.mark.gpu
torch: Any = pytest.importorskip("torch")
BOUND = 2.0**-21


@pytest.fixture(autouse=True)
def the_best_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAPIDIST_COMPILE", "wait")


def drawn(phi: float, *shape: int) -> Any:
    """(U - 0.5) exp(phi N), as papers on emulated products have it."""
    wide = torch.exp(phi * torch.randn(*shape, device="cuda", dtype=torch.float64))
    return ((torch.rand(*shape, device="cuda", dtype=torch.float64) - 0.5) * wide).float()


@pytest.mark.parametrize("k", [256, 1024, 5000, 16384])
@pytest.mark.parametrize("phi", [0.0, 0.25, 0.5, 1.0, 2.0, 4.0])
def test_largest_errors(phi: float, k: int) -> None:
    """Within the bound, or as near as torch's float32 is."""
    for m, n in ((512, 384), (300, 701)):
        a, b = drawn(phi, m, k), drawn(phi, k, n)
        exact, magnitudes = a.double() @ b.double(), a.double().abs() @ b.double().abs()
        found = lapidist.matmul(a, b, precision="emulated")
        error = ((found.double() - exact).abs() / magnitudes).max()
        plain = ((lapidist.gemm(a, b, kernel="simt").double() - exact).abs() / magnitudes).max()
        assert error <= max(BOUND, plain.item())


@pytest.mark.parametrize("turned", [False, True])
def test_normal_numbers_in_a_graph(turned: bool) -> None:
    a = torch.randn(1024, 2048, device="cuda")
    b = torch.randn(1536, 2048, device="cuda").mT if turned else torch.randn(2048, 1536, device="cuda")
    out = torch.empty(1024, 1536, device="cuda")
    for _ in range(3):
        lapidist.matmul(a, b, out=out, precision="emulated")
    first = out.clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        lapidist.matmul(a, b, out=out, precision="emulated")
    exact, magnitudes = a.double() @ b.double(), a.double().abs() @ b.double().abs()
    for _ in range(3):
        out.zero_()
        graph.replay()
        assert torch.equal(out, first)
    assert ((first.double() - exact).abs() <= BOUND * magnitudes).all()
    a[5] *= torch.exp(5 * torch.randn(2048, device="cuda"))  # the replay falls back by itself
    graph.replay()
    assert torch.equal(out, lapidist.gemm(a, b, kernel="simt"))
