"""Lines of an operand, its contiguous rows or columns: what TMA can load, and what must be packed first."""

from __future__ import annotations

from dataclasses import replace

from lapidist.launch import TensorMap
from lapidist.problems.matrix import Matrix
from lapidist.problems.problem import Problem

TMA_ALIGNMENT = 16  # bytes: TMA needs addresses, and strides between lines, in multiples
L2_LINE, SECTOR = 128, 32  # bytes
FLAG_BYTES = 256
ALONE = [(1, 0), (1, 0)]  # extents and strides without a batch
Lines = tuple[int, int, int]  # how many lines, elements of one, elements from one to the next


def along_k(matrix: Matrix, is_a: bool) -> bool:
    """Whether it is contiguous along k: rows of A, columns of B."""
    return matrix.lies("row" if is_a else "col")


def line(matrix: Matrix, by_rows: bool) -> Lines:
    """The rows or the columns of a matrix, as Lines."""
    if by_rows:
        return matrix.rows, matrix.cols, matrix.row_stride
    return matrix.cols, matrix.rows, matrix.col_stride


def starts_on_16(matrix: Matrix, lines: Lines, size: int) -> bool:
    count, length, step = lines
    if 0 in (count, length):
        return True  # nothing is moved
    if matrix.alignment < TMA_ALIGNMENT or any(
        stride * size % TMA_ALIGNMENT for stride in matrix.batch_strides
    ):
        # matrices of one element may be neighbours in a line themselves: `alignment` does not look there
        return False
    return count == 1 or (step > 0 and step * size % TMA_ALIGNMENT == 0)


def made_of_16(matrix: Matrix, lines: Lines, size: int) -> bool:
    """Whether lines also end on a multiple of 16 bytes. Where one ends within 16 bytes, TMA on an H200 writes
    all of them: it would put zeros behind the line.
    """
    return starts_on_16(matrix, lines, size) and lines[1] * size % TMA_ALIGNMENT == 0


def packed_step(length: int, size: int) -> int:
    """Elements from line to line of a packed operand. Lines start on lines of the L2, short ones on sectors:
    loads that straddle two are at most half as fast.
    """
    chunk = (L2_LINE if length * size >= L2_LINE else SECTOR) // size
    return -(-length // chunk) * chunk


def scratch_of(packed_bytes: tuple[int, int]) -> tuple[int, int]:
    """Workspace bytes of flags and of packed operands."""
    total = sum(packed_bytes)
    return (FLAG_BYTES, -(-total // FLAG_BYTES) * FLAG_BYTES) if total else (0, 0)


def batch_steps(problem: Problem, matrix: Matrix) -> list[tuple[int, int]]:
    """Extent and stride of the inner and the outer batch dimension."""
    if not problem.batch:
        return ALONE
    steps = list(zip(problem.batch[::-1], matrix.batch_strides[::-1], strict=True))
    return [*steps, (1, 0), (1, 0)][:2]


def nothing_at(address: int, operand: TensorMap) -> TensorMap:
    """The map of an operand without elements, whose boxes only bring zeros. TMA touches its memory all the
    same, and frameworks give it no address. So the map points to memory that may be touched.
    """
    ranks = len(operand.shape)
    place = address // TMA_ALIGNMENT * TMA_ALIGNMENT
    return replace(operand, address=place, shape=(1,) * ranks, strides=(TMA_ALIGNMENT,) * (ranks - 1))
