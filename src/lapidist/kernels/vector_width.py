"""How many elements one load takes: from alignment and contiguity."""

from __future__ import annotations

from lapidist.dtypes import size_of
from lapidist.problems.cached_fact import fact
from lapidist.problems.matrix import VECTOR_BYTES, Matrix
from lapidist.problems.modes import Modes
from lapidist.problems.problem import Problem


def vector_width(matrix: Matrix, dtype: str, most: int = 4) -> int:
    """Elements that one load may take: as many as the alignment allows, at most `most`."""
    return (
        max(1, min(most, line_alignment(matrix, dtype) // size_of(dtype)))
        if matrix.layout != "strided"
        else 1
    )


def line_alignment(matrix: Matrix, dtype: str) -> int:
    """The alignment in bytes of every row (of a row-major matrix; else column). With a single line its stride
    does not matter.
    """
    lines, step = (
        (matrix.rows, matrix.row_stride) if matrix.layout == "row" else (matrix.cols, matrix.col_stride)
    )
    bits = matrix.alignment | (step * size_of(dtype) if lines > 1 else 0)
    return bits & -bits


@fact
def least_alignment(problem: Problem) -> int:
    """The alignment in bytes of every line of A and B."""
    return min(line_alignment(problem.a, problem.dtype), line_alignment(problem.b, problem.b_dtype))


def inputs_on_16_bytes(problem: Problem) -> bool:
    return least_alignment(problem) >= VECTOR_BYTES


def columns_together(modes: Modes, width: int) -> bool:
    """Whether so many neighbours in a row of the product are neighbours in D too."""
    columns = modes.groups[1] if modes.groups else None
    return not modes.scatter_cols and (
        columns is None or (columns.stride == 1 and columns.extent % width == 0)
    )
