"""Complex products as products of real numbers: of arrays of NumPy or torch, for the bound, and of JAX's."""

from __future__ import annotations

import sys
from typing import Any

from lapidist.dtypes import PART_OF


def is_complex(*arrays: Any) -> bool:
    return any(str(array.dtype).rpartition(".")[2] in PART_OF for array in arrays)


def parts_of(array: Any) -> tuple[Any, Any]:
    """Real and imaginary parts; those of real numbers are zero."""
    if is_complex(array):
        return array.real, array.imag
    return array, array * 0


def parts_in_turn(array: Any) -> Any:
    """A matrix of twice the columns: the parts of each number side by side."""
    pairs = library_of(array).stack(parts_of(array), -1)
    return pairs.reshape((*array.shape[:-1], 2 * array.shape[-1]))


def widened(array: Any) -> Any:
    """A matrix of twice the rows and columns, by which parts in turn are multiplied."""
    stack, (re, im) = library_of(array).stack, parts_of(array)
    first, second = stack((re, im), -1), stack((-im, re), -1)
    *batch, rows, columns = array.shape
    return stack((first, second), -3).reshape((*batch, 2 * rows, 2 * columns))


def library_of(array: Any) -> Any:
    name = type(array).__module__.partition(".")[0]
    return sys.modules.get(f"{name}.numpy") or sys.modules[name]


def to_complex128(array: Any) -> Any:
    library = library_of(array)
    return array.to(library.complex128) if hasattr(array, "to") else array.astype("complex128")
