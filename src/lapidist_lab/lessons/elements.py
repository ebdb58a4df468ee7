"""Where a value belongs: elements of A, B and C are numbered, and found again by address or by value.

A and B hold values that name their own element, so a value in shared memory says where it came from."""

from __future__ import annotations

import numpy as np

from lapidist_lab.machine_studies.registered import Product

Array = np.ndarray
NOWHERE = -1
NAMES = ("A", "B", "C")
HALF_PATTERNS = 0x7BFF  # bit patterns of positive finite float16
EXACT = 1 << 24  # whole numbers that float32 holds


class Elements:
    """The elements of A, then of B, then of C, numbered row by row."""

    def __init__(self, product: Product) -> None:
        self.arrays = (product.a, product.b, product.d)
        sizes = [array.size for array in self.arrays]
        self.starts = (0, sizes[0], sizes[0] + sizes[1])
        self.itemsize = product.a.dtype.itemsize
        self.named = name_values(product)

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

    def of_values(self, values: Array) -> Array:
        """The number of the element that each value names; values of other types name none."""
        if values.dtype.itemsize != self.itemsize or self.named is None:
            return np.full(values.shape, NOWHERE, np.int64)
        bits = values.view(self.named[0].dtype)
        order = np.minimum(np.searchsorted(self.named[0], bits), len(self.named[0]) - 1)
        return np.where(self.named[0][order] == bits, self.named[1][order], NOWHERE)


def extent_of(array: Array) -> int:
    spans = ((length - 1) * stride for length, stride in zip(array.shape, array.strides, strict=True))
    return sum(spans) + array.itemsize


def name_values(product: Product) -> tuple[Array, Array] | None:
    """Fill A and B with values that name their elements: sorted bits, and the element of each.

    The nearest to the first tile come first: float16 has patterns for some 30,000 of each matrix."""
    if product.a.dtype.kind != "f" or product.a.dtype.itemsize < 2:
        return None
    by_matrix = []
    start = 0
    for array, along_k, sign in ((product.a, product.a, 1), (product.b, product.b.T, -1)):
        numbers = start + np.arange(array.size).reshape(array.shape)
        order = (numbers if along_k is array else numbers.T).reshape(-1)
        values = names_of(array.size, sign, array.dtype)
        along_k[...] = values.reshape(along_k.shape)
        has_value = values != 0
        by_matrix.append((values[has_value], order[has_value]))
        start += array.size
    values, order = (np.concatenate(parts) for parts in zip(*by_matrix, strict=True))
    bits = values.view(f"u{values.dtype.itemsize}")
    sorting = np.argsort(bits)
    return bits[sorting], order[sorting]


def names_of(count: int, sign: int, dtype: np.dtype) -> Array:
    """`count` different values, then zeros."""
    if dtype == np.float16:
        patterns = np.zeros(count, np.uint16)
        some = min(count, HALF_PATTERNS)
        patterns[:some] = np.arange(1, some + 1) + (0x8000 if sign < 0 else 0)
        return patterns.view(np.float16)
    return (sign * np.minimum(np.arange(1, count + 1), EXACT)).astype(dtype)
