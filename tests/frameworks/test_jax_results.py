"""Epilogues in JAX with pairs, several results, types of their own and reductions: the library's own results
under jit, and gradients through all that can have one."""

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


def drawn(*shape: int, dtype: Any = "f4") -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def operations(jax: Any, call: Any, *arrays: Any) -> Counter[str]:
    return Counter(equation.primitive.name for equation in jax.make_jaxpr(call)(*arrays).eqns)


def results(made: Any) -> tuple[Any, ...]:
    return made if isinstance(made, tuple) else (made,)


def same(found: Any, expected: Any, far: float = 1e-5) -> None:
    """Results of one call in their order, shapes and types."""
    assert isinstance(found, tuple) == isinstance(expected, tuple)
    for mine, other in zip(results(found), results(expected), strict=True):
        assert (mine.shape, mine.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(np.asarray(mine, "f4"), np.asarray(other, "f4"), rtol=far, atol=far)


@lapidist.epilogue
def gated(acc: lapidist.Pair, row: lapidist.Row, tile: lapidist.Tile, number: lapidist.Scalar) -> Any:
    gate = lapidist.silu(acc.first * number + row)
    return gate * acc.second + tile, lapidist.Pair(acc.second, gate)


@lapidist.epilogue
def kept(acc: Any, column: lapidist.Column) -> Any:
    scaled = acc * column
    return lapidist.tanh(scaled), scaled, lapidist.Output(acc > 0, "bool"), lapidist.Output(3 * acc, "int8")


@lapidist.epilogue
def reduced(acc: Any) -> Any:
    square = acc * acc
    return (
        acc,
        lapidist.row_sum(square),
        lapidist.column_sum(acc),
        lapidist.column_amax(acc),
        lapidist.row_max(acc),
    )


@lapidist.epilogue
def of_all(acc: Any) -> Any:
    return acc, lapidist.all_sum(acc), lapidist.amax(acc)


READY = lapidist.epilogues
M, N, K = 5, 6, 7
EPILOGUES: dict[str, Callable[..., Any]] = {
    "swiglu": lambda m, n: READY.swiglu,
    "geglu": lambda m, n: READY.geglu,
    "rotary": lambda m, n: READY.rotary(cosine=drawn(m, n // 2), sine=drawn(m, n // 2)),
    "gated": lambda m, n: gated(row=drawn(n // 2), tile=drawn(m, n // 2), number=0.5),
    "kept": lambda m, n: kept(column=drawn(m)),
    "reduced": lambda m, n: reduced,
    "of_all": lambda m, n: of_all,
    "quantise_e4m3": lambda m, n: READY.quantise_e4m3(factors=abs(drawn(m))),
    "quantise_int8": lambda m, n: READY.quantise_int8(factors=3 * abs(drawn(m))),
    "quantise_e4m3_groups": lambda m, n: READY.quantise_e4m3_groups,
    "swiglu_e4m3_groups": lambda m, n: READY.swiglu_e4m3_groups,
}
OF_8_BITS = [name for name in EPILOGUES if "quantise" in name or "groups" in name]


@pytest.mark.parametrize("name", EPILOGUES)
@pytest.mark.parametrize("device", [None, "machine"])
def test_it_is_the_library_s(jax: Any, ours: Any, name: str, device: str | None) -> None:
    a, b, epilogue = drawn(M, K), drawn(K, N), EPILOGUES[name](M, N)
    call = partial(ours.matmul, epilogue=epilogue, device=device)
    same(jax.jit(call)(a, b), lapidist.matmul(a, b, epilogue=epilogue))
    names = operations(jax, call, a, b)
    assert names["lapidist_product"] == 1
    assert not names.keys() - {"lapidist_product", "reshape"}


@pytest.mark.parametrize("name", EPILOGUES)
def test_in_16_bits(jax: Any, ours: Any, name: str) -> None:
    a, b = (jax.numpy.asarray(drawn(*shape), "bfloat16") for shape in ((M, K), (K, N)))
    epilogue = EPILOGUES[name](M, N)
    wide = {} if name in OF_8_BITS else {"out_dtype": "float32"}
    for types in ({}, wide):
        found = jax.jit(partial(ours.matmul, epilogue=epilogue, **types))(a, b)
        same(found, lapidist.matmul(a, b, epilogue=epilogue, **types))


@pytest.mark.parametrize("name", EPILOGUES)
@pytest.mark.parametrize("batch", [(), (2,)])
def test_linear(jax: Any, ours: Any, name: str, batch: tuple[int, ...]) -> None:
    x, weight, bias, epilogue = drawn(*batch, M, K), drawn(N, K), drawn(N), EPILOGUES[name](M, N)
    found = ours.linear(x, weight, bias, epilogue=epilogue)
    same(found, lapidist.gemm(x, weight, bias, beta=1, trans_b=True, epilogue=epilogue))


@pytest.mark.parametrize("name", ["kept", "reduced", "of_all", "quantise_e4m3_groups"])
@pytest.mark.parametrize(("left", "right"), [((K,), (K, N)), ((M, K), (K,)), ((K,), (K,))])
def test_vectors(jax: Any, ours: Any, name: str, left: Any, right: Any) -> None:
    a, b, epilogue = drawn(*left), drawn(*right), EPILOGUES[name](M if len(left) > 1 else 1, N)
    same(ours.matmul(a, b, epilogue=epilogue), lapidist.matmul(a, b, epilogue=epilogue))
    same(ours.linear(a, b.T, epilogue=epilogue), lapidist.matmul(a, b, epilogue=epilogue))


# ---- gradients ----


@pytest.mark.parametrize("name", [name for name in EPILOGUES if name not in OF_8_BITS])
def test_gradients(jax: Any, precise: Any, ours: Any, name: str) -> None:
    def floats(a: Any, b: Any) -> Any:
        found = results(ours.matmul(a, b, epilogue=EPILOGUES[name](M, N)))
        return [each for each in found if jax.numpy.issubdtype(each.dtype, jax.numpy.floating)]

    precise(floats, drawn(M, K, dtype="f8"), drawn(K, N, dtype="f8"))


def test_gradients_of_operands(precise: Any, ours: Any) -> None:
    def call(a: Any, b: Any, row: Any, tile: Any, number: Any) -> Any:
        return ours.matmul(a, b, epilogue=gated(row=row, tile=tile, number=number))

    shapes = (M, K), (K, N), (N // 2,), (M, N // 2), ()
    precise(call, *(drawn(*shape, dtype="f8") for shape in shapes))


@pytest.mark.parametrize("name", EPILOGUES)
def test_results_are_the_same_where_gradients_are_asked_for(jax: Any, ours: Any, name: str) -> None:
    """Of 8 bits, too: by a product of sums, and XLA."""
    epilogues = importlib.import_module("lapidist.jax.epilogue_functions")
    products = importlib.import_module("lapidist.jax.product")
    a, b, given = drawn(M, 300), drawn(300, 2 * 130), EPILOGUES[name](M, 2 * 130)
    given = given if hasattr(given, "values") else given()
    own = {products.Product.name_of(each): given.values[each.name] for each in given.function.parameters}
    product = products.Product(("a", "b", *own), epilogue=given.function)
    arrays = [jax.numpy.asarray(each, "float32") for each in (a, b, *own.values())]
    found = tuple(epilogues.separate(arrays, product))
    expected = results(lapidist.matmul(a, b, epilogue=given))
    for mine, other in zip(found, expected, strict=True):
        narrow = other.dtype.itemsize == 1  # sums that differ in a bit may round to a neighbour
        same(mine, other, 0.2 if narrow and other.dtype != "int8" else 1.01 if narrow else 1e-4)


def test_swiglu_takes_one_product_forth_and_two_back(jax: Any, ours: Any) -> None:
    def loss(x: Any, w: Any) -> Any:
        return ours.linear(x, w, epilogue=READY.swiglu).astype("float32").sum()

    def stock(x: Any, w: Any) -> Any:
        rows = x @ w.T
        return (jax.nn.silu(rows[:, ::2]) * rows[:, 1::2]).sum()

    x, w = (jax.numpy.asarray(drawn(*shape), "bfloat16") for shape in ((M, K), (N, K)))
    both = jax.grad(loss, argnums=(0, 1))
    assert str(jax.make_jaxpr(both)(x, w)).count("lapidist_product[") == 3
    wide = x.astype("float32"), w.astype("float32")
    for mine, other in zip(both(x, w), jax.grad(stock, argnums=(0, 1))(*wide), strict=True):
        assert mine.dtype == "bfloat16"
        np.testing.assert_allclose(mine.astype("float32"), other, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("name", OF_8_BITS)
def test_8_bits_have_no_gradient_and_say_so(jax: Any, ours: Any, name: str) -> None:
    def loss(a: Any) -> Any:
        found = results(ours.matmul(a, drawn(K, N), epilogue=EPILOGUES[name](M, N)))
        return found[0].astype("float32").sum()

    with pytest.raises(lapidist.ArgumentError, match="stores nothing that has a gradient"):
        jax.grad(loss)(jax.numpy.asarray(drawn(M, K)))
    jax.jit(lambda a: loss(jax.lax.stop_gradient(a)))(drawn(M, K))


@lapidist.epilogue
def for_the_next(acc: Any) -> Any:
    return lapidist.silu(acc), lapidist.Quantised(lapidist.silu(acc), "float8_e4m3fn")


def test_results_beside_those_of_8_bits_have_gradients(jax: Any, ours: Any) -> None:
    a, b = jax.numpy.asarray(drawn(M, K)), drawn(K, N)

    def loss(a: Any) -> Any:
        wide, small, factors = ours.matmul(a, b, epilogue=for_the_next)
        return wide.sum() + small.astype("float32").sum() + factors.sum()

    expected = jax.grad(lambda a: jax.nn.silu(a @ b).sum())(a)
    np.testing.assert_allclose(jax.grad(loss)(a), expected, rtol=1e-5, atol=1e-5)


# ---- transforms ----

MAPPED = [("a",), ("b",), ("a", "b")]


@pytest.mark.parametrize("name", EPILOGUES)
@pytest.mark.parametrize("mapped", MAPPED, ids="-".join)
@pytest.mark.parametrize("batch", [(), (2,)])
def test_vmap(jax: Any, ours: Any, name: str, mapped: tuple[str, ...], batch: tuple[int, ...]) -> None:
    own = {"a": drawn(*batch, M, K), "b": drawn(K, N)}
    given = {
        each: np.stack([value, 2 * value, -value]) if each in mapped else value for each, value in own.items()
    }
    epilogue = EPILOGUES[name](M, N)
    axes = {each: 0 if each in mapped else None for each in own}
    found = results(jax.vmap(lambda given: ours.matmul(**given, epilogue=epilogue), (axes,))(given))
    for at in range(3):
        one = {each: value[at] if each in mapped else value for each, value in given.items()}
        expected = results(lapidist.gemm(**one, epilogue=epilogue))
        same(tuple(each[at] for each in found), expected)


def test_vmap_over_numbers_of_pairs(jax: Any, ours: Any) -> None:
    a, b, row, tile = drawn(M, K), drawn(K, N), drawn(N // 2), drawn(M, N // 2)
    call = lambda number: ours.matmul(a, b, epilogue=gated(row=row, tile=tile, number=number))  # noqa: E731
    numbers = drawn(3)
    found = jax.vmap(call)(numbers)
    for at in range(3):
        same(tuple(each[at] for each in found), call(numbers[at]))


@pytest.mark.parametrize("name", ["gated", "kept", "reduced", "of_all", "quantise_e4m3_groups"])
def test_vmap_over_rows_with_factors(jax: Any, ours: Any, name: str) -> None:
    """One tall product, where no result is of several rows."""
    a, b = (jax.numpy.asarray(drawn(*shape), "float8_e4m3fn") for shape in ((2, M, K), (K, N)))
    scale, epilogue = abs(drawn(2, M)), EPILOGUES[name](M, N)
    call = lambda a, scale: ours.matmul(a, b, scale_a=scale, epilogue=epilogue)  # noqa: E731
    found = jax.vmap(call)(a, scale)
    for at in range(2):
        same(tuple(each[at] for each in found), call(a[at], scale[at]))


def test_it_is_read_as_it_was_written() -> None:
    products = importlib.import_module("lapidist.jax.product")
    for name in EPILOGUES:
        given = EPILOGUES[name](M, N)
        product = products.Product(("a", "b"), epilogue=given.function)
        assert products.read(products.written(product, ()).encode()) == (product, ())


def test_programs_are_exported(jax: Any, ours: Any) -> None:
    export, outline = importlib.import_module("jax.export"), jax.ShapeDtypeStruct((4, 4), "float32")
    checks = [export.DisabledSafetyCheck.custom_call("lapidist_product")]
    layer = jax.jit(partial(ours.matmul, epilogue=reduced))
    program = export.export(layer, platforms=("cpu", "cuda"), disabled_checks=checks)(outline, outline)
    a = drawn(4, 4)
    same(tuple(program.call(a, a)), lapidist.matmul(a, a, epilogue=reduced))


# ---- several devices ----


@pytest.mark.parametrize("name", EPILOGUES)
@pytest.mark.parametrize("of_a", [("x",), (None, "x"), ("x", "y")])
@pytest.mark.parametrize("of_b", [(), (None, "y")])
def test_xla_splits_it(jax: Any, ours: Any, name: str, of_a: Any, of_b: Any) -> None:
    mesh = jax.make_mesh((2, 2), ("x", "y"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    put = lambda array, *axes: jax.device_put(  # noqa: E731
        array, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes))
    )
    a, b = (np.random.default_rng(1).integers(-3, 4, shape).astype("f4") for shape in ((8, 16), (16, 8)))
    epilogue = EPILOGUES[name](8, 8)
    found = jax.jit(partial(ours.matmul, epilogue=epilogue))(put(a, *of_a), put(b, *of_b))
    same(found, lapidist.matmul(a, b, epilogue=epilogue), 1e-4)
