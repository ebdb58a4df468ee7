"""lapidist.jax under grad, jvp, vmap, scan, remat and shard_map, on the CPU."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.frameworks


def drawn(*shape: int, dtype: Any = "f8") -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def operations(jax: Any, call: Any, *arrays: Any) -> Counter[str]:
    return Counter(equation.primitive.name for equation in jax.make_jaxpr(call)(*arrays).eqns)


# ---- gradients ----


@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize("c_shape", [None, (5, 3), (3,), (5, 1)])
def test_gradients_of_gemm(precise: Any, ours: Any, trans_a: bool, trans_b: bool, c_shape: Any) -> None:
    a, b = drawn(*((7, 5) if trans_a else (5, 7))), drawn(*((3, 7) if trans_b else (7, 3)))
    c = [] if c_shape is None else [drawn(*c_shape)]
    beta = 2.0 if c else 0.0
    precise(partial(ours.gemm, alpha=0.5, beta=beta, trans_a=trans_a, trans_b=trans_b), a, b, *c)


SHAPES = [
    ((7,), (7,)),
    ((7,), (2, 7, 3)),
    ((2, 5, 7), (7,)),
    ((2, 5, 7), (7, 3)),
    ((5, 7), (2, 7, 3)),
    ((2, 1, 5, 7), (4, 7, 3)),
    ((1, 5, 7), (2, 7, 3)),
]


@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_gradients_of_matmul(precise: Any, ours: Any, left: Any, right: Any) -> None:
    precise(ours.matmul, drawn(*left), drawn(*right))


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("trans_weight", [False, True])
def test_gradients_of_linear(precise: Any, ours: Any, rank: int, trans_weight: bool) -> None:
    x, weight = drawn(2, 5, 7)[(0,) * (3 - rank)], drawn(*((3, 7) if trans_weight else (7, 3)))
    precise(partial(ours.linear, trans_weight=trans_weight), x, weight, drawn(3))
    precise(partial(ours.linear, trans_weight=trans_weight), x, drawn(7))


@pytest.mark.parametrize("batch", [(), (2, 3)])
def test_the_backward_products_of_linear_copy_nothing(jax: Any, ours: Any, batch: tuple[int, ...]) -> None:
    """Three products, no transpose; a weight shared over a batch gets its gradient from one product."""
    both = jax.grad(lambda x, w: ours.linear(x, w).sum(), argnums=(0, 1))
    found = operations(jax, both, drawn(*batch, 5, 7, dtype="f4"), drawn(3, 7, dtype="f4"))
    assert found["lapidist_product"] == 3
    assert found["transpose"] == 0
    assert found["reduce_sum"] == 1  # the loss


WIDER = [("bfloat16", "float32"), ("float16", "float32"), ("float16", "bfloat16"), ("float32", "bfloat16")]


@pytest.mark.parametrize(("dtype", "out"), WIDER)
def test_gradients_where_the_result_has_another_type(jax: Any, ours: Any, dtype: str, out: str) -> None:
    a, b = (jax.numpy.asarray(drawn(*shape), dtype) for shape in ((5, 7), (7, 3)))

    def loss(multiply: Any, a: Any, b: Any) -> Any:
        return (multiply(a, b).astype("float32") ** 2).sum()

    found = jax.grad(partial(loss, partial(ours.matmul, out_dtype=out)), argnums=(0, 1))(a, b)
    exact = partial(jax.numpy.matmul, precision="highest")
    expected = jax.grad(partial(loss, exact), argnums=(0, 1))(a.astype("float32"), b.astype("float32"))
    for mine, other, operand in zip(found, expected, (a, b), strict=True):
        assert mine.dtype == operand.dtype
        np.testing.assert_allclose(mine.astype("float32"), other, rtol=0.03, atol=0.03)


def test_a_wider_gradient_keeps_its_bits_beside_narrow_factors(jax: Any, ours: Any) -> None:
    """bfloat16 would drop the second half of 1 + 2^-10."""
    eye = jax.numpy.eye(4, dtype="bfloat16")
    _, back = jax.vjp(partial(ours.matmul, out_dtype="float32"), eye, eye)
    total = back(jax.numpy.full((4, 4), 1 + 2**-10, "float32") - jax.numpy.eye(4))[0]
    np.testing.assert_array_equal(np.diag(total.astype("float32")), np.float32(2**-10))


def test_products_of_integers_carry_no_tangent(jax: Any, ours: Any) -> None:
    whole = np.ones((3, 3), "int8")
    found = jax.grad(lambda x: x.sum() * ours.matmul(whole, whole).sum().astype("float32"))(np.ones(2, "f4"))
    np.testing.assert_array_equal(found, [27, 27])


def test_an_addend_of_a_product_with_factors_has_a_gradient(jax: Any, ours: Any) -> None:
    a, scale = jax.numpy.ones((4, 4), "float8_e4m3fn"), jax.numpy.ones(4, "float32")
    found = jax.grad(lambda c: ours.gemm(a, a, c, beta=2, scale_a=scale).sum())(jax.numpy.ones(4))
    np.testing.assert_array_equal(found, [8] * 4)


def test_hessians_and_checkpoints(jax: Any, ours: Any) -> None:
    w = drawn(3, 3, dtype="f4")

    def loss(multiply: Any, x: Any) -> Any:
        return (jax.checkpoint(lambda x: jax.numpy.tanh(multiply(w, x)))(x) ** 2).sum()

    for transform in (jax.hessian, jax.jacfwd, jax.jacrev):
        found, expected = (transform(partial(loss, each))(w[0]) for each in (ours.matmul, jax.numpy.matmul))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_debugging_without_jit(jax: Any, ours: Any) -> None:
    a = jax.numpy.ones((3, 4))

    def total(a: Any) -> Any:
        return jax.jit(ours.matmul)(a, a.T).sum()

    with jax.disable_jit():
        assert total(a) == 36
        assert (jax.grad(total)(a) == 6).all()
        assert jax.vmap(ours.linear)(a[None], a[None]).shape == (1, 3, 3)


def test_loops(jax: Any, ours: Any) -> None:
    ws, x = drawn(4, 3, 3, dtype="f4"), drawn(2, 3, dtype="f4")

    def run(multiply: Any, ws: Any) -> Any:
        return jax.lax.scan(lambda x, w: (multiply(x, w), None), x, ws)[0].sum()

    found, expected = (jax.jit(jax.grad(partial(run, each)))(ws) for each in (ours.matmul, jax.numpy.matmul))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


# ---- vmap ----

AXES = [((2, 5, 7), (7, 3), 0, None), ((5, 2, 7), (7, 3, 2), 1, 2), ((5, 7), (2, 7, 3), None, 0)]
AXES += [((2, 4, 5, 7), (2, 7, 3), 0, 0), ((2, 7), (2, 4, 7, 3), 0, 0), ((2, 7), (7, 2), 0, 1)]


@pytest.mark.parametrize(("left", "right", "of_a", "of_b"), AXES)
def test_vmap_is_one_product(
    jax: Any, ours: Any, left: Any, right: Any, of_a: int | None, of_b: int | None
) -> None:
    a, b = drawn(*left, dtype="f4"), drawn(*right, dtype="f4")
    found, expected = (jax.vmap(each, (of_a, of_b)) for each in (ours.matmul, jax.numpy.matmul))
    np.testing.assert_allclose(found(a, b), expected(a, b), rtol=1e-5, atol=1e-5)
    names = operations(jax, found, a, b)
    assert names["lapidist_product"] == 1
    assert not names.keys() & {"scan", "while"}


@pytest.mark.parametrize("dims", [(0, None, None), (None, 0, None), (None, None, 0), (0, 0, 0)])
@pytest.mark.parametrize("c_shape", [(5, 3), (3,)])
def test_vmap_of_gemm(jax: Any, ours: Any, dims: Any, c_shape: tuple[int, ...]) -> None:
    shapes = ((7, 5), (7, 3), c_shape)
    arrays = [
        drawn(*((2,) if dim == 0 else ()), *shape, dtype="f4")
        for dim, shape in zip(dims, shapes, strict=True)
    ]
    found = jax.vmap(partial(ours.gemm, alpha=2.0, beta=3.0, trans_a=True), dims)(*arrays)
    expected = jax.vmap(lambda a, b, c: 2 * (a.T @ b) + 3 * c, dims)(*arrays)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_vmap_over_another_dimension_of_c(jax: Any, ours: Any) -> None:
    a, b, c = drawn(5, 7, dtype="f4"), drawn(7, 3, dtype="f4"), drawn(5, 2, 3, dtype="f4")
    found = jax.vmap(partial(ours.gemm, beta=3.0), (None, None, 1))(a, b, c)
    expected = jax.vmap(lambda a, b, c: a @ b + 3 * c, (None, None, 1))(a, b, c)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_gradients_for_each_example(jax: Any, ours: Any) -> None:
    x, w = drawn(4, 7, dtype="f4"), drawn(3, 7, dtype="f4")

    def loss(layer: Any, w: Any, x: Any) -> Any:
        return (layer(x, w) ** 2).sum()

    found = jax.vmap(jax.grad(partial(loss, ours.linear)), (None, 0))(w, x)
    expected = jax.vmap(jax.grad(partial(loss, lambda x, w: w @ x)), (None, 0))(w, x)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


SCALES = [((), None), ((), 0), ((5,), 0), ((5,), None), ((5, 1), 0), ((5, 2), 0), ((1, 2), 0)]


@pytest.mark.parametrize(("of_a", "dim"), SCALES)
@pytest.mark.parametrize("c_shape", [None, (5, 3), (3,)])
def test_vmap_over_rows_with_factors(jax: Any, ours: Any, of_a: Any, dim: int | None, c_shape: Any) -> None:
    rng = np.random.default_rng(0)
    a, b = (
        jax.numpy.asarray(rng.integers(-4, 5, shape), "float8_e4m3fn") for shape in ((2, 5, 200), (200, 3))
    )
    count = 2 if dim == 0 else 1
    scale = jax.numpy.asarray(rng.random((count, *of_a)), "float32")
    scale = scale if dim == 0 else scale[0]
    of_b = jax.numpy.asarray(rng.random((1, 3)), "float32")
    c = None if c_shape is None else drawn(2, *c_shape, dtype="f4")
    beta = 0.0 if c is None else 2.0

    def multiply(a: Any, c: Any, scale: Any) -> Any:
        return ours.gemm(a, b, c, beta=beta, scale_a=scale, scale_b=of_b)

    found = jax.vmap(multiply, (0, None if c is None else 0, dim))(a, c, scale)
    for i in range(2):
        one = multiply(a[i], None if c is None else c[i], scale[i] if dim == 0 else scale)
        np.testing.assert_array_equal(found[i], one)


def test_vmap_with_a_factor_for_each_tall_matrix(jax: Any, ours: Any) -> None:
    """Of more rows than a block of factors has."""
    rng = np.random.default_rng(0)
    a, b = (jax.numpy.asarray(rng.integers(-4, 5, shape), "float8_e4m3fn") for shape in ((3, 130, 8), (8, 5)))
    scale = jax.numpy.asarray([0.5, 2.0, 3.0], "float32")
    found = jax.vmap(lambda a, scale: ours.matmul(a, b, scale_a=scale))(a, scale)
    for i in range(3):
        np.testing.assert_array_equal(found[i], ours.matmul(a[i], b, scale_a=scale[i]))


# ---- several devices ----


@pytest.fixture
def mesh(jax: Any) -> Any:
    return jax.make_mesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("split", ["rows", "columns", "sums"])
def test_shard_map(jax: Any, ours: Any, mesh: Any, split: str, check: bool) -> None:
    spec = jax.sharding.PartitionSpec
    inputs, output = {
        "rows": ((spec("x"), spec(), spec()), spec("x")),
        "columns": ((spec(), spec("x"), spec("x")), spec(None, "x")),
        "sums": ((spec(None, "x"), spec(None, "x"), spec()), spec()),
    }[split]

    def part(x: Any, w: Any, bias: Any) -> Any:
        if split != "sums":
            return ours.linear(x, w, bias)
        return jax.lax.psum(ours.linear(x, w), "x") + bias

    whole = jax.jit(jax.shard_map(part, mesh=mesh, in_specs=inputs, out_specs=output, check_vma=check))
    x, w, bias = drawn(8, 16, dtype="f4"), drawn(12, 16, dtype="f4"), drawn(12, dtype="f4")
    losses = [lambda *arrays: (whole(*arrays) ** 2).sum(), lambda x, w, b: ((x @ w.T + b) ** 2).sum()]
    np.testing.assert_allclose(whole(x, w, bias), x @ w.T + bias, rtol=1e-5, atol=1e-5)
    for found, expected in zip(
        *(jax.grad(loss, argnums=(0, 1, 2))(x, w, bias) for loss in losses), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["Auto", "Explicit"])
def test_arrays_that_jax_spread(jax: Any, ours: Any, kind: str) -> None:
    mesh = jax.make_mesh((4,), ("x",), axis_types=(getattr(jax.sharding.AxisType, kind),))
    spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    x, w = drawn(8, 16, dtype="f4"), drawn(12, 16, dtype="f4")
    with jax.set_mesh(mesh):
        found = jax.jit(ours.linear)(jax.device_put(x, spread), w)
    np.testing.assert_allclose(found, x @ w.T, rtol=1e-5, atol=1e-5)
