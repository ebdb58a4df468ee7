"""complex32 of torch: halves multiplied as float16 with sums in float32, or as complex64."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import lapidist
from lapidist.backends.machine_backend import sanitized
from lapidist.dtypes import numpy_dtype
from lapidist.verify.sum_bound import judge

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore:ComplexHalf support")]
C32, C64, C128 = torch.complex32, torch.complex64, torch.complex128
PLACES = "host", "machine"


def whole(*shape: int) -> Any:
    return torch.view_as_complex(torch.randint(-3, 4, (*shape, 2)).to(torch.float16))


def of(number: Any) -> Any:
    return number.to(C128) if isinstance(number, torch.Tensor) else number


def same(result: Any, right: Any) -> None:
    assert result.dtype == C32
    assert torch.equal(of(result), right)


@pytest.mark.parametrize("device", PLACES)
def test_operands_and_factors(device: str) -> None:
    a, b, c = whole(5, 3), whole(3, 4), whole(5, 4)
    real, number = torch.tensor([2.0]), torch.tensor([1 - 1j], dtype=C64)
    half = torch.view_as_complex(torch.tensor([[1.0, 2.0]], dtype=torch.float16)).conj()
    pairs = [(a, b), (a.real, b), (a, b.imag), (a.conj(), b.mT.contiguous().mT)]
    factors = [[(2.0, 0.5)], [(real, 1.0)], [(1j, 2.0), (half, 2.0)], [(real, number)]]
    for place, (x, y) in enumerate(pairs):
        for alpha, beta in factors[place]:
            out = whole(4, 5).mT if alpha == 2.0 else whole(5, 8)[:, ::2]
            with sanitized(1) if place == 0 else nullcontext():
                result = lapidist.gemm(x, y, c, alpha=alpha, beta=beta, out=out, device=device)
            assert result is out
            same(out, of(alpha) * (of(x) @ of(y)) + of(beta) * of(c))
    same(lapidist.gemm(a, a, trans_a="C", device=device), of(a).mH @ of(a))
    same(lapidist.matmul(a, b, precision="3m", device=device), of(a) @ of(b))


@lapidist.epilogue
def scaled(acc: Any, bias: lapidist.Row, by: lapidist.Column, scale: lapidist.Scalar) -> Any:
    return (acc + bias) * by - scale + 2


@pytest.mark.parametrize("device", PLACES)
def test_epilogues_batches_lists_and_gram(device: str) -> None:
    a, b, by = whole(2, 4, 5), whole(5, 3), torch.tensor([1, 2, 4, 8], dtype=torch.float16)
    for bias in (whole(3), whole(3).to(C64)):
        followed, right = scaled(bias=bias, by=by, scale=1j), (of(a) @ of(b) + of(bias)) * of(by)[:, None]
        same(lapidist.matmul(a, b, epilogue=followed, device=device), right - 1j + 2)
    results = lapidist.gemm([*a], [b, b], device=device)
    for result, x in zip(results, a, strict=True):
        same(result, of(x) @ of(b))
    same(lapidist.gram(a, device=device), of(a) @ of(a).mH)
    out = torch.view_as_complex(torch.full((4, 4, 2), 7, dtype=torch.float16))
    lapidist.gram(a[0], triangle="lower", out=out, device=device)
    same(out, (of(a[0]) @ of(a[0]).mH).tril() + torch.full((4, 4), 7 + 7j, dtype=C128).triu(1))


@pytest.mark.parametrize("device", PLACES)
def test_sums_are_in_float32(device: str) -> None:
    """Each is rounded once; halves would lose 2048 + 1."""
    a, b = (x.to(C32) for x in torch.randn(2, 20, 20, dtype=C64))
    result = lapidist.matmul(a, b, device=device)
    assert judge(result, a, b).ok
    row = torch.tensor([[2048.0, 1.0, -2048.0]], dtype=torch.float16)
    ones = torch.view_as_complex(torch.ones(3, 1, 2, dtype=torch.float16))
    same(lapidist.matmul(row, ones, device=device), torch.full((1, 1), 1 + 1j, dtype=C128))
    small, large = (
        torch.view_as_complex(torch.full((1, 1, 2), size, dtype=torch.float16)) for size in (2.0**-8, 2.0**8)
    )
    result = lapidist.gemm(small, large, alpha=1024j, device=device)  # times B is beyond halves
    same(result, torch.full((1, 1), -2048, dtype=C128))


def test_kernels_multiply_halves() -> None:
    a, b = whole(9, 5), whole(5, 7)
    plan = lapidist.plan(a, b, device="machine")
    assert plan.plan.problem.dtype == "float16"
    assert plan.plan.problem.accumulator == "float32"
    same(plan.execute(a, b), of(a) @ of(b))
    with pytest.raises(lapidist.DTypeError, match=r"a: plans of complex32 are for kernels; .* on the host"):
        lapidist.plan(a, b)
    with pytest.raises(lapidist.DTypeError, match="with real alpha and beta; got alpha=1j"):
        lapidist.plan(a, b, alpha=1j, device="machine")


def test_gradients_are_those_of_complex64() -> None:
    import lapidist.torch as lt

    how: dict[str, Any] = {"alpha": 2.0, "trans_a": "C"}
    a, b, weights = whole(5, 4), whole(5, 3), whole(4, 3)
    halves = [x.clone().requires_grad_() for x in (a, b)]
    wide = [x.to(C64).requires_grad_() for x in (a, b)]
    result = lt.gemm(*halves, **how)
    same(result.detach(), 2 * of(a).mH @ of(b))
    found = torch.autograd.grad(result, halves, weights)
    right = torch.autograd.grad(lt.gemm(*wide, **how), wide, weights.to(C64))
    for one, other in zip(found, right, strict=True):
        same(one, of(other))
    function = torch.compile(lambda a, b: lt.gemm(a, b, **how), fullgraph=True, backend="eager")
    same(function(a, b), 2 * of(a).mH @ of(b))


def test_words_where_there_are_none() -> None:
    a = np.ones((2, 2), np.complex64)
    with pytest.raises(lapidist.DTypeError, match=r"out_dtype: must be complex64 .*; got complex32"):
        lapidist.matmul(a, a, out_dtype="complex32")
    with pytest.raises(lapidist.DTypeError, match="NumPy and JAX have no complex32; only torch"):
        numpy_dtype("complex32")
    halves = whole(4, 4)
    with pytest.raises(lapidist.DTypeError, match='"emulated" is a way to multiply float32; a is complex32'):
        lapidist.matmul(halves, halves, precision="emulated")
    with pytest.raises(lapidist.LapidistError, match="out: must not overlap a"):
        lapidist.matmul(halves, halves, halves)
