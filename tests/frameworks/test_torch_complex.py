"""Complex tensors of torch: their conjugate bit, gradients and compilers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lapidist
from lapidist.verify.sum_bound import judge

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.frameworks


def random(*shape: int, dtype: Any = torch.complex128) -> Any:
    return torch.randn(*shape, dtype=dtype).requires_grad_()


@pytest.fixture
def lt() -> Any:
    import lapidist.torch

    return lapidist.torch


@pytest.mark.parametrize("device", [None, "machine"])
def test_the_conjugate_bit_is_taken_as_it_is(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "resolve_conj", None)
    a, b = (torch.randn(40, 40, dtype=torch.complex64) for _ in range(2))
    out = torch.empty(40, 40, dtype=torch.complex64)
    for x, y in ((a.conj(), b), (a, b.mH), (a.mH, b.conj()), (a.conj(), b)):
        for _ in range(3):
            assert torch.allclose(lapidist.matmul(x, y, out=out, device=device), x @ y, atol=1e-4)
    result = lapidist.gemm(a, b, a.conj(), beta=2.0, alpha=1j, trans_b="C", device=device)
    assert torch.allclose(result, 1j * (a @ b.mH) + 2 * a.conj(), atol=1e-4)
    followed = lapidist.epilogues.bias(bias=a[0].conj())
    result = lapidist.gemm(a, b, alpha=a[0, 0].conj(), epilogue=followed, device=device)
    assert torch.allclose(result, a[0, 0].conj() * (a @ b) + a[0].conj(), atol=1e-4)


@pytest.mark.parametrize("device", [None, "machine"])
def test_outputs_with_torchs_bits_are_written_as_they_are_read(device: Any) -> None:
    a, b = torch.randn(5, 6, dtype=torch.complex64), torch.randn(6, 7, dtype=torch.complex64)
    for _ in range(3):
        c = torch.randn(5, 7, dtype=torch.complex64)
        out, expected, version = c.conj(), 2 * (a @ b) + 3 * c.conj(), c._version
        assert lapidist.gemm(a, b, out, alpha=2.0, beta=3.0, out=out, device=device) is out
        assert torch.allclose(out.resolve_conj(), expected, atol=1e-4)
        assert c._version > version
        negative = torch.zeros(5, 7, dtype=torch.complex64).conj().imag
        lapidist.matmul(a.real, b.real, out=negative, device=device)
        assert torch.allclose(negative.resolve_neg(), a.real @ b.real, atol=1e-4)
    with pytest.raises(lapidist.StrideError, match="out: each element must have its own memory"):
        lapidist.matmul(a, b, out=c[:1].conj().expand(5, 7), device=device)
    kept, wrong = c.clone(), c[:, :6].conj()
    with pytest.raises(lapidist.ShapeError, match=r"out: must have shape \(5, 7\)"):
        lapidist.matmul(a, b, out=wrong, device=device)
    with pytest.raises(lapidist.ArgumentError, match="stream: must be left out where out is copied"):
        lapidist.matmul(a, b, out=c.conj(), device=device, stream=7)
    assert torch.equal(c, kept)


def test_gradients_are_those_of_torch(lt: Any) -> None:
    check = torch.autograd.gradcheck
    a, b = random(4, 5), random(5, 3)
    assert check(lt.matmul, (a, b))
    assert check(lt.matmul, (random(2, 4, 5), b))
    assert check(lt.matmul, (random(5), b))
    assert check(lt.matmul, (a, random(5)))
    assert check(lt.linear, (a, random(3, 5), random(3)))
    assert check(lambda a, b: lt.matmul(a.conj(), b.mH), (a, random(3, 5)))
    assert torch.autograd.gradgradcheck(lambda a, b: lt.matmul(a.conj(), b.mH), (a, random(3, 5)))
    how = {"alpha": 1j, "beta": 2 - 1j, "trans_a": "C", "trans_b": True}
    assert check(lambda a, b, c: lt.gemm(a, b, c, **how), (random(5, 4), random(3, 5), random(4, 3)))


def test_gradients_of_real_operands_are_real(lt: Any) -> None:
    real = random(4, 5, dtype=torch.float64), random(5, 3, dtype=torch.float64)
    assert torch.autograd.gradcheck(lt.matmul, (real[0], random(5, 3)))
    assert torch.autograd.gradcheck(lt.matmul, (random(4, 5), real[1]))


def test_gradients_of_gram(lt: Any) -> None:
    assert torch.autograd.gradcheck(lt.gram, (random(3, 4),))
    assert torch.autograd.gradcheck(lambda a: lt.gram(a, trans=True), (random(3, 4),))


def test_a_compiled_product_and_its_gradients(lt: Any) -> None:
    def function(a: Any, b: Any) -> Any:
        return lt.gemm(a.conj(), b, trans_a="C") + lt.matmul(a.mT, b)

    a, b = random(5, 4), random(5, 3)
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    results = compiled(a, b), function(a, b)
    assert torch.allclose(*results)
    gradients = [torch.autograd.grad(result.abs().sum(), (a, b)) for result in results]
    for one, other in zip(*gradients, strict=True):
        assert torch.allclose(one, other)


def test_a_layer_that_is_called_again_has_the_same_gradients(lt: Any) -> None:
    weight = random(3, 5, dtype=torch.complex64)
    for _ in range(4):
        x = random(4, 5, dtype=torch.complex64)
        found = torch.autograd.grad(lt.linear(x, weight).abs().sum(), (x, weight))
        right = torch.autograd.grad(torch.nn.functional.linear(x, weight).abs().sum(), (x, weight))
        for one, other in zip(found, right, strict=True):
            assert torch.allclose(one, other, atol=1e-5)


@lapidist.epilogue
def scaled_with_bias(acc: Any, bias: lapidist.Row, scale: lapidist.Scalar) -> Any:
    return acc * scale + bias


def test_epilogues_and_residuals(lt: Any) -> None:
    def followed(a: Any, b: Any, bias: Any) -> Any:
        return lt.gemm(a, b, trans_b="C", alpha=1j, epilogue=scaled_with_bias(bias=bias, scale=0.5))

    a, b, bias = random(4, 5), random(3, 5), random(3)
    for x, of_bias in ((a, bias), (random(4, 5, dtype=torch.float64), bias.conj())):
        right = 0.5j * (x.to(b.dtype) @ b.mH) + of_bias
        assert torch.allclose(followed(x, b, of_bias), right)
        with torch.no_grad():
            assert torch.allclose(followed(x, b, of_bias), right)
        assert torch.autograd.gradcheck(followed, (x, b, of_bias))
    assert torch.autograd.gradcheck(lambda a, b, c: lt.linear(a, b, residual=c), (a, b, random(4, 3)))


def test_complex_numbers_of_an_epilogue_whose_gradients_are_recorded(lt: Any) -> None:
    a, b, bias = random(4, 5), random(5, 3), random(3)
    for scale in (2 - 1j, np.complex64(2 - 1j)):

        def followed(a: Any, b: Any, bias: Any, scale: Any = scale) -> Any:
            return lt.matmul(a, b, epilogue=scaled_with_bias(bias=bias, scale=scale))

        assert torch.allclose(followed(a, b, bias), (a @ b) * (2 - 1j) + bias)
        assert torch.autograd.gradcheck(followed, (a, b, bias))


@lapidist.epilogue
def of_both(acc: Any, row: lapidist.Row, column: lapidist.Column) -> Any:
    return (acc + 1) * row / (column + 2)


def test_functions_of_conjugates(lt: Any) -> None:
    a, b, row, column = (x.detach() for x in (random(4, 5), random(5, 3), random(3), random(4)))
    followed = of_both(row=row.conj(), column=column.conj())
    right = (a @ b + 1) * row.conj() / (column.conj() + 2)[:, None]
    out = torch.empty(3, 4, dtype=a.dtype).mT
    for device in (None, "machine"):
        assert torch.allclose(lapidist.matmul(a, b, epilogue=followed, device=device), right)
        assert torch.allclose(lapidist.matmul(a, b, out, epilogue=followed, device=device), right)
    how = random(4, 5), random(5, 3), random(3), random(4)
    assert torch.autograd.gradcheck(
        lambda a, b, row, column: lt.matmul(a, b, epilogue=of_both(row=row.conj(), column=column)), how
    )


def test_three_products_and_their_gradients(lt: Any) -> None:
    a, b = random(4, 5), random(5, 3)
    assert torch.autograd.gradcheck(lambda a, b: lt.matmul(a, b, precision="3m"), (a, b))
    real = random(4, 5, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda a, b: lt.matmul(a, b, precision="3m"), (real, b))
    assert torch.allclose(lt.matmul(a, b, precision="3m"), a @ b)


def test_the_bound_of_three_products() -> None:
    a, b = random(9, 7, dtype=torch.complex64).detach(), random(7, 5, dtype=torch.complex64).detach()
    product = lapidist.matmul(a, b, device="machine", precision="3m")
    assert judge(product, a, b, precision="3m").ok
    assert not judge(product * 1.0001, a, b, precision="3m").ok


def test_functions_that_are_refused(lt: Any) -> None:
    a, b = random(4, 5), random(3, 5)
    for how in ({"activation": "relu"}, {"activation": "gelu", "residual": random(4, 3)}):
        with pytest.raises(lapidist.DTypeError, match=r"activation: .* is a function of real numbers"):
            lt.linear(a, b, **how)
    with pytest.raises(lapidist.DTypeError, match="activation: silu is a function of real numbers"):
        lt.mlp(a, b, None, random(2, 3), None, activation="silu")
    with pytest.raises(lapidist.DTypeError, match="residual: must be of real numbers"):
        lt.linear(a.detach().real, b.detach().real, residual=random(4, 3))
    for x in (a, a.detach()):
        with pytest.raises(lapidist.ArgumentError, match="epilogue: of complex numbers must add"):
            lt.matmul(x, b.mT, epilogue=lapidist.epilogues.relu)


def test_numbers_that_are_refused(lt: Any) -> None:
    with pytest.raises(lapidist.ArgumentError, match="alpha: must be a real number; got complex"):
        lt.gemm(torch.ones(2, 2), torch.ones(2, 2), alpha=1j)
    with pytest.raises(lapidist.ArgumentError, match=r'trans_a: must be True, False or "C"; got .T.'):
        lt.gemm(random(2, 2), random(2, 2), trans_a="T")


@pytest.mark.filterwarnings("ignore:ComplexHalf support")
def test_types_that_do_not_meet() -> None:
    """The conversion that is named keeps every number, and is no wider than that."""
    a, b = torch.ones(4, 5, dtype=torch.complex64), torch.ones(5, 3)
    halves = a.to(torch.complex32)
    for x, other, conversion in (
        (a, torch.complex128, "a to complex128"),
        (a, torch.complex32, "b to complex64"),
        (a, torch.bfloat16, "b to complex64"),
        (a, torch.float64, "both to complex128"),
        (a, torch.int32, "both to complex128"),
        (halves, torch.float32, "both to complex64"),
        (halves, torch.complex64, "a to complex64"),
    ):
        with pytest.raises(
            lapidist.DTypeError, match=rf"b: element type must .* Convert {conversion}, which"
        ):
            lapidist.matmul(x, b.to(other))
    for precision in ("tf32", "emulated"):
        with pytest.raises(lapidist.LapidistError, match=rf"{precision}.* convert .*to complex64"):
            lapidist.matmul(halves, halves.mT, precision=precision)  # type: ignore[arg-type]
