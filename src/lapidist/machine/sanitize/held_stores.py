"""What warps that compute a block together store to global memory: held back, done in each one's turn.

All positions of a block are of one range and different from each other, so the order of its stores does not
matter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lapidist.machine.lanes import indices
from lapidist.machine.memory import Address, Region
from lapidist.machine.sanitize.ordered import PLAIN
from lapidist.machine.sanitize.sanitizer import Sanitizer
from lapidist.machine.sanitize.shadow import Shadow, shadow_of

Array = np.ndarray
WARP = 32
Stored = tuple[
    Address, int, tuple[Array, ...], int
]  # the base, the offset, neighbouring elements, and the site


@dataclass(frozen=True, slots=True)
class Elements:
    """Elements that lanes store, one each, by warp: where each warp's part begins, and the last one ends."""

    view: Array
    at: Array
    values: Array
    bounds: list[int]


@dataclass(slots=True)
class GlobalStores:
    """The grains of all warps stand one warp after the other, with the lane and site of each."""

    shadow: Shadow
    at: Array
    lanes: Array
    sites: Array
    bounds: list[int]
    elements: list[Elements]

    def part(self, row: int) -> slice:
        return slice(self.bounds[row], self.bounds[row + 1])

    def may_happen(self, s: Sanitizer, warp: int, row: int) -> bool:
        """Whether none of a warp's stores meets what it is not ordered after."""
        shadow, clocks, some = self.shadow, s.clocks, self.part(row)
        at, lanes = self.at[some], self.lanes[some]
        if not len(at):
            return True
        shadow.replay()
        return not (
            s.unused.waits(shadow, at)
            or shadow.racing_write(at, warp, slice(None), clocks, PLAIN, s.orders.scopes) >= 0
            or shadow.racing_lane(at, warp, lanes, clocks) >= 0
            or shadow.racing_read_lane(at, 0, warp, lanes, clocks)[0] >= 0
            or shadow.racing_read(at, [], warp, clocks, None)[0] >= 0
        )

    def happen(self, s: Sanitizer, warp: int, row: int) -> None:
        some = self.part(row)
        if some.start == some.stop:
            return
        lanes, now = self.lanes[some], s.clocks.now(warp)
        s.clocks.touch(warp, lanes)
        self.shadow.note_write(self.at[some], warp, now, self.sites[some], PLAIN, True, lanes)
        s.m.wrote()
        for part in self.elements:
            mine = slice(part.bounds[row], part.bounds[row + 1])
            part.view[part.at[mine]] = part.values[mine]


def stores_of(s: Sanitizer, held: list[Stored], loaded: set[int], rows: int) -> GlobalStores | None:
    """All stores of a run; None if they are not of a kind that can be done in turns. `loaded` are where the
    ranges start that the run loads from."""
    region, shadow = s.m.globals.find(held[0][0].lo + held[0][1]), None
    if region is None or not may_hold(s, region) or region.start in loaded:
        return None
    shadow = shadow_of(s.globals, region, s.grain, s.clocks)
    rows_of, at, lanes, sites, elements = [], [], [], [], list[Elements]()
    for address, offset, values, site in held:
        size, g = values[0].dtype.itemsize, address.g
        nbytes = size * len(values)
        inside = region.start <= address.lo + offset and address.hi + offset + nbytes <= region.end
        if not inside or len(address.base) != g.n:
            return None
        index, grains = indices(g), max(nbytes // shadow.grain, 1)
        positions = address.addresses.astype(np.int64) + (offset - (region.start & -16))
        at.append(shadow.grains(positions, nbytes))
        rows_of.append(np.repeat(index // WARP, grains))
        lanes.append(np.repeat(index % WARP, grains))
        sites.append(np.full(len(at[-1]), site, np.int32))
        bounds = bounds_of(index, rows)
        for number, value in enumerate(values):
            view, positions = address.index(region, value.dtype, offset + size * number)
            elements.append(Elements(view, positions, np.broadcast_to(value, (g.n,)), bounds))
    row, positions = np.concatenate(rows_of), np.concatenate(at)
    ordered = np.sort(row * len(shadow.writer) + positions)
    if (ordered[1:] == ordered[:-1]).any():
        return None
    order = np.argsort(row, kind="stable")
    all_lanes, all_sites = (np.concatenate(part)[order] for part in (lanes, sites))
    bounds = bounds_of(row[order] * WARP, rows)
    return GlobalStores(shadow, positions[order], all_lanes, all_sites, bounds, elements)


def may_hold(s: Sanitizer, region: Region) -> bool:
    undefined = region.undefined is not None or s.m.heap.space is not None
    return region.writeable and not (undefined or s.m.overlaps)


def bounds_of(index: Array, rows: int) -> list[int]:
    """Where each warp's part of sorted lanes begins, and where the last one ends."""
    return [int(place) for place in np.searchsorted(index, np.arange(0, (rows + 1) * WARP, WARP))]
