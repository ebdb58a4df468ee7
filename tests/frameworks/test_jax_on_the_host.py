"""JAX arrays on the CPU: new arrays of JAX come back, and what JAX traces is refused in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lapidist

pytestmark = pytest.mark.frameworks
LEFT, RIGHT = np.arange(6, dtype="f4").reshape(2, 3), np.arange(6, dtype="f4").reshape(3, 2)
PRODUCT = LEFT @ RIGHT


@pytest.fixture
def a(jax: Any) -> Any:
    return jax.numpy.asarray(LEFT)


@pytest.fixture
def b(jax: Any) -> Any:
    return jax.numpy.asarray(RIGHT)


def same(result: Any, expected: Any) -> None:
    assert type(result).__module__.startswith("jaxlib")
    assert {device.platform for device in result.devices()} == {"cpu"}
    np.testing.assert_array_equal(np.asarray(result), expected)


@pytest.mark.parametrize("device", [None, "cpu", "machine"])
def test_results_are_arrays_of_jax(a: Any, b: Any, jax: Any, device: str | None) -> None:
    same(lapidist.matmul(a, b, device=device), PRODUCT)
    same(lapidist.matmul(a[0], b[:, 0], device=device), PRODUCT[0, 0])
    same(lapidist.gemm(a, b, PRODUCT, alpha=2, beta=1, device=device), 3 * PRODUCT)
    same(lapidist.gemm(a, b, jax.numpy.ones((2, 2)), beta=1, device=device), PRODUCT + 1)
    same(lapidist.gemm([a, a], [b, b], device=device)[1], PRODUCT)
    same(lapidist.plan(a, b, device=device).execute(a, b), PRODUCT)
    same(lapidist.matmul(a, RIGHT, device=device), PRODUCT)


@pytest.mark.parametrize("device", [None, "machine"])
def test_results_lie_where_a_does(a: Any, b: Any, jax: Any, device: str | None) -> None:
    for place in jax.devices("cpu")[::2]:
        found = lapidist.matmul(jax.device_put(a, place), jax.device_put(b, place), device=device)
        same(found, PRODUCT)
        assert found.devices() == {place}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int32", "int16", "complex64", "float8_e4m3fn"])
def test_types_of_jax(a: Any, b: Any, dtype: str) -> None:
    result = lapidist.matmul(a.astype(dtype), b.astype(dtype))
    same(result.astype("complex64"), PRODUCT)
    assert result.dtype == ("float32" if "8" in dtype else dtype)


@pytest.mark.parametrize(
    ("left", "right"), [("int32", "float32"), ("bfloat16", "float16"), ("int8", "bfloat16")]
)
def test_two_types_are_multiplied_in_the_one_that_jax_finds(
    a: Any, b: Any, jax: Any, left: str, right: str
) -> None:
    first, second = a.astype(left), b.astype(right)
    for result in (
        lapidist.matmul(first, second),
        lapidist.matmul(first, np.asarray(second)),
        lapidist.matmul(np.asarray(first), second),
    ):
        np.testing.assert_array_equal(result.astype("float32"), PRODUCT)
        assert result.dtype == jax.numpy.promote_types(left, right)


def test_a_results_type_and_numbers_may_be_those_of_jax(a: Any, b: Any, jax: Any) -> None:
    assert lapidist.matmul(a, b, out_dtype=jax.numpy.bfloat16).dtype == jax.numpy.bfloat16
    same(lapidist.gemm(a, b, alpha=jax.numpy.bfloat16(2), beta=jax.numpy.float32(0)), 2 * PRODUCT)


def test_arrays_of_jax_are_no_outputs(a: Any, b: Any, jax: Any) -> None:
    with pytest.raises(lapidist.ArgumentError, match="out: JAX arrays cannot be written to"):
        lapidist.matmul(a, b, jax.numpy.ones((2, 2)))


def test_an_array_that_was_deleted_is_named(a: Any, b: Any) -> None:
    gone = b + 0
    gone.delete()
    with pytest.raises(
        lapidist.ArgumentError, match="b: must hold its numbers; this array of JAX was deleted"
    ):
        lapidist.matmul(a, gone)


def test_descriptions_and_random_keys_are_named(a: Any, b: Any, jax: Any) -> None:
    described = jax.ShapeDtypeStruct((3, 2), "float32")
    keys = jax.random.split(jax.random.key(0), 6).reshape(3, 2)
    for wrong, words in (
        (described, r"must be an array of JAX, .*; got ShapeDtypeStruct\. Make one with jax.numpy"),
        (keys, r"must hold numbers; got random keys, key<fry>\. Pass jax.random.key_data"),
    ):
        calls: dict[str, Callable[[Any], Any]] = {
            "a": lambda x: lapidist.matmul(x, a),
            "b": lambda x: lapidist.matmul(a, x),
            "c": lambda x: lapidist.gemm(b, a, x, beta=1),
            "out": lambda x: lapidist.gemm(b, a, out=x),
            "alpha": lambda x: lapidist.gemm(a, b, alpha=x),
            "gather_a": lambda x: lapidist.gemm(a, b, gather_a=x),
        }
        for name, call in calls.items():
            with pytest.raises(lapidist.DTypeError, match=f"{name}: {words}"):
                call(wrong)


TRACED: dict[str, Callable[[Any, Any, Any], Any]] = {  # by the argument that is named
    "a": lambda jax, a, b: jax.jit(lambda x: lapidist.matmul(x, b))(a),
    "b": lambda jax, a, b: jax.jit(lambda x: lapidist.matmul(LEFT, x))(b),
    "a ": lambda jax, a, b: jax.grad(lambda x: lapidist.matmul(x, b).sum())(a),
    "b ": lambda jax, a, b: jax.vmap(lambda x: lapidist.gemm(a, x))(b[None]),
    "c": lambda jax, a, b: jax.jit(lambda x: lapidist.gemm(a, b, x, beta=1))(a[:, :2]),
    "alpha": lambda jax, a, b: jax.jit(lambda x: lapidist.gemm(a, b, alpha=x))(2.0),
    "out": lambda jax, a, b: jax.jit(lambda x: lapidist.matmul(a, b, x))(a[:, :2]),
}


@pytest.mark.parametrize("case", TRACED)
def test_what_jax_traces_is_refused_in_words(a: Any, b: Any, jax: Any, case: str) -> None:
    words = f"{case.strip()}: must hold numbers when .*; got a .*Tracer of .*pure_callback"
    with pytest.raises(lapidist.DTypeError, match=words):
        TRACED[case](jax, a, b)


def test_the_way_out_of_what_jax_traces(a: Any, b: Any, jax: Any) -> None:
    like = jax.ShapeDtypeStruct((2, 2), "float32")
    same(jax.jit(lambda x: jax.pure_callback(lapidist.matmul, like, x, b))(a), PRODUCT)
