"""lapidist.jax of complex numbers: on the CPU, and as products of real numbers, which a GPU gets. Gradients
are by JAX's convention, which is not torch's.
"""

from __future__ import annotations

import importlib
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest

import lapidist

pytestmark = pytest.mark.frameworks

jax = pytest.importorskip("jax")
import lapidist.jax as lj  # noqa: E402

OPS: dict[Any, Any] = {False: lambda x: x, True: lambda x: x.swapaxes(-2, -1), "C": lambda x: x.mT.conj()}


def whole(*shape: int, dtype: Any = np.complex64, seed: int = 0) -> Any:
    """Small whole numbers, whose products and sums are exact."""
    rng = np.random.default_rng((seed, *shape))
    return (rng.integers(-4, 5, shape) + 1j * rng.integers(-4, 5, shape)).astype(dtype)


def same(result: Any, right: Any) -> None:
    assert result.dtype == right.dtype
    np.testing.assert_array_equal(np.asarray(result), right)


@pytest.fixture(params=["cpu", "in real numbers"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU as it is, and by what XLA runs on a GPU."""
    if request.param == "cpu":
        return
    operators, lowered = (
        importlib.import_module(f"lapidist.jax.{name}") for name in ("operators", "complex_numbers")
    )

    def bound(*operands: Any, product: Any) -> Any:
        bind = lowered.by_real_numbers if lowered.is_complex(*operands[:2]) else operators.bind_all
        return jax.jit(partial(bind, product=product))(*operands)

    monkeypatch.setattr(importlib.import_module("lapidist.jax.public_calls"), "bind_all", bound)


FACTORS = [(1.0, 0.0), (1j, 2 - 1j), (0.0, 2.0), (2.0, 1j), (0j, 1.0)]


@pytest.mark.usefixtures("way")
def test_every_op_and_kind_of_number() -> None:
    c = whole(5, 3, seed=2)
    for number, (trans_a, trans_b) in enumerate(product(OPS, OPS)):
        a, b = whole(*((7, 5) if trans_a else (5, 7))), whole(*((3, 7) if trans_b else (7, 3)), seed=1)
        x, y = [(a, b), (a.real, b), (a, b.real)][number % 3]
        alpha, beta = FACTORS[number % len(FACTORS)]
        how: Any = {"alpha": alpha, "beta": beta, "trans_a": trans_a, "trans_b": trans_b}
        right = (alpha * (OPS[trans_a](x) @ OPS[trans_b](y)) + beta * c).astype("c8")
        same(lj.gemm(x, y, c, **how), right)


@pytest.mark.usefixtures("way")
def test_shapes_and_addends() -> None:
    a, b = whole(2, 3, 5, 7), whole(3, 7, 4)
    for x, y in ((a, b), (a, b[0]), (a[0, 0, 0], b), (a, b[0, :, 0]), (a[..., :0], b[:, :0])):
        same(lj.matmul(x, y), x @ y)
    for c in (whole(4), whole(5, 1), whole(3, 5, 4)):
        same(lj.gemm(a, b, c, beta=1j), a @ b + 1j * c)
    same(jax.vmap(lj.matmul, (1, None))(a[0].swapaxes(0, 1), b[0]), a[0] @ b[0])
    same(lj.linear(a[0], b[0].T, whole(4)), a[0] @ b[0] + whole(4))


def test_complex128_and_the_machine() -> None:
    a, b = whole(5, 7, dtype="c16"), whole(7, 3, dtype="c16")
    with jax.enable_x64(True):
        same(jax.jit(lj.matmul)(a, b), a @ b)
    a, b = a.astype("c8"), b.astype("c8")
    same(jax.jit(partial(lj.gemm, trans_a="C", alpha=1j, device="machine"))(a, a), 1j * (a.conj().T @ a))
    same(lj.matmul(a, b, precision="emulated"), a @ b)


@pytest.mark.usefixtures("way")
def test_gradients_are_those_of_jax() -> None:
    a, b, c, weights = whole(7, 5), whole(3, 7), whole(5, 3, seed=1), whole(5, 3, seed=2)

    def ours(a: Any, b: Any, c: Any) -> Any:
        return lj.gemm(a, b, c, alpha=1j, beta=2 - 1j, trans_a="C", trans_b=True)

    def theirs(a: Any, b: Any, c: Any) -> Any:
        return 1j * (a.conj().T @ b.T) + (2 - 1j) * c

    def loss(f: Any, *operands: Any) -> Any:
        return (abs((f(*operands) * weights).sum()) / 100) ** 2

    for operands in ((a.real, b, c), (a, b.real, c)):
        found, right = (jax.grad(partial(loss, f), (0, 1, 2))(*operands) for f in (ours, theirs))
        for one, other, operand in zip(found, right, operands, strict=True):
            assert one.dtype == operand.dtype
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
        tangents = tuple(x * (1 if np.isrealobj(x) else 1 + 2j) for x in operands)
        found, right = (jax.jvp(f, operands, tangents)[1] for f in (ours, theirs))
        np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-3)


@lapidist.epilogue
def squared(acc: Any, row: lapidist.Row, column: lapidist.Column, scale: lapidist.Scalar) -> Any:
    return (acc + row) * (acc - column) * scale + 1


def test_functions_of_complex_sums() -> None:
    """XLA computes them, with products of complex values, and their gradients."""
    a, b, row, column = whole(5, 7), whole(7, 3), whole(3), whole(5, seed=1)

    def ours(a: Any, b: Any, row: Any) -> Any:
        followed = squared(row=row, column=column, scale=2j)
        return lj.gemm(a, b, alpha=1j, epilogue=followed)

    def theirs(a: Any, b: Any, row: Any) -> Any:
        return 2j * (1j * (a @ b) + row) * (1j * (a @ b) - column[:, None]) + 1

    for operands in ((a, b, row), (a.real, b, row.real)):  # a real one is added, too
        same(jax.jit(ours)(*operands), theirs(*operands).astype("c8"))
        losses = (lambda *of, f=f: (abs(f(*of)) ** 2).sum() for f in (ours, theirs))
        found, right = (jax.grad(loss, (0, 1, 2))(*operands) for loss in losses)
        for one, other in zip(found, right, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1)
    batch = whole(2, 5, 7, seed=2)
    same(jax.vmap(ours, (0, None, None))(batch, b, row), theirs(batch, b, row).astype("c8"))


@pytest.mark.usefixtures("way")
def test_layers_with_residuals() -> None:
    a, b, bias, residual = whole(5, 7), whole(3, 7), whole(3), whole(5, 3)
    same(lj.linear(a, b, bias, residual=residual), a @ b.T + bias + residual)
    same(lj.linear(a, b, residual=residual), a @ b.T + residual)


@pytest.mark.usefixtures("way")
def test_three_products() -> None:
    """With every op and kind of number, where both are complex; else four."""
    c, three = whole(5, 3, seed=2), partial(lj.gemm, precision="3m")
    for number, (trans_a, trans_b) in enumerate(product(OPS, OPS)):
        a, b = whole(*((7, 5) if trans_a else (5, 7))), whole(*((3, 7) if trans_b else (7, 3)), seed=1)
        x, y = (a.real, b) if number == 4 else (a, b)
        alpha, beta = FACTORS[number % len(FACTORS)]
        right = (alpha * (OPS[trans_a](x) @ OPS[trans_b](y)) + beta * c).astype("c8")
        how: Any = {"alpha": alpha, "beta": beta, "trans_a": trans_a, "trans_b": trans_b}
        same(three(x, y, c, **how), right)
    a, b = whole(2, 3, 5, 7), whole(3, 7, 4)
    for x, y in ((a, b), (a, b[0]), (a[0, 0, 0], b), (a[..., :0], b[:, :0])):
        same(lj.matmul(x, y, precision="3m"), x @ y)


def test_three_products_differ_from_four_and_so_do_their_gradients() -> None:
    """Imaginary parts are differences of large numbers; the same program batches them on a GPU."""
    thrice = partial(lj.gemm, precision="3m", trans_a=True, trans_b="C")
    a, b = whole(64, 32), whole(16, 64)
    lowered = jax.jit(thrice).trace(a, b).lower(lowering_platforms=("cuda",)).as_text()
    assert "tensor<3x32x64xf32>, tensor<3x64x16xf32>) -> (tensor<3x32x16xf32>" in lowered
    gradient = jax.grad(lambda a, b: abs(thrice(a, b)).sum(), (0, 1))
    assert str(jax.make_jaxpr(gradient)(a, b)).count("3m") == 3
    test_util = importlib.import_module("jax.test_util")
    with jax.enable_x64(True):
        operands = (a[:3, :2] / 4).astype("c16"), (b[:4, :3] / 4).astype("c16")
        test_util.check_grads(thrice, operands, 2, rtol=1e-4, atol=1e-4)
        assert str(jax.make_jaxpr(gradient)(*operands)).count("3m") == 3
    same(lj.gram(a, precision="3m"), a @ a.conj().T)
    mapped = jax.jit(jax.vmap(partial(lj.matmul, precision="3m"), (1, None)))
    same(mapped(a.reshape(8, 8, 32), b.T[:32]), a.reshape(8, 8, 32).swapaxes(0, 1) @ b.T[:32])


def test_jax_conjugates_otherwise_than_torch() -> None:
    """The gradient of |z|^2 is 2 conj(z) in JAX, 2 z in torch: so of the products'."""
    torch = pytest.importorskip("torch")
    import lapidist.torch as lt

    a, b = whole(4, 5), whole(5, 3)
    of_jax = jax.grad(lambda a: (abs(lj.matmul(a, b)) ** 2).sum())(a)
    tensor = torch.tensor(a, requires_grad=True)
    (lt.matmul(tensor, torch.tensor(b)).abs() ** 2).sum().backward()
    np.testing.assert_allclose(of_jax, tensor.grad.numpy().conj(), rtol=1e-4)
    holomorphic = jax.grad(lambda a: lj.matmul(a, b).sum(), holomorphic=True)(a)
    np.testing.assert_allclose(holomorphic, np.ones((4, 3)) @ b.T)


def test_second_derivatives_and_gradients_of_a_batch() -> None:
    x, b = whole(2, 3, 4) / 4, whole(4, 3) / 4
    test_util = importlib.import_module("jax.test_util")
    with jax.enable_x64(True):
        operands = x.astype("c16"), b.astype("c16")
        test_util.check_grads(jax.vmap(lj.matmul, (0, None)), operands, 2, rtol=1e-4, atol=1e-4)


def test_gram() -> None:
    a, weights = whole(2, 5, 6), whole(6, 6)
    for trans in (False, True):
        same(lj.gram(a, trans=trans), np.asarray(lapidist.gram(a, trans=trans)))
    random = np.random.default_rng(0).standard_normal((5, 80)).astype("f4").view("c8")
    result = np.asarray(lj.gram(random))
    np.testing.assert_array_equal(result, result.conj().T)

    def theirs(a: Any, c: Any) -> Any:
        return 0.5 * OPS["C"](a) @ a + 2 * c

    def loss(f: Any, a: Any, c: Any) -> Any:
        return abs((f(a, c) * weights).sum())

    ours = partial(lj.gram, trans=True, alpha=0.5, beta=2.0)
    pairs = (jax.grad(partial(loss, f), (0, 1))(a[0], np.eye(6, dtype="c8")) for f in (ours, theirs))
    for one, other in zip(*pairs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_infinite_parts_stay_where_they_are() -> None:
    lowered = importlib.import_module("lapidist.jax.complex_numbers")
    infinite = np.array([[complex(np.inf, 1.0)]], np.complex64)
    multiplied = partial(lowered.by_real_numbers, product=lowered.Product())
    assert jax.jit(multiplied)(np.ones((1, 1), "f4"), infinite)[0][0, 0] == infinite[0, 0]
    of_three = lowered.Product(("a", "b", "c"), alpha=2.0, beta=1.0, precision="3m")
    one, thrice = np.ones((1, 1), "c8"), partial(lowered.by_real_numbers, product=of_three)
    assert jax.jit(thrice)(one, one, infinite)[0][0, 0] == infinite[0, 0]


def test_a_gpu_gets_products_of_real_numbers() -> None:
    a, b = whole(64, 32), whole(32, 16)
    for operands, k in (((a, b), 64), ((a.real, b), 32)):
        traced = jax.jit(partial(lj.gemm, alpha=1j)).trace(*operands)
        program = traced.lower(lowering_platforms=("cuda",)).as_text()
        calls = [
            line for line in program.splitlines() if "lapidist_product" in line and "custom_call" in line
        ]
        assert len(calls) == 1
        assert f"tensor<64x{k}xf32>, tensor<{k}x32xf32>" in calls[0]
        assert "complex" not in calls[0]
