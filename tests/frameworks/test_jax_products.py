"""lapidist.jax on the CPU: what comes out, traced and not, is what lapidist has of the same arrays."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import lapidist
from lapidist.dtypes import OPERANDS, numpy_dtype

pytestmark = pytest.mark.frameworks
NARROW = [name for name in OPERANDS if name != "float64"]


def drawn(*shape: int, dtype: str = "float32") -> Any:
    whole = np.random.default_rng(sum(shape)).integers(0 if dtype == "uint8" else -4, 5, shape)
    return whole.astype(numpy_dtype(dtype))


def same(found: Any, expected: Any) -> None:
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))


@pytest.mark.parametrize("dtype", NARROW)
def test_every_type_traced_and_not(jax: Any, ours: Any, dtype: str) -> None:
    a, b = drawn(5, 7, dtype=dtype), drawn(7, 3, dtype=dtype)
    same(ours.matmul(a, b), lapidist.matmul(a, b))
    same(jax.jit(ours.matmul)(a, b), lapidist.matmul(a, b))
    same(ours.linear(a, b.T), lapidist.matmul(a, b))


def test_float64_where_jax_has_it(jax: Any, ours: Any) -> None:
    a = np.random.default_rng(0).standard_normal((9, 9))
    with jax.enable_x64(True):
        same(jax.jit(ours.matmul)(a, a), lapidist.matmul(a, a))


WANTED: list[tuple[str, dict[str, Any]]] = [
    ("bfloat16", {"out_dtype": "float32"}),
    ("float16", {"acc_dtype": "float16"}),
    ("float32", {"precision": "tf32"}),
    ("float32", {"out_dtype": "bf16", "precision": "tf32"}),
    ("float8_e4m3fn", {"promote": True, "out_dtype": "bfloat16"}),
    ("int8", {"out_dtype": "int8"}),
]


@pytest.mark.parametrize(("dtype", "wanted"), WANTED)
def test_types_that_are_asked_for(jax: Any, ours: Any, dtype: str, wanted: dict[str, Any]) -> None:
    a, b = drawn(5, 70, dtype=dtype), drawn(70, 3, dtype=dtype)
    a, b = (each if dtype == "int8" else (each / 3).astype(each.dtype) for each in (a, b))
    expected = lapidist.gemm(a, b, **wanted)
    same(jax.jit(lambda a, b: ours.gemm(a, b, **wanted))(a, b), expected)
    if "out_dtype" in wanted:
        wanted["preferred_element_type"] = wanted.pop("out_dtype")
        same(ours.matmul(a, b, **wanted), expected)


def test_both_names_of_a_result_s_type_may_agree(jax: Any, ours: Any) -> None:
    a = drawn(3, 3, dtype="bfloat16")
    result = ours.matmul(a, a, out_dtype="float32", preferred_element_type=jax.numpy.float32)
    assert result.dtype == "float32"


SHAPES = [
    ((7,), (7,)),
    ((7,), (7, 3)),
    ((5, 7), (7,)),
    ((7,), (2, 7, 3)),
    ((2, 5, 7), (7,)),
    ((2, 5, 7), (7, 3)),
    ((2, 1, 5, 7), (4, 7, 3)),
    ((0, 7), (7, 3)),
    ((5, 0), (0, 3)),
    ((0, 5, 7), (0, 7, 3)),
]


@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_shapes_of_matmul(jax: Any, ours: Any, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b = drawn(*left), drawn(*right)
    same(jax.jit(ours.matmul)(a, b), np.asarray(np.matmul(a, b)))


@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize("c_shape", [(5, 3), (3,), (5, 1), (1, 1)])
def test_gemm(jax: Any, ours: Any, trans_a: bool, trans_b: bool, c_shape: tuple[int, ...]) -> None:
    a, b = drawn(*((7, 5) if trans_a else (5, 7))), drawn(*((3, 7) if trans_b else (7, 3)))
    how = {"alpha": 0.5, "beta": -2, "trans_a": trans_a, "trans_b": trans_b}
    expected = lapidist.gemm(a, b, drawn(*c_shape), **how)
    same(jax.jit(lambda a, b, c: ours.gemm(a, b, c, **how))(a, b, drawn(*c_shape)), expected)
    same(ours.gemm(a, b, drawn(*c_shape), **how), expected)


def test_what_is_not_multiplied_is_not_read(ours: Any) -> None:
    nan = np.full((3, 3), np.nan, "f4")
    eye = np.eye(3, dtype="f4")
    same(ours.gemm(eye, eye, nan, beta=0), eye)
    same(ours.gemm(nan, nan, eye, alpha=0, beta=2), 2 * eye)


def test_numbers_may_be_those_of_jax(jax: Any, ours: Any) -> None:
    eye = np.eye(3, dtype="f4")
    same(ours.gemm(eye, eye, eye, alpha=jax.numpy.float32(2), beta=np.float32(1)), 3 * eye)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("trans_weight", [False, True])
def test_linear(jax: Any, ours: Any, rank: int, trans_weight: bool) -> None:
    x, bias = drawn(2, 5, 7)[(0,) * (3 - rank)], drawn(3)
    weight = drawn(3, 7) if trans_weight else drawn(7, 3)
    expected = x @ (weight.T if trans_weight else weight) + bias
    turned = jax.jit(lambda *arrays: ours.linear(*arrays, trans_weight=trans_weight))
    same(turned(x, weight, bias), expected)
    same(turned(x, weight), expected - bias)


FACTORS = [(2.0, 0.5), ((), ()), ((5, 1), (3,)), ((5,), None), ((5, 2), (2, 3)), ((1, 2), (2, 1))]


def factor(of: Any) -> Any:
    if not isinstance(of, tuple):
        return of
    return (np.arange(1, 1 + int(np.prod(of))) / 4).reshape(of).astype("f4")


@pytest.mark.parametrize(("of_a", "of_b"), FACTORS)
def test_factors(jax: Any, ours: Any, of_a: Any, of_b: Any) -> None:
    a, b = drawn(5, 200, dtype="float8_e4m3fn"), drawn(200, 3, dtype="float8_e4m3fn")
    scales = {"scale_a": factor(of_a), "scale_b": factor(of_b)}
    expected = lapidist.gemm(a, b, out_dtype="bfloat16", **scales)
    same(ours.gemm(a, b, out_dtype="bfloat16", **scales), expected)
    arrays = {name: value for name, value in scales.items() if isinstance(value, np.ndarray)}
    numbers = {name: value for name, value in scales.items() if name not in arrays}
    traced = jax.jit(lambda a, b, **more: ours.matmul(a, b, out_dtype="bfloat16", **more, **numbers))
    same(traced(a, b, **arrays), expected)


def test_products_run_in_the_machine(jax: Any, ours: Any) -> None:
    a, b, c = drawn(20, 33, dtype="bfloat16"), drawn(33, 9, dtype="bfloat16"), drawn(9, dtype="bfloat16")
    in_machine = jax.jit(lambda a, b, c: ours.gemm(a, b, c, beta=1, device="machine"))
    same(in_machine(a, b, c), lapidist.gemm(a, b, c, beta=1))


def test_an_error_while_a_program_runs_comes_out_in_words(
    jax: Any, ours: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise lapidist.LaunchError("cuLaunchKernelEx: the driver answered so")

    monkeypatch.setattr("lapidist.jax.handlers.api.gemm", fail)
    with pytest.raises(jax.errors.JaxRuntimeError, match="LaunchError: cuLaunchKernelEx: the driver"):
        jax.jit(ours.matmul)(drawn(2, 2), drawn(2, 2)).block_until_ready()


def test_programs_are_exported_for_gpus_where_there_is_none(jax: Any, ours: Any) -> None:
    export, outline = importlib.import_module("jax.export"), jax.ShapeDtypeStruct((4, 4), "float32")
    checks = [export.DisabledSafetyCheck.custom_call("lapidist_product")]
    both = {"platforms": ("cpu", "cuda"), "disabled_checks": checks}
    program = export.export(jax.jit(ours.linear), **both)(outline, outline)
    a, b = drawn(4, 4), drawn(4, 4)
    same(program.call(a, b), a @ b.T)


def test_a_product_is_read_as_it_was_written() -> None:
    products = importlib.import_module("lapidist.jax.product")
    product = products.Product(("a", "b", "c"), True, alpha=0.1, out_dtype="float32", scale_b=float("inf"))
    outlines = (((2, 3), "bfloat16"), ((), "float32"))
    assert products.read(products.written(product, outlines).encode()) == (product, outlines)
