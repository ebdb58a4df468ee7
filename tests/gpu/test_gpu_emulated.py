"""Emulated float32 on a GPU: largest errors over inputs of many spans, graphs, equal bits each time."""

from __future__ import annotations

from typing import Any

import pytest

import lapidist
from lapidist.calls.repeat import MATRIX_PATHS
from lapidist.errors import ArgumentError

pytestmark = pytest.mark.gpu
torch: Any = pytest.importorskip("torch")
BOUND = 2.0**-21
IN_TURN = lapidist.Config(32, 64, 16, 16, 32, 4, 4, stages=4)  # no slices of k


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


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("k", [256, 1024, 5000, 16384])
@pytest.mark.parametrize("phi", [0.0, 0.5, 1.0, 2.0, 4.0])
def test_any_range_is_as_near_as_float32(phi: float, k: int, signed: bool) -> None:
    """By its own sums: simt, which adds one element after the other, has other bits, and larger errors."""
    a, b = drawn(phi, 300, k), drawn(phi, k, 701)
    if not signed:
        a, b = a.abs(), b.abs()
    exact, magnitudes = a.double() @ b.double(), a.double().abs() @ b.double().abs()
    found = lapidist.matmul(a, b, precision="emulated_any_range")
    plain = lapidist.gemm(a, b, kernel="simt", config=IN_TURN, schedule="data_parallel")
    error, of_plain = (((d.double() - exact).abs() / magnitudes).max() for d in (found, plain))
    assert not torch.equal(found, plain)
    assert error <= of_plain


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 3e38, 1e-38, 1e-44])
def test_any_range_of_special_numbers(value: float) -> None:
    a, b = torch.randn(200, 1000, device="cuda"), torch.randn(1000, 136, device="cuda")
    a[7] = value
    b[:, 9] = 0
    found = lapidist.matmul(a, b, precision="emulated_any_range")
    plain = lapidist.gemm(a, b, kernel="simt")
    if value > 3e38 or value != value:
        assert torch.equal(found.nan_to_num(7), plain.nan_to_num(7))
        return
    exact = a.double() @ b.double()
    magnitudes = a.double().abs() @ b.double().abs()
    inside = exact.abs() < 3.4e38
    error = (found.double() - exact).abs()
    assert (error[inside] <= (2.0**-20 * magnitudes + 2.0**-149)[inside]).all()
    assert torch.equal(found[~inside], exact[~inside].float())


@pytest.mark.parametrize("precision", ["emulated", "emulated_any_range"])
@pytest.mark.parametrize("turned", [False, True])
def test_normal_numbers_in_a_graph(turned: bool, precision: str) -> None:
    a = torch.randn(1024, 2048, device="cuda")
    b = torch.randn(1536, 2048, device="cuda").mT if turned else torch.randn(2048, 1536, device="cuda")
    out = torch.empty(1024, 1536, device="cuda")
    for _ in range(3):
        lapidist.matmul(a, b, out=out, precision=precision)
    first = out.clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        lapidist.matmul(a, b, out=out, precision=precision)
    exact, magnitudes = a.double() @ b.double(), a.double().abs() @ b.double().abs()
    for _ in range(3):
        out.zero_()
        graph.replay()
        assert torch.equal(out, first)
    assert ((first.double() - exact).abs() <= BOUND * magnitudes).all()
    if precision == "emulated_any_range":
        a[5, ::2] = 1e-37  # a line of several sizes has no fp16 parts, and these no bfloat16 ones
    else:
        a[5, 7] = 1e7
    graph.replay()  # it falls back by itself
    assert torch.equal(out, lapidist.gemm(a, b, kernel="simt"))


@pytest.mark.parametrize("precision", ["emulated", "emulated_any_range"])
def test_repeated_calls_launch_at_once(precision: Any) -> None:
    """Other matrices, alphas and outputs than those of the call that was recorded; other numbers in the same
    memory, for which the device decides anew."""
    remembered = len(MATRIX_PATHS)
    for turn in range(5):
        a, b = torch.randn(300, 1000, device="cuda"), torch.randn(1000, 520, device="cuda")
        c, alpha, beta = torch.randn(300, 520, device="cuda"), 2.0 + turn, 0.5 - turn
        exact = alpha * (a.double() @ b.double()) + beta * c.double()
        bound = BOUND * (alpha * (a.double().abs() @ b.double().abs()) + abs(beta) * c.double().abs())
        found = lapidist.gemm(a, b, c, alpha=alpha, beta=beta, precision=precision)
        assert ((found.double() - exact).abs() <= bound).all()
        out = c.clone()
        assert lapidist.gemm(a, b, out, alpha=alpha, beta=beta, out=out, precision=precision) is out
        assert torch.equal(out, found)
        a[3, 5] = float("inf")
        plain = lapidist.gemm(a, b, c, alpha=alpha, beta=beta, kernel="simt")
        found = lapidist.gemm(a, b, c, alpha=alpha, beta=beta, precision=precision)
        assert torch.equal(found.nan_to_num(7), plain.nan_to_num(7))
    assert len(MATRIX_PATHS) >= remembered + 2
    other = torch.cuda.Stream()
    with pytest.raises(ArgumentError, match="current stream"):
        lapidist.gemm(a, b, c, alpha=alpha, beta=beta, precision=precision, stream=other)
    with torch.cuda.stream(other):
        other.wait_stream(torch.cuda.default_stream())
        beside = lapidist.gemm(a, b, c, alpha=alpha, beta=beta, precision=precision)
    torch.cuda.synchronize()
    assert torch.equal(beside.nan_to_num(7), plain.nan_to_num(7))


@lapidist.epilogue
def biased_relu(acc: Any, bias: lapidist.Row) -> Any:
    return lapidist.maximum(acc + bias, 0)


@pytest.mark.parametrize("precision", ["emulated", "emulated_any_range"])
def test_an_epilogue_and_gradients(precision: Any) -> None:
    from lapidist import torch as operators

    x, weight, bias = (torch.randn(shape, device="cuda") for shape in ((300, 1000), (520, 1000), (520,)))
    sums = lapidist.gemm(x, weight, trans_b=True, precision=precision)
    for _ in range(3):
        found = lapidist.gemm(x, weight, trans_b=True, precision=precision, epilogue=biased_relu(bias=bias))
        assert torch.equal(found, (sums + bias).relu())
    leaves = [leaf.clone().requires_grad_() for leaf in (x, weight, bias)]
    doubles = [leaf.double().requires_grad_() for leaf in (x, weight, bias)]
    for _ in range(3):
        operators.linear(*leaves, precision=precision).sum().backward()
        torch.nn.functional.linear(*doubles).sum().backward()
    for leaf, double in zip(leaves, doubles, strict=True):
        torch.testing.assert_close(leaf.grad.double(), double.grad, rtol=1e-4, atol=1e-2)
