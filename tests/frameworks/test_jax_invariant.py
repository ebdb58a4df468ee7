"""invariant=True in JAX: rows keep their bits in the machine; a weight's gradient does not ask for it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import lapidist
from lapidist.errors import ArgumentError

pytestmark = pytest.mark.frameworks

jax = pytest.importorskip("jax")
import lapidist.jax as lj  # noqa: E402
from lapidist.jax import gradients  # noqa: E402
from lapidist.jax.product import Product, read, written  # noqa: E402

MACHINE: dict[str, Any] = {"device": "machine"}


def operands(rng: np.random.Generator) -> tuple[Any, Any]:
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((20, 256), (256, 24)))
    return jax.numpy.asarray(a), jax.numpy.asarray(b)


def test_rows_keep_their_bits(rng: np.random.Generator) -> None:
    a, b = operands(rng)
    product = jax.jit(lambda x: lj.matmul(x, b, invariant=True, **MACHINE))
    assert lapidist.verify.invariant(product, a, sizes=(1, 3), starts=2)
    weight = b.T
    layer = jax.jit(lambda x: lj.linear(x, weight, invariant=True, **MACHINE))
    np.testing.assert_array_equal(layer(a[3:5]), layer(a)[3:5])


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> list[Product]:
    """The products that gradients are made of."""
    products: list[Product] = []
    bind = gradients.bind

    def noted(*arrays: Any, product: Product) -> Any:
        products.append(product)
        return bind(*arrays, product=product)

    monkeypatch.setattr(gradients, "bind", noted)
    return products


def test_the_gradient_of_the_input_keeps_it(rng: np.random.Generator, bound: list[Product]) -> None:
    a, b = operands(rng)

    def loss(x: Any, y: Any) -> Any:
        return lj.matmul(x, y, invariant=True, **MACHINE).sum()

    jax.grad(loss, 0)(a, b)
    of_input = [product for product in bound if (product.trans_a, product.trans_b) == (False, True)]
    bound.clear()
    jax.grad(loss, 1)(a, b)
    of_weight = [product for product in bound if (product.trans_a, product.trans_b) == (True, False)]
    assert [product.invariant for product in (*of_input, *of_weight)] == [True, False]


def test_programs_of_earlier_versions_do_not_ask_for_it() -> None:
    earlier = Product(epilogue=None)[:-1]
    product, _ = read(json.dumps([earlier, []]).encode())
    assert product == Product()
    assert read(written(Product(invariant=True), []).encode())[0].invariant


def test_a_block_counts_while_it_is_traced(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = operands(rng)
    seen: list[bool] = []
    monkeypatch.setattr(
        "lapidist.jax.public_calls.delivered", lambda arrays, product, *_: seen.append(product.invariant)
    )
    lj.gemm(a, b)
    with lapidist.invariant():
        lj.gemm(a, b)
        lj.gemm(a, b, invariant=False)
    assert seen == [False, True, False]


def test_bad_values_are_refused(rng: np.random.Generator) -> None:
    a, b = operands(rng)
    with pytest.raises(ArgumentError, match="invariant: must be True or False; got 'rows'"):
        lj.matmul(a, b, invariant="rows")
    with pytest.raises(ArgumentError, match="invariant: must be known while JAX traces"):
        jax.jit(lambda flag: lj.matmul(a, b, invariant=flag))(True)
