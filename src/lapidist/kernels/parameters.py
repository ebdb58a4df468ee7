"""Kernel parameters that several families share: their kinds, and the values that follow from a problem."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from lapidist.launch import ParameterBlock
from lapidist.problems.modes import IN_LAUNCH, IN_MEMORY, PLAIN
from lapidist.problems.problem import Problem

Parameters = tuple[tuple[str, str], ...]  # names, each with its kind
# the type of kind "scalar", for alpha and beta, by the accumulator
SCALARS = {"float16": "f32", "float32": "f32", "float64": "f64", "int32": "i32"}
OPERANDS = "ABCD"  # a parameter of kind "pointer" or "tensormap" carries the operand's letter as its name
# addresses and strides of factors; a family that does not list it gets it if a problem has factors
SCALES = ("scales", "scales")
MODES = ("modes", "modes")  # where indices are; likewise
ARRAYS = {IN_LAUNCH: "lists", IN_MEMORY: "addresses"}  # the kind of the parameter "lists"
# the parameters for the strides of each operand
STEPS = tuple((f"ld{x}", f"{x}_row", f"{x}_col", f"{x}_inner", f"{x}_outer") for x in "abcd")
SIZES = (("M", "i32"), ("N", "i32"), ("K", "i32"))
SCHEDULE = (("schedule", "schedule"), ("workspace", "workspace"))  # for sources with share/sharing.cuh


def block_of(parameters: Parameters, problem: Problem) -> ParameterBlock:
    """The layout of the parameters in bytes, for this problem's types."""
    lists = (("lists", ARRAYS[problem.modes.arrays]),) if problem.modes.arrays else ()
    scales = (SCALES,) if problem.scaling.scaled and SCALES not in parameters else ()
    modes = (MODES,) if problem.modes.routes and MODES not in parameters else ()
    ragged = (("ragged", "ragged"),) if problem.modes.ragged else ()
    arrivals = (("arrivals", "arrivals"),) if problem.arrivals else ()
    owners = (problem.owners.parameter,) if problem.owners else ()
    operands = len(problem.fused.operands) if problem.fused else 0
    fused = (("epilogue", f"epilogue{operands}"),) if operands else ()
    return laid_out(
        (*parameters, *lists, *scales, *modes, *ragged, *arrivals, *owners, *fused),
        SCALARS[problem.accumulator],
    )


@lru_cache(maxsize=256)
def laid_out(parameters: Parameters, scalar: str) -> ParameterBlock:
    return ParameterBlock([(name, scalar if kind == "scalar" else kind) for name, kind in parameters])


def constants(problem: Problem) -> dict[str, Any]:
    """Every parameter that follows from the problem, by name.

    The stride of a single row or column is arbitrary and may break the alignment, so it is passed as zero.
    Not with routing: then that row may be any of many.
    """
    routed = problem.modes != PLAIN
    values: dict[str, Any] = {"M": problem.m, "N": problem.n, "K": problem.k}
    values["batch"] = problem.batch[-1] if problem.batch else 1
    matrices = problem.a, problem.b, problem.c or problem.d, problem.d
    for (ld, row, col, inner, outer), matrix in zip(STEPS, matrices, strict=True):
        values[ld] = values[row] = matrix.row_stride if matrix.rows > 1 or routed else 0
        values[col] = matrix.col_stride if matrix.cols > 1 or routed else 0
        values[inner], values[outer] = (*matrix.batch_strides[::-1], 0, 0)[:2]
    return values
