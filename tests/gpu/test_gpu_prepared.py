"""On a GPU: weights that stay cut, in repeated calls, in graphs, and after they were written to."""

from __future__ import annotations

from typing import Any

import pytest

import lapidist

pytestmark = pytest.mark.gpu
torch: Any = pytest.importorskip("torch")
BOTH = pytest.mark.parametrize("precision", ["emulated", "emulated_any_range"])


@pytest.fixture(autouse=True)
def the_best_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAPIDIST_COMPILE", "wait")


@BOTH
@pytest.mark.parametrize(("m", "n", "k"), [(1, 520, 1000), (64, 1024, 2048), (300, 701, 515)])
def test_repeated_calls_have_the_bits_of_products_that_cut(precision: Any, m: int, n: int, k: int) -> None:
    w, bias = torch.randn(n, k, device="cuda"), torch.randn(n, device="cuda")
    weight = lapidist.PreparedWeight(w, precision, trans_b=True)
    for turn in range(4):
        x = torch.randn(m, k, device="cuda")
        if turn == 3:
            x[m - 1, 7] = 1e30 if precision == "emulated" else 1e-36  # falls back
        expected = lapidist.gemm(x, w, trans_b=True, precision=precision)
        assert torch.equal(weight.matmul(x), expected)
        with_bias = lapidist.gemm(x, w, bias, beta=1.0, trans_b=True, precision=precision)
        assert torch.equal(weight.matmul(x, bias), with_bias)
        w.mul_(1.5)


@BOTH
def test_a_graph_reads_the_parts_of_a_weight_that_changed(precision: Any) -> None:
    w, x = torch.randn(520, 1000, device="cuda"), torch.randn(64, 1000, device="cuda")
    weight, out = lapidist.PreparedWeight(w, precision, trans_b=True), torch.empty(64, 520, device="cuda")
    for _ in range(3):
        weight.matmul(x, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        weight.matmul(x, out=out)
    for _ in range(2):
        graph.replay()
        assert torch.equal(out, lapidist.gemm(x, w, trans_b=True, precision=precision))
        w.mul_(-2)
        weight.renew()


@BOTH
def test_layers_of_a_swapped_model(precision: Any) -> None:
    from lapidist import torch as operators

    model = torch.nn.Sequential(
        torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 512)
    ).cuda()
    x = torch.randn(4, 16, 512, device="cuda")
    exact = model.double()(x.double())
    model.float()
    operators.swap(model, precision=precision)
    with torch.no_grad():
        for _ in range(3):
            found = model(x)
    torch.testing.assert_close(found.double(), exact, rtol=1e-4, atol=1e-5)
    trained = model(x)
    torch.testing.assert_close(trained, found, rtol=1e-4, atol=1e-5)
