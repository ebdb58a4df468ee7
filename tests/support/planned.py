"""Problems of arrays that need not exist, and what a kernel says of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lapidist.config import Config
from lapidist.device import CHIPS, Device
from lapidist.epilogues.ready_made import READY
from lapidist.frameworks.arrays import HOST, Operand
from lapidist.kernels.registry import kernel_named
from lapidist.problems.epilogue_layout import Fed, Fused
from lapidist.problems.matrix import VECTOR_BYTES, Matrix
from lapidist.problems.problem import Problem

H200, A100, V100 = CHIPS["h200"], CHIPS["a100"], CHIPS["v100"]


def fake(shape: Sequence[int], strides: Sequence[int] | None = None, dtype: str = "float32") -> Operand:
    steps = strides or [*(shape[-1] * shape[-2] for _ in shape[:-2]), shape[-1], 1]
    return Operand("x", 0, tuple(shape), tuple(steps), dtype, HOST, "numpy", None)


def square(n: int, dtype: str = "float32") -> Problem:
    return Problem.of(fake((n, n), None, dtype), fake((n, n), None, dtype), None, fake((n, n), None, dtype))


def refusal(kernel: str, problem: Problem, device: Device = H200, config: Config | None = None) -> str:
    row = kernel_named(kernel)
    return row.refuse(problem, config or row.config_for(problem.math), device) or ""


def with_bias(problem: Problem) -> Problem:
    """As an epilogue."""
    row = Matrix(problem.m, problem.n, 0, 1, (), VECTOR_BYTES)
    fed = Fed(problem.out_dtype, row, by_row=False, by_col=True)
    return replace(problem, fused=Fused(READY["bias"].function, (fed,), problem.accumulator))
