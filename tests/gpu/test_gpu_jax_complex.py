"""Complex products of lapidist.jax on a GPU, where XLA makes products of real numbers of them. All against
complex128 of NumPy, exact for small whole numbers.
"""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest

import lapidist

pytestmark = pytest.mark.gpu
jax = pytest.importorskip("jax")
import lapidist.jax as lj  # noqa: E402

SHAPES = [(31, 19, 35), (129, 70, 77)]
OPS: dict[Any, Any] = {False: lambda x: x, True: lambda x: x.swapaxes(-2, -1), "C": lambda x: x.mT.conj()}
FACTORS = [(1.0, 0.0), (1j, 2 - 1j), (0.0, 2.0), (2.0, 1j)]


def whole(rng: Any, *shape: int, dtype: str = "c16") -> Any:
    return (rng.integers(-4, 5, shape) + 1j * rng.integers(-4, 5, shape)).astype(dtype)


def same(result: Any, right: Any, dtype: str = "c8") -> None:
    assert {device.platform for device in result.devices()} == {"gpu"}
    assert result.dtype == dtype
    np.testing.assert_array_equal(np.asarray(result), right)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_every_op_and_kind_of_number(rng: Any, shape: tuple[int, int, int], dtype: str) -> None:
    m, n, k = shape
    with jax.enable_x64(dtype == "c16"):
        for number, (trans_a, trans_b) in enumerate(product(OPS, OPS)):
            alpha, beta = FACTORS[number % len(FACTORS)]
            how: Any = {"alpha": alpha, "beta": beta, "trans_a": trans_a, "trans_b": trans_b}
            call = jax.jit(partial(lj.gemm, **how))
            for _ in range(3):  # again in the compiled program, where XLA may capture it
                a, b = (
                    whole(rng, *((k, m) if trans_a else (m, k))),
                    whole(rng, *((n, k) if trans_b else (k, n))),
                )
                c = whole(rng, m, n)
                x, y = [(a, b), (a.real, b), (a, b.real)][number % 3]
                right = alpha * (OPS[trans_a](x) @ OPS[trans_b](y)) + beta * c
                narrow = [
                    z.astype(dtype if np.iscomplexobj(z) else {"c8": "f4", "c16": "f8"}[dtype])
                    for z in (x, y, c)
                ]
                same(call(*narrow), right, dtype)


def test_batches_vectors_and_precisions(rng: Any) -> None:
    a, b, c = whole(rng, 2, 3, 50, 70), whole(rng, 3, 70, 40), whole(rng, 40)
    for x, y in ((a, b), (a, b[0]), (a[0, 0, 0], b), (a[..., :0], b[:, :0])):
        same(jax.jit(lj.matmul)(x.astype("c8"), y.astype("c8")), x @ y)
    narrow = [z.astype("c8") for z in (a, b, c)]
    same(lj.gemm(*narrow, beta=1j), a @ b + 1j * c)
    mapped = jax.jit(jax.vmap(lj.matmul, (1, None)))(narrow[0], narrow[1][0])
    same(mapped, np.moveaxis(a, 1, 0) @ b[0])
    same(lj.linear(narrow[0][0], narrow[1][0].T, narrow[2]), a[0] @ b[0] + c)
    for precision in ("tf32", "emulated"):
        same(lj.matmul(*narrow[:2], precision=precision), a @ b)


@lapidist.epilogue
def squared(acc: Any, row: lapidist.Row, column: lapidist.Column, scale: lapidist.Scalar) -> Any:
    return (acc + row) * (acc - column) * scale + 1


def test_functions_of_complex_sums(rng: Any) -> None:
    a, b, row, column = (whole(rng, *shape) for shape in ((50, 70), (70, 40), (40,), (50,)))
    a, b = a / 4, b / 4  # so that products stay exact

    def ours(a: Any, b: Any, row: Any) -> Any:
        return lj.gemm(a, b, alpha=1j, epilogue=squared(row=row, column=column.astype("c8"), scale=2j))

    sums = 1j * (a @ b)
    right = 2j * (sums + row) * (sums - column[:, None]) + 1
    for _ in range(2):
        same(jax.jit(ours)(*(x.astype("c8") for x in (a, b, row))), right)
    same(lj.linear(a.astype("c8"), b.T.astype("c8"), residual=sums.astype("c8")), a @ b + sums)


def test_gradients(rng: Any) -> None:
    a, b, c, weights = (whole(rng, *s, dtype="c8") for s in ((70, 50), (40, 70), (50, 40), (50, 40)))

    def ours(a: Any, b: Any, c: Any) -> Any:
        return lj.gemm(a, b, c, alpha=1j, beta=2 - 1j, trans_a="C", trans_b=True)

    def theirs(a: Any, b: Any, c: Any) -> Any:
        with jax.default_matmul_precision("highest"):
            return 1j * (a.conj().T @ b.T) + (2 - 1j) * c

    def loss(f: Any, *operands: Any) -> Any:
        return (f(*operands) * weights).sum().real

    for operands in ((a, b, c), (a.real, b, c)):
        found, right = (jax.jit(jax.grad(partial(loss, f), (0, 1, 2)))(*operands) for f in (ours, theirs))
        for one, other in zip(found, right, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


def test_gram(rng: Any) -> None:
    a, c = whole(rng, 2, 50, 60), whole(rng, 60, 60)
    c = c + c.T.conj()
    gram = jax.jit(partial(lj.gram, trans=True, alpha=0.5, beta=2.0))
    for _ in range(2):
        same(gram(a.astype("c8"), c.astype("c8")), 0.5 * a.mT.conj() @ a + 2 * c)
    result = np.asarray(jax.jit(lj.gram)(rng.standard_normal((50, 160)).astype("f4").view("c8")))
    np.testing.assert_array_equal(result, result.conj().T)


@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_three_products(rng: Any, dtype: str) -> None:
    c = whole(rng, 31, 19, dtype=dtype)
    with jax.enable_x64(dtype == "c16"):
        for number, (trans_a, trans_b) in enumerate(product(OPS, OPS)):
            alpha, beta = FACTORS[number % len(FACTORS)]
            how: Any = {"alpha": alpha, "beta": beta, "trans_a": trans_a, "trans_b": trans_b}
            call = jax.jit(partial(lj.gemm, precision="3m", **how))
            a = whole(rng, *((35, 31) if trans_a else (31, 35)), dtype=dtype)
            b = whole(rng, *((19, 35) if trans_b else (35, 19)), dtype=dtype)
            for _ in range(2):
                same(call(a, b, c), alpha * (OPS[trans_a](a) @ OPS[trans_b](b)) + beta * c, dtype)
        x, y = whole(rng, 2, 3, 50, 70, dtype=dtype), whole(rng, 70, 40, dtype=dtype)
        same(jax.jit(partial(lj.matmul, precision="3m"))(x, y), x @ y, dtype)
        loss = lambda a, b, **how: lj.matmul(a, b, **how).real.sum()  # noqa: E731
        gradients = (
            jax.jit(jax.grad(partial(loss, **how), (0, 1)))(x, y) for how in ({}, {"precision": "3m"})
        )
        for one, other in zip(*gradients, strict=True):
            np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


@lapidist.epilogue
def shifted(acc: Any, scale: lapidist.Scalar, base: lapidist.Tile) -> Any:
    return acc * scale + base


@pytest.mark.parametrize("dtype", ["f4", "c8"])
def test_gram_with_an_epilogue(rng: Any, dtype: str) -> None:
    a, base = whole(rng, 2, 150, 60), whole(rng, 150, 150)
    a, base = (a, base + base.conj().T) if dtype == "c8" else (a.real, base.real + base.real.T)

    def ours(a: Any, base: Any) -> Any:
        return lj.gram(a, epilogue=shifted(scale=0.5, base=base), symmetric=("base",))

    right = 0.5 * (a @ a.conj().swapaxes(-2, -1)) + base
    call = jax.jit(ours)
    for _ in range(3):
        same(call(a.astype(dtype), base.astype(dtype)), right, dtype)
    half = jax.jit(partial(lj.gram, epilogue=lapidist.epilogues.relu))
    if dtype == "f4":
        same(half(a.astype("f4")), np.maximum(a @ a.swapaxes(-2, -1), 0), "f4")
    gradient = jax.jit(jax.grad(lambda a, base: ours(a, base).real.sum()))(
        a.astype(dtype), base.astype(dtype)
    )
    ones = np.ones((150, 150))
    np.testing.assert_array_equal(np.asarray(gradient), (ones @ a).conj())
