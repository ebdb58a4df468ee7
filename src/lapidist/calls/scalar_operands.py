"""alpha and beta in arrays of one element.

Kernels read them when they run, so their contents may change between runs of a plan.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from lapidist.backends.host_product import HostProduct
from lapidist.calls import number_rules
from lapidist.calls.operation import Operation, is_array
from lapidist.calls.part import Part, ProblemInputs
from lapidist.dtypes import COMPLEX_HALVES, PART_OF, number_type
from lapidist.errors import DTypeError, ShapeError
from lapidist.frameworks.arrays import HOST, Operand, operand_of
from lapidist.frameworks.host_arrays import native, on_host
from lapidist.problems.modes import ExtraPointers


class ScalarOperands(Part):
    """alpha and beta, as far as they are arrays."""

    def __init__(self, operation: Operation, accumulator: str) -> None:
        values = (("alpha", operation.alpha), ("beta", operation.beta))
        self._by_name = {
            name: scalar_of(name, value, accumulator) for name, value in values if is_array(value)
        }
        self.arrays = tuple(self._by_name.values())

    def get(self, name: str) -> Operand | None:
        """alpha or beta; None: it is a number."""
        return self._by_name.get(name)

    def described(self, inputs: ProblemInputs) -> ProblemInputs:
        one_alpha = inputs.one_alpha and "alpha" not in self._by_name
        return inputs._replace(one_alpha=one_alpha, modes=replace(inputs.modes, scalars=True))

    def with_pointers(self, pointers: ExtraPointers) -> ExtraPointers:
        alpha, beta = (self._by_name[x].pointer if x in self._by_name else 0 for x in ("alpha", "beta"))
        return pointers._replace(alpha=alpha, beta=beta)

    def on_host(self, product: HostProduct) -> HostProduct:
        return product._replace(**{name: on_host(operand).item() for name, operand in self._by_name.items()})


def scalar_of(name: str, value: Any, accumulator: str) -> Operand:
    """The array, of the type in which sums are scaled; one in host memory is converted to it."""
    operand = operand_of(native(value), name)
    real = number_type(accumulator).name
    dtype = accumulator if accumulator in PART_OF else real
    if math.prod(operand.shape) != 1:
        raise ShapeError(
            f"{name}: must be a number or an array of one element; got shape {operand.shape}. Take one"
            " element"
        )
    if operand.dtype in (dtype, real):
        return operand
    if operand.device == HOST:
        array = operand.owner if operand.dtype == COMPLEX_HALVES else on_host(operand)  # NumPy has none
        number = number_rules.require_scalar(name, array.item())
        return operand_of(np.array(number_rules.require_in_range(name, number, accumulator), dtype), name)
    types = dtype if dtype == real else f"{dtype} or {real}"
    raise DTypeError(f"{name}: an array must be {types}, as sums are scaled; got {operand.dtype}. Convert it")
