"""What warps that compute a block together write: written down then, done in each one's turn.

Plain stores and cp.async are held back, and so is the wait for copies. A block whose writes depend on each
other, or on what it loads from their places, is none that warps can compute together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lapidist.machine.instructions.copies import Copies
from lapidist.machine.lanes import Cohort, Lanes, indices
from lapidist.machine.memory import Address
from lapidist.machine.observer import Observer
from lapidist.machine.sanitize.held_stores import Stored, bounds_of
from lapidist.machine.sanitize.landing import PendingCopy
from lapidist.machine.sanitize.shadow import LANDING, Shadow

if TYPE_CHECKING:
    from lapidist.machine.sanitize.lazy import LazyCopies
    from lapidist.machine.state import Machine

Array = np.ndarray
WARP = 32
NOWHERE = -1


@dataclass(frozen=True, slots=True)
class HeldCopy:
    """Copies of one size by some lanes of all warps, with the bounds of each warp's part."""

    index: Array
    bounds: list[int]
    target: Array
    source: Array
    size: int
    source_sizes: Array
    sites: Array

    def part(self, cohort: Cohort, row: int, group: Array) -> PendingCopy | None:
        """A warp's part; `group` has the open group of each of its lanes."""
        some = slice(self.bounds[row], self.bounds[row + 1])
        index = self.index[some] - row * WARP
        if not len(index):
            return None
        target, source, sizes = self.target[some], self.source[some], self.source_sizes[some]
        sites = self.sites[some]
        return PendingCopy(cohort.all, index, group[index], target, source, self.size, sizes, sites)

    def with_next(self, other: HeldCopy, lanes: int) -> HeldCopy:
        """These copies, and others behind them, warp by warp."""
        index = np.concatenate([self.index, other.index])
        order = np.argsort(index // WARP, kind="stable")
        target, source, sizes, sites = (
            np.concatenate([getattr(self, name), getattr(other, name)])[order]
            for name in ("target", "source", "source_sizes", "sites")
        )
        index = index[order]
        return HeldCopy(index, bounds_of(index, lanes // WARP), target, source, self.size, sizes, sites)


@dataclass(frozen=True, slots=True)
class Wait:
    pending: int
    site: int


@dataclass(frozen=True, slots=True)
class Values:
    """Elements of one size that a block stores, and their places in shared memory, a row a warp."""

    view: Array
    at: Array
    values: Array


@dataclass(slots=True)
class Writes:
    """All that a block does to shared memory. The grains of all warps stand one warp after the other."""

    at: Array
    lanes: Array
    sites: Array
    bounds: list[int]
    values: list[Values]
    copies: list[HeldCopy | Wait | None]  # None ends a group
    pending: Array | None  # the grains of copies, and the bounds of each warp's part
    pending_bounds: list[int]

    def part(self, row: int) -> tuple[Array, Array, Array]:
        """A warp's grains, and the lane and site of each."""
        some = slice(self.bounds[row], self.bounds[row + 1])
        return self.at[some], self.lanes[some], self.sites[some]

    def happen(self, cohort: Cohort, row: int, lazy: LazyCopies, shared: Shadow) -> None:
        """Do what a warp does, in its turn."""
        for stored in self.values:
            stored.view[stored.at[row]] = stored.values[row]
        if not self.copies:
            return
        queue = lazy.queue(cohort)
        if self.pending is not None:
            shared.mark(self.pending[self.pending_bounds[row] : self.pending_bounds[row + 1]], LANDING)
        for step in self.copies:
            if isinstance(step, HeldCopy):
                copy = step.part(cohort, row, queue.group)
                if copy is not None:
                    queue.copies.append(copy)
            elif isinstance(step, Wait):
                lazy.wait(cohort.all, step.pending, step.site)
            else:
                lazy.commit(cohort.all)


@dataclass
class Touch:
    """Grains that lanes write: of all warps, in the order of the lanes."""

    index: Array
    at: Array
    site: int
    copied: bool


class HeldWrites(Observer, Copies):
    """Stands in for memory while warps compute together: it notes their loads, and holds back what they
    write."""

    def __init__(self, m: Machine, shared: Shadow) -> None:
        super().__init__(m)
        self.shared = shared
        self.loads: list[tuple[Address, int, int, int]] = []
        self.touches: list[Touch] = []
        self.global_stores: list[Stored] = []
        self.stores: dict[str, list[tuple[Array, Array]]] = {}
        self.copies: list[HeldCopy | Wait | None] = []
        self.waited = False
        self.joint = True  # whether it can be done in turns

    def accessed(
        self, address: Address, offset: int, size: int, site: int, kind: str, values: tuple[Array, ...] = ()
    ) -> None:
        self.joint &= not self.waited
        self.loads.append((address, offset, size, site))

    def store(self, address: Address, offset: int, values: tuple[Array, ...], site: int) -> None:
        if address.space == "global":
            self.joint &= not self.waited
            self.global_stores.append((address, offset, values, site))
            return
        self.joint &= address.space == "shared" and not self.waited and address.g.index is None
        if not self.joint:
            return
        size, n = values[0].dtype.itemsize, address.g.n
        positions = np.broadcast_to(address.base + offset, (n,))
        self.touch(address.g, positions, size * len(values), site, copied=False)
        for number, value in enumerate(values):
            kind = f"u{size}" if value.dtype.kind != "c" else "c16"
            value = np.ascontiguousarray(np.broadcast_to(value, (n,))).view(kind)
            self.stores.setdefault(kind, []).append(((positions + number * size) // size, value))

    def shuffled_from_nobody(self, lanes: Lanes, lost: Array, site: int) -> None:
        self.joint &= not lost.any()

    def touch(self, g: Lanes, positions: Array, size: int, site: int, copied: bool) -> None:
        grains = max(size // self.shared.grain, 1)
        at = self.shared.grains(positions, size)
        self.touches.append(Touch(np.repeat(indices(g), grains), at, site, copied))

    # -- cp.async --

    def copy(
        self, target: Address, target_offset: int, source: Address, source_offset: int, size: int, site: int
    ) -> None:
        source.find(source_offset, size, site)
        source.check_aligned(source_offset, size, site)
        self.hold(target, target_offset, source.addresses, source_offset, size, np.array([size]), site)

    def copy_part(
        self,
        target: Address,
        target_offset: int,
        source: tuple[Array, int],
        size: int,
        source_sizes: Array,
        site: int,
    ) -> None:
        (base, offset), g = source, target.g
        read = np.broadcast_to(source_sizes, (g.n,)) > 0
        lanes = g.where(read)
        if lanes is not None:
            some = base if len(base) == 1 or lanes is g else base[read]
            address = self.m.global_at(lanes, some, site)
            address.find(offset, 1, site)
            address.check_aligned(offset, size, site)
        self.hold(target, target_offset, base, offset, size, source_sizes, site)

    def hold(
        self,
        target: Address,
        offset: int,
        source: Array,
        source_offset: int,
        size: int,
        source_sizes: Array,
        site: int,
    ) -> None:
        target.find(offset, size, site)
        target.check_aligned(offset, size, site)
        g, index, everyone = target.g, indices(target.g), (target.g.n,)
        positions = np.broadcast_to(target.base + offset, everyone)
        self.joint &= not self.waited
        self.touch(g, positions, size, site, copied=True)
        come = np.broadcast_to(source.astype(np.int64) + source_offset, everyone)
        sizes = np.broadcast_to(source_sizes, everyone)
        bounds, sites = bounds_of(index, g.cohort.n // WARP), np.full(g.n, site, np.int32)
        copy = HeldCopy(index, bounds, positions, come, size, sizes, sites)
        last = self.copies[-1] if self.copies else None
        if isinstance(last, HeldCopy) and last.size == size:
            self.copies[-1] = last.with_next(copy, g.cohort.n)
        else:
            self.copies.append(copy)

    def commit(self, g: Lanes) -> None:
        self.joint &= g.index is None
        self.copies.append(None)

    def wait(self, g: Lanes, pending: int, site: int) -> None:
        self.joint &= g.index is None and not self.waited
        self.waited = True
        self.copies.append(Wait(pending, site))

    # -- of all warps --

    @property
    def is_seen(self) -> bool:
        """Whether loads behind the block may see what it does. A copy is to land first."""
        return bool(self.stores) or self.waited

    def writes(self, rows: int, loaded: list[Array]) -> Writes | None:
        """What is to be done in turns, if anything; `joint` is false where that cannot be. `loaded` are
        the grains of shared memory that are loaded, a row a warp."""
        if not (self.touches or self.copies):
            return None
        none = np.zeros(0, np.int64)
        index = np.concatenate([none, *(touch.index for touch in self.touches)])
        at = np.concatenate([none, *(touch.at for touch in self.touches)])
        sites = np.concatenate([none, *(np.full(len(t.at), t.site) for t in self.touches)]).astype(np.int32)
        copied = np.concatenate([none, *(np.full(len(t.at), t.copied) for t in self.touches)]) > 0
        order = np.argsort(index // WARP, kind="stable")
        row, at = index[order] // WARP, at[order]
        self.joint &= self.are_apart(row, at, rows, loaded)
        pending, pending_row = at[copied[order]], row[copied[order]]
        values = []
        for kind, held in self.stores.items():
            at_of, elements = zip(*held, strict=True)
            view = self.m.shared.view(np.dtype(kind))[0]
            values.append(Values(view, joined(at_of, rows), joined(elements, rows)))
        return Writes(
            at,
            index[order] % WARP,
            sites[order],
            bounds_of(row * WARP, rows),
            values,
            self.copies,
            pending if len(pending) else None,
            bounds_of(pending_row * WARP, rows),
        )

    def are_apart(self, row: Array, at: Array, rows: int, loaded: list[Array]) -> bool:
        """Whether no warp writes to a grain twice, or to one that it loads."""
        place, number = self.shared.place, np.arange(1, len(at) + 1, dtype=np.int32)
        place[at] = number
        alone = bool((place[at] == number).all())
        if alone:
            behind = [place[grains] for grains in loaded]
            rows_of = np.concatenate([[NOWHERE], row])
            alone = not any((rows_of[held] == np.arange(rows)[:, None]).any() for held in behind)
        else:  # warps may write to one grain, if each does so once
            count = len(self.shared.writer)
            keys = row * count + at
            alone = len(np.unique(keys)) == len(keys) and not any(
                np.isin(np.arange(rows)[:, None] * count + grains, keys).any() for grains in loaded
            )
        place[at] = 0
        return alone


def joined(parts: tuple[Array, ...], rows: int) -> Array:
    """Values of all lanes as one row a warp."""
    return np.concatenate([part.reshape(rows, WARP) for part in parts], axis=1)
