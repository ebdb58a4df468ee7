"""The parameter lists of the kernel families: what a kernel is passed, and what it demands of a problem for that.

Three lists exist. `ladder`: BLAS style, row-major, C in place. `tma`: the same with tensor maps in place of the A and B
pointers. `simt`: every stride of every operand. Nothing else in the package spells an argument order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lapidist.config import Config
from lapidist.launch import ParameterBlock, TensorMap
from lapidist.problem import ELEMENT_BYTES, Matrix, Problem

Values = tuple[Any, ...]
Fill = Callable[
    [int, int, int, int, float, float], Values
]  # (a, b, c, d pointers, alpha, beta) -> the kernel's arguments
Encode = Callable[[TensorMap], Any]

C_TYPES = {"float16": "half", "float32": "float", "float64": "double"}
SCALARS = {"float32": "f32", "float64": "f64"}
TMA_BOX_LIMIT = 256
TMA_ALIGNMENT = 16


@dataclass(frozen=True, eq=False)
class Signature:
    """`kinds` lists the parameters ("scalar" is the accumulator's type); `refuse` says why a problem does not fit, or None."""

    name: str
    kinds: tuple[str, ...]
    fill: Callable[[Problem, Config, Encode], Fill]
    defines: Callable[[Problem], Mapping[str, object]]
    refuse: Callable[[Problem], str | None]

    def parameters(self, problem: Problem) -> ParameterBlock:
        scalar = SCALARS[problem.accumulator]
        return ParameterBlock([scalar if kind == "scalar" else kind for kind in self.kinds])


# ---- what the layouts are called in refusals ----

LAYOUT_WORDS = {
    "row": "row-major",
    "col": "column-major",
    "strided": "strided (neighbours touch neither along rows nor along columns)",
}


def refuse_layouts(problem: Problem, b_layout: str = "row") -> str | None:
    """The ladder's form: row-major A, C and D, C in place, no batch."""
    for name, matrix, wanted in (("A", problem.a, "row"), ("B", problem.b, b_layout), ("D", problem.d, "row")):
        if matrix.layout != wanted:
            return f"{name} must be {LAYOUT_WORDS[wanted]}; it is {LAYOUT_WORDS[matrix.layout]}"
    if problem.batch:
        return f"it multiplies one pair of matrices; this is a batch of {problem.batch}"
    if problem.c is not None and not problem.in_place:
        return "it updates C in place; here C and D are different arrays"
    return None


def refuse_b_rows(problem: Problem) -> str | None:
    return refuse_layouts(problem, b_layout="col")


def refuse_tma(problem: Problem) -> str | None:
    refusal = refuse_layouts(problem)
    if refusal:
        return refusal
    for name, matrix in (("A", problem.a), ("B", problem.b)):
        if matrix.alignment < TMA_ALIGNMENT:
            return (
                f"the copy engine needs {name}'s pointer and row stride in multiples of 16 bytes; "
                f"they are multiples of {matrix.alignment}"
            )
    return None


# ---- ladder: (M, N, K, alpha, A, lda, B, ldb, beta, C, ldc) ----


def vectors_of_four(problem: Problem) -> bool:
    """The ALIGNED promise of common.cuh: every row starts on four elements, N and K are whole fours."""
    four = min(16, 4 * ELEMENT_BYTES[problem.dtype])
    whole = problem.n % 4 == 0 and problem.k % 4 == 0
    return whole and all(matrix.alignment >= four for matrix in problem.matrices())


def ladder_defines(problem: Problem) -> Mapping[str, object]:
    return {"ELEMENT": C_TYPES[problem.dtype], "ALIGNED": int(vectors_of_four(problem))}


def ladder_fill(problem: Problem, config: Config, encode: Encode) -> Fill:
    m, n, k = problem.m, problem.n, problem.k
    lda, ldb, ldc = problem.a.leading, problem.b.leading, problem.d.leading

    def fill(a: int, b: int, c: int, d: int, alpha: float, beta: float) -> Values:
        return (m, n, k, alpha, a, lda, b, ldb, beta, d, ldc)

    return fill


# ---- tma: (M, N, K, alpha, map of A, map of B, beta, C, ldc) ----


def tma_defines(problem: Problem) -> Mapping[str, object]:
    """Only C moves by plain stores, so only C decides how many elements at once."""
    four = min(16, 4 * ELEMENT_BYTES[problem.dtype])
    aligned = problem.n % 4 == 0 and problem.d.alignment >= four
    return {"ELEMENT": C_TYPES[problem.dtype], "ALIGNED": int(aligned)}


def tma_fill(problem: Problem, config: Config, encode: Encode) -> Fill:
    m, n, k, ldc = problem.m, problem.n, problem.k, problem.d.leading
    maps: dict[tuple[int, int], tuple[Any, Any]] = {}

    def fill(a: int, b: int, c: int, d: int, alpha: float, beta: float) -> Values:
        pair = maps.get((a, b))
        if pair is None:
            if len(maps) >= 64:  # callers that rotate more buffers than this pay for encoding, not for memory
                maps.clear()
            a_map = tensor_map(a, problem.dtype, problem.a, (config.bk, config.bm), swizzle=128)
            b_map = tensor_map(b, problem.dtype, problem.b, (config.bn, config.bk), swizzle=0)
            pair = maps[a, b] = encode(a_map), encode(b_map)
        return (m, n, k, alpha, *pair, beta, d, ldc)

    return fill


def tensor_map(pointer: int, dtype: str, matrix: Matrix, box: tuple[int, int], swizzle: int) -> TensorMap:
    """A row-major matrix, innermost dimension first. Empty extents and strides are not legal: they are rounded up to something that is."""
    extents = (max(1, matrix.cols), max(1, matrix.rows))
    stride = max(matrix.leading * ELEMENT_BYTES[dtype], TMA_ALIGNMENT)
    return TensorMap(pointer, dtype, extents, (stride,), box, swizzle)


# ---- simt: every stride ----


def vector_width(matrix: Matrix, dtype: str) -> int:
    """Elements that one load may take: as many as the alignment allows, four at the most."""
    return max(1, min(4, matrix.alignment // ELEMENT_BYTES[dtype])) if matrix.layout != "strided" else 1


def simt_defines(problem: Problem) -> Mapping[str, object]:
    along_k = {"row": 1, "col": 2, "strided": 0}
    along_n = {"row": 2, "col": 1, "strided": 0}
    return {
        "ELEMENT": C_TYPES[problem.dtype],
        "A_CONTIGUOUS": along_k[problem.a.layout],
        "B_CONTIGUOUS": along_n[problem.b.layout],
        "A_VECTOR": vector_width(problem.a, problem.dtype),
        "B_VECTOR": vector_width(problem.b, problem.dtype),
        "D_VECTOR": vector_width(problem.d, problem.dtype),
    }


def simt_fill(problem: Problem, config: Config, encode: Encode) -> Fill:
    m, n, k = problem.m, problem.n, problem.k
    strides: list[int] = []
    for matrix in (problem.a, problem.b, problem.c or problem.d):
        strides += [matrix.row_stride, matrix.col_stride, *two_batch_strides(matrix)]
    strides += [problem.d.row_stride, *two_batch_strides(problem.d)]

    def fill(a: int, b: int, c: int, d: int, alpha: float, beta: float) -> Values:
        return (m, n, k, alpha, beta, a, b, c, d, *strides)

    return fill


def two_batch_strides(matrix: Matrix) -> tuple[int, int]:
    """(inner, outer): the last batch dimension steps along grid y, the one before along grid z."""
    inner, outer = (*matrix.batch_strides[::-1], 0, 0)[:2]
    return inner, outer


def refuse_simt(problem: Problem) -> str | None:
    if problem.d.layout != "row":
        return "D must have neighbours that touch along rows or columns; it is strided"
    if len(problem.batch) > 2:
        return f"it steps through two batch dimensions; these strides leave {len(problem.batch)}: {problem.batch}"
    if any(extent > 65535 for extent in problem.batch):
        return f"a grid has at most 65535 blocks along y and z; the batch is {problem.batch}"
    return None


LADDER_KINDS = ("i32", "i32", "i32", "scalar", "pointer", "i64", "pointer", "i64", "scalar", "pointer", "i64")
LADDER = Signature("ladder", LADDER_KINDS, ladder_fill, ladder_defines, refuse_layouts)
LADDER_B_ROWS = Signature("ladder, B as N x K", LADDER_KINDS, ladder_fill, ladder_defines, refuse_b_rows)
TMA = Signature(
    "tma",
    ("i32", "i32", "i32", "scalar", "tensormap", "tensormap", "scalar", "pointer", "i64"),
    tma_fill,
    tma_defines,
    refuse_tma,
)
SIMT = Signature(
    "simt",
    ("i32", "i32", "i32", "scalar", "scalar", *("pointer",) * 4, *("i64",) * 15),
    simt_fill,
    simt_defines,
    refuse_simt,
)
