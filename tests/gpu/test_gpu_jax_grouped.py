"""lapidist.jax.ragged_dot on a GPU, beside each group in float64. Whole numbers keep sums exact."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from lapidist.dtypes import numpy_dtype

pytestmark = pytest.mark.gpu
GROUPS, K, N = 5, 96, 136
SIZES = [(0, 333, 1, 130, 36), (100, 0, 200, 0, 7), (0, 0, 0, 0, 0), (0, 500, 0, 0, 0), (400, 400, 0, 1, 2)]
ROWS = 500


def drawn(rng: Any, *shape: int, dtype: str) -> Any:
    return rng.integers(-2, 3, shape).astype(numpy_dtype(dtype))


def stretches(sizes: Any) -> list[slice]:
    ends = np.minimum(np.cumsum(sizes), ROWS)
    return [slice(*pair) for pair in zip((0, *ends[:-1]), ends, strict=True)]


def rows_of_groups(lhs: Any, rhs: Any, sizes: Any) -> Any:
    d = np.zeros((ROWS, rhs.shape[2]))
    for rows, matrix in zip(stretches(sizes), rhs.astype("f8"), strict=True):
        d[rows] = lhs[rows].astype("f8") @ matrix
    return d


def sums_of_groups(lhs: Any, g: Any, sizes: Any) -> Any:
    return np.stack([lhs[rows].astype("f8").T @ g[rows].astype("f8") for rows in stretches(sizes)])


def same(result: Any, expected: Any) -> None:
    assert {device.platform for device in result.devices()} == {"gpu"}
    np.testing.assert_array_equal(np.asarray(result).astype("f8"), expected)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_one_program_for_all_sizes(jax: Any, ours: Any, rng: np.random.Generator, dtype: str) -> None:
    """XLA's graphs replay with other sizes. What lies behind the last group is NaN in lhs, zeros in D."""
    lhs, rhs = drawn(rng, ROWS, K, dtype=dtype), drawn(rng, GROUPS, K, N, dtype=dtype)
    program = jax.jit(partial(ours.ragged_dot, preferred_element_type="float32"))
    for _ in range(3):
        for sizes in SIZES:
            poisoned = lhs.copy()
            poisoned[sum(sizes) :] = np.nan
            same(program(poisoned, rhs, np.int32(sizes)), rows_of_groups(lhs, rhs, sizes))


def test_precisions_and_eager_calls(ours: Any, rng: np.random.Generator) -> None:
    lhs, rhs = (drawn(rng, *shape, dtype="float32") for shape in ((ROWS, K), (GROUPS, K, N)))
    for precision in (None, "highest", "tf32", "default"):
        same(ours.ragged_dot(lhs, rhs, np.int32(SIZES[1]), precision), rows_of_groups(lhs, rhs, SIZES[1]))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_gradients(jax: Any, ours: Any, rng: np.random.Generator, dtype: str) -> None:
    lhs, rhs = drawn(rng, ROWS, K, dtype=dtype), drawn(rng, GROUPS, K, N, dtype=dtype)
    weights = drawn(rng, ROWS, N, dtype="float32")

    def loss(lhs: Any, rhs: Any, sizes: Any) -> Any:
        return (ours.ragged_dot(lhs, rhs, sizes, preferred_element_type="float32") * weights).sum()

    program = jax.jit(jax.grad(loss, (0, 1)))
    for sizes in SIZES * 2:
        of_lhs, of_rhs = program(lhs, rhs, np.int32(sizes))
        rounded = lambda x: x.astype(numpy_dtype(dtype)).astype("f8")  # noqa: E731
        same(of_lhs, rounded(rows_of_groups(weights, np.swapaxes(rhs, 1, 2), sizes)))
        same(of_rhs, rounded(sums_of_groups(lhs, weights, sizes)))


def test_vmap_and_scan(jax: Any, ours: Any, rng: np.random.Generator) -> None:
    lhs, rhs = drawn(rng, 3, ROWS, K, dtype="bfloat16"), drawn(rng, GROUPS, K, N, dtype="bfloat16")
    sizes = np.int32(SIZES[:3])
    multiply = partial(ours.ragged_dot, preferred_element_type="float32")
    expected = np.stack([rows_of_groups(x, rhs, s) for x, s in zip(lhs, sizes, strict=True)])
    same(jax.jit(jax.vmap(multiply, (0, None, 0)))(lhs, rhs, sizes), expected)
    step = lambda carry, given: (carry, multiply(given[0], rhs, given[1]))  # noqa: E731
    same(jax.jit(lambda *given: jax.lax.scan(step, 0, given)[1])(lhs, sizes), expected)


def test_rows_that_start_off_16_bytes(jax: Any, ours: Any, rng: np.random.Generator) -> None:
    """k and n of odd lengths."""
    lhs, rhs = drawn(rng, ROWS, 67, dtype="bfloat16"), drawn(rng, GROUPS, 67, 33, dtype="bfloat16")
    program = jax.jit(partial(ours.ragged_dot, preferred_element_type="float32"))
    for sizes in SIZES:
        same(program(lhs, rhs, np.int32(sizes)), rows_of_groups(lhs, rhs, sizes))
