"""Padded lines of every operand, for each kernel that takes them: right, and nothing between lines is
written.

A config of simt copied vectors from addresses where none begins, of a tile that is wider than its matrix.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lapidist
from in_turns import sampled, surveyed, surveyed_but
from lapidist.config import Config
from lapidist.dtypes import numpy_dtype
from lapidist.errors import RefusalError
from lapidist.kernels.kernel import Kernel
from lapidist.kernels.registry import KERNELS, kernel_named
from lapidist.verify.sum_bound import judge
from leading_dimensions import Loop, padded, some_loops, stored
from typed import TYPED, aligned, fresh, output_of, plain, poisoned, precision_of

Array = np.ndarray[Any, Any]
PLAIN, MORE = 3, 16
POISON = 77  # what lies behind each line


def memory(dtype: Any) -> Any:
    return lambda shape: aligned(np.full(shape, POISON).astype(dtype))


def refused_or_right(kernel: Kernel, math: str, loop: Loop, config: Config | None = None) -> bool:
    """Whether it ran."""
    rng, shapes = np.random.default_rng(loop[:4]), stored(loop)
    a, b = (
        padded(each, loop.padding, memory(each.dtype))
        for each in (fresh(rng, shapes[name], math) for name in "ab")
    )
    output = output_of(math, own=not kernel.types.outputs)
    whole = memory(numpy_dtype(output))((loop.m, loop.n + loop.padding))
    out = whole[:, : loop.n]
    out[...] = poisoned(out.shape, output)
    how: dict[str, Any] = {"kernel": kernel, "config": config, "device": "machine"}
    how |= {"precision": precision_of(math), "trans_a": loop.trans_a, "trans_b": loop.trans_b}
    try:
        lapidist.gemm(a, b, out=out, **how)
    except RefusalError:
        return False
    assert (whole[:, loop.n :] == np.full((), POISON).astype(whole.dtype)).all(), loop
    left, right = a.T if loop.trans_a else a, b.T if loop.trans_b else b
    assert judge(out, left, right, precision=how["precision"], unit=kernel.unit).ok, loop
    return True


def turn_of(kernel: Kernel, math: str) -> int:
    return TYPED.index((kernel, math))


PRODUCTION = [(kernel, math) for kernel, math in TYPED if kernel.kind == "production"]


@pytest.mark.often(2)
@pytest.mark.parametrize(
    "kernel", [kernel for kernel in KERNELS if kernel.kind == "production"], ids=lambda kernel: kernel.name
)
def test_some_loops_of_blas(kernel: Kernel) -> None:
    math = plain(kernel)
    assert sum(refused_or_right(kernel, math, loop) for loop in some_loops(turn_of(kernel, math), PLAIN))


@pytest.mark.parametrize(("kernel", "math"), sampled(PRODUCTION, share=4))
def test_the_loops_of_blas(kernel: Kernel, math: str) -> None:
    ran = [refused_or_right(kernel, math, loop) for loop in some_loops(7 * turn_of(kernel, math), MORE)]
    assert sum(ran) >= MORE // 8


@pytest.mark.parametrize("kernel", surveyed(each for each in KERNELS if each.kind != "production"))
def test_the_loops_of_blas_by_rungs(kernel: Kernel) -> None:
    """Most need lines that touch, or that start on 16 bytes."""
    math = kernel.types.maths[0]
    for loop in some_loops(turn_of(kernel, math), MORE // 2):
        refused_or_right(kernel, math, loop)


SIMT_CONFIGS = [config for config, _ in kernel_named("simt").configs_for("float32")]


@pytest.mark.often(2)
@pytest.mark.parametrize("config", surveyed_but(SIMT_CONFIGS, *range(0, len(SIMT_CONFIGS), 2)), ids=str)
def test_tiles_that_are_wider_than_their_matrix(config: Config) -> None:
    """Lines on 16 bytes that end within a vector, so that each copy is of four elements. Rows or columns that
    do not exist repeat others, and must begin where vectors do.
    """
    for side in {config.bn // 2 + 1, config.bn - 1, config.bm // 2 + 1, config.bm - 3}:
        loop = Loop(side, side, 12, -side % 4, True, False)
        assert refused_or_right(kernel_named("simt"), "float32", loop, config)


def test_padded_weights_by_default() -> None:
    a, b = np.ones((64, 64), np.float32), np.ones((64, 20), np.float32)[:, :17]
    np.testing.assert_array_equal(lapidist.matmul(a, b, device="machine"), np.full((64, 17), 64))
