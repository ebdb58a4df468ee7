"""The rules for what an epilogue follows, and for its operands one by one."""

from __future__ import annotations

import math
from typing import Any

from lapidist.calls import number_rules
from lapidist.calls.part import Matrices
from lapidist.dtypes import PART_OF
from lapidist.epilogues.complex_arithmetic import require_arithmetic
from lapidist.epilogues.philox import SEEDS, is_seed
from lapidist.epilogues.steps import Function
from lapidist.errors import ArgumentError, DTypeError, ShapeError, shown
from lapidist.problems.epilogue_layout import READS

SEED_TYPES = ("int64", "int32")


def require_sums(function: Function, dtype: str, matrices: Matrices) -> None:
    """Sums are floats, or complex numbers, which a function of plain arithmetic follows. `dtype`: of the sums
    or of their parts.
    """
    floats = dtype in ("float32", "float64")
    if matrices.accumulator in PART_OF:
        require_arithmetic(function)
        return
    if matrices.no_kernel and matrices.accumulator == dtype and floats:
        raise DTypeError(matrices.no_kernel)
    if matrices.no_kernel or not floats:
        raise DTypeError(
            f"epilogue: must follow sums of floats; a is {matrices.a.dtype}, summed in"
            f" {matrices.accumulator}. Convert a and b first, or compute with the result"
        )


def types_read(sums: str, result: str) -> tuple[str, ...]:
    """The types of operands that are arrays."""
    if sums not in PART_OF:
        return tuple(READS)
    return tuple(dict.fromkeys((sums, PART_OF[sums], result, PART_OF[result])))


def require_seed(name: str, value: object) -> int:
    if is_seed(value):
        return int(value)  # type: ignore[call-overload,no-any-return]
    raise ArgumentError(
        f"{name}: must be an integer, {SEEDS}, or an array of one; got {shown(value)}. Call int() on it"
    )


def require_type_read(name: str, dtype: str, types: tuple[str, ...]) -> None:
    if dtype not in types:
        raise DTypeError(f"{name}: must be of {', '.join(types)}; got {dtype}. Convert it first")


def require_one_element(name: str, shape: tuple[int, ...]) -> None:
    if math.prod(shape) != 1:
        raise ShapeError(f"{name}: must be a number or an array of one element; got {shape}. Take one")


def checked_number(function: Function, name: str, value: Any, dtype: str) -> float:
    """What a kernel is passed for an operand that is a number."""
    if name in function.seeds:
        return require_seed(name, value)
    number = number_rules.require_scalar(name, value)
    if name in function.shares and not 0 <= number < 1:
        raise ArgumentError(
            f"{name}: must be 0 or more and below 1, a share that is dropped; got {shown(value)}. Try 0.1"
        )
    return number_rules.require_in_range(name, number, dtype)
