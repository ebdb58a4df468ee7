"""x as kernels of few bits read it: its types, the factors of rows of 8 bits, and the type of the result."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from lapidist.calls import argument_rules, number_rules
from lapidist.calls.factor_operands import require_number
from lapidist.calls.operation import is_array
from lapidist.dtypes import FLOAT_RESULTS, name_of
from lapidist.errors import ArgumentError, DTypeError, ShapeError
from lapidist.frameworks.arrays import Operand, operand_of
from lapidist.frameworks.new_arrays import empty
from lapidist.quantised.number_formats import VECTOR_BYTES
from lapidist.quantised.packed_weight import PackedWeight, on_host
from lapidist.quantised.row_norms import divided, normalised, require_epsilon

OF_16_BITS = "bfloat16", "float16"
# Formats whose codes are exact in a type of 8 bits, and whose groups have whole instructions of 32 steps of k
EXACT = {"float8_e4m3fn": ("int4", "mxfp4", "e4m3"), "int8": ("int4", "int8")}
MOST_K_OF_COLUMN = (1 << 17) - 1  # sums of int8 by a factor a column have 32 bits


class RowFactors(NamedTuple):
    """A number for all rows, or an array that has one for each, or one for all."""

    number: float = 1.0
    array: Operand | None = None

    @property
    def words(self) -> dict[str, Any]:
        """By the names of kernels' parameters."""
        step = 0 if self.array is None or math.prod(self.array.shape) == 1 else 1
        return {"x_factor": self.number, "x_factors_step": step}

    @property
    def addresses(self) -> dict[str, Operand]:
        if self.array is None:
            return {}
        return {"x_factors": self.array if in_rows(self.array) else copied(self.array, self.array.shape[-1])}


class Activations(NamedTuple):
    """x, the factors of its rows where it has 8 bits, and the type of the result. `norm`: what an RMSNorm
    adds to mean squares.
    """

    x: Operand
    factors: RowFactors | None
    result: str
    norm: float | None = None

    @property
    def words(self) -> dict[str, Any]:
        of_norm = {} if self.norm is None else {"norm_epsilon": self.norm}
        return of_norm if self.factors is None else self.factors.words

    def normalised(self) -> Activations:
        """With an x whose norm is computed."""
        if self.norm is None:
            return self
        return self._replace(x=operand_of(normalised(self.x.owner, self.norm), "x"), norm=None)

    def addresses(self, row: int) -> dict[str, Operand]:
        """`row`: elements from row to row of x, as kernels read it."""
        return {"A": aligned(self.x, row)} | ({} if self.factors is None else self.factors.addresses)

    @property
    def factor_arrays(self) -> tuple[Operand, ...]:
        return () if self.factors is None or self.factors.array is None else (self.factors.array,)

    @property
    def numbers(self) -> Any:
        """What x means, in NumPy."""
        values = on_host(self.x.owner)
        if self.factors is None:
            return values if self.norm is None else divided(values, self.norm)
        wide, (number, array) = values.astype(np.float32), self.factors
        if array is None:
            return wide * np.float32(number)
        factors = on_host(array.owner)
        return wide * (factors.reshape(()) if factors.size == 1 else factors.reshape(*wide.shape[:-1], 1))

    def stand_in(self) -> Operand:
        """An array that does not exist, of x's shape and of the result's type, for rules of products."""
        x, owner = self.x, empty((0,), self.x, self.result)
        strides = tuple(math.prod(x.shape[i + 1 :]) for i in range(len(x.shape)))
        return Operand("a", 0, x.shape, strides, self.result, x.device, x.framework, owner)


def activations_of(
    x: Operand,
    weight: PackedWeight,
    scale_a: Any,
    out_dtype: Any,
    out: Any,
    decode: bool | None = None,
    norm: Any = None,
) -> Activations:
    """x of a type that require_activations let pass."""
    if decode is not None:
        number_rules.require_flag("decode", decode)
    named = None if out_dtype is None else name_of(out_dtype, "out_dtype")
    if x.dtype in OF_16_BITS:
        if scale_a is not None:
            raise ArgumentError(f"scale_a: is for x of 8 bits; got x of {x.dtype}. Multiply x by it")
        if named not in (None, x.dtype):
            raise DTypeError(f"out_dtype: must be that of x, {x.dtype}; got {named}. Convert the result")
        return Activations(x, None, x.dtype, None if norm is None else require_epsilon(norm))
    require_exact(x, weight)
    if decode:
        raise ArgumentError(
            f"decode: weights are decoded for x of 16 bits alone; got x of {x.dtype} and True. Leave it out"
        )
    if norm is not None:
        raise ArgumentError(
            f"norm_eps: is for x of 16 bits; got x of {x.dtype}. Normalise x before it is rounded to 8 bits"
        )
    result = named or ("float32" if out is None else operand_of(out, "out").dtype)
    if result not in FLOAT_RESULTS:
        raise DTypeError(
            f"out_dtype: must be one of {', '.join(FLOAT_RESULTS)}; got {result}. Convert the result"
        )
    return Activations(x, row_factors(scale_a, x), result)


def require_exact(x: Operand, weight: PackedWeight) -> None:
    name, k = weight.format.name, weight.shape[-2]
    if name not in EXACT[x.dtype]:
        raise DTypeError(
            f"x: {x.dtype} is multiplied by weights of {', '.join(EXACT[x.dtype])}, whose groups sum exact"
            f" codes; got {name}. Convert x to bfloat16"
        )
    if x.dtype == "int8" and weight.group == k > MOST_K_OF_COLUMN:
        raise ShapeError(
            f"weight: sums of int8 have 32 bits, for up to {MOST_K_OF_COLUMN} of k with a factor; got {k}."
            " Pack it in groups"
        )


def row_factors(value: Any, x: Operand) -> RowFactors:
    if value is None:
        raise ArgumentError(
            "scale_a: rows of x in 8 bits have factors; got None. Pass a number for all rows, 1.0 say, or a"
            " float32 array with one for each row"
        )
    if not is_array(value):
        return RowFactors(require_number("scale_a", value))
    operand = operand_of(value, "scale_a")
    if operand.dtype != "float32":
        raise DTypeError(f"scale_a: factors must be float32; got {operand.dtype}. Convert them first")
    argument_rules.require_same_device(operand, x)
    argument_rules.require_aligned_elements(operand)
    rows = x.shape[:-1]
    if math.prod(operand.shape) != 1 and operand.shape not in (rows, (*rows, 1), (math.prod(rows),)):
        raise ShapeError(
            f"scale_a: must be one factor, or one for each row of x, of shape {rows} or {(*rows, 1)}; got"
            f" {operand.shape}. Reshape it"
        )
    return RowFactors(1.0, operand)


def in_rows(operand: Operand) -> bool:
    """Whether elements lie one after another; none do."""
    if 0 in operand.shape:
        return True
    expected = 1
    for extent, stride in zip(reversed(operand.shape), reversed(operand.strides), strict=True):
        if extent > 1 and stride != expected:
            return False
        expected *= extent
    return True


def copied(operand: Operand, row: int) -> Operand:
    """In rows of so many elements, one after another, with zeros at their ends."""
    k = operand.shape[-1]
    copy = empty((*operand.shape[:-1], row), operand, operand.dtype)
    copy[..., :k] = operand.owner
    if k < row:
        copy[..., k:] = 0
    return operand_of(copy, operand.name)


def aligned(x: Operand, row: int) -> Operand:
    """x in rows that begin at vectors."""
    fits = row == x.shape[-1] and in_rows(x) and x.pointer % VECTOR_BYTES == 0
    return x if fits else copied(x, row)


def records(x: Any, bias: Any) -> bool:
    """Whether torch would record a product of these."""
    if not any(getattr(array, "requires_grad", False) for array in (x, bias)):
        return False
    import torch

    return bool(torch.is_grad_enabled())
