"""Rules about a problem's matrices that hold for all configs: each once, with its words."""

from __future__ import annotations

from lapidist.dtypes import size_of
from lapidist.kernels.tma_alignment import TMA_ALIGNMENT
from lapidist.problems.matrix import Matrix
from lapidist.problems.problem import GRID_BATCH_LIMIT, Problem

BATCH_DIMENSIONS = 2  # that a kernel can step through
LAYOUT_WORDS = {
    "row": "row-major",
    "col": "column-major",
    "strided": "strided (contiguous neither along rows nor along columns)",
}


def refuse_strided(name: str, matrix: Matrix, *layouts: str) -> str | None:
    """The refusal if it has none of these layouts; by default, neither of the two contiguous ones."""
    if any(map(matrix.lies, layouts or ("row", "col"))):
        return None
    return f"{name} must be contiguous along rows or along columns; it is strided"


def refuse_batch(problem: Problem) -> str | None:
    if len(problem.batch) <= BATCH_DIMENSIONS:
        return None
    return f"it steps through two batch dimensions; these strides leave {len(problem.batch)}: {problem.batch}"


def refuse_grid(problem: Problem) -> str | None:
    """For kernels with a block for each tile of each matrix."""
    if all(extent <= GRID_BATCH_LIMIT for extent in problem.batch):
        return None
    return f"a grid has at most {GRID_BATCH_LIMIT} blocks along y and z; the batch is {problem.batch}"


def refuse_layouts(problem: Problem, b_layout: str = "row") -> str | None:
    """The ladder takes row-major A, C and D, C in place, and no batch."""
    for name, matrix, layout in (
        ("A", problem.a, "row"),
        ("B", problem.b, b_layout),
        ("D", problem.d, "row"),
    ):
        if not matrix.lies(layout):
            return f"{name} must be {LAYOUT_WORDS[layout]}; it is {LAYOUT_WORDS[matrix.layout]}"
    if problem.batch:
        return f"it multiplies one pair of matrices; this is a batch of {problem.batch}"
    if problem.c is not None and not problem.in_place:
        return "it updates C in place; here C and D are different arrays"
    return None


def refuse_rows(problem: Problem) -> str | None:
    """TMA needs rows that start on multiples of 16 bytes, with a positive stride."""
    for name, matrix in (("A", problem.a), ("B", problem.b)):
        step = matrix.row_stride * size_of(problem.dtype) if matrix.rows > 1 else TMA_ALIGNMENT
        if matrix.alignment < TMA_ALIGNMENT or step % TMA_ALIGNMENT:
            return (
                f"TMA needs {name}'s pointer and row stride in multiples of {TMA_ALIGNMENT}"
                f" bytes; they are multiples of {min(matrix.alignment, step & -step or TMA_ALIGNMENT)}"
            )
        if step <= 0:
            return f"TMA steps forward from row to row; {name}'s row stride is {matrix.row_stride}"
    return None
