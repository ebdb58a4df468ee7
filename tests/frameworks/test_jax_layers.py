"""linear in JAX with a residual or an epilogue: one launch without gradients, and theirs by XLA."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import lapidist

pytestmark = pytest.mark.frameworks
# of what goes in: rank of input, rank of the weight
RANKS = [(1, 1), (1, 2), (2, 1), (2, 2), (3, 2)]


def drawn(*shape: int, dtype: Any = "f4") -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def layer_of(ranks: tuple[int, int]) -> tuple[Any, Any, Any]:
    """Input, weight, and what has the result's shape."""
    x, weight = drawn(2, 5, 7)[(0,) * (3 - ranks[0])], drawn(3, 7)[(0,) * (2 - ranks[1])]
    return x, weight, drawn(*(x @ weight.T).shape)


def operations(jax: Any, call: Any, *arrays: Any) -> Counter[str]:
    return Counter(equation.primitive.name for equation in jax.make_jaxpr(call)(*arrays).eqns)


MOVES = {"lapidist_product", "broadcast_in_dim", "reshape", "squeeze", "slice"}
ACTIVATIONS: dict[Any, Callable[[Any, Any], Any]] = {
    None: lambda nn, x: x,
    "gelu": lambda nn, x: nn.gelu(x, approximate=False),
    "silu": lambda nn, x: nn.silu(x),
}


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("ranks", RANKS)
def test_a_residual_is_added_in_the_launch(
    jax: Any, ours: Any, activation: Any, biased: bool, ranks: tuple[int, int]
) -> None:
    x, weight, residual = layer_of(ranks)
    bias = drawn(*weight.shape[:-1]) if biased else np.float32(0)

    def stock(x: Any, weight: Any, residual: Any) -> Any:
        return ACTIVATIONS[activation](jax.nn, x @ weight.T + bias) + residual

    def layer(x: Any, weight: Any, residual: Any) -> Any:
        kept = jax.numpy.asarray(bias) if biased else None
        return ours.linear(x, weight, kept, activation=activation, residual=residual)

    given = x, weight, residual
    np.testing.assert_allclose(jax.jit(layer)(*given), stock(*given), rtol=1e-5, atol=1e-5)
    names = operations(jax, layer, *given)
    assert names["lapidist_product"] == 1
    assert not names.keys() - MOVES
    of_sums = [
        jax.grad(lambda *given, call=call: (call(*given) ** 2).sum(), argnums=(0, 1, 2))(*given)
        for call in (layer, stock)
    ]
    for mine, other in zip(*of_sums, strict=True):
        assert mine.shape == other.shape
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-4)


def test_a_residual_of_another_type(jax: Any, ours: Any) -> None:
    x, weight = (jax.numpy.asarray(drawn(*shape), "bfloat16") for shape in ((5, 7), (3, 7)))
    residual = jax.numpy.asarray(drawn(5, 3))
    found = ours.linear(x, weight, residual=residual)
    assert found.dtype == "bfloat16"
    expected = x.astype("float32") @ weight.astype("float32").T + residual
    np.testing.assert_allclose(found.astype("float32"), expected, rtol=0.01, atol=0.01)
    assert ours.linear(x, weight, residual=residual, out_dtype="float32").dtype == "float32"


def test_a_residual_behind_8_bits(jax: Any, ours: Any) -> None:
    x, weight, residual = layer_of((2, 2))
    small = partial(ours.linear, dtype="float8_e4m3fn", activation="relu")
    np.testing.assert_array_equal(
        small(x, weight, residual=residual), small(x, weight) + jax.numpy.asarray(residual)
    )


def test_vmap_over_residuals(jax: Any, ours: Any) -> None:
    x, weight, residual = layer_of((2, 2))
    each = np.stack([residual, -residual])
    for activation in (None, "silu"):
        layer = partial(ours.linear, x, weight, activation=activation)
        found = jax.vmap(lambda r, layer=layer: layer(residual=r))(each)
        np.testing.assert_allclose(found[1], layer(residual=-residual), rtol=1e-6)


@lapidist.epilogue
def mixed(acc: Any, row: lapidist.Row, tile: lapidist.Tile, number: lapidist.Scalar) -> Any:
    return lapidist.tanh(acc) * row + tile * number


@pytest.mark.parametrize("ranks", RANKS)
def test_an_epilogue(jax: Any, ours: Any, ranks: tuple[int, int]) -> None:
    x, weight, tile = layer_of(ranks)
    row, bias = drawn(*(weight.shape[:-1] or (1,))), drawn(*(weight.shape[:-1] or (1,)))

    def layer(x: Any, weight: Any, tile: Any) -> Any:
        return ours.linear(x, weight, bias, epilogue=mixed(row=row, tile=tile, number=2.0))

    def stock(x: Any, weight: Any, tile: Any) -> Any:
        wide = weight if weight.ndim == 2 else weight[None]
        rows = jax.numpy.tanh(x @ wide.T + bias) * row
        return (rows if weight.ndim == 2 else rows[..., 0]) + tile * 2

    np.testing.assert_allclose(jax.jit(layer)(x, weight, tile), stock(x, weight, tile), rtol=1e-5, atol=1e-5)
    assert not operations(jax, layer, x, weight, tile).keys() - MOVES
    of_sums = [
        jax.grad(lambda *given, call=call: call(*given).sum(), argnums=(0, 1, 2))(x, weight, tile)
        for call in (layer, stock)
    ]
    for mine, other in zip(*of_sums, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-4)


A = np.ones((2, 2), "f4")
REFUSED: dict[str, dict[str, Any]] = {
    r"residual: must be of the result's shape, \(2, 2\); got \(2,\)": {"residual": A[0]},
    "residual: must be an array of JAX or NumPy; got float": {"residual": 1.0},
    "residual: must be None with an epilogue; got a ndarray": {
        "residual": A,
        "epilogue": lapidist.epilogues.relu,
    },
    "activation: must be None with an epilogue; got 'relu'": {
        "activation": "relu",
        "epilogue": lapidist.epilogues.relu,
    },
    "epilogue: must be None with dtype=": {"dtype": "float8_e4m3fn", "epilogue": lapidist.epilogues.relu},
    "epilogue: must be a function of @lapidist.epilogue": {"epilogue": len},
    "residual: .*complex64": {"residual": A.astype("c8")},
}


@pytest.mark.parametrize("words", REFUSED)
def test_refusals(words: str) -> None:
    with pytest.raises(lapidist.LapidistError, match=words):
        importlib.import_module("lapidist.jax").linear(A, A, **REFUSED[words])
