"""The memory layout of one matrix: strides and alignment."""

from __future__ import annotations

from dataclasses import dataclass

from lapidist.dtypes import size_of
from lapidist.frameworks.arrays import Operand

VECTOR_BYTES = 16  # the widest load: alignment beyond it makes no difference


@dataclass(frozen=True, slots=True)
class Matrix:
    """The memory layout of one operand: strides in elements, alignment in bytes (of the pointer and of every
    row).
    """

    rows: int
    cols: int
    row_stride: int
    col_stride: int
    batch_strides: tuple[int, ...]
    alignment: int

    @property
    def layout(self) -> str:
        """Rows are contiguous ("row"), columns are ("col"), or neither ("strided"). The stride of an extent
        of 1 does not count.
        """
        if self.lies("row"):
            return "row"
        return "col" if self.lies("col") else "strided"

    def lies(self, layout: str) -> bool:
        """Whether the matrix is row-major ("row") or column-major ("col"). A single row or column may be
        both.
        """
        stride, neighbours, lines = (self.col_stride, self.cols, self.rows)
        if layout == "col":
            stride, neighbours, lines = (self.row_stride, self.rows, self.cols)
        return stride == 1 or neighbours <= 1 or lines == 0

    def with_rows(self, rows: int) -> Matrix:
        return Matrix(rows, self.cols, self.row_stride, self.col_stride, self.batch_strides, self.alignment)

    def transposed(self) -> Matrix:
        swapped = self.cols, self.rows, self.col_stride, self.row_stride
        return Matrix(*swapped, self.batch_strides, self.alignment)

    @staticmethod
    def of(operand: Operand, batch: tuple[int, ...]) -> Matrix:
        """`batch`: the broadcast batch shape. Dimensions that the operand lacks, or that have one element,
        get stride 0.
        """
        rows, cols = operand.shape[-2:]
        row_stride, col_stride = operand.strides[-2:]
        if not batch:
            return Matrix(rows, cols, row_stride, col_stride, (), alignment_of(operand))
        extents, strides = operand.shape[:-2], operand.strides[:-2]
        missing = len(batch) - len(extents)
        batch_strides = (0,) * missing + tuple(
            s if e != 1 else 0 for e, s in zip(extents, strides, strict=True)
        )
        return Matrix(rows, cols, row_stride, col_stride, batch_strides, alignment_of(operand))


def dense_matrix(rows: int, cols: int, dtype: str, layout: str = "row") -> Matrix:
    """A matrix that starts on 16 bytes, without gaps; "strided" has one behind every element."""
    strides = {"row": (cols, 1), "col": (1, rows), "strided": (2 * cols, 2)}[layout]
    bits = VECTOR_BYTES | max(strides) * size_of(dtype) | (min(strides) > 1) * size_of(dtype)
    return Matrix(rows, cols, *strides, (), bits & -bits)


# dimensions along which one load may take several elements: rows and columns, never those of a batch
MATRIX = (-1, -2)


def alignment_of(operand: Operand, within: tuple[int, ...] = MATRIX) -> int:
    """The largest power of two, up to 16 bytes, that divides the pointer and the distances between contiguous
    lines.

    Lines run along the first dimension of `within` that has stride 1. Overlapping windows have a second such
    dimension: it counts as a distance between lines.
    """
    shape, strides = operand.shape, operand.strides
    if len(shape) == 2 and within is MATRIX:
        return alignment_of_matrix(operand)
    line = next((dim for dim in within if shape[dim] > 1 and strides[dim] == 1), None)
    distances = [
        stride
        for dim, (extent, stride) in enumerate(zip(shape, strides, strict=True), -len(shape))
        if extent > 1 and dim != line
    ]
    bits = operand.pointer | VECTOR_BYTES
    for stride in distances:
        bits |= stride * size_of(operand.dtype)
    return bits & -bits


def alignment_of_matrix(operand: Operand) -> int:
    """The same for two dimensions, which most operands have."""
    (rows, cols), (row_stride, col_stride) = operand.shape, operand.strides
    size, bits = size_of(operand.dtype), operand.pointer | VECTOR_BYTES
    by_rows = cols > 1 and col_stride == 1
    if rows > 1 and (by_rows or row_stride != 1):
        bits |= row_stride * size
    if cols > 1 and not by_rows:
        bits |= col_stride * size
    return bits & -bits
