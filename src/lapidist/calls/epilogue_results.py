"""The further results of an epilogue, beside D: arrays of the caller's, checked, or new ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lapidist.calls import argument_rules
from lapidist.calls.part import Matrices
from lapidist.dtypes import number_type
from lapidist.epilogues.numeric import stored
from lapidist.epilogues.passes import ALL, COLUMN, FACTORS, QUANTISED, REDUCTIONS, ROW, groups_of
from lapidist.epilogues.results import STORED
from lapidist.epilogues.steps import Function, Result
from lapidist.errors import DTypeError, StrideError
from lapidist.frameworks.arrays import Operand, evenly, operand_of
from lapidist.frameworks.new_arrays import empty, fresh, handed_over, tell_written

Array = np.ndarray[Any, Any]
# Frameworks whose arrays may be column-major. Kernels read factors of 1 x 128 fastest in that layout.
LAID_BY_COLUMNS = ("numpy", "torch", "cupy")


class FurtherResults:
    """Each result has D's rows, scattered as D's are, and D's columns or the product's. Reductions have one
    value for each row, each column or all of D.
    """

    def __init__(self, function: Function, outputs: Sequence[Any], matrices: Matrices) -> None:
        self._paired = function.paired
        self._results = function.results[1:]
        self._extents, self._like, self._rows = matrices.extents, matrices.like, matrices.scattered_rows
        self._shape = self._visible_shape(matrices)
        pairs = zip(self._results, outputs, strict=True)
        self.operands = [
            self._operand(f"out[{place}]", result, array, matrices)
            for place, (result, array) in enumerate(pairs, 1)
        ]
        self._are_new = [array is None for array in outputs]

    @property
    def stored(self) -> list[Operand]:
        """The results that the kernel itself stores. Second passes make the others."""
        pairs = zip(self._results, self.operands, strict=True)
        return [operand for result, operand in pairs if not result.then]

    def _operand(self, name: str, result: Result, array: Any, matrices: Matrices) -> Operand:
        """The caller's array, or a description of the one that `make` will allocate."""
        dtype, shape = result.dtype, self._shape_of(result)
        usual = dtype or (number_type(matrices.accumulator).name if result.then else matrices.out_dtype)
        if array is None:
            new = fresh(name, shape, self._like, usual)
            if self._lies_by_columns(result, shape, new.framework):
                new = new.viewed(shape, (1, shape[0]))
            return self._full(new, result)
        operand = operand_of(array, name)
        if operand.dtype not in STORED or dtype not in ("", operand.dtype):
            raise DTypeError(
                f"{name}: must be of {dtype or ', '.join(STORED)}; got {operand.dtype}. Pass an array of"
                f" {usual}"
            )
        argument_rules.require_output(operand, matrices.a, shape, free_strides=True)
        argument_rules.require_aligned_elements(operand)
        full = self._full(operand, result)
        if result.then:
            require_even_steps(full)
        return full

    def require_disjoint_from(self, operands: Sequence[Operand]) -> None:
        """No result overlaps another one, or anything that is read."""
        arrays = [output for output in self.operands if output.owner is not None]
        for place, output in enumerate(arrays):
            for operand in (*operands, *arrays[:place]):
                argument_rules.require_no_overlap(output, operand)

    def _visible_shape(self, matrices: Matrices) -> tuple[int, ...]:
        """The shape of a result with D's rows and columns, as the caller sees it."""
        *batch, _, cols = self._extents.shape
        if self._paired or self._rows is None or matrices.out is None:
            return matrices.result_shape
        return (*batch, matrices.out.shape[-2], cols)

    def _shape_of(self, result: Result) -> tuple[int, ...]:
        """The shape that the caller sees."""
        if result.then:
            return self._result_shape(result)
        if self._paired:
            cols = self._extents.shape[-1]
            return (*self._shape[:-1], cols // 2 if result.other is None else cols)
        return self._shape

    def shape_of_values(self, result: Result) -> tuple[int, ...]:
        """The shape of what a second pass reads: all rows and columns, including those added to vectors."""
        *rows, cols = self._extents.shape
        return (*rows, cols // 2 if self._paired and result.other is None else cols)

    def _result_shape(self, result: Result) -> tuple[int, ...]:
        *batch, rows, cols = self.shape_of_values(result)
        extents = self._extents
        if result.then not in REDUCTIONS:
            return (*batch, *extents.visible((rows, cols if result.then == QUANTISED else groups_of(cols))))
        over = REDUCTIONS[result.then].over
        if over == ROW:
            return (*batch, *(() if extents.drop_row else (rows,)))
        return () if over == ALL else (*batch, *(() if extents.drop_col else (cols,)))

    def _full(self, operand: Operand, result: Result) -> Operand:
        """The operand viewed with rows and columns."""
        shape, strides = operand.shape, operand.strides
        if result.then in REDUCTIONS:
            over = REDUCTIONS[result.then].over
            has_row = over == ROW and not self._extents.drop_row
            has_col = over == COLUMN and not self._extents.drop_col
            if has_col:
                return operand.viewed((*shape[:-1], 1, shape[-1]), (*strides[:-1], 0, strides[-1]))
            more = (1,) if has_row else (1, 1)
            return operand.viewed((*shape, *more), (*strides, *(0 for _ in more)))
        return operand if self._rows is not None else self._extents.full(operand)

    def _lies_by_columns(self, result: Result, shape: tuple[int, ...], framework: str) -> bool:
        """Whether a new array for this result is column-major. Of two dimensions one may be the batch's."""
        matrix = len(self._extents.shape) == len(shape) == 2
        return matrix and result.then.startswith(FACTORS) and framework in LAID_BY_COLUMNS

    def make(self) -> None:
        """Allocate the arrays that the caller did not pass."""
        for place, (output, result) in enumerate(zip(self.operands, self._results, strict=True)):
            if output.owner is None:
                shape = self._dropped(output, result)
                by_column = self._lies_by_columns(result, shape, output.framework)
                array = empty(shape[::-1] if by_column else shape, self._like, output.dtype)
                array = array.T if by_column else array
                self.operands[place] = self._full(operand_of(array, output.name), result)

    def _dropped(self, output: Operand, result: Result) -> tuple[int, ...]:
        """The shape of an output as the caller sees it."""
        if result.then:
            return self._result_shape(result)
        return output.shape[:-2] + self._extents.visible(output.shape[-2:])

    @property
    def outlines(self) -> list[tuple[tuple[int, ...], str]]:
        """Shape and type of each result, as the caller sees them."""
        pairs = zip(self.operands, self._results, strict=True)
        return [(self._dropped(output, result), output.dtype) for output, result in pairs]

    def deliver(self) -> list[Any]:
        """The results as the caller gets them, after they were written."""
        arrays = []
        for output, is_new in zip(self.operands, self._are_new, strict=True):
            arrays.append(handed_over(output.owner, self._like) if is_new else output.owner)
            if not is_new:
                tell_written(output.owner)
        return arrays


def store_results(
    results: Sequence[Result], values: Sequence[Array], targets: Sequence[Array], rows: Array | None
) -> None:
    """Store the values of further results in NumPy's arrays. `rows`: to which they are scattered."""
    for result, value, target in zip(results, values, targets, strict=True):
        elements = stored(value, target.dtype.name)
        if result.then in REDUCTIONS:
            target[...] = elements.reshape(target.shape)
        elif rows is None:
            target[...] = elements
        else:
            index = np.broadcast_to(rows, elements.shape[:-1])
            np.put_along_axis(target, index[..., None], elements, axis=-2)


def require_even_steps(output: Operand) -> None:
    """Second passes step through all rows with a single stride."""
    if evenly(output.shape[:-1], output.strides[:-1]) is None:
        raise StrideError(
            f"{output.name}: rows of a reduction or of quantised values must lie evenly, through all matrices"
            f" of a batch; got strides {output.strides}. Pass a contiguous array"
        )
