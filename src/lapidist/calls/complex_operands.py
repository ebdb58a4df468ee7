"""The operands of a complex product as matrices of real numbers, and the launches that bring them there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from lapidist.backends.backend import Backend
from lapidist.calls.bound import Bound
from lapidist.calls.call import Call
from lapidist.calls.emulated_launches import Room
from lapidist.calls.kernel_choice import Choices
from lapidist.calls.operation import Operation, Types
from lapidist.calls.repeat.start_in_steps import A, B, C, D, Place, Step, alone
from lapidist.dtypes import PART_OF, size_of
from lapidist.epilogues.expressions import Scalar
from lapidist.epilogues.functions import where
from lapidist.epilogues.tracing import BoundEpilogue, epilogue
from lapidist.frameworks.arrays import Operand, contiguous_strides, evenly, operand_of
from lapidist.frameworks.new_arrays import constant, filled
from lapidist.frameworks.real_views import real_view
from lapidist.launch import AS_IT_IS, Launch, Scalars
from lapidist.planning.widening_pass import ROWS, Widening, widen

Multiply = Callable[[Call], Any]
Rows = tuple[tuple[float, ...], ...]
SPLIT = (1.0, 0.0), (0.0, 1.0), (1.0, 1.0)  # times real and imaginary parts
JOIN = (1.0, -1.0), (-1.0, -1.0), (0.0, 1.0)  # that three products are multiplied by
ARRAYS = {"a": A, "b": B, "c": C, "out": D}  # of a call, by their names


class RealForms:
    """Operands in the form of real numbers. `multiply` makes products of these. `prepare` makes the small
    ones that come before.
    """

    def __init__(
        self, bound: Bound, call: Call, backend: Backend, multiply: Multiply, prepare: Multiply, records: bool
    ) -> None:
        self.bound, self.call, self.backend = bound, call, backend
        self.multiply, self.prepare = multiply, prepare
        self.part = PART_OF[bound.out_dtype]
        self.room = Room(bound.like)
        self.starts = {operand.name: operand.pointer for operand in bound.operands}
        self.steps: list[Step | None] | None = [] if records else None

    def interleaved(self, operand: Operand, widening: Widening) -> Operand:
        """Of complex numbers: where they lie if they lie so, else in the room."""
        is_read = not (widening.conjugated or widening.of_real) and widening.factor == 1
        if is_read and rows_touch(operand):
            return self.viewed(operand)
        return self.launched(operand, widening._replace(padded=True))

    def viewed(self, operand: Operand) -> Operand:
        *batch, m, n = operand.shape
        *around, row, _ = operand.strides
        return real_view(operand, (*batch, m, 2 * n), (*(2 * step for step in (*around, row)), 1))

    def _as_it_lies(self, operand: Operand) -> Operand:
        """A real operand whose array has its shape: it may be a transposed one, or a vector."""
        array = operand_of(operand.owner, operand.name)
        same = (array.shape, array.strides) == (operand.shape, operand.strides)
        return operand if same else real_view(operand, operand.shape, operand.strides)

    def picked(self, operand: Operand, index: Operand, gathers: int) -> Operand:
        """A copy of rows or columns, of which all matrices of a batch have the same, or each its own."""
        batch, (*_, row, col) = index.shape[:-1], operand.strides
        if batch:
            steps = steps_through(operand, batch)
            operand = operand.viewed((*batch, *operand.shape[-2:]), (*steps, row, col))
        how = operand.dtype not in PART_OF, operand.conjugated
        widening = Widening(self.part, *how, gathers=gathers, index_type=index.dtype)
        return as_complex(self.launched(operand, widening, index), self.bound.out_dtype)

    def launched(self, operand: Operand, widening: Widening, index: Operand | None = None) -> Operand:
        """Matrices that a batch repeats are copied or widened once. `index`: of rows or columns."""
        *batch, rows, columns = operand.shape
        *around, row, col = operand.strides
        if index is not None:
            picked = index.shape[-1]
            rows, columns = (picked, columns) if widening.gathers == ROWS else (rows, picked)
        of_each = index.shape[-1] if index is not None and len(index.shape) > 1 else 0
        different = tuple(
            1 if step == 0 and not of_each else size for size, step in zip(batch, around, strict=True)
        )
        height = 2 * rows if widening.widened else rows
        target = self.room.new((*different, height, 2 * widening.pitch(columns)), widening.part)
        together = evenly(different, tuple(around))
        outer = () if together is not None else different[:-1]
        step = together if together is not None else around[-1]
        matrices = prod(different[len(outer) :])
        how = self.backend.chip.architecture, self.backend.compiles
        launch = widen((rows, columns), matrices, (row, col, step), widening, *how, of_each)
        for number, place in enumerate(np.ndindex(*outer)):
            read = sum(at * stride for at, stride in zip(place, around, strict=False))
            written = sum(at * stride for at, stride in zip(place, target.strides, strict=False))
            source = replace(operand, pointer=operand.pointer + read * size_of(operand.dtype))
            to = replace(target, pointer=target.pointer + written * size_of(widening.part))
            beside = source
            if index is not None:
                skipped = number * matrices * of_each * size_of(index.dtype)
                beside = replace(index, pointer=index.pointer + skipped)
            self.launch(launch, (source, beside, source, to), AS_IT_IS)
        return real_view(target, (*different, height, 2 * columns), target.strides)

    # ---- complex numbers in memory ----

    def _scaled(self, operand: Operand, number: Operand) -> Operand:
        """The numbers of an operand times one in memory, real and imaginary parts in turn: a product of two
        columns.
        """
        widening = Widening(self.part, operand.dtype not in PART_OF, operand.conjugated)
        numbers = self.launched(operand, widening)
        once = number.viewed((1, 1), (1, 1))
        factor = self.launched(once, Widening(self.part, conjugated=number.conjugated, widened=True))
        target = self.room.new(numbers.shape, self.part)
        self._prepare(in_pairs(numbers), factor.owner, in_pairs(target))
        return target

    def _switch(self, number: Operand) -> Any:
        """An array of one element: 0 where the number is 0, else 1. Kernels read no operand times 0."""
        parts = real_view(number, (2,), (1,)).owner
        target = self.room.new((1, 1), self.part).owner
        self.store(target, nonzero(re=parts[:1], im=parts[1:]))
        return target

    def store(self, target: Any, epilogue: BoundEpilogue) -> None:
        """One number, which a function of its own operands gives."""
        none = self.room.new((1, 0), self.part).owner
        self._prepare(none, none.reshape(0, 1), target, epilogue)

    def _prepare(
        self, a: Any, b: Any, out: Any, epilogue: Any = None, c: Any = None, alpha: Any = 1.0, beta: Any = 0.0
    ) -> None:
        if self.steps is not None:
            self.steps.append(None)  # else a repeated call would leave this product out
        types = Types(invariant=self.bound.operation.types.invariant)
        operation = Operation(alpha=alpha, beta=beta, types=types, epilogue=epilogue)
        choices = Choices(self.call.choices.device, compile=self.call.choices.compile)
        self.prepare(Call(a, b, c, out, operation, choices, self.call.stream))

    # ---- three products of real numbers in place of four ----

    def planes(self, operand: Operand, widening: Widening, dimensions: int) -> Any:
        """Real parts, imaginary parts and their sums, as the first dimension of so many more of a batch."""
        numbers = self.launched(operand, widening)
        *shape, columns = numbers.shape
        target = self.room.new((3, prod(numbers.shape) // 2), self.part).owner
        self._prepare(self.numbers(SPLIT, self.part), in_pairs(numbers).T, target)
        more = [1] * (dimensions - len(shape) + 1)
        return target.reshape(3, *more, *shape, columns // 2)

    def numbers(self, rows: Rows, part: str) -> Any:
        """A matrix of these numbers, which is made once, or anew in each graph that is captured."""
        like = self.bound.like
        if not self.backend.is_captured(self.call.stream, like.framework):
            return constant(like.framework, like.device, rows, part)
        return filled(self.room.new((len(rows), len(rows[0])), part).owner, rows)

    def number(self, number: float) -> Operand:
        """A constant of the caller's as a complex number in memory."""
        sums = self.bound.accumulator
        parts = self.numbers(((number, 0.0),), PART_OF[sums])
        return as_complex(operand_of(parts, "constant"), sums)

    # ---- launches ----

    def launch(self, launch: Launch, operands: tuple[Operand, ...], numbers: Scalars) -> None:
        at, like = dict(zip("ABCD", operands, strict=True)), self.bound.like
        self.backend.launch_alone(launch, at, numbers, like.framework, self.call.stream)
        if self.steps is not None:
            self.steps.append(alone(launch, self.backend.ordinal, tuple(map(self.place, operands))))

    def place(self, operand: Operand) -> Place:
        start = self.starts.get(operand.name)
        if start is None:
            return self.room.place(operand)
        return Place(ARRAYS[operand.name].array, operand.pointer - start)


@epilogue
def nonzero(acc: Any, re: Scalar, im: Scalar) -> Any:
    """1 unless the number is 0."""
    return where((re != 0) | (im != 0), 1.0, 0.0)


def steps_through(operand: Operand, batch: tuple[int, ...]) -> tuple[int, ...]:
    """Numbers from matrix to matrix of a batch that the operand's own broadcasts to."""
    extents, strides = operand.shape[:-2], operand.strides[:-2]
    steps = (0 if extent == 1 else stride for extent, stride in zip(extents, strides, strict=True))
    return (*[0] * (len(batch) - len(extents)), *steps)


def rows_touch(operand: Operand) -> bool:
    """Whether neighbours of a row lie side by side."""
    return operand.strides[-1] == 1 or operand.shape[-1] == 1


def in_pairs(numbers: Operand) -> Any:
    """Complex numbers without gaps, one a row."""
    return numbers.owner.reshape(-1, 2)


def as_complex(numbers: Operand, dtype: str) -> Operand:
    """Parts in turn, without gaps, as the complex numbers that they are."""
    *around, columns = numbers.shape
    shape = (*around, columns // 2)
    return replace(numbers, shape=shape, strides=contiguous_strides(shape), dtype=dtype)
