"""gemm/small.cu: several products of a batch in a block."""

from __future__ import annotations

from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lapidist
from in_turns import in_turns
from lapidist import machine
from lapidist.config import Config
from lapidist.device import chip
from lapidist.dtypes import outputs_of
from lapidist.errors import RefusalError
from lapidist.frameworks.arrays import operand_of
from lapidist.kernels.registry import kernel_named
from lapidist.kernels.rules.small_products import ROOM, product_bytes
from lapidist.kernels.small import BLOCKS, products_of
from lapidist.planning.planner import choose
from lapidist.problems.problem import dense_problem

SMALL = kernel_named("small")
TILES = [config for config, _ in SMALL.configs_for("float32")]
# Of one element, odd, of whole vectors, as large as a tile. Blocks with many products, few, and one.
SHAPES = [
    (700, 3, 3, 3),
    (1100, 4, 4, 4),
    (530, 1, 4, 7),
    (9, 4, 1, 4),
    (5, 5, 3, 1),
    (3, 16, 16, 16),
    (2, 31, 17, 23),
    (2, 64, 60, 9),
]
EXACT = {"float32": np.float32, "float64": np.float64, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def drawn(rng: np.random.Generator, batch: int, rows: int, cols: int, by: str, dtype: Any) -> Any:
    """Whole numbers that all types can multiply and add exactly."""
    lines = (batch, rows, cols) if by == "r" else (batch, cols, rows)
    found = rng.integers(-2, 3, lines).astype(dtype)
    return found if by == "r" else found.swapaxes(1, 2)


@pytest.mark.often(2)
@pytest.mark.parametrize(("config", "dtype", "layouts"), in_turns(TILES, EXACT, ["rr", "rc", "cr", "cc"]))
def test_products(rng: np.random.Generator, config: Config, dtype: str, layouts: str) -> None:
    for batch, m, n, k in SHAPES:
        if m > config.bm or n > config.bn:
            continue
        a = drawn(rng, batch, m, k, layouts[0], EXACT[dtype])
        b = drawn(rng, batch, k, n, layouts[1], EXACT[dtype])
        given = {"device": "machine", "kernel": "small", "config": config}
        found = lapidist.plan(a, b, **given).execute(a, b)
        assert np.array_equal(found, (a.astype("f8") @ b.astype("f8")).astype(found.dtype))


@pytest.mark.often(1)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_same_bits_as_simt(rng: np.random.Generator, dtype: str) -> None:
    """With alpha, and beta C, of which the former is rounded first."""
    for (batch, m, n, k), config in product(SHAPES[:6], TILES):
        if m > config.bm or n > config.bn:
            continue
        a, b, c = (rng.standard_normal((batch, *each)).astype(dtype) for each in ((m, k), (k, n), (m, n)))
        given = {"alpha": 1.7, "beta": -0.6, "device": "machine"}
        ours = lapidist.plan(a, b, c, kernel="small", config=config, **given)
        other = lapidist.plan(a, b, c, kernel="simt", **given)
        if ours.sum_order == other.sum_order:
            assert np.array_equal(ours.execute(a, b, c), other.execute(a, b, c))
    assert ours.sum_order == other.sum_order  # of 16 steps of k


@pytest.mark.parametrize("case", range(6))
def test_matrices_that_do_not_follow_each_other(rng: np.random.Generator, case: int) -> None:
    a, b = rng.standard_normal((6, 5, 9, 12), "f4"), rng.standard_normal((6, 5, 12, 9), "f4")
    a, b = (
        (a[:, ::2, 1:, ::2], b[:, ::2, ::2, :4]),  # gaps everywhere
        (a[:, :1], b),  # one for several products
        (a[::2, :, :, ::-1], b[::2]),
        (a.transpose(1, 0, 2, 3), b.transpose(1, 0, 2, 3)),
        (a[:, :, ::-1], b[::-1]),
        (np.broadcast_to(a[:1, :1, :1, :], (6, 5, 9, 12)), b),
    )[case]
    out = np.full(
        (*np.broadcast_shapes(a.shape[:2], b.shape[:2]), a.shape[2] + 1, b.shape[3] + 3), np.nan, "f4"
    )
    inner = out[..., 1:, 2:-1]
    lapidist.plan(a, b, out=inner, device="machine", kernel="small").execute(a, b, out=inner)
    assert np.allclose(inner, a.astype("f8") @ b.astype("f8"), atol=1e-5)
    assert np.isnan(out[..., 0, :]).all()
    assert np.isnan(out[..., :2]).all()
    assert np.isnan(out[..., -1]).all()


@pytest.mark.often(2)
@pytest.mark.parametrize("config", TILES, ids=str)
def test_sanitized(rng: np.random.Generator, config: Config) -> None:
    """Memory that is not aligned to vectors, too."""
    for (batch, m, n, k), shift in product([(10, 5, 7, 6), (9, 4, 4, 4), (2, 16, 16, 16)], (0, 1)):
        a, b, c = (
            rng.integers(-3, 4, batch * rows * cols + shift).astype("f4")[shift:].reshape(batch, rows, cols)
            for rows, cols in ((m, k), (k, n), (m, n))
        )
        out = np.zeros_like(c)
        gemm = lapidist.plan(a, b, c, out=out, beta=2.0, device="machine", kernel="small", config=config)
        assert gemm.plan is not None
        operands = [operand_of(each, name) for each, name in ((a, "a"), (b, "b"), (c, "c"), (out, "out"))]
        machine.run(gemm.plan.launch(*operands, 1.0, 2.0), sanitize=True, seed=m + shift, counting=False)
        assert np.array_equal(out, a @ b + 2 * c)


@pytest.mark.often(2)
@pytest.mark.parametrize("dtype", EXACT)
def test_it_writes_every_type(rng: np.random.Generator, dtype: str) -> None:
    a, b = (drawn(rng, 12, *each, EXACT[dtype]) for each in ((5, 6, "r"), (6, 7, "r")))
    for out_dtype in outputs_of(dtype, dtype):
        found = lapidist.plan(a, b, out_dtype=out_dtype, device="machine", kernel="small").execute(a, b)
        assert found.dtype == EXACT[out_dtype]
        assert np.array_equal(found.astype("f8"), a.astype("f8") @ b.astype("f8"))


def test_nothing_along_k() -> None:
    a, b, c = np.ones((9, 3, 0), "f4"), np.ones((9, 0, 2), "f4"), np.ones((9, 3, 2), "f4")
    assert np.array_equal(lapidist.gemm(a, b, c, beta=3.0, device="machine"), 3 * c)


def test_a_block_has_as_many_products_as_fit() -> None:
    for batch, size in ((1000000, 4), (100000, 16), (5000, 30), (600, 4), (3, 4)):
        problem = dense_problem(size, size, size, "float32", batch=batch)
        products = products_of(problem)
        assert products == 1 or products * product_bytes(problem) <= ROOM
        assert products == 1 or -(-batch // products) > BLOCKS // 2
        run = products * size * size * 4
        assert run % 16 == 0 or products < 4


def test_what_it_refuses() -> None:
    for problem, why in (
        (dense_problem(65, 8, 8, "float32", batch=9), "at most bm x bn = 64 x 64; it is 65 x 8"),
        (dense_problem(60, 60, 600, "float32", batch=9), "shared memory"),
        (dense_problem(4, 4, 4, "int8", batch=9), "it multiplies float16"),
    ):
        with pytest.raises(RefusalError, match=why):
            choose(problem, chip("h200"), SMALL)


@pytest.mark.parametrize("name", ["h100", "h200"])
def test_small_matrices_are_its_own(name: str) -> None:
    """A million products of 4 x 4 took 1200 microseconds as a block each, and take 55. (H200)"""
    for math, size in product(("float32", "float64", "bfloat16", "float16"), (3, 4, 8, 12)):
        assert choose(dense_problem(size, size, size, math, batch=50000), chip(name)).kernel is SMALL
    for math in ("float32", "bfloat16"):
        assert choose(dense_problem(4, 4, 4, math), chip(name)).kernel is not SMALL
        assert choose(dense_problem(128, 128, 128, math, batch=500), chip(name)).kernel is not SMALL
