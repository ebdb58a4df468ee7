"""Complex products on a GPU: exact for small whole numbers, by every path of a repeated call."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

import lapidist

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

TYPES = [torch.complex64, torch.complex128]
OPS: dict[Any, Any] = {False: lambda x: x, True: lambda x: x.mT, "C": lambda x: x.mH}


def whole(*shape: int, dtype: Any) -> Any:
    parts = (torch.randint(-4, 5, shape, device="cuda", dtype=dtype.to_real()) for _ in range(2))
    return torch.complex(*parts)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(33, 7, 35), (257, 130, 301)])
def test_every_op_again_and_again(dtype: Any, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    for (trans_a, trans_b), conjugated in product(product(OPS, OPS), (False, True)):
        for _ in range(4):  # once the fast path is known, too; of the tensor without its conjugate bit
            a = whole(*((k, m) if trans_a else (m, k)), dtype=dtype)
            b, c = whole(*((n, k) if trans_b else (k, n)), dtype=dtype), whole(m, n, dtype=dtype)
            a = a.conj() if conjugated else a
            result = lapidist.gemm(a, b, c, alpha=2.0, beta=1.0, trans_a=trans_a, trans_b=trans_b)
            assert torch.equal(result, 2 * (OPS[trans_a](a) @ OPS[trans_b](b)) + c)
            result = lapidist.gemm(a, b, c, alpha=1j, beta=1 - 1j, trans_a=trans_a, trans_b=trans_b)
            assert torch.equal(result, 1j * (OPS[trans_a](a) @ OPS[trans_b](b)) + (1 - 1j) * c)


@pytest.mark.parametrize("dtype", TYPES)
def test_batches_and_real_operands(dtype: Any) -> None:
    a, b = whole(2, 3, 70, 90, dtype=dtype), whole(3, 90, 80, dtype=dtype)
    for x, y in ((a, b), (a.mH, a), (a[:, :, :20], b[0]), (a.transpose(0, 1), b[:, None]), (a[0, 0, 0], b)):
        for _ in range(3):
            assert torch.equal(lapidist.matmul(x, y), x @ y)
    for _ in range(3):
        assert torch.equal(lapidist.matmul(a.real, b), a.real.to(dtype) @ b)
        assert torch.equal(lapidist.matmul(a, b.imag), a @ b.imag.to(dtype))


def test_in_a_graph() -> None:
    a, b = (whole(100, 100, dtype=torch.complex64) for _ in range(2))
    out = torch.empty_like(a)
    lapidist.matmul(a.conj(), b, out=out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        lapidist.matmul(a.conj(), b, out=out)
    b.copy_(whole(100, 100, dtype=torch.complex64))
    graph.replay()
    assert torch.equal(out, a.conj() @ b)


@pytest.mark.parametrize("precision", ["tf32", "emulated"])
def test_other_precisions(precision: Any) -> None:
    a, b = (torch.randn(600, 600, dtype=torch.complex64, device="cuda") for _ in range(2))
    exact = a.to(torch.complex128) @ b.to(torch.complex128)
    error = (lapidist.matmul(a, b, precision=precision) - exact).abs().max() / exact.abs().max()
    assert error < (2e-3 if precision == "tf32" else 1e-5)


def test_refusals() -> None:
    a = torch.ones(4, 4, dtype=torch.complex64, device="cuda")
    with pytest.raises(lapidist.ArgumentError, match="stream: complex products run on the current stream"):
        lapidist.matmul(a, a, stream=torch.cuda.Stream())
    with pytest.raises(lapidist.ArgumentError, match="a: complex products on a GPU take arrays of torch"):
        lapidist.matmul(a.cpu().numpy(), a.cpu().numpy(), device="gpu")
    with pytest.raises(
        lapidist.DTypeError,
        match=r"b: element type must be that of a, complex64; got complex128\. Convert a to complex128",
    ):
        lapidist.matmul(a, a.to(torch.complex128))
