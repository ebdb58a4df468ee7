"""Encoded tensor maps, kept by the addresses that they depend on: the driver takes microseconds to encode
one.

Frameworks use the same addresses again and again, but seldom the same ones together: weights stay,
activations change. So each map is kept by the one address that it depends on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from lapidist.launch import MAP_BYTES, Maps, TensorMap

MOST_ENCODINGS = 256  # encodings of each map
SOURCES = "A", "B", "D", "workspace"
DISTANCE = 1 << 46  # distance of invented addresses, larger than any address of a GPU
ALIGNMENT = 16  # a map's extents may depend on its address modulo so many bytes
Encode = Callable[[TensorMap], bytes]
Addresses = tuple[int, int, int, int]  # of SOURCES
Encoded = list[tuple[int, bytes]]  # each with its offset in the arguments


class EncodedMaps:
    """The encoded maps of one kernel."""

    def __init__(self, maps: Maps, encode: Encode) -> None:
        self._maps, self._encode = maps, encode
        self._by_addresses: dict[Addresses, Encoded] = {}
        # for each map its place, source, contents and dependency, from the second set of addresses on; flat,
        # as attributes would take as long as what they are for
        self._parts: list[tuple[slice, int, dict[int, bytes], MapDependency]] = []

    def write(self, into: Any, addresses: Addresses) -> None:
        """Write the maps of these addresses into the bytes of a launch's arguments."""
        if self._parts:
            for place, source, contents, dependency in self._parts:
                into[place] = contents.get(addresses[source]) or self._encode_anew(dependency, addresses)
            return
        encoded = self._by_addresses.get(addresses)
        if encoded is None:
            if self._by_addresses:
                self._part(addresses)
                self.write(into, addresses)
                return
            encoded = self._by_addresses[addresses] = self._encoded(self._maps(named(addresses)))
        for offset, content in encoded:
            into[place_of(offset)] = content

    def _part(self, addresses: Addresses) -> None:
        """Keep each map by its own address from now on, beginning with those of the first addresses."""
        ((first, encoded),) = self._by_addresses.items()
        dependencies, contents = dependencies_of(self._maps, addresses), dict(encoded)
        for dependency in dependencies:
            dependency.contents[first[dependency.source]] = contents[dependency.offset]
        self._parts = [(place_of(x.offset), x.source, x.contents, x) for x in dependencies]
        self._by_addresses.clear()

    def _encoded(self, maps: tuple[tuple[int, TensorMap], ...]) -> Encoded:
        """A map that the kernel does not use may be the same object as another one: it is encoded once."""
        contents: dict[int, bytes] = {}
        for _, tensor_map in maps:
            if id(tensor_map) not in contents:
                contents[id(tensor_map)] = self._encode(tensor_map)
        return [(offset, contents[id(tensor_map)]) for offset, tensor_map in maps]

    def _encode_anew(self, dependency: MapDependency, addresses: Addresses) -> bytes:
        address = addresses[dependency.source]
        if dependency.fixed:
            tensor_map = dependency.of_first
        elif address % ALIGNMENT == dependency.low:
            tensor_map = replace(dependency.of_first, address=address + dependency.ahead)
        else:
            tensor_map = dict(self._maps(named(addresses)))[dependency.offset]
        if len(dependency.contents) >= MOST_ENCODINGS:
            dependency.contents.clear()
        content = dependency.contents[address] = self._encode(tensor_map)
        return content


class MapDependency:
    """Which address a map depends on, and its value for one address. `fixed`: none, as of rows' owners."""

    __slots__ = ("ahead", "contents", "fixed", "low", "of_first", "offset", "source")

    def __init__(self, offset: int, source: int, address: int, of_first: TensorMap) -> None:
        self.offset, self.source, self.of_first = offset, max(source, 0), of_first
        self.fixed = source < 0
        self.ahead, self.low = of_first.address - address, address % ALIGNMENT
        self.contents: dict[int, bytes] = {}


def dependencies_of(maps: Maps, addresses: Addresses) -> list[MapDependency]:
    """Find the address that each map depends on, by maps of addresses that are far apart."""
    far = tuple((1 + place) * DISTANCE + address % ALIGNMENT for place, address in enumerate(addresses))
    return [
        MapDependency(offset, place := tensor_map.address // DISTANCE - 1, far[place], tensor_map)
        for offset, tensor_map in maps(named(far))  # type: ignore[arg-type]
    ]


def place_of(offset: int) -> slice:
    return slice(offset, offset + MAP_BYTES)


def named(addresses: Addresses) -> Mapping[str, int]:
    return dict(zip(SOURCES, addresses, strict=True))
