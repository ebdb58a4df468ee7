"""8-bit floats in JAX: gradients of arrays of factors, and linear layers that round what they multiply."""

from __future__ import annotations

import importlib
from functools import partial
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.frameworks


def drawn(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("f4")


# ---- gradients of factors ----

M, N, K = 130, 5, 200
OF_A: list[Any] = [None, (), (1,), (M,), (M, 1), (M, 2), (2, 2)]
OF_B: list[Any] = [None, (), (N,), (1, N), (2, N), (2, 1)]


def spread(scale: Any, lines: int) -> Any:
    """One factor for each element, (lines, K)."""
    jnp = importlib.import_module("jax.numpy")
    if scale.size == 1:
        return jnp.broadcast_to(scale.reshape(1, 1), (lines, K))
    scale = scale[:, None] if scale.ndim == 1 else scale
    scale = scale if len(scale) == lines else scale.repeat(128, 0)[:lines]
    return jnp.broadcast_to(scale.repeat(128, 1)[:, :K] if scale.shape[1] > 1 else scale, (lines, K))


@pytest.mark.parametrize("of_a", OF_A)
@pytest.mark.parametrize("of_b", OF_B)
@pytest.mark.parametrize(("trans_a", "trans_b"), [(False, False), (True, True)])
def test_gradients_of_factors(
    jax: Any, ours: Any, of_a: Any, of_b: Any, trans_a: bool, trans_b: bool
) -> None:
    a, b = (jax.numpy.asarray(drawn(*shape), "float8_e4m3fn") for shape in ((M, K), (K, N)))
    shapes = {"scale_a": of_a, "scale_b": of_b}
    factors = {name: abs(drawn(*shape, 2))[..., 0] for name, shape in shapes.items() if shape is not None}
    g = drawn(M, N)

    def product(factors: Any) -> Any:
        how = {"alpha": 0.5, "trans_a": trans_a, "trans_b": trans_b}
        return (ours.gemm(a.T if trans_a else a, b.T if trans_b else b, **how, **factors) * g).sum()

    def expected(factors: Any) -> Any:
        left, right = a.astype("float32"), b.astype("float32")
        left = left * spread(factors["scale_a"], M) if "scale_a" in factors else left
        right = right * spread(factors["scale_b"].T, N).T if "scale_b" in factors else right
        return (0.5 * jax.numpy.matmul(left, right, precision="highest") * g).sum()

    found, wanted = jax.jit(jax.grad(product))(factors), jax.grad(expected)(factors)
    for name, gradient in wanted.items():
        assert found[name].shape == gradient.shape
        np.testing.assert_allclose(found[name], gradient, rtol=1e-3, atol=1e-2)
    _, tangent = jax.jvp(product, (factors,), (factors,))
    np.testing.assert_allclose(tangent, len(factors) * product(factors), rtol=1e-3, atol=1e-2)


def test_one_factor_of_a_batch(jax: Any, ours: Any) -> None:
    a, b = (jax.numpy.asarray(drawn(*shape), "float8_e4m3fn") for shape in ((3, 4, 8), (8, 5)))
    found = jax.grad(lambda scale: ours.matmul(a, b, scale_a=scale).sum())(np.float32(2)[None])
    np.testing.assert_allclose(found, [ours.matmul(a, b).sum()], rtol=1e-4)


def test_second_derivatives_of_factors(jax: Any, ours: Any) -> None:
    a = jax.numpy.asarray(drawn(4, 4), "float8_e4m3fn")
    loss = lambda s, t: ours.matmul(a, a, scale_a=s, scale_b=t).sum()  # noqa: E731
    found = jax.grad(lambda s, t: jax.grad(loss, 1)(s, t).sum())(jax.numpy.ones(4), jax.numpy.ones(4))
    np.testing.assert_allclose(
        found, (a.astype("float32") @ a.astype("float32")).sum(1), rtol=1e-4, atol=1e-4
    )


def test_factors_under_an_epilogue(jax: Any, ours: Any) -> None:
    epilogues = importlib.import_module("lapidist.epilogues")
    a = jax.numpy.asarray(drawn(4, 4), "float8_e4m3fn")
    found = jax.grad(lambda s: ours.matmul(a, a, scale_a=s, epilogue=epilogues.silu).sum())(jax.numpy.ones(4))
    wide = a.astype("float32")
    expected = jax.grad(lambda s: jax.nn.silu((s[:, None] * wide) @ wide).sum())(jax.numpy.ones(4))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


# ---- linear ----

KINDS = [("float8_e4m3fn", "rows"), ("float8_e5m2", "rows"), ("float8_e4m3fn", "blocks")]


@pytest.mark.parametrize(("dtype", "factors"), KINDS)
@pytest.mark.parametrize("shape", [(200,), (6, 200), (2, 3, 200)])
@pytest.mark.parametrize("trans_weight", [False, True])
def test_linear_is_near_what_is_not_rounded(
    jax: Any, ours: Any, dtype: str, factors: Any, shape: tuple[int, ...], trans_weight: bool
) -> None:
    x, weight, bias = (
        1e-3 * drawn(*shape),
        1e3 * drawn(*((150, 200) if trans_weight else (200, 150))),
        drawn(150),
    )
    plain = partial(ours.linear, trans_weight=trans_weight)
    found = jax.jit(partial(plain, dtype=dtype, factors=factors))(x, weight, bias)
    expected = plain(x, weight, bias)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    off = np.linalg.norm(found - expected) / np.linalg.norm(expected)
    assert 0.001 < off < (0.05 if "e4" in dtype else 0.1)


@pytest.mark.parametrize("factors", ["rows", "blocks"])
def test_linear_is_torchs(jax: Any, ours: Any, torch: Any, factors: Any) -> None:
    """The layers of a swapped model round the same way."""
    theirs = importlib.import_module("lapidist.torch")
    layer = torch.nn.Linear(200, 150)
    x = torch.randn(6, 200)
    with theirs.swap(layer, dtype=torch.float8_e4m3fn, factors=factors), torch.no_grad():
        expected = layer(x)
    weight, bias = layer.weight.detach().numpy(), layer.bias.detach().numpy()
    found = ours.linear(x.numpy(), weight, bias, dtype="float8_e4m3fn", factors=factors)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("activation", [None, "silu"])
def test_gradients_are_those_of_what_is_not_rounded(jax: Any, ours: Any, activation: Any) -> None:
    """The function after the product has the sums that there were."""
    x, weight, bias = drawn(6, 40), drawn(5, 40), drawn(5)
    small = partial(ours.linear, dtype="e4m3")
    sums = small(x, weight, bias)
    g = drawn(6, 5)
    inner = g if activation is None else jax.vjp(jax.nn.silu, sums)[1](jax.numpy.asarray(g))[0]
    _, back = jax.vjp(partial(small, activation=activation), x, weight, bias)
    _, plain_back = jax.vjp(ours.linear, x, weight, bias)
    for mine, other in zip(back(jax.numpy.asarray(g)), plain_back(jax.numpy.asarray(inner)), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-5)


def test_what_has_no_gradient_costs_no_product(jax: Any, ours: Any) -> None:
    x, weight = drawn(6, 40), drawn(5, 40)
    text = str(jax.make_jaxpr(jax.grad(lambda w: ours.linear(x, w, dtype="e4m3").sum()))(weight))
    assert text.count("lapidist_product[") == 2


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_narrow_layers_train(jax: Any, ours: Any, dtype: str) -> None:
    x, weight = (jax.numpy.asarray(drawn(*shape), dtype) for shape in ((8, 40), (5, 40)))
    loss = lambda layer, w: (layer(x, w).astype("float32") ** 2).sum()  # noqa: E731
    found = jax.jit(jax.grad(partial(loss, partial(ours.linear, dtype="e4m3", activation="gelu"))))(weight)
    expected = jax.grad(partial(loss, partial(ours.linear, activation="gelu")))(weight)
    assert found.dtype == expected.dtype
    off = np.linalg.norm(found.astype("f4") - expected.astype("f4")) / np.linalg.norm(expected.astype("f4"))
    assert off < 0.1


def test_vmap_over_rows(jax: Any, ours: Any) -> None:
    x, weight = drawn(3, 4, 40), drawn(5, 40)
    layer = partial(ours.linear, dtype="e4m3", activation="relu")
    found = jax.vmap(lambda x: layer(x, weight))(x)
    np.testing.assert_array_equal(found, layer(x, weight))


def test_zeros_stay_zero(ours: Any) -> None:
    zero = np.zeros((3, 4), "f4")
    np.testing.assert_array_equal(ours.linear(zero, zero, dtype="e4m3"), 0)
    assert ours.linear(zero[:, :0], zero[:, :0], dtype="e4m3").shape == (3, 3)
