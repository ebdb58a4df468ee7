"""Products with factors: scale_a and scale_b, which multiply 8-bit floats.

A factor that is a number becomes part of alpha. One that is an array is read when the kernel runs, so its
contents may change. Its shape tells which of four kinds it is:

    one element              for the whole matrix
    (m,) or (m, 1)           one for each row of a; of b: (n,) or (1, n), one for each column
    (m, k / 128)             for each row and 128 of k, rounded up; of b: (k / 128, n)
    (m / 128, k / 128)       for blocks of 128 x 128, rounded up; of b: (k / 128, n / 128)

Where rows of a are gathered, factors are those of a as it lies.

Groups have those of their own matrices one after another: shapes of one matrix' factors, behind their number.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from lapidist.backends.host_product import HostProduct
from lapidist.calls import argument_rules, number_rules
from lapidist.calls.operation import Factors, Operation, is_array
from lapidist.calls.part import Grouping, Matrices, Part, ProblemInputs
from lapidist.errors import ArgumentError, DTypeError, ShapeError
from lapidist.frameworks.arrays import Operand, operand_of
from lapidist.frameworks.host_arrays import on_host
from lapidist.problems.modes import ExtraPointers
from lapidist.problems.ragged import DEPTH
from lapidist.problems.scaling import K_BLOCK, LINES, ONE, SQUARES, STRIPS, UNSCALED, Scale, Scaling

if TYPE_CHECKING:
    from lapidist.calls.index_operands import IndexOperands

Array = np.ndarray[Any, Any]


class FactorOperands(Part):
    """The factors of a and b. Those that are numbers have become part of alpha."""

    def __init__(
        self, operation: Operation, matrices: Matrices, indices: IndexOperands | None = None
    ) -> None:
        factors, a, b = operation.factors, matrices.a, matrices.b
        self._indices = indices
        self._gathered = a.shape[-2] if indices is not None and indices.gathers_a else None
        for name, factor, operand in zip(NAMES, factors, (a, b), strict=True):
            if factor is not None:
                argument_rules.require_8_bit_floats(name, operand, "Multiply with alpha")
        self._shape, self._k, self._groups = matrices.extents.shape, a.shape[-1], matrices.groups
        self._unread = matrices.alpha == 0 or self._k == 0
        self._by_name = {
            name: self._factors_of(name, value, a)
            for name, value in zip(NAMES, factors, strict=True)
            if is_array(value)
        }
        self.arrays = tuple(self._by_name.values())

    def _factors_of(self, name: str, value: Any, a: Operand) -> Operand:
        operand = operand_of(value, name)
        if operand.dtype != "float32":
            raise DTypeError(f"{name}: factors must be float32; got {operand.dtype}. Convert them first")
        argument_rules.require_same_device(operand, a)
        argument_rules.require_aligned_elements(operand)
        if self._groups is not None:
            return self._factors_of_groups(self._groups, name, operand)
        if len(self._shape) > 2 and math.prod(operand.shape) != 1:
            raise ShapeError(
                f"{name}: of a batch, all matrices have one factor, a number or an array of one element; got"
                f" shape {operand.shape} for a product of shape {self._shape}. Multiply one pair at a time"
            )
        scale_of(operand, *self._lines(name))
        return operand

    def _factors_of_groups(self, groups: Grouping, name: str, operand: Operand) -> Operand:
        """Factors of an operand that groups share, or of each group's own matrix."""
        if groups.has_matrices(name):
            if not operand.shape or operand.shape[0] != groups.count:
                raise ShapeError(
                    f"{name}: must have factors for each of the {groups.count} groups' matrices, their number"
                    f" first; got shape {operand.shape}. Reshape it, or repeat them"
                )
            scale_of(self._of_one(operand), *self._lines(name))
            return operand
        operand = one_after_another(operand, groups)
        scale = scale_of(operand, *self._lines(name))
        if groups.ragged.extent == DEPTH and scale.along_k:
            raise ShapeError(
                f"{name}: where groups cut k, a line has one factor for all of it; got shape {operand.shape}."
                " Pass one for each line"
            )
        return operand

    def _of_one(self, operand: Operand) -> Operand:
        """The factors of one matrix."""
        if self._groups is None or not self._groups.has_matrices(operand.name):
            return operand
        return operand.viewed(operand.shape[1:], operand.strides[1:])

    def _scale(self, name: str) -> Scale:
        operand = self._by_name.get(name)
        if operand is None:
            return UNSCALED
        scale = scale_of(self._of_one(operand), *self._lines(name))
        owns = self._groups is not None and self._groups.has_matrices(name)
        return scale._replace(group_step=operand.strides[0]) if owns else scale

    def _lines(self, name: str) -> tuple[int, int]:
        """How many lines have factors, and k."""
        if name == "scale_a" and self._gathered is not None:
            return self._gathered, self._k
        if self._groups is not None and not self._groups.has_matrices(name):
            lines = self._groups.lines(name)
            if lines is not None:
                return lines, self._k
        return (self._shape[-2] if name == "scale_a" else self._shape[-1]), self._k

    def require_promotion(self, promote: bool | None) -> None:
        if promote is not None and not promote and self._scaling(promoted=False).promoted:
            raise ArgumentError(
                "promote: factors that change along k multiply promoted sums; got False. Leave it out, or"
                " give a factor a line"
            )

    def _scaling(self, promoted: bool) -> Scaling:
        """The kinds of both factors; unscaled if A and B are not read."""
        if self._unread:
            return Scaling()
        a, b = map(self._scale, NAMES)
        return Scaling(a, b, promoted or a.along_k or b.along_k)

    def described(self, inputs: ProblemInputs) -> ProblemInputs:
        return inputs._replace(scaling=self._scaling(inputs.scaling.promoted))

    def with_pointers(self, pointers: ExtraPointers) -> ExtraPointers:
        of_a, of_b = (self._by_name[name].pointer if name in self._by_name else 0 for name in NAMES)
        return pointers._replace(scale_a=of_a, scale_b=of_b)

    def on_host(self, product: HostProduct) -> HostProduct:
        """With factors of A, (rows or 1, blocks of k or 1), of B (blocks of k or 1, columns or 1). Behind
        the number of groups, where each has its own.
        """
        of_a, of_b = (self._spread(name) if name in self._by_name else None for name in NAMES)
        if self._indices is not None and self._gathered is not None and of_a is not None and len(of_a) > 1:
            of_a = self._indices.rows_of_a(of_a)
        return product._replace(factors=(of_a, None if of_b is None else of_b.swapaxes(-1, -2)))

    def _spread(self, name: str) -> Array:
        values = on_host(self._by_name[name])
        if self._groups is not None and self._groups.has_matrices(name):
            return np.stack([self._spread_one(name, of_one) for of_one in values])
        return self._spread_one(name, values)

    def _spread_one(self, name: str, values: Array) -> Array:
        (lines, _), scale = self._lines(name), self._scale(name)
        if not scale.along_k:
            return values.reshape(-1, 1)
        values = values if name == "scale_a" else values.T
        return values.repeat(K_BLOCK, axis=0)[:lines] if scale.kind == SQUARES else values


NAMES = ("scale_a", "scale_b")


def one_after_another(operand: Operand, groups: Grouping) -> Operand:
    """With counts, factors of all groups' rows: shaped as those of each, they are viewed as one stack."""
    shape, strides, most = operand.shape, operand.strides, groups.ragged.most
    if not most or len(shape) < 2 or shape[:2] != (groups.count, most):
        return operand
    if shape[0] > 1 and strides[0] != most * strides[1]:
        raise ShapeError(
            f"{operand.name}: with counts, factors of groups must lie one after another; got strides"
            f" {strides} of shape {shape}. Copy it"
        )
    return operand.viewed((shape[0] * most, *shape[2:]), strides[1:])


def product_of_numbers(factors: Factors) -> float:
    """The product of the factors that are numbers."""
    numbers = zip(NAMES, factors, strict=True)
    return math.prod(
        require_number(name, value) for name, value in numbers if value is not None and not is_array(value)
    )


def require_number(name: str, value: object) -> float:
    if not isinstance(value, (int, float, np.floating, np.integer)):
        raise ArgumentError(
            f"{name}: must be a real number or a float32 array beside the operands; got"
            f" {type(value).__name__}. Make it an array"
        )
    number = number_rules.require_scalar(name, value)
    number_rules.require_in_range(name, number, "float32")
    return number


def scale_of(operand: Operand, lines: int, k: int) -> Scale:
    """Which of the four kinds the array is. Shapes of scale_b are transposed."""
    of_a = operand.name == "scale_a"
    shape, strides = operand.shape, operand.strides
    blocks, squares = -(-k // K_BLOCK), -(-lines // K_BLOCK)
    if math.prod(shape) == 1:
        return Scale(ONE)
    if len(shape) == 1 and shape[0] == lines:
        return Scale(LINES, strides[0])
    if len(shape) == 2:
        (across, along), (line_step, block_step) = (shape, strides) if of_a else (shape[::-1], strides[::-1])
        if (across, along) == (lines, 1):
            return Scale(LINES, line_step)
        if along == blocks and across in (lines, squares):
            return Scale(STRIPS if across == lines else SQUARES, line_step, block_step)
    turn = slice(None) if of_a else slice(None, None, -1)
    whose = "row" if of_a else "column"
    tall, strips, square = ((lines, 1)[turn], (lines, blocks)[turn], (squares, blocks)[turn])
    raise ShapeError(
        f"{operand.name}: must be one factor, one a {whose}, shape {(lines,)} or {tall}, one a {whose} and"
        f" {K_BLOCK} of k, shape {strips}, or one for {K_BLOCK} x {K_BLOCK}, shape {square}, for {lines}"
        f" {whose}s of {operand.name[-1]} and k = {k}; got {shape}. Reshape it"
    )
