"""Products that XLA splits over four devices of the CPU, under jit alone: the same numbers, and no exchange
that is not needed."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import lapidist

pytestmark = pytest.mark.frameworks
EXCHANGES = "all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter"


@pytest.fixture
def put(jax: Any) -> Callable[..., Any]:
    """An array, spread over a mesh of 2 x 2."""
    mesh = jax.make_mesh((2, 2), ("x", "y"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    sharding, spec = jax.sharding.NamedSharding, jax.sharding.PartitionSpec
    return lambda array, *axes: jax.device_put(array, sharding(mesh, spec(*axes)))


def whole(*shape: int, dtype: str = "float32") -> Any:
    """Whole numbers: sums are exact in any order."""
    jnp = importlib.import_module("jax.numpy")
    return jnp.asarray(np.random.default_rng(sum(shape)).integers(-3, 4, shape), dtype)


def exchanged(call: Any, *arrays: Any) -> dict[str, int]:
    text = call.lower(*arrays).compile().as_text()
    found = {name: len(re.findall(rf" {name}(?:-start)?\(", text)) for name in EXCHANGES}
    return {name: count for name, count in found.items() if count}


# by rows, columns, both, k, k and rows; then what two dimensions want one axis for
SPLITS: list[tuple[Any, Any, Any, dict[str, int]]] = [
    (("x",), (), (), {}),
    ((), ("x",), ("x",), {}),
    (("x",), ("y",), ("y",), {}),
    ((("x", "y"),), (), (), {}),
    ((None, "x"), (None, "x"), (), {"all-reduce": 1}),
    (("x", "y"), (None, "y"), (), {"all-reduce": 1}),
    (("x",), ("x",), ("x",), {"all-gather": 2}),
]


@pytest.mark.parametrize("activation", [None, "relu"])
@pytest.mark.parametrize(("of_x", "of_w", "of_bias", "needed"), SPLITS)
def test_linear(
    jax: Any, ours: Any, put: Any, of_x: Any, of_w: Any, of_bias: Any, needed: Any, activation: Any
) -> None:
    x, w, bias = whole(8, 16), whole(12, 16), whole(12)
    layer = jax.jit(partial(ours.linear, activation=activation))
    arrays = put(x, *of_x), put(w, *of_w), put(bias, *of_bias)
    np.testing.assert_array_equal(layer(*arrays), layer(x, w, bias))
    found = exchanged(layer, *arrays)
    assert found == needed if "all-gather" not in needed else sum(found.values()) <= 2


def test_a_split_result_is_asked_for(jax: Any, ours: Any, put: Any) -> None:
    x, w = whole(8, 16), whole(12, 16)
    wanted = put(np.zeros((8, 12)), "x", "y").sharding
    layer = jax.jit(ours.linear, out_shardings=wanted)
    found = layer(put(x), put(w))
    np.testing.assert_array_equal(found, x @ w.T)
    assert found.sharding.is_equivalent_to(wanted, 2)
    assert not exchanged(layer, put(x), put(w))


@pytest.mark.parametrize("of_x", [("x",), (None, "x"), (None, "x", "y"), ("x", None, "y"), (None, None, "y")])
@pytest.mark.parametrize("of_w", [(), ("y",), (None, "y")])
def test_gradients_of_batches(jax: Any, ours: Any, put: Any, of_x: Any, of_w: Any) -> None:
    x, w = whole(2, 4, 16), whole(12, 16)
    both = jax.jit(jax.value_and_grad(lambda x, w: (ours.linear(x, w) ** 2).sum(), argnums=(0, 1)))
    for mine, other in zip(
        jax.tree.leaves(both(put(x, *of_x), put(w, *of_w))), jax.tree.leaves(both(x, w)), strict=True
    ):
        np.testing.assert_array_equal(mine, other)


def test_layers_split_by_columns_then_rows(jax: Any, ours: Any, put: Any) -> None:
    """What is split in between is not gathered: one exchange for two layers."""
    x, up, down = put(whole(8, 16)), put(whole(32, 16), "x"), put(whole(16, 32), None, "x")
    layers = jax.jit(lambda x, up, down: ours.linear(ours.linear(x, up, activation="relu"), down))
    np.testing.assert_array_equal(layers(x, up, down), np.maximum(x @ up.T, 0) @ down.T)
    assert exchanged(layers, x, up, down) == {"all-reduce": 1}


@lapidist.epilogue
def mixed(
    acc: Any, row: lapidist.Row, column: lapidist.Column, tile: lapidist.Tile, number: lapidist.Scalar
) -> Any:
    return lapidist.relu(acc + row) * column + tile * number


@pytest.mark.parametrize("of_a", [(), ("x",), (None, "x"), ("x", "y"), (None, None, "y"), ("x", None, "y")])
@pytest.mark.parametrize("of_b", [(), (None, None, "y"), (None, "y")])
def test_all_operands(jax: Any, ours: Any, put: Any, of_a: Any, of_b: Any) -> None:
    a, b, c = whole(2, 16, 4), whole(1, 16, 8), whole(4, 1)
    more = {"row": whole(2, 8), "column": whole(4), "tile": whole(2, 4, 8), "number": whole()}

    def call(a: Any, b: Any, c: Any, more: Any) -> Any:
        return ours.gemm(a, b, c, alpha=2, beta=-1, trans_a=True, epilogue=mixed(**more))

    spread = {"tile": put(more["tile"], "x", "y"), "row": put(more["row"], None, "x")}
    found = jax.jit(call)(put(a, *of_a), put(b, *of_b), put(c, "x"), {**more, **spread})
    np.testing.assert_array_equal(found, call(a, b, c, more))


@pytest.mark.parametrize("out", ["int32", "int8"])
def test_integers(jax: Any, ours: Any, put: Any, out: str) -> None:
    a, b, c = whole(8, 256, dtype="int8"), whole(256, 4, dtype="int8"), whole(4, dtype=out)
    call = jax.jit(partial(ours.gemm, alpha=2, beta=3, out_dtype=out))
    np.testing.assert_array_equal(call(put(a, None, "x"), put(b, "x"), c), call(a, b, c))


SCALES = [((), ()), ((256,), (4,)), ((256, 1), (1, 4)), ((256, 4), (4, 4)), ((2, 4), (4, 1))]


@pytest.mark.parametrize(("of_a", "of_b"), SCALES)
@pytest.mark.parametrize("split", [("x",), (None, "x"), ("x", "y")])
def test_factors(jax: Any, ours: Any, put: Any, of_a: Any, of_b: Any, split: Any) -> None:
    a, b = whole(256, 512, dtype="float8_e4m3fn"), whole(512, 4, dtype="float8_e4m3fn")
    scale_a, scale_b = (2.0 ** whole(*shape) for shape in (of_a, of_b))
    call = jax.jit(lambda a, b, s, t: ours.matmul(a, b, scale_a=s, scale_b=t, out_dtype="bfloat16"))
    np.testing.assert_array_equal(
        call(put(a, *split), put(b, *split[1:]), scale_a, scale_b), call(a, b, scale_a, scale_b)
    )


@pytest.mark.parametrize(
    ("of_a", "of_b", "needed"),
    [(("x",), (), {}), (("x",), (None, "y"), {}), ((None, "x"), ("x",), {"all-reduce": 1})],
)
@pytest.mark.parametrize("biased", [False, True])
def test_a_product_that_is_known_to_be_symmetric(
    jax: Any, ours: Any, put: Any, of_a: Any, of_b: Any, needed: Any, biased: bool
) -> None:
    """By rows, by both, and by k: what devices add up is the lower triangle of their sums, and its mirror."""
    a, s = whole(8, 12), whole(12, 12)
    left, expected = a @ (s + s.T), a @ (s + s.T) @ a.T
    how: Any = {"epilogue": lapidist.epilogues.residual(residual=expected), "symmetric": ("residual",)}
    call = jax.jit(partial(ours.matmul, **(how if biased else {"symmetric": True})))
    operands = put(left, *of_a), put(a.T, *of_b)
    np.testing.assert_array_equal(call(*operands), expected * (2 if biased else 1))
    assert exchanged(call, *operands) == needed


def test_what_does_not_divide_evenly_stays_whole(jax: Any, ours: Any, put: Any) -> None:
    """Else sums would have what pads k, and elements the numbers of others."""
    dropped = lapidist.epilogue(lambda acc: lapidist.dropout(acc, 0.5, 7))
    x, w = whole(8, 16), whole(12, 16)
    for axes in (("x",), (None, "x")):
        for rows, k in ((slice(7), slice(16)), (slice(8), slice(15)), (slice(7), slice(1, 16))):

            def call(x: Any, w: Any, rows: Any = rows, k: Any = k) -> Any:
                return ours.matmul(x[rows, k], w[:11, k].T, epilogue=dropped)

            np.testing.assert_array_equal(jax.jit(call)(put(x, *axes), put(w, *axes)), call(x, w))


def test_vmap(jax: Any, ours: Any, put: Any) -> None:
    x, w = whole(4, 8, 16), whole(4, 16, 12)
    call = jax.jit(jax.vmap(ours.matmul))
    arrays = put(x, "x", "y"), put(w, "x")
    np.testing.assert_array_equal(call(*arrays), x @ w)
    assert not exchanged(call, *arrays)


def test_within_a_manual_axis(jax: Any, ours: Any, put: Any) -> None:
    """shard_map over one axis of two: XLA has the other."""
    x, w = put(whole(8, 16), "x", "y"), put(whole(12, 16), None, "y")
    spec = jax.sharding.PartitionSpec
    part = jax.shard_map(
        ours.linear, mesh=x.sharding.mesh, in_specs=(spec("x"), spec()), out_specs=spec("x"), axis_names={"x"}
    )
    np.testing.assert_array_equal(jax.jit(part)(x, w), x @ w.T)
