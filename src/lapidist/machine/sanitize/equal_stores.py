"""Stores of what a place holds already: two that nothing orders leave the same, whichever comes first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lapidist.machine.memory import Address

Array = np.ndarray
Values = tuple[Array, ...]


@dataclass(frozen=True, slots=True)
class Storing:
    """What a plain store is about to write: neighbouring elements, one array of lanes each."""

    address: Address
    offset: int
    values: Values

    def changes(self) -> Array:
        """For each lane, whether its store changes what its place holds."""
        address, size = self.address, self.values[0].dtype.itemsize
        changed = np.zeros(address.g.n, bool)
        region = address.find(self.offset, size * len(self.values), 0)
        if region is None:
            return ~changed  # lanes in several ranges count as changing theirs
        for number, value in enumerate(self.values):
            view, positions = address.index(region, value.dtype, self.offset + size * number)
            content, new = np.broadcast_to(view.take(positions), changed.shape), value
            rows = np.stack([as_octets(content), as_octets(np.broadcast_to(new, changed.shape))])
            changed |= (rows[0] != rows[1]).any(axis=1)
        return changed


def as_octets(values: Array) -> Array:
    return np.ascontiguousarray(values).view("u1").reshape(len(values), -1)
