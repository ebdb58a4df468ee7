"""Stores of what a place holds already: two that nothing orders leave the same, whichever comes first. Or
almost the same: a sum of products whose first product is fused differs from one without in its last bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lapidist.machine.memory import Address

CHECKED = -1  # no instruction: the store itself is checked where it happens
SAME, ROUNDED, OTHER = range(3)
HALVES = (("f2", 0, 2.0**-8), ("f4", 16, 2.0**-6))
SINGLES = (("f4", 0, 2.0**-12),)
# By bytes of an element and of a number in it: types of numbers, how far they are shifted there, and what
# fused and plain sums may differ by. Rows of stmatrix have 16 bytes.
LAST_BITS: dict[int, dict[int, Sequence[tuple[str, int, float]]]] = {
    2: {2: HALVES},
    4: {4: SINGLES},
    8: {8: (("f8", 0, 2.0**-40),)},
    16: {2: HALVES, 4: SINGLES},
}
Array = np.ndarray
Values = tuple[Array, ...]


@dataclass(frozen=True, slots=True)
class Storing:
    """What a plain store is about to write: neighbouring elements, one array of lanes each."""

    address: Address
    offset: int
    values: Values

    def changes(self, floats: bool) -> Array:
        """For each lane, whether its store changes what its place holds: SAME, ROUNDED, or OTHER."""
        address, size = self.address, self.values[0].dtype.itemsize
        changed = np.full(address.g.n, SAME)
        region = address.find(self.offset, size * len(self.values), CHECKED)
        if region is None:
            return np.full(address.g.n, OTHER)  # lanes in several ranges count as changing theirs
        for number, value in enumerate(self.values):
            view, positions = address.index(region, value.dtype, self.offset + size * number)
            content, new = (np.broadcast_to(held, changed.shape) for held in (view.take(positions), value))
            changed = np.maximum(changed, difference(content, new, floats))
        return changed


def difference(first: Array, second: Array, floats: bool) -> Array:
    """How two arrays of values differ, each element: SAME, ROUNDED, or OTHER."""
    unequal = (as_octets(first) != as_octets(second)).any(axis=1)
    if not unequal.any():
        return np.full(len(first), SAME)
    close = floats & any_close(first, second)
    return np.where(unequal, np.where(close, ROUNDED, OTHER), SAME)


def any_close(first: Array, second: Array) -> Array:
    """Whether two values consist of numbers, in some type, that are equal or differ in their last bits."""
    close = np.zeros(len(first), bool)
    for size, types in LAST_BITS.get(first.dtype.itemsize, {}).items():
        pieces = [as_octets(held).view(f"u{size}") for held in (first, second)]
        for code, shift, nearness in types:
            x, y = ((held.astype(f"u{code[1]}") << shift).view(code).astype("f8") for held in pieces)
            # beside the others of its row: where a sum cancels, all its bits may be last ones
            largest = np.maximum(np.abs(x), np.abs(y)).max(axis=1, keepdims=True)
            near = (np.abs(x - y) <= nearness * largest) & (largest >= float(np.finfo(code).tiny))
            close |= (near | (pieces[0] == pieces[1])).all(axis=1)
    return close


def as_octets(values: Array) -> Array:
    return np.ascontiguousarray(values).view("u1").reshape(len(values), -1)
