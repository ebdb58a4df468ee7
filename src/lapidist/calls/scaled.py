"""Products with factors: scale_a and scale_b, which multiply 8-bit floats.

A factor that is a number becomes part of alpha. One that is an array is read when the kernel runs, so its
contents may change. Its shape tells which of four kinds it is:

    one element              for the whole matrix
    (m,) or (m, 1)           one for each row of a; of b: (n,) or (1, n), one for each column
    (m, k / 128)             for each row and 128 of k, rounded up; of b: (k / 128, n)
    (m / 128, k / 128)       for blocks of 128 x 128, rounded up; of b: (k / 128, n / 128)
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lapidist.calls import argument_rules
from lapidist.calls.arguments import Arguments
from lapidist.calls.operation import Operation, is_array
from lapidist.errors import ArgumentError, DTypeError, ShapeError
from lapidist.frameworks.arrays import Operand, on_host, operand_of
from lapidist.problems.modes import ExtraPointers
from lapidist.problems.scaling import K_BLOCK, LINES, ONE, SQUARES, STRIPS, UNSCALED, Scale, Scaling

Array = np.ndarray[Any, Any]


class ScaledArguments(Arguments):
    """Arguments with factors of a and b."""

    def __init__(self, a: Any, b: Any, c: Any, out: Any, operation: Operation) -> None:
        super().__init__(a, b, c, out, operation)
        factors, types = operation.factors, operation.types
        for name, operand in zip(NAMES, (self.a, self.b), strict=True):
            if getattr(factors, name[-1]) is not None:
                argument_rules.require_8_bit_floats(name, operand, "Multiply with alpha")
        self.arrays = {
            name: self._factors_of(name, value)
            for name, value in zip(NAMES, factors, strict=True)
            if is_array(value)
        }
        self._require_extras_apart()
        if types.promote is not None and not types.promote and self.scaling().promoted:
            raise ArgumentError(
                "promote: factors that change along k multiply promoted sums; got False. Leave it out, or"
                " give a factor a line"
            )

    def _numbers(self) -> tuple[float, float]:
        """alpha times the factors that are numbers, and beta."""
        given = zip(NAMES, self.operation.factors, strict=True)
        numbers = (
            require_number(name, value) for name, value in given if value is not None and not is_array(value)
        )
        return self.operation.alpha * math.prod(numbers), self.operation.beta

    def _factors_of(self, name: str, value: Any) -> Operand:
        operand = operand_of(value, name)
        if operand.dtype != "float32":
            raise DTypeError(f"{name}: factors must be float32; got {operand.dtype}. Convert them first")
        argument_rules.require_same_device(operand, self.a)
        argument_rules.require_whole_elements(operand)
        if len(self.shape) > 2 and math.prod(operand.shape) != 1:
            raise ShapeError(
                f"{name}: of a batch, all matrices have one factor, a number or an array of one element; got"
                f" shape {operand.shape} for a product of shape {self.shape}. Multiply one pair at a time"
            )
        scale_of(operand, *self._lines(name))
        return operand

    def _lines(self, name: str) -> tuple[int, int]:
        """How many lines have factors, and k."""
        return (self.shape[-2] if name == "scale_a" else self.shape[-1]), self.a.shape[-1]

    def scaling(self) -> Scaling:
        """The kinds of both factors; unscaled if A and B are not read."""
        if self.alpha == 0 or self.a.shape[-1] == 0:
            return Scaling()
        a, b = (
            scale_of(self.arrays[name], *self._lines(name)) if name in self.arrays else UNSCALED
            for name in NAMES
        )
        return Scaling(a, b, self.promoted or a.along_k or b.along_k)

    @property
    def extras(self) -> tuple[Operand, ...]:
        return (*self.arrays.values(), *super().extras)

    @property
    def extra_pointers(self) -> ExtraPointers:
        of_a, of_b = (self.arrays[name].pointer if name in self.arrays else 0 for name in NAMES)
        return super().extra_pointers._replace(scale_a=of_a, scale_b=of_b)

    def factors_on_host(self) -> tuple[Array | None, Array | None]:
        """Factors of A, (rows or 1, blocks of k or 1), and of B, (blocks of k or 1, columns or 1)."""
        found = [self._spread(name) if name in self.arrays else None for name in NAMES]
        return found[0], None if found[1] is None else found[1].T

    def _spread(self, name: str) -> Array:
        operand, (lines, k) = self.arrays[name], self._lines(name)
        scale = scale_of(operand, lines, k)
        values = on_host(operand)
        if not scale.along_k:
            return values.reshape(-1, 1)
        values = values if name == "scale_a" else values.T
        return values.repeat(K_BLOCK, axis=0)[:lines] if scale.kind == SQUARES else values


NAMES = ("scale_a", "scale_b")


def require_number(name: str, value: object) -> float:
    if not isinstance(value, (int, float, np.floating, np.integer)):
        raise ArgumentError(
            f"{name}: must be a real number or a float32 array beside the operands; got"
            f" {type(value).__name__}. Make it an array"
        )
    number = argument_rules.require_scalar(name, value)
    argument_rules.require_in_range(name, number, "float32")
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
    wanted = [str((lines,)), *(str(each[turn]) for each in ((lines, 1), (lines, blocks), (squares, blocks)))]
    raise ShapeError(
        f"{operand.name}: must be one factor, or of shape {', '.join(wanted[:-1])} or {wanted[-1]} (two by"
        f" {'rows' if of_a else 'columns'}, then by 1 x {K_BLOCK} and by {K_BLOCK} x {K_BLOCK}) for {lines}"
        f" {'rows of a' if of_a else 'columns of b'} and k = {k}; got {shape}. Reshape it"
    )
