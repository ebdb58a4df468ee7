"""Elements of A, B and C, numbered, and found by their addresses."""

from __future__ import annotations

import numpy as np

from lapidist_lab.machine_studies.registered import Product

Array = np.ndarray
NOWHERE = -1
NAMES = ("A", "B", "C")


class Elements:
    """The elements of A, then of B, then of C, numbered row by row."""

    def __init__(self, product: Product) -> None:
        self.arrays = (product.a, product.b, product.d)
        sizes = [array.size for array in self.arrays]
        self.starts = (0, sizes[0], sizes[0] + sizes[1])
        self.itemsize = product.a.dtype.itemsize

    def of_addresses(self, addresses: Array) -> Array:
        """The number of the element at each address."""
        numbers = np.full(addresses.shape, NOWHERE, np.int64)
        for start, array in zip(self.starts, self.arrays, strict=True):
            offset = addresses - array.ctypes.data
            inside = (offset >= 0) & (offset < extent_of(array))
            along = 0 if array.strides[0] > array.strides[1] else 1
            line, within = np.divmod(offset, array.strides[along])
            row, column = (line, within // array.itemsize)[:: 1 if along == 0 else -1]
            numbers = np.where(inside, start + row * array.shape[1] + column, numbers)
        return numbers


def extent_of(array: Array) -> int:
    spans = ((length - 1) * stride for length, stride in zip(array.shape, array.strides, strict=True))
    return sum(spans) + array.itemsize
