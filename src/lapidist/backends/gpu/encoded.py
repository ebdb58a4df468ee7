"""Encoded tensor maps, kept by the addresses that they depend on: the driver takes microseconds to encode
one.

Frameworks use the same addresses again and again, but seldom the same ones together: weights stay,
activations change. So each map is kept by the one address that it depends on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from lapidist.launch import Maps, TensorMap

KEPT = 256  # encodings of each map, 128 bytes each
SOURCES = "A", "B", "D", "workspace"
APART = 1 << 46  # distance of invented addresses, larger than any address of a GPU
ALIGNMENT = 16  # a map's extents may depend on its address modulo so many bytes
Encode = Callable[[TensorMap], bytes]
Addresses = tuple[int, int, int, int]  # of SOURCES
Encoded = list[tuple[int, bytes]]  # each with its offset in the arguments


class EncodedMaps:
    """The encoded maps of one kernel."""

    def __init__(self, maps: Maps, encode: Encode) -> None:
        self._maps, self._encode = maps, encode
        self._whole: dict[Addresses, Encoded] = {}
        self._each: list[OneMap] = []  # filled at the second set of addresses

    def at(self, addresses: Addresses) -> Encoded:
        each = self._each
        if each:
            return [
                (one.offset, one.known.get(addresses[one.source]) or self._made(one, addresses))
                for one in each
            ]
        found = self._whole.get(addresses)
        if found is None:
            if self._whole:
                self._part(addresses)
                return self.at(addresses)
            found = self._whole[addresses] = self._encoded(self._maps(named(addresses)))
        return found

    def _part(self, addresses: Addresses) -> None:
        """Keep each map by its own address from now on, beginning with those of the first addresses."""
        ((first, encoded),) = self._whole.items()
        each, known = dependencies_of(self._maps, addresses), dict(encoded)
        for one in each:
            one.known[first[one.source]] = known[one.offset]
        self._each = each
        self._whole.clear()

    def _encoded(self, maps: tuple[tuple[int, TensorMap], ...]) -> Encoded:
        """A map that the kernel does not use may be the same object as another one: it is encoded once."""
        known: dict[int, bytes] = {}
        for _, each in maps:
            if id(each) not in known:
                known[id(each)] = self._encode(each)
        return [(offset, known[id(each)]) for offset, each in maps]

    def _made(self, one: OneMap, addresses: Addresses) -> bytes:
        address = addresses[one.source]
        if address % ALIGNMENT == one.low:
            found = replace(one.of_first, address=address + one.ahead)
        else:
            found = dict(self._maps(named(addresses)))[one.offset]
        if len(one.known) >= KEPT:
            one.known.clear()
        content = one.known[address] = self._encode(found)
        return content


class OneMap:
    """Which address a map depends on, and its value for one address."""

    __slots__ = ("ahead", "known", "low", "of_first", "offset", "source")

    def __init__(self, offset: int, source: int, address: int, of_first: TensorMap) -> None:
        self.offset, self.source, self.of_first = offset, source, of_first
        self.ahead, self.low = of_first.address - address, address % ALIGNMENT
        self.known: dict[int, bytes] = {}


def dependencies_of(maps: Maps, addresses: Addresses) -> list[OneMap]:
    """Find the address that each map depends on, by maps of addresses that are far apart."""
    far = tuple((1 + place) * APART + address % ALIGNMENT for place, address in enumerate(addresses))
    return [
        OneMap(offset, place := each.address // APART - 1, far[place], each)
        for offset, each in maps(named(far))  # type: ignore[arg-type]
    ]


def named(addresses: Addresses) -> Mapping[str, int]:
    return dict(zip(SOURCES, addresses, strict=True))
