"""Every registered kernel in the machine: plain in every type, sanitized with a fuzzed schedule at a small
tail size.
"""

from __future__ import annotations

import numpy as np
import pytest

from lapidist.device import chip
from lapidist.errors import RefusalError
from lapidist.frameworks.arrays import operand_of
from lapidist.kernels.kernel import Kernel
from lapidist.launch import Launch
from lapidist.machine import run
from lapidist.planning.plans import make_plan
from lapidist.problems.problem import Problem
from typed import TYPED, output_of, poisoned, precision_of, takes, whole

SHAPES = (((100, 72, 48), 0.0), ((136, 144, 80), 1.0))
# tests/kernels/test_small.py has batches of small matrices
LARGE = [(kernel, math) for kernel, math in TYPED if takes(kernel, *SHAPES[1][0])]
# On CUDA cores a type changes nothing but widths, behind TMA little; for mma.sync it changes who
# reads what.
ONE_MATH = {"fma": "float32", "wgmma": "float16"}
SOUND = [(kernel, math) for kernel, math in LARGE if math == ONE_MATH.get(kernel.unit, math)]


def product(
    kernel: Kernel, math: str, m: int, n: int, k: int, beta: float, column_major: bool = False
) -> tuple[Launch, np.ndarray, np.ndarray]:
    """A launch, its output and the exact result, with small integers; skips what the kernel refuses."""
    random = np.random.default_rng(m * n + k)
    output = output_of(math, own=not kernel.types.outputs)
    a, b, d = whole(random, (m, k), math), whole(random, (k, n), math), whole(random, (m, n), math)
    d = d.astype(poisoned((0, 0), output).dtype)
    if column_major:
        b = np.ascontiguousarray(b.T).T
    expected = a.astype("f8") @ b.astype("f8") + beta * d.astype("f8")
    if beta == 0:
        d = poisoned((m, n), output)
    operands = operand_of(a, "a"), operand_of(b, "b"), operand_of(d, "out")
    c = operand_of(d, "c") if beta else None
    plan = make_plan(
        Problem.of(operands[0], operands[1], c, operands[2], precision=precision_of(math)),
        chip("h200"),
        kernel,
    )
    return plan.launch(operands[0], operands[1], c, operands[2], 1.0, beta), d, expected.astype(d.dtype)


def any_layout(
    kernel: Kernel, math: str, m: int, n: int, k: int, beta: float
) -> tuple[Launch, np.ndarray, np.ndarray]:
    for column_major in (False, True):
        try:
            return product(kernel, math, m, n, k, beta, column_major)
        except RefusalError as refusal:
            reason = str(refusal)
    raise AssertionError(f"{kernel.name} takes neither layout of B: {reason}")


@pytest.mark.survey
@pytest.mark.parametrize(("kernel", "math"), LARGE, ids=lambda value: getattr(value, "name", value))
def test_kernels_are_right(kernel: Kernel, math: str) -> None:
    """Over several tiles; those of rungs are always the same, and less than one has tests enough."""
    for shape, beta in SHAPES if kernel.kind == "production" else SHAPES[1:]:
        launch, d, expected = any_layout(kernel, math, *shape, beta)
        run(launch, counting=False)
        assert (d == expected).all()


@pytest.mark.survey
@pytest.mark.parametrize(("kernel", "math"), SOUND, ids=lambda value: getattr(value, "name", value))
def test_kernels_are_sound(kernel: Kernel, math: str) -> None:
    seed = sum(map(ord, kernel.name))
    launch, d, expected = any_layout(kernel, math, 40, 72, 48, 0.0)
    run(launch, sanitize=True, seed=seed, counting=False)
    assert (d == expected).all()
