"""What warps that compute a block together load: written down then, checked and noted in each one's turn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

import numpy as np

from lapidist.machine.memory import Address
from lapidist.machine.sanitize.only_read import OnlyRead
from lapidist.machine.sanitize.sanitizer import Sanitizer
from lapidist.machine.sanitize.shadow import Shadow, reading

Array = np.ndarray
WARP = 32
LANES = np.arange(WARP)
NOWHERE = -1
Load = tuple[Address, int, int, int]  # the base, the offset, how many bytes, and the site


@dataclass(slots=True)
class Reads:
    """What a block loads from one range: its grains, a row a warp, and of each the lane and the load. `parts`
    are noted one after the other: loads of values that the block leaves unused, by their site, and others."""

    shadow: Shadow | OnlyRead
    at: Array
    lanes: Array
    sites: Array
    words: Array  # both, as the shadow notes them
    parts: list[tuple[slice, int]]


def reads_of(s: Sanitizer, loads: list[Load], rows: int, single: frozenset[int]) -> list[Reads] | None:
    """All loads of a run, by range; None if one is not of a kind that can be noted together. `single` are
    those of which each warp has one address."""
    ranges: dict[int, tuple[Shadow | OnlyRead, list[Load]]] = {}
    for load in loads:
        address, offset, size, _ = load
        if address.space == "shared":
            ranges.setdefault(NOWHERE, (s.shared, []))[1].append(load)
        elif address.space == "global":
            region = s.m.globals.find(address.lo + offset)
            if region is None or region.undefined is not None or address.hi + offset + size > region.end:
                return None
            if s.m.overlaps or s.m.heap.space is not None:
                return None
            noted = s.reads_of(region)
            if noted is not None:
                ranges.setdefault(region.start, (noted, []))[1].append(load)
        elif address.space != "param":
            return None
    reads = []
    for start, held in ranges.items():
        part = of_range(s, start, *held, rows, single)
        if part is None:
            return None
        reads.append(part)
    return reads


def of_range(
    s: Sanitizer, start: int, shadow: Shadow | OnlyRead, loads: list[Load], rows: int, single: frozenset[int]
) -> Reads | None:
    """The loads from one range of memory, in order; neighbours that are alike at once."""
    kinds, parts = list[tuple[int, int, int]](), list[Array]()
    for (size, one), alike in groupby(loads, lambda load: (load[2], start != NOWHERE and load[3] in single)):
        same, grains_of_lane = list(alike), max(size // shadow.grain, 1)
        bases = [address.base if start == NOWHERE else address.addresses for address, _, _, _ in same]
        if one:
            bases = [np.broadcast_to(base[::WARP], (rows,)) for base in bases]
        lanes = 1 if one else WARP
        if any(len(base) != rows * lanes for base in bases):
            return None
        offsets = np.array([offset for _, offset, _, _ in same]) - (0 if start == NOWHERE else start & -16)
        first = (np.stack(bases).astype(np.int64) + offsets[:, None]) // shadow.grain
        grains = first[:, :, None] + np.arange(grains_of_lane) if grains_of_lane > 1 else first
        wide = lanes * grains_of_lane
        parts.append(grains.reshape(len(same), rows, wide).transpose(1, 0, 2).reshape(rows, -1))
        kinds += [(site, lanes, grains_of_lane) for _, _, _, site in same]
    ahead = s.suspects.ahead_of_use if start == NOWHERE else None
    at = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
    return Reads(shadow, at, *layout(tuple(kinds)), parts_of(kinds, ahead))


@lru_cache(maxsize=256)
def layout(kinds: tuple[tuple[int, int, int], ...]) -> tuple[Array, Array, Array]:
    """The lane and the site of each grain, of loads by some lanes of some grains each, and both as a word."""
    lanes = np.concatenate([np.repeat(LANES[:many], grains) for _, many, grains in kinds])
    sites = np.concatenate([np.full(many * grains, site, np.int32) for site, many, grains in kinds])
    return lanes, sites, reading(sites, lanes)


def parts_of(
    kinds: list[tuple[int, int, int]], ahead_of_use: Callable[[int], object] | None
) -> list[tuple[slice, int]]:
    """The loads in order: each of a value that its block leaves unused by itself, others together."""
    parts, start, stop = list[tuple[slice, int]](), 0, 0
    for site, many, grains in kinds:
        begin, stop = stop, stop + many * grains
        if ahead_of_use is not None and ahead_of_use(site):
            if begin > start:
                parts.append((slice(start, begin), NOWHERE))
            parts.append((slice(begin, stop), site))
            start = stop
    if stop > start:
        parts.append((slice(start, stop), NOWHERE))
    return parts
