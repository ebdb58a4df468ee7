"""Stores of what a place holds already: two that nothing orders leave the same, whichever comes first. Or
almost the same: a sum of products whose first product is fused differs from one without in its last bits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lapidist.machine.memory import Address

SAME, ROUNDED, OTHER = range(3)
# By bytes: types of numbers, how far they are shifted there, and what fused and plain sums may differ by.
LAST_BITS = {
    2: (("f2", 0, 2.0**-8), ("f4", 16, 2.0**-6)),
    4: (("f4", 0, 2.0**-12),),
    8: (("f8", 0, 2.0**-40),),
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
        region = address.find(self.offset, size * len(self.values), 0)
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
    """Whether two values are numbers that differ in their last bits, in some type of their size."""
    close = np.zeros(len(first), bool)
    for code, shift, nearness in LAST_BITS.get(first.dtype.itemsize, ()):
        size = first.dtype.itemsize
        wide = [np.ascontiguousarray(held).view(f"u{size}") for held in (first, second)]
        x, y = ((held.astype(f"u{code[1]}") << shift).view(code).astype("f8") for held in wide)
        largest = np.maximum(np.abs(x), np.abs(y))
        close |= (np.abs(x - y) <= nearness * largest) & (largest >= float(np.finfo(code).tiny))
    return close


def as_octets(values: Array) -> Array:
    return np.ascontiguousarray(values).view("u1").reshape(len(values), -1)
