"""Every registered kernel in the machine: plain in every type, sanitized with a fuzzed schedule at a small tail size."""

from __future__ import annotations

import numpy as np
import pytest

from lapidist.arrays import operand_of
from lapidist.device import chip
from lapidist.errors import RefusalError
from lapidist.kernels import KERNELS, Kernel
from lapidist.launch import Launch
from lapidist.machine import run
from lapidist.plans import make_plan
from lapidist.problem import Problem

TYPES = ("float32", "float64", "float16")


def product(
    kernel: Kernel, dtype: str, m: int, n: int, k: int, beta: float, column_major: bool = False
) -> tuple[Launch, np.ndarray, np.ndarray]:
    """A launch, its output and the exact result, with small integers; skips what the kernel refuses."""
    random = np.random.default_rng(m * n + k)
    a, b, d = (random.integers(-3, 4, shape).astype(dtype) for shape in ((m, k), (k, n), (m, n)))
    if column_major:
        b = np.ascontiguousarray(b.T).T
    expected = a.astype("f8") @ b.astype("f8") + beta * d.astype("f8")
    if beta == 0:
        d.fill(np.nan)
    operands = operand_of(a, "a"), operand_of(b, "b"), operand_of(d, "out")
    plan = make_plan(Problem.of(operands[0], operands[1], None, operands[2]), chip("h200"), kernel)
    return plan.launch(operands[0], operands[1], None, operands[2], 1.0, beta), d, expected.astype(dtype)


def any_layout(kernel: Kernel, dtype: str, m: int, n: int, k: int, beta: float) -> tuple[Launch, np.ndarray, np.ndarray]:
    for column_major in (False, True):
        try:
            return product(kernel, dtype, m, n, k, beta, column_major)
        except RefusalError as refusal:
            reason = str(refusal)
    raise AssertionError(f"{kernel.name} takes neither layout of B: {reason}")


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_kernels_are_right(kernel: Kernel, dtype: str) -> None:
    for shape, beta in (((100, 72, 56), 0.0), ((136, 144, 80), 1.0)):
        launch, d, expected = any_layout(kernel, dtype, *shape, beta)
        run(launch)
        assert (d == expected).all()


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_kernels_are_sound(kernel: Kernel) -> None:
    seed = sum(map(ord, kernel.name))
    launch, d, expected = any_layout(kernel, "float32", 40, 72, 40, 0.0)
    run(launch, sanitize=True, seed=seed)
    assert (d == expected).all()
