"""Address spaces: global ranges at their real addresses, shared memory of each resident block, local memory
of each lane.

An `Address` is a base register resolved once: its extremes, its common alignment, and the element index of
every lane. The accesses of an unrolled loop share it and differ in a constant offset only, which then is a
slice of the view."""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from typing import TYPE_CHECKING

import numpy as np

from lapidist.machine.faults import Misaligned, OutOfBounds
from lapidist.machine.lanes import Lanes

if TYPE_CHECKING:
    from lapidist.machine.state import Machine

Array = np.ndarray

# Windows of the generic address space; host addresses have at most 57 bits.
SHARED_WINDOW = 1 << 60
LOCAL_WINDOW = 2 << 60
PARAM_WINDOW = 3 << 60
# A shared address has its block's rank in the cluster above the offset. Those of a block's own variables,
# too: seen on an H200.
RANK_SHIFT = 24
OFFSET = (1 << RANK_SHIFT) - 1


class Region:
    """A range of bytes, seen as elements of any type. A view may start before the range: accesses are checked
    first.
    """

    def __init__(
        self,
        name: str,
        start: int,
        nbytes: int,
        owner: object,
        writeable: bool = True,
        undefined: Array | None = None,
    ) -> None:
        self.name, self.start, self.end, self.owner, self.writeable = (
            name,
            start,
            start + nbytes,
            owner,
            writeable,
        )
        self.undefined = undefined
        self.views: dict[np.dtype, tuple[Array, int]] = {}

    def view(self, code: np.dtype) -> tuple[Array, int]:
        """Elements of type `code`, and the address of the first."""
        view = self.views.get(code)
        if view is None:
            size = code.itemsize
            origin = self.start & -size
            length = -(-(self.end - origin) // size) * size
            view = np.ctypeslib.as_array((ctypes.c_uint8 * length).from_address(origin)).view(code), origin
            self.views[code] = view
        return view


def block_of_bytes(nbytes: int, fill: int = 0) -> Array:
    """Bytes at an address that is a multiple of 1024, as shared memory and tensor maps want it."""
    # zeros take no memory yet
    raw = np.full(nbytes + 1024, fill, np.uint8) if fill else np.zeros(nbytes + 1024, np.uint8)
    start = -raw.ctypes.data % 1024
    return raw[start : start + nbytes]


class GlobalMemory:
    """The ranges that a launch may touch, sorted by address."""

    def __init__(self, regions: list[Region]) -> None:
        self.regions = joined(
            sorted((r for r in regions if r.end > r.start), key=lambda region: region.start)
        )
        self.starts = [region.start for region in self.regions]
        self.has_undefined = any(region.undefined is not None for region in self.regions)

    def find(self, address: int) -> Region | None:
        position = bisect_right(self.starts, address) - 1
        if position >= 0 and address < self.regions[position].end:
            return self.regions[position]
        return None

    def describe_near(self, address: int) -> str:
        """Where an address lies relative to the closest range."""
        if not self.regions:
            return "the launch has no memory"
        gaps = [(max(r.start - address, address - r.end + 1, 0), r) for r in self.regions]
        gap, region = min(gaps, key=lambda pair: pair[0])
        return distance_from(address, region) if gap else f"in {region.name}"

    def describe_strayed(self, address: int, region: Region, reach: frozenset[int]) -> str:
        """Where an address in one array lies relative to those that its pointer was given for."""
        targets = [r for r in self.regions if r.start in reach]
        near = min(targets, key=lambda r: max(r.start - address, address - r.end))
        return (
            f"through a pointer to {near.name}: {distance_from(address, near)}, in {region.name}. If that is"
            " meant, pass both as views of one array"
        )


def distance_from(address: int, region: Region) -> str:
    side = "before the start" if address < region.start else "past the end"
    distance = region.start - address if address < region.start else address - region.end
    return f"{distance} bytes {side} of {region.name} ({region.end - region.start} bytes)"


def joined(regions: list[Region]) -> list[Region]:
    """The ranges, with overlapping ones joined (C and D in place, views of one array): what either may
    touch may be touched."""
    merged: list[Region] = []
    for region in regions:
        last = merged[-1] if merged else None
        if last is None or region.start >= last.end:
            merged.append(region)
            continue
        name = last.name if region.name in last.name.split("+") else f"{last.name}+{region.name}"
        size = max(last.end, region.end) - last.start
        merged[-1] = Region(
            name, last.start, size, (last.owner, region.owner), last.writeable or region.writeable
        )
    return merged


class Address:
    """Base addresses of some lanes in one space. `base` are byte positions in the region, `addresses`
    those in the space, between `lo` and `hi`."""

    __slots__ = ("addresses", "base", "g", "hi", "indices", "lo", "low", "m", "region", "space")

    def __init__(
        self, m: Machine, g: Lanes, space: str, base: Array, addresses: Array, region: Region | None
    ) -> None:
        self.m, self.g, self.space, self.base, self.addresses, self.region = (
            m,
            g,
            space,
            base,
            addresses,
            region,
        )
        self.lo, self.hi = int(addresses.min()), int(addresses.max())
        self.low = int(np.bitwise_or.reduce(addresses)) & 15
        self.indices: dict[tuple[int, int], Array] = {}

    def find(self, offset: int, size: int, site: int) -> Region | None:
        """The one region that all lanes touch, None if they touch several; a fault if a lane touches none."""
        if self.space == "global":
            region, reach = self.m.globals.find(self.lo + offset), self.m.reach.get(site)
            if region is None or self.hi + offset + size > region.end:
                self.check_lanes(offset, size, site)
                return None
            if reach is None or region.start in reach:
                return region
            self.check_lanes(offset, size, site)
            return None
        limit = self.m.limits[self.space]
        if self.lo + offset < self.m.floors[self.space] or self.hi + offset + size > limit:
            self.out_of_bounds(offset, size, site)
        return self.region

    def check_lanes(self, offset: int, size: int, site: int) -> None:
        """Global lanes in different regions: each must be inside one."""
        for position, address in enumerate((self.addresses + np.uint64(offset % (1 << 64))).tolist()):
            region = self.m.globals.find(address)
            if region is None or address + size > region.end:
                near = self.m.globals.describe_near(address if region is None else address + size - 1)
                rule = f"access of {size} bytes outside all memory of the launch: {near}"
                raise self.m.fault(OutOfBounds, rule, site, self.g, position, address)
            self.m.require_reached(region, site, self.g, position, address, f"access of {size} bytes")

    def out_of_bounds(self, offset: int, size: int, site: int) -> None:
        addresses = self.addresses.astype(np.int64) + offset
        floor, limit = self.m.floors[self.space], self.m.limits[self.space]
        position = int(np.argmax((addresses < floor) | (addresses + size > limit)))
        held = (
            f"which holds addresses {floor} to {limit - 1}"
            if limit > floor
            else "of which the launch gives a block none"
        )
        rule = f"access of {size} bytes outside {self.space} memory, {held}"
        address = int(addresses[position])
        address += (address < 0) << 32  # a register of 32 bits that lies below zero
        raise self.m.fault(OutOfBounds, rule, site, self.g, position, address)

    def check_aligned(self, offset: int, size: int, site: int) -> None:
        if (self.low | offset) & (size - 1) == 0:
            return
        wrong = (
            (self.addresses.astype(np.uint64) + np.uint64(offset % (1 << 64))) & np.uint64(size - 1)
        ) != 0
        if wrong.any():
            position = int(np.argmax(wrong))
            address = int(self.addresses[position]) + offset
            rule = f"access of {size} bytes at a {self.space} address that is not a multiple of it"
            raise self.m.fault(Misaligned, rule, site, self.g, position, address)

    def index(self, region: Region, code: np.dtype, offset: int) -> tuple[Array, Array]:
        """A view and the positions in it: view[positions] are the elements at base + offset."""
        view, origin = region.view(code)
        size = code.itemsize
        # else the base's own position would be negative
        if (self.low | offset) & (size - 1) or offset < 0 or self.lo < origin:
            unaligned = (self.base.astype(np.int64) + (offset - origin)) // size
            return view, unaligned.astype(np.intp, copy=False)  # of 32 bits in a browser
        key = (region.start, size)
        positions = self.indices.get(key)
        if positions is None:
            at = (self.base.view(np.int64) - origin) >> (size.bit_length() - 1)
            positions = at.astype(np.intp, copy=False)
            self.indices[key] = positions
        return view[offset // size :], positions

    def load(self, offset: int, code: np.dtype, site: int) -> Array:
        size = code.itemsize
        region = self.find(offset, size, site)
        self.check_aligned(offset, size, site)
        self.m.observer.accessed(self, offset, size, site, "load")
        if region is None:
            return self.gather(offset, code)
        view, positions = self.index(region, code, offset)
        return view.take(positions)

    def load_many(self, offset: int, code: np.dtype, count: int, site: int) -> list[Array]:
        size = code.itemsize
        region = self.find(offset, size * count, site)
        self.check_aligned(offset, size * count, site)
        self.m.observer.accessed(self, offset, size * count, site, "load")
        if region is None:
            return [self.gather(offset + size * n, code) for n in range(count)]
        view, positions = self.index(region, code, offset)
        return [view[n:].take(positions) for n in range(count)]

    def store(self, offset: int, site: int, *values: Array) -> None:
        """Neighbouring elements, one array of lanes each; of lanes that write the same place the last
        wins.
        """
        size = values[0].dtype.itemsize
        region = self.find(offset, size * len(values), site)
        self.check_aligned(offset, size * len(values), site)
        if self.m.recorder is not None:
            self.m.recorder.store(self, offset, values, site)
            return
        self.m.observer.accessed(self, offset, size * len(values), site, "store", values)
        self.m.wrote()
        self.m.observer.stored(self, offset, values, site)
        if region is None:
            for n, value in enumerate(values):
                self.scatter(offset + size * n, value)
            return
        if not region.writeable:
            rule = f"a store into {region.name}, which is read-only"
            raise self.m.fault(OutOfBounds, rule, site, self.g, 0, self.lo + offset)
        view, positions = self.index(region, values[0].dtype, offset)
        if len(positions) != self.g.n and len(values[0]) > 1:
            values = tuple(value[-1:] for value in values)
        for n, value in enumerate(values):
            view[n:][positions] = value

    # -- global lanes that touch several regions --

    def by_region(self, offset: int) -> list[tuple[Region, Array]]:
        number = (
            np.searchsorted(
                np.array(self.m.globals.starts, np.uint64),
                self.addresses + np.uint64(offset % (1 << 64)),
                side="right",
            )
            - 1
        )
        return [(self.m.globals.regions[n], np.flatnonzero(number == n)) for n in np.unique(number)]

    def gather(self, offset: int, code: np.dtype) -> Array:
        out = np.empty(len(self.addresses), code)
        for region, lanes in self.by_region(offset):
            view, origin = region.view(code)
            out[lanes] = view[(self.addresses[lanes].astype(np.int64) + (offset - origin)) // code.itemsize]
        return out

    def scatter(self, offset: int, value: Array) -> None:
        value = np.broadcast_to(value, self.addresses.shape)
        for region, lanes in self.by_region(offset):
            view, origin = region.view(value.dtype)
            view[(self.addresses[lanes].astype(np.int64) + (offset - origin)) // value.dtype.itemsize] = (
                value[lanes]
            )


def global_at(m: Machine, g: Lanes, base: Array, site: int) -> Address:
    base = base.astype(np.uint64)
    return Address(m, g, "global", base, base, None)


def shared_at(m: Machine, g: Lanes, base: Array, site: int) -> Address:
    """Addresses in the lanes' own block. The chip takes one with another block's rank for an illegal
    instruction."""
    offsets, away = offsets_of(g, base)
    if away is not None:
        lane = int(np.argmax(away != 0))
        rule = (
            "a shared address of another block of the cluster, or without a rank, where only the own block's"
            " may stand"
        )
        raise m.fault(OutOfBounds, rule, site, g, lane, int(base[min(lane, len(base) - 1)]))
    return Address(m, g, "shared", offsets + g.slot * m.shared_stride, offsets, m.shared)


def cluster_at(m: Machine, g: Lanes, base: Array, site: int) -> Address:
    """Addresses in any block of the cluster."""
    offsets, away = offsets_of(g, base)
    slot, size = g.slot, g.cohort.geometry.cluster_size
    if away is not None:
        beyond = away + g.rank >= size
        slot = slot + np.where(beyond, 0, away)
        offsets = np.where(beyond, base.astype(np.int64), offsets)
        m.require_alive(slot, g, 0, int(offsets[0]), site)
    return Address(m, g, "shared", offsets + slot * m.shared_stride, offsets, m.shared)


def offsets_of(g: Lanes, base: Array) -> tuple[Array, Array | None]:
    """Offsets of shared addresses, and how much higher than the own block's the rank is that each names;
    None if all name the own block.

    An instruction adds its constant in 32 bits, and compilers let the register lie below zero by it."""
    if g.cohort.geometry.cluster_size == 1:
        return (base.view(np.int32) if base.dtype == np.uint32 else base).astype(np.int64), None
    offsets = base.astype(np.int64)
    away = (offsets >> RANK_SHIFT) - g.rank
    return offsets & OFFSET, away if away.any() else None


def ranked_address(m: Machine, g: Lanes, offset: Array) -> Array:
    """The address of a shared variable of the lanes' block, with the block's rank in a cluster."""
    if m.geometry.cluster_size == 1:
        return offset
    return offset | g.rank.astype(offset.dtype) << offset.dtype.type(RANK_SHIFT)


def local_at(m: Machine, g: Lanes, base: Array, site: int) -> Address:
    offsets = base.astype(np.int64)
    place = g.slot * g.cohort.geometry.threads + g.thread
    return Address(m, g, "local", offsets + place * m.local_stride, offsets, m.local)


def param_at(m: Machine, g: Lanes, base: Array, site: int) -> Address:
    offsets = (base.astype(np.uint64) & np.uint64(SHARED_WINDOW - 1)).astype(np.int64)
    return Address(m, g, "param", offsets, offsets, m.param)


def generic_at(m: Machine, g: Lanes, base: Array, site: int) -> Address | MixedAddress:
    """A generic address: its top bits name the window."""
    window = base >> np.uint64(60)
    first = int(window[0])
    if (window == np.uint64(first)).all():
        return window_at(m, g, base, first, site)
    parts = []
    for number in np.unique(window).tolist():
        within = np.flatnonzero(window == number)
        narrowed = g.where(window == number)
        assert narrowed is not None
        parts.append((within, window_at(m, narrowed, base[within], number, site)))
    return MixedAddress(parts, len(base))


def window_at(m: Machine, g: Lanes, base: Array, number: int, site: int) -> Address:
    inside = base & np.uint64(SHARED_WINDOW - 1)
    if number == 0 or number > 3:
        return global_at(m, g, base, site)
    return {1: cluster_at, 2: local_at, 3: param_at}[number](m, g, inside, site)


class MixedAddress:
    """Generic addresses whose lanes point into different spaces."""

    def __init__(self, parts: list[tuple[Array, Address]], count: int) -> None:
        self.parts, self.count = parts, count

    def load(self, offset: int, code: np.dtype, site: int) -> Array:
        out = np.empty(self.count, code)
        for within, address in self.parts:
            out[within] = address.load(offset, code, site)
        return out

    def load_many(self, offset: int, code: np.dtype, count: int, site: int) -> list[Array]:
        return [self.load(offset + n * code.itemsize, code, site) for n in range(count)]

    def store(self, offset: int, site: int, *values: Array) -> None:
        for within, address in self.parts:
            address.store(offset, site, *(value if len(value) == 1 else value[within] for value in values))
