"""Matrices of one geometry whose addresses lie in an array, which may be on a GPU: kernels are passed that
array alone.
"""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from lapidist.dtypes import integer, integer_from, name_of, numpy_dtype, size_of
from lapidist.errors import ArgumentError, DTypeError, ShapeError, shown
from lapidist.frameworks.arrays import HOST, Operand, contiguous_strides, operand_of
from lapidist.frameworks.host_arrays import on_host
from lapidist.problems.matrix import VECTOR_BYTES

STAND_IN_DISTANCE = 1 << 56  # bytes between stand-in addresses: so no check finds that operands overlap


def pair_of_integers(name: str, pair: Any) -> tuple[int, ...]:
    numbers = tuple(map(integer, pair)) if isinstance(pair, tuple) else ()
    if len(numbers) != 2 or None in numbers:
        raise ShapeError(
            f"{name}: must be two numbers, for the rows and the columns of a matrix; got {shown(pair)}."
            " Pass a tuple of int"
        )
    return numbers  # type: ignore[return-value]


@dataclass(frozen=True, eq=False)
class Pointers:
    """Matrices that lie at addresses on the GPU, for `gemm` in its array mode.

    Parameters
    ----------
    addresses : array
        One dimension of int64, on the GPU.
    shape : pair of int
        Rows and columns of each matrix.
    dtype : dtype
    strides : pair of int, optional
        In elements.
    alignment : int
        A power of two that divides all addresses, in bytes: frameworks' arrays start on 256. It is believed,
        and so are the addresses; `check_indices` looks at them.

    Examples
    --------
    >>> import numpy as np
    >>> import lapidist
    >>> matrices = np.ones((4, 8, 8), np.float32)
    >>> addresses = np.array([each.ctypes.data for each in matrices])
    >>> lapidist.Pointers(addresses, (8, 8), "float32", alignment=16).shape
    (8, 8)
    """

    addresses: Any
    shape: tuple[int, int]
    dtype: Any
    strides: tuple[int, int] | None = None
    alignment: int = 0  # 0: that of an element

    def __post_init__(self) -> None:
        bits = integer_from(0, self.alignment)
        if bits is None or bits & (bits - 1):
            raise ArgumentError(
                f"alignment: must be a power of two, in bytes; got {shown(self.alignment)}. Leave it out to"
                " promise nothing"
            )
        object.__setattr__(self, "alignment", bits)
        for name in ("shape", "strides")[: 1 if self.strides is None else 2]:
            object.__setattr__(self, name, pair_of_integers(name, getattr(self, name)))
        if min(self.shape) < 0:
            raise ShapeError(
                "shape: must be of 0 or more rows and columns; got"
                f" {shown(self.shape)}. A step backwards is for"
                " strides"
            )

    def list_of(self, name: str) -> Operand:
        """The array of addresses."""
        operand = operand_of(self.addresses, name)
        if operand.dtype not in ("int64", "uint64"):
            raise DTypeError(f"{name}: addresses must be of int64; got {operand.dtype}. Convert them first")
        if len(operand.shape) != 1 or (operand.shape[0] > 1 and operand.strides != (1,)):
            raise ShapeError(
                f"{name}: addresses must be one contiguous dimension; got shape {operand.shape}. Copy them"
            )
        return operand

    def matrix(self, name: str, number: int) -> Operand:
        """A stand-in for the matrices: an operand of their geometry at an invented address of their
        alignment.
        """
        dtype, addresses = name_of(self.dtype, name), self.list_of(name)
        size = size_of(dtype)
        start = number * STAND_IN_DISTANCE + max(size, min(self.alignment, VECTOR_BYTES))
        strides = self.strides or contiguous_strides(self.shape)
        return Operand(
            name, start, self.shape, strides, dtype, addresses.device, addresses.framework, addresses.owner
        )

    def check(self, name: str) -> None:
        """Check every address. On a GPU this waits for the array."""
        addresses, needed = self.list_of(name).owner, max(size_of(name_of(self.dtype, name)), self.alignment)
        for wrong in (address for address in addresses.tolist() if address <= 0 or address % needed):
            raise ArgumentError(
                f"{name}: addresses must be positive multiples of {needed}; got {wrong}. Correct it, or"
                " alignment="
            )

    def on_host(self, name: str) -> list[np.ndarray[Any, Any]]:
        """The matrices, if they lie in host memory."""
        listed, layout = self.list_of(name), self.matrix(name, 1)
        assert listed.device == HOST
        first, end = layout.span
        before, size, views = layout.pointer - first, end - first, []
        for address in on_host(listed).tolist() if math.prod(layout.shape) else [0] * listed.shape[0]:
            raw = (
                np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address - before))
                if size
                else np.empty(0, np.uint8)
            )
            steps = tuple(stride * size_of(layout.dtype) for stride in layout.strides)
            views.append(np.ndarray(layout.shape, numpy_dtype(layout.dtype), raw, before, steps))
        return views
