"""The further results of an epilogue, beside D: arrays of the caller's, checked, or new ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from lapidist.calls import argument_rules
from lapidist.dtypes import number_type
from lapidist.epilogues.numeric import stored
from lapidist.epilogues.passes import ALL, COLUMN, FACTORS, QUANTISED, REDUCTIONS, ROW, groups_of
from lapidist.epilogues.results import STORED
from lapidist.epilogues.steps import Function, Result
from lapidist.errors import DTypeError, StrideError
from lapidist.frameworks.arrays import (
    Operand,
    empty,
    evenly,
    fresh,
    handed_over,
    on_host,
    operand_of,
    tell_written,
)

if TYPE_CHECKING:
    from lapidist.calls.arguments import Arguments

Array = np.ndarray[Any, Any]
# Frameworks whose arrays may be column-major. Kernels read factors of 1 x 128 fastest in that layout.
LAID_BY_COLUMNS = ("numpy", "torch", "cupy")


class OfArguments:
    """A part of Arguments, to which it refers weakly: a cycle would keep a caller's arrays until Python's
    collector runs.
    """

    def __init__(self, arguments: Arguments) -> None:
        self._whole = ref(arguments)

    @property
    def _arguments(self) -> Arguments:
        whole = self._whole()
        assert whole is not None  # who uses a part holds the whole
        return whole


class FurtherResults(OfArguments):
    """Each result has D's rows, scattered as D's are, and D's columns or the product's. Reductions have one
    value for each row, each column or all of D.
    """

    def __init__(self, function: Function, given: Sequence[Any], arguments: Arguments) -> None:
        super().__init__(arguments)
        self._paired = function.paired
        self._results = function.results[1:]
        pairs = zip(self._results, given, strict=True)
        self.operands = [
            self._operand(f"out[{place}]", each, array) for place, (each, array) in enumerate(pairs, 1)
        ]
        self._are_new = [array is None for array in given]

    @property
    def stored(self) -> list[Operand]:
        """The results that the kernel itself stores. Second passes make the others."""
        pairs = zip(self._results, self.operands, strict=True)
        return [operand for each, operand in pairs if not each.then]

    def _operand(self, name: str, result: Result, array: Any) -> Operand:
        """The caller's array, or a description of the one that `make` will allocate."""
        arguments, dtype, shape = self._arguments, result.dtype, self._shape_of(result)
        usual = dtype or (number_type(arguments.accumulator).name if result.then else arguments.out_dtype)
        if array is None:
            new = fresh(name, shape, arguments.like, usual)
            if self._lies_by_columns(result, shape, new.framework):
                new = new.viewed(shape, (1, shape[0]))
            return self._full(new, result)
        operand = operand_of(array, name)
        if operand.dtype not in STORED or dtype not in ("", operand.dtype):
            raise DTypeError(
                f"{name}: must be of {dtype or ', '.join(STORED)}; got {operand.dtype}. Pass an array of"
                f" {usual}"
            )
        argument_rules.require_output(operand, arguments.a, shape, free_strides=True)
        argument_rules.require_whole_elements(operand)
        full = self._full(operand, result)
        if result.then:
            require_even_steps(full)
        return full

    def require_apart_from(self, others: Sequence[Operand]) -> None:
        """No result overlaps another one, or anything that is read."""
        given = [output for output in self.operands if output.owner is not None]
        for place, output in enumerate(given):
            for other in (*self._arguments.operands, *others, *given[:place]):
                argument_rules.require_no_overlap(output, other)

    @property
    def _scattered(self) -> Operand | None:
        found: Operand | None = getattr(self._arguments, "index", {}).get("scatter_d")
        return found

    def _shape_of(self, result: Result) -> tuple[int, ...]:
        """The shape that the caller sees."""
        arguments = self._arguments
        if result.then:
            return self._shape_made(result)
        if self._paired:
            cols = arguments.shape[-1]
            return (*arguments.result_shape[:-1], cols // 2 if result.other is None else cols)
        if self._scattered is None or arguments.out is None:
            return arguments.result_shape
        return (*arguments.shape[:-2], arguments.out.shape[-2], arguments.shape[-1])

    def shape_of_values(self, result: Result) -> tuple[int, ...]:
        """The shape of what a second pass reads: all rows and columns, including those added to vectors."""
        *rows, cols = self._arguments.shape
        return (*rows, cols // 2 if self._paired and result.other is None else cols)

    def _shape_made(self, result: Result) -> tuple[int, ...]:
        *batch, rows, cols = self.shape_of_values(result)
        kept_row, kept_col = self._arguments.kept((rows,)), self._arguments.kept((1, cols))[-1:]
        if result.then not in REDUCTIONS:
            return (
                *batch,
                *self._arguments.kept((rows, cols if result.then == QUANTISED else groups_of(cols))),
            )
        over = REDUCTIONS[result.then].over
        if over == ROW:
            return (*batch, *kept_row)
        return () if over == ALL else (*batch, *(() if self._arguments.drop_col else kept_col))

    def _full(self, operand: Operand, result: Result) -> Operand:
        """The operand viewed with rows and columns."""
        arguments, (shape, strides) = self._arguments, (operand.shape, operand.strides)
        if result.then in REDUCTIONS:
            over = REDUCTIONS[result.then].over
            has_row = over == ROW and not arguments.drop_row
            has_col = over == COLUMN and not arguments.drop_col
            if has_col:
                return operand.viewed((*shape[:-1], 1, shape[-1]), (*strides[:-1], 0, strides[-1]))
            more = (1,) if has_row else (1, 1)
            return operand.viewed((*shape, *more), (*strides, *(0 for _ in more)))
        return operand if self._scattered is not None else arguments.full(operand)

    def _lies_by_columns(self, result: Result, shape: tuple[int, ...], framework: str) -> bool:
        """Whether a new array for this result is column-major. Of two dimensions one may be the batch's."""
        matrix = len(self._arguments.shape) == len(shape) == 2
        return matrix and result.then.startswith(FACTORS) and framework in LAID_BY_COLUMNS

    def make(self) -> None:
        """Allocate the arrays that the caller did not pass."""
        for place, (output, result) in enumerate(zip(self.operands, self._results, strict=True)):
            if output.owner is None:
                shape = self._dropped(output, result)
                by_column = self._lies_by_columns(result, shape, output.framework)
                array = empty(shape[::-1] if by_column else shape, self._arguments.like, output.dtype)
                array = array.T if by_column else array
                self.operands[place] = self._full(operand_of(array, output.name), result)

    def _dropped(self, output: Operand, result: Result) -> tuple[int, ...]:
        """The shape of an output as the caller sees it."""
        if result.then:
            return self._shape_made(result)
        return output.shape[:-2] + self._arguments.kept(output.shape[-2:])

    @property
    def outlines(self) -> list[tuple[tuple[int, ...], str]]:
        """Shape and type of each result, as the caller sees them."""
        pairs = zip(self.operands, self._results, strict=True)
        return [(self._dropped(output, result), output.dtype) for output, result in pairs]

    def deliver(self) -> list[Any]:
        """The results as the caller gets them, after they were written."""
        found = []
        for output, is_new in zip(self.operands, self._are_new, strict=True):
            found.append(handed_over(output.owner, self._arguments.like) if is_new else output.owner)
            if not is_new:
                tell_written(output.owner)
        return found

    def store_on_host(self, values: Sequence[Array]) -> None:
        for output, result, value in zip(self.operands, self._results, values, strict=True):
            elements, target = stored(value, output.dtype), on_host(output)
            if result.then in REDUCTIONS:
                target[...] = elements.reshape(target.shape)
            elif self._scattered is None:
                target[...] = elements
            else:
                rows = np.broadcast_to(on_host(self._scattered), elements.shape[:-1])
                np.put_along_axis(target, rows[..., None], elements, axis=-2)


def require_even_steps(output: Operand) -> None:
    """Second passes step through all rows with a single stride."""
    if evenly(output.shape[:-1], output.strides[:-1]) is None:
        raise StrideError(
            f"{output.name}: rows of a reduction or of quantised values must lie evenly, through all matrices"
            f" of a batch; got strides {output.strides}. Pass a contiguous array"
        )
