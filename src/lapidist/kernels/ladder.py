"""Families of the ladder and its detours on CUDA cores: BLAS style, row-major, C in place. The first kernels
load by threads, later ones by TMA.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lapidist.config import Config, Knobs
from lapidist.dtypes import TYPES, size_of
from lapidist.kernels.blocks.family import Blocks
from lapidist.kernels.budgets import STAGE_BARRIERS, SWIZZLE_PERIOD
from lapidist.kernels.family import Family
from lapidist.kernels.parameters import SCHEDULE, SIZES, Parameters
from lapidist.kernels.rules.layout_rules import refuse_layouts, refuse_rows
from lapidist.kernels.sgemm.sharing import Fed
from lapidist.kernels.tma_alignment import TMA_ALIGNMENT
from lapidist.launch import TensorMap
from lapidist.problems.matrix import Matrix
from lapidist.problems.problem import Problem

LADDER_PARAMETERS: Parameters = (
    *SIZES,
    ("alpha", "scalar"),
    ("A", "pointer"),
    ("lda", "i64"),
    ("B", "pointer"),
    ("ldb", "i64"),
    ("beta", "scalar"),
    ("D", "pointer"),
    ("ldd", "i64"),
)
TMA_PARAMETERS: Parameters = (
    *SIZES,
    ("alpha", "scalar"),
    ("A", "tensormap"),
    ("B", "tensormap"),
    ("beta", "scalar"),
    ("D", "pointer"),
    ("ldd", "i64"),
)


class RowMajor(Family):
    """Threads load A and B."""

    parameters = LADDER_PARAMETERS

    def refuse(self, problem: Problem) -> str | None:
        return refuse_layouts(problem)

    def macros(self, problem: Problem) -> Mapping[str, object]:
        return {"T": TYPES[problem.dtype].c_type, "ALIGNED": int(vectors_of_four(problem))}


class BByColumns(RowMajor):
    """B is N x K."""

    parameters = tuple(("b_col" if name == "ldb" else name, kind) for name, kind in LADDER_PARAMETERS)

    def refuse(self, problem: Problem) -> str | None:
        return refuse_layouts(problem, b_layout="col")


class CopiedRows(RowMajor):
    """TMA loads A and B: tensor maps take the place of their pointers."""

    parameters = TMA_PARAMETERS

    def refuse(self, problem: Problem) -> str | None:
        return refuse_layouts(problem) or refuse_rows(problem)

    def macros(self, problem: Problem) -> Mapping[str, object]:
        """Threads load and store only C and D, so A and B do not matter for ALIGNED."""
        aligned = problem.n % 4 == 0 and problem.d.alignment >= four_bytes(problem)
        return {"T": TYPES[problem.dtype].c_type, "ALIGNED": int(aligned)}

    def maps(
        self, problem: Problem, config: Config, at: Mapping[str, int], peers: int
    ) -> Mapping[str, TensorMap]:
        """Row-major A is swizzled, row-major B is not."""
        a_box, b_box = (config.bk, config.bm), (config.bn, config.bk)
        return {
            "A": tensor_map(at["A"], problem.dtype, problem.a, a_box, swizzle=128),
            "B": tensor_map(at["B"], problem.dtype, problem.b, b_box, swizzle=0),
        }

    def shared_bytes(self, problem: Problem, config: Knobs) -> Any:
        return fed_bytes(problem, config)


class Ladder(Blocks, RowMajor):
    """One block for each tile."""


class LadderBByColumns(Blocks, BByColumns):
    """One block for each tile."""


class Tma(Blocks, CopiedRows):
    """One block for each tile."""


class TmaScheduled(Fed, CopiedRows):
    """Blocks take their tiles from a schedule, and share some."""

    parameters = (*TMA_PARAMETERS, *SCHEDULE)


def four_bytes(problem: Problem) -> int:
    """Bytes of four elements, but not more than one load takes."""
    return min(16, 4 * size_of(problem.dtype))


def vectors_of_four(problem: Problem) -> bool:
    """The promise of ALIGNED in common.cuh: every row starts on a multiple of four elements, and N and K are
    multiples of 4.
    """
    vectors = problem.n % 4 == 0 and problem.k % 4 == 0
    return vectors and all(matrix.alignment >= four_bytes(problem) for matrix in problem.matrices())


def tensor_map(pointer: int, dtype: str, matrix: Matrix, box: tuple[int, int], swizzle: int) -> TensorMap:
    """A row-major matrix, innermost dimension first. Empty extents and strides are not legal, so they are
    rounded up.
    """
    extents = (max(1, matrix.cols), max(1, matrix.rows))
    stride = matrix.row_stride * size_of(dtype) if matrix.rows > 1 else TMA_ALIGNMENT
    return TensorMap(pointer, dtype, extents, (stride,), box, swizzle)


def fed_bytes(problem: Problem, config: Knobs) -> Any:
    """Stages of A and B tiles with their barriers, and space to align them to the swizzle's period."""
    stage = (config.bm + config.bn) * config.bk * size_of(problem.dtype)
    return config.stages * (stage + STAGE_BARRIERS) + SWIZZLE_PERIOD


LADDER, LADDER_B_COLUMNS, TMA, TMA_SCHEDULED = Ladder(), LadderBByColumns(), Tma(), TmaScheduled()
