"""Epilogues in JAX: the library's own results under jit, and the gradients of jax.numpy's functions."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import lapidist
from lapidist.epilogues.operations import OPERATIONS
from lapidist.epilogues.steps import CAST, DROPOUT_MASK, DROPOUT_MASK_BY_OPERAND

pytestmark = pytest.mark.frameworks


def drawn(*shape: int, dtype: Any = "f8") -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def operations(jax: Any, call: Any, *arrays: Any) -> Counter[str]:
    return Counter(equation.primitive.name for equation in jax.make_jaxpr(call)(*arrays).eqns)


@lapidist.epilogue
def mixed(
    acc: Any, row: lapidist.Row, column: lapidist.Column, tile: lapidist.Tile, number: lapidist.Scalar
) -> Any:
    return lapidist.tanh(acc + row) * column + tile * number


def operands(m: int, n: int, dtype: Any = "f8") -> dict[str, Any]:
    shapes = {"row": (n,), "column": (m,), "tile": (m, n), "number": ()}
    return {name: drawn(*shape, dtype=dtype) for name, shape in shapes.items()}


def close(found: Any, expected: Any) -> None:
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(np.asarray(found, "f4"), np.asarray(expected, "f4"), rtol=1e-5, atol=1e-5)


# ---- values ----


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float8_e4m3fn"])
@pytest.mark.parametrize("device", [None, "machine"])
def test_it_is_the_library_s(jax: Any, ours: Any, dtype: str, device: str | None) -> None:
    a, b = (jax.numpy.asarray(drawn(*shape), dtype) for shape in ((5, 7), (7, 3)))
    more = operands(5, 3, "f4")
    found = jax.jit(lambda a, b, more: ours.matmul(a, b, epilogue=mixed(**more), device=device))(a, b, more)
    close(found, np.asarray(lapidist.matmul(a, b, epilogue=mixed(**more))))
    names = operations(jax, lambda a, b, more: ours.gemm(a, b, epilogue=mixed(**more)), a, b, more)
    assert names["lapidist_product"] == 1
    assert not names.keys() & {"tanh", "dot_general"}


def test_numbers_and_arrays_of_one_element(jax: Any, ours: Any) -> None:
    a, factor = drawn(3, 3, dtype="f4"), lapidist.epilogues.scaled
    for number in (2, 2.0, np.float32(2), jax.numpy.float32(2), jax.numpy.full((1, 1), 2.0)):
        close(
            jax.jit(lambda a, number=number: ours.matmul(a, a, epilogue=factor(factor=number)))(a),
            2 * (a @ a),
        )


def test_operands_of_other_types(jax: Any, ours: Any) -> None:
    a = drawn(4, 4, dtype="f4")
    masked = lapidist.epilogue(select)
    mask, whole = a > 0, np.arange(4, dtype="i4")
    found = jax.jit(lambda a, mask, whole: ours.matmul(a, a, epilogue=masked(mask=mask, whole=whole)))(
        a, mask, whole
    )
    close(found, np.where(mask, a @ a, whole).astype("f4"))


def select(acc: Any, mask: lapidist.Tile, whole: lapidist.Row) -> Any:
    return lapidist.where(mask != 0, acc, whole)


def test_after_alpha_and_beta_c(jax: Any, ours: Any) -> None:
    a, c = drawn(3, 3, dtype="f4"), drawn(3, dtype="f4")
    how = {"alpha": 0.5, "beta": -2.0, "trans_a": True, "epilogue": lapidist.epilogues.relu}
    found = jax.jit(lambda a, c: ours.gemm(a, a, c, **how))(a, c)
    close(found, np.maximum(0.5 * (a.T @ a) - 2 * c, 0))


SHAPES = [((7,), (7, 3)), ((5, 7), (7,)), ((7,), (7,)), ((2, 5, 7), (7, 3)), ((4, 1, 5, 7), (2, 7, 3))]


@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_shapes(jax: Any, ours: Any, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b = drawn(*left, dtype="f4"), drawn(*right, dtype="f4")
    plain = np.matmul(a, b)
    bias = drawn(1 if b.ndim == 1 else 3, dtype="f4")
    residual = drawn(*plain.shape, dtype="f4")
    epilogue = lapidist.epilogues.bias_residual
    found = jax.jit(lambda a, b, r: ours.matmul(a, b, epilogue=epilogue(bias=bias, residual=r)))(
        a, b, residual
    )
    close(found, plain + (bias if plain.ndim and b.ndim > 1 else bias[0]) + residual)


# torch.nn.functional has the same names; jax.nn.gelu is the formula by tanh unless told otherwise
ACTIVATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "relu": lambda nn, x: nn.relu(x),
    "gelu": lambda nn, x: nn.gelu(x, approximate=False),
    "gelu_tanh": lambda nn, x: nn.gelu(x, approximate=True),
    "silu": lambda nn, x: nn.silu(x),
}


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_activations_of_linear(jax: Any, ours: Any, activation: str, rank: int) -> None:
    x, weight, bias = (
        drawn(2, 5, 7, dtype="f4")[(0,) * (3 - rank)],
        drawn(3, 7, dtype="f4"),
        drawn(3, dtype="f4"),
    )
    layer = partial(ours.linear, activation=activation)
    expected = ACTIVATIONS[activation](jax.nn, jax.numpy.asarray(x @ weight.T + bias))
    close(jax.jit(layer)(x, weight, bias), expected)
    names = operations(jax, layer, x, weight, bias)
    assert not names.keys() - {"lapidist_product", "broadcast_in_dim", "reshape", "squeeze", "slice"}


# ---- gradients ----


@pytest.mark.parametrize("beta", [0.0, 3.0])
def test_gradients(precise: Any, ours: Any, beta: float) -> None:
    more = list(operands(5, 3).values())

    def call(a: Any, b: Any, c: Any, *more: Any) -> Any:
        epilogue = mixed(**dict(zip(("row", "column", "tile", "number"), more, strict=True)))
        return ours.gemm(a, b, c, alpha=0.5, beta=beta, trans_b=True, epilogue=epilogue)

    precise(call, drawn(5, 7), drawn(3, 7), drawn(3), *more)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradients_of_activations(precise: Any, ours: Any, activation: str) -> None:
    for x in (drawn(5, 7), drawn(2, 5, 7)):
        precise(partial(ours.linear, activation=activation), x, drawn(3, 7), drawn(3))


def test_gradients_in_narrow_types_are_those_of_float32(jax: Any, ours: Any) -> None:
    x, w = (jax.numpy.asarray(drawn(*shape), "bfloat16") for shape in ((5, 7), (3, 7)))
    wide = x.astype("float32"), w.astype("float32")
    loss = lambda layer, x, w: (layer(x, w).astype("float32") ** 2).sum()  # noqa: E731
    found = jax.grad(partial(loss, partial(ours.linear, activation="silu")), argnums=(0, 1))(x, w)
    expected = jax.grad(partial(loss, lambda x, w: jax.nn.silu(x @ w.T)), argnums=(0, 1))(*wide)
    for mine, other in zip(found, expected, strict=True):
        assert mine.dtype == "bfloat16"
        np.testing.assert_allclose(mine.astype("float32"), other, rtol=0.05, atol=0.05)


def test_relu_has_no_gradient_at_zero(jax: Any, ours: Any) -> None:
    """As jax.nn.relu and torch have it; jax.numpy.maximum halves it."""
    x, w = jax.numpy.zeros((1, 2)), jax.numpy.ones((1, 2))
    found = jax.grad(lambda x: ours.linear(x, w, activation="relu").sum())(x)
    np.testing.assert_array_equal(found, 0)


def test_a_gradient_takes_one_product_forth_and_two_back(jax: Any, ours: Any) -> None:
    both = jax.grad(lambda x, w: ours.linear(x, w, activation="gelu").sum(), argnums=(0, 1))
    text = str(jax.make_jaxpr(both)(drawn(5, 7, dtype="f4"), drawn(3, 7, dtype="f4")))
    assert text.count("lapidist_product[") == 3


def test_gradients_of_16_bits_are_multiplied_in_16_bits(jax: Any, ours: Any) -> None:
    x, w = (jax.numpy.asarray(drawn(*shape), "bfloat16") for shape in ((5, 7), (3, 7)))
    both = jax.grad(lambda x, w: ours.linear(x, w, activation="gelu").sum(), argnums=(0, 1))
    products = [
        line for line in str(jax.make_jaxpr(both)(x, w)).splitlines() if "= lapidist_product[" in line
    ]
    assert len(products) == 3
    assert all(":bf16[" in line for line in products)


STEPS = {
    "where": lambda acc: lapidist.where(acc > 0.1, acc, 0.5 * acc),
    "both": lambda acc: lapidist.where((acc > -1) & (acc < 1), acc, 2 * acc),
    "any_of": lambda acc: lapidist.where((acc < -1) | (acc > 1), acc, 2 * acc),
    "no": lambda acc: lapidist.where(~(acc <= 0.1), acc, 2 * acc),
    "equal": lambda acc: lapidist.where(acc == 0.1, acc, 2 * acc),
    "not_equal": lambda acc: lapidist.where(acc != 0.1, acc, 2 * acc),
    "less": lambda acc: lapidist.where(acc < 0.1, acc, 2 * acc),
    "less_equal": lambda acc: lapidist.where(acc <= 0.1, acc, 2 * acc),
    "add": lambda acc: acc + 1,
    "subtract": lambda acc: 1 - acc,
    "multiply": lambda acc: acc**3,
    "divide": lambda acc: acc / (acc * acc + 1),
    "negative": lambda acc: -acc,
    "absolute": lambda acc: abs(acc),
    "minimum": lambda acc: lapidist.minimum(acc, 0.1),
    "maximum": lambda acc: lapidist.maximum(acc, 0.1),
    "exp": lambda acc: lapidist.exp(acc),
    "log": lambda acc: lapidist.log(acc * acc + 1),
    "tanh": lambda acc: lapidist.tanh(acc),
    "erf": lambda acc: lapidist.erf(acc),
    "sigmoid": lambda acc: lapidist.sigmoid(acc),
    "gelu": lambda acc: lapidist.gelu(acc),
    "gelu_slope": lambda acc: lapidist.gelu_slope(acc),
    "sqrt": lambda acc: lapidist.sqrt(acc * acc + 1),
    "rsqrt": lambda acc: lapidist.rsqrt(acc * acc + 1),
    "floor": lambda acc: lapidist.floor(acc) + acc,
    "ceil": lambda acc: lapidist.ceil(acc) + acc,
    "trunc": lambda acc: lapidist.trunc(acc) + acc,
    "rint": lambda acc: lapidist.rint(acc) + acc,
    CAST: lambda acc: lapidist.cast(acc, "bfloat16"),
    DROPOUT_MASK: lambda acc: lapidist.dropout(acc, 0.4, 2**40),
}


def test_all_operations_have_gradients() -> None:
    """test_jax_dropout.py has that of a share which is an operand."""
    assert STEPS.keys() | {DROPOUT_MASK_BY_OPERAND} == OPERATIONS.keys()


@pytest.mark.parametrize("step", STEPS)
def test_each_operation(jax: Any, ours: Any, precise: Any, step: str) -> None:
    epilogue, a, b = lapidist.epilogue(STEPS[step]), drawn(4, 3), drawn(3, 4)
    call = partial(ours.matmul, epilogue=epilogue)
    expected = np.asarray(lapidist.matmul(a, b, epilogue=epilogue))
    value, back = jax.vjp(call, a, b)
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    if step != CAST:
        precise(call, a, b)
    else:
        _, passed = jax.vjp(ours.matmul, a, b)
        for mine, other in zip(back(value), passed(value), strict=True):
            np.testing.assert_allclose(mine, other, rtol=0.01)


def test_what_is_not_finite(jax: Any, ours: Any) -> None:
    values = np.array([[np.inf, -np.inf, np.nan, 0.0, -0.0]], "f4")
    one = np.ones((1, 1), "f4")
    for name in ("relu", "gelu", "silu"):
        epilogue = getattr(lapidist.epilogues, name)
        found, _ = jax.vjp(lambda b, epilogue=epilogue: ours.matmul(one, b, epilogue=epilogue), values)
        np.testing.assert_array_equal(found, lapidist.matmul(one, values, epilogue=epilogue))


# ---- vmap ----

MAPPED = ["a", "b", "row", "column", "tile", "number"]


@pytest.mark.parametrize("mapped", [*([name] for name in MAPPED), MAPPED, ["a", "number"]], ids="-".join)
@pytest.mark.parametrize("batch", [(), (4,)])
def test_vmap(jax: Any, ours: Any, mapped: list[str], batch: tuple[int, ...]) -> None:
    own = {"a": drawn(*batch, 5, 7, dtype="f4"), "b": drawn(7, 3, dtype="f4"), **operands(5, 3, "f4")}
    given = {
        name: jax.numpy.stack([value, 2 * value, -value]) if name in mapped else value
        for name, value in own.items()
    }

    def call(a: Any, b: Any, **more: Any) -> Any:
        return ours.matmul(a, b, epilogue=mixed(**more))

    found = jax.vmap(lambda given: call(**given), ({name: 0 if name in mapped else None for name in own},))(
        given
    )
    for at in range(3):
        one = {name: value[at] if name in mapped else value for name, value in given.items()}
        close(found[at], call(**one))


def test_vmap_is_one_product_with_its_function(jax: Any, ours: Any) -> None:
    """Where no result depends on a matrix' place in the batch."""
    a, b = drawn(3, 5, 7, dtype="f4"), drawn(7, 3, dtype="f4")
    call = jax.vmap(lambda a: ours.matmul(a, b, epilogue=lapidist.epilogues.relu))
    assert operations(jax, call, a) == {"lapidist_product": 1}
    close(call(a), jax.nn.relu(a @ b))


@pytest.mark.parametrize(("m", "n"), [(5, 3), (5, 0), (0, 3)])
@pytest.mark.parametrize("mapped", ["row", "column", "tile", "number"])
def test_vmap_over_rows_with_factors(jax: Any, ours: Any, m: int, n: int, mapped: str) -> None:
    a, b = (jax.numpy.asarray(drawn(*shape), "float8_e4m3fn") for shape in ((2, m, 7), (7, n)))
    scale, more = drawn(2, m, dtype="f4"), operands(m, n, "f4")
    each = jax.numpy.stack([more[mapped], -jax.numpy.asarray(more[mapped])])

    def call(a: Any, scale: Any, value: Any) -> Any:
        return ours.matmul(a, b, scale_a=scale, epilogue=mixed(**{**more, mapped: value}))

    found = jax.vmap(call)(a, scale, each)
    for at in range(2):
        close(found[at], call(a[at], scale[at], each[at]))


def test_gradients_for_each_example(jax: Any, ours: Any) -> None:
    x, w, bias = drawn(4, 7, dtype="f4"), drawn(3, 7, dtype="f4"), drawn(3, dtype="f4")
    grad = jax.vmap(jax.grad(lambda w, x: ours.linear(x, w, bias, activation="silu").sum()), (None, 0))
    expected = jax.vmap(jax.grad(lambda w, x: jax.nn.silu(w @ x + bias).sum()), (None, 0))
    close(grad(w, x), expected(w, x))


# ---- several devices, disks, refusals ----


def test_shard_map(jax: Any, ours: Any) -> None:
    spec, mesh = (
        jax.sharding.PartitionSpec,
        jax.make_mesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Auto,)),
    )
    x, w, bias = drawn(8, 16, dtype="f4"), drawn(12, 16, dtype="f4"), drawn(12, dtype="f4")
    layer = partial(ours.linear, activation="silu")
    spread = jax.jit(
        jax.shard_map(layer, mesh=mesh, in_specs=(spec("x"), spec(), spec()), out_specs=spec("x"))
    )
    close(spread(x, w, bias), layer(x, w, bias))
    found, expected = (jax.grad(lambda w, each=each: each(x, w, bias).sum())(w) for each in (spread, layer))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_it_is_read_as_it_was_written() -> None:
    products = importlib.import_module("lapidist.jax.product")
    function = mixed.function
    names = tuple(products.Product.name_of(each) for each in function.parameters)
    product = products.Product(("a", "b", *names), epilogue=function)
    assert products.read(products.written(product, ()).encode()) == (product, ())


def test_programs_are_exported(jax: Any, ours: Any) -> None:
    export, outline = importlib.import_module("jax.export"), jax.ShapeDtypeStruct((4, 4), "float32")
    checks = [export.DisabledSafetyCheck.custom_call("lapidist_product")]
    layer = jax.jit(partial(ours.linear, activation="relu"))
    program = export.export(layer, platforms=("cpu", "cuda"), disabled_checks=checks)(outline, outline)
    a = drawn(4, 4, dtype="f4")
    close(program.call(a, a), np.maximum(a @ a.T, 0))


A = np.ones((2, 2), "f4")
REFUSED: dict[str, Callable[[Any], Any]] = {
    "epilogue: must be a function of @lapidist.epilogue": lambda ours: ours.matmul(A, A, epilogue=len),
    "bias: must have a value for each column of D": lambda ours: ours.matmul(
        A, A, epilogue=lapidist.epilogues.bias(bias=np.ones(3, "f4"))
    ),
    "bias: must be a number or an array of JAX or NumPy; got list": lambda ours: ours.matmul(
        A, A, epilogue=lapidist.epilogues.bias(bias=[1.0, 2.0])
    ),
    "bias: must be of float64": lambda ours: ours.matmul(
        A, A, epilogue=lapidist.epilogues.bias(bias=np.ones(2, "c8"))
    ),
    "epilogue: must follow sums of floats": lambda ours: ours.matmul(
        A.astype("i1"), A.astype("i1"), epilogue=lapidist.epilogues.scaled(factor=0.5)
    ),
    "epilogue: swiglu takes columns in pairs": lambda ours: ours.matmul(
        A, A[:, :1], epilogue=lapidist.epilogues.swiglu
    ),
    "out_dtype: must be float8_e4m3fn, which the epilogue names": lambda ours: ours.matmul(
        A, A, epilogue=lapidist.epilogues.quantise_e4m3_groups, out_dtype="float32"
    ),
    "factor: ": lambda ours: ours.matmul(A, A, epilogue=lapidist.epilogues.scaled(factor=1e300)),
    "activation: must be 'relu'": lambda ours: ours.linear(A, A, activation="swish"),
}


@pytest.mark.parametrize("words", REFUSED)
def test_refusals(words: str) -> None:
    with pytest.raises(lapidist.LapidistError, match=words):
        REFUSED[words](importlib.import_module("lapidist.jax"))
