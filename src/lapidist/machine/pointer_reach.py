"""Which ranges of global memory each access may reach: those that its pointers were given for. An address
past the end of one array may lie in another one of the launch, and is out of bounds nevertheless."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lapidist.machine.ptx.pointer_sources import Source

if TYPE_CHECKING:
    from lapidist.machine.memory import GlobalMemory, Region
    from lapidist.machine.state import Machine

NUMBERS = 1 << 32  # what is smaller is an extent or a stride, forwards or backwards, and no address
Reach = dict[int, frozenset[int]]  # where ranges start, by site


def reach_of(m: Machine) -> Reach:
    """The ranges of each access whose pointers are all known. Any other one may reach all."""
    if len(m.globals.regions) < 2:
        return {}
    starts: dict[frozenset[Source], frozenset[int] | None] = {}
    reach = Reach()
    for site, sources in m.program.confined_pointers.items():
        if sources not in starts:
            starts[sources] = starts_of(m, sources)
        ranges = starts[sources]
        if ranges:
            reach[site] = ranges
    return reach


def starts_of(m: Machine, sources: frozenset[Source]) -> frozenset[int] | None:
    """None where one of the pointers leads to no range: nobody knows what it is offset by."""
    reached = set[int]()
    for source in sources:
        address = address_of(m, source)
        regions = pointed_to(m.globals, address)
        if not regions and not is_number(address):
            return None
        reached.update(*(buffers_of(region.owner) for region in regions))
    return frozenset(r.start for r in m.globals.regions if not reached.isdisjoint(buffers_of(r.owner)))


def is_number(value: int) -> bool:
    return 0 <= value < NUMBERS or value >= (1 << 64) - NUMBERS


def address_of(m: Machine, source: Source) -> int:
    """What a parameter holds, or where a variable lies; -1 where that is not known."""
    if isinstance(source, str):
        return m.variables.get(source, -1)
    if source < 0:  # the parameter itself, which is a tensor map
        tensor = m.tensor_maps.get(~source)
        return -1 if tensor is None else tensor.address
    return int.from_bytes(m.param_bytes[source : source + 8].tobytes(), "little")


def pointed_to(memory: GlobalMemory, address: int) -> list[Region]:
    """The range at an address, and the one that ends there: a pointer past the last element is common."""
    regions = memory.find(address), memory.find(address - 1)
    return [region for region in regions if region is not None]


def buffers_of(owner: Any) -> frozenset[int]:
    """What arrays share that are views of one: a kernel may walk from one of them to the next."""
    if isinstance(owner, tuple):  # of ranges that overlap
        return frozenset().union(*map(buffers_of, owner))
    while isinstance(owner, np.ndarray) and isinstance(owner.base, np.ndarray):
        owner = owner.base
    return frozenset([id(owner)])
