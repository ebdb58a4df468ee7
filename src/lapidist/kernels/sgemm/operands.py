"""The operands of gemm/sgemm.cu: which lines are contiguous, what is packed first, TMA's maps of A and B."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from lapidist.config import Config
from lapidist.dtypes import size_of
from lapidist.kernels.clipped_maps import cut_by_groups
from lapidist.kernels.tma_alignment import (
    TMA_ALIGNMENT,
    Lines,
    along_k,
    batch_steps,
    line,
    packed_step,
    scratch_of,
    starts_on_16,
)
from lapidist.launch import TensorMap
from lapidist.problems.cached_fact import fact
from lapidist.problems.matrix import Matrix
from lapidist.problems.problem import Problem
from lapidist.problems.ragged import DEPTH, ROWS

SWIZZLE = 128  # bytes, for tiles whose rows run along k


def transposed_b(problem: Problem) -> bool:
    """Whether B is contiguous only along k: packing then transposes it."""
    return problem.k > 0 and not problem.b.lies("row")


@fact
def lines_as_they_lie(problem: Problem) -> tuple[Lines, Lines]:
    a, b = of_all_groups(problem)
    return line(a, along_k(problem.a, True)), line(b, not transposed_b(problem))


def of_all_groups(problem: Problem) -> tuple[Matrix, Matrix]:
    """A and B, or the matrices that groups share, with all of their rows, or all of their k."""
    a, b, ragged = problem.a, problem.b, problem.modes.ragged
    if ragged is not None and ragged.extent == ROWS:
        a = replace(a, rows=ragged.total)
    if ragged is not None and ragged.extent == DEPTH and problem.k:
        a, b = replace(a, cols=ragged.total), replace(b, rows=ragged.total)
    return a, b


@fact
def packed(problem: Problem) -> tuple[bool, bool]:
    """Whether A, and B, are packed first, because TMA cannot load them as they are."""
    lines, modes = lines_as_they_lie(problem), problem.modes
    anew = modes.gather_a or modes.arrays > 0, modes.gather_b or modes.arrays > 0 or transposed_b(problem)
    flags = []
    for matrix, (count, length, step), copied in zip((problem.a, problem.b), lines, anew, strict=True):
        backwards = any(stride < 0 for stride in matrix.batch_strides)
        fits = starts_on_16(matrix, (count, length, step), size_of(problem.dtype)) and not backwards
        flags.append(count * length > 0 and (bool(copied) or not fits))
    return flags[0], flags[1]


def lines_for_tma(problem: Problem) -> tuple[Lines, Lines]:
    """The lines of A and of B that TMA loads."""
    lines_of = []
    transposes = False, transposed_b(problem)
    for (count, length, step), packs, transpose in zip(
        lines_as_they_lie(problem), packed(problem), transposes, strict=True
    ):
        lines, elements = (length, count) if transpose else (count, length)
        lines_of.append((lines, elements, packed_step(elements, size_of(problem.dtype)) if packs else step))
    return lines_of[0], lines_of[1]


def batches(problem: Problem, matrix: Matrix) -> list[tuple[int, int]]:
    """Extent and stride of the inner and the outer batch dimension, as TMA sees them. A matrix that a batch
    shares counts once.
    """
    if problem.modes.arrays:
        return [(problem.batch[0], 0), (1, 0)]  # each matrix of a list is packed
    return [(extent if stride else 1, stride) for extent, stride in batch_steps(problem, matrix)]


@fact
def packed_bytes(problem: Problem) -> tuple[int, int]:
    nbytes = []
    for matrix, (count, _, step), packs in zip(
        (problem.a, problem.b), lines_for_tma(problem), packed(problem), strict=True
    ):
        matrices = prod(extent for extent, _ in batches(problem, matrix))
        nbytes.append(count * step * size_of(problem.dtype) * matrices if packs else 0)
    return nbytes[0], nbytes[1]


def scratch(problem: Problem) -> tuple[int, int]:
    return scratch_of(packed_bytes(problem))


def maps(problem: Problem, config: Config, at: Mapping[str, int]) -> dict[str, TensorMap]:
    """Packed operands lie in the workspace, A before B."""
    (pack_a, pack_b), (a_bytes, _) = packed(problem), packed_bytes(problem)
    a_lines, b_lines = lines_for_tma(problem)
    rows = along_k(problem.a, True)
    a_box = (config.bk, config.bm) if rows else (config.bm, config.bk)
    a, b = at["workspace"] if pack_a else at["A"], at["workspace"] + a_bytes if pack_b else at["B"]
    a_map = operand_map(problem, problem.a, a, a_lines, a_box, SWIZZLE if rows else 0, pack_a)
    b_map = operand_map(problem, problem.b, b, b_lines, (config.bn, config.bk), 0, pack_b)
    return cut_by_groups({"a_map": a_map, "b_map": b_map}, problem.modes.ragged)


def operand_map(
    problem: Problem,
    matrix: Matrix,
    address: int,
    lines: Lines,
    box: tuple[int, int],
    swizzle: int,
    packs: bool,
) -> TensorMap:
    """A batch has two more dimensions; packed matrices follow each other. Empty extents and strides are not
    legal, so they are rounded up.
    """
    (count, length, step), size = lines, size_of(problem.dtype)
    extents, strides = (
        [max(1, length), max(1, count)],
        [step * size if count > 1 and length > 0 else TMA_ALIGNMENT],
    )
    packed_stride = count * step
    for extent, stride in batches(problem, matrix) if problem.batch else ():
        extents.append(extent)
        strides.append((packed_stride if packs else stride) * size or TMA_ALIGNMENT)
        packed_stride *= extent
    box_of_one = (*box, *(1,) * (len(extents) - 2))
    return TensorMap(address, problem.dtype, tuple(extents), tuple(strides), box_of_one, swizzle)
