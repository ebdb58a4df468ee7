"""Ordered accesses and fences: what a warp publishes at a place in memory, and who may take it in.

What a release publishes reaches only those inside its scope. An acquire takes in only what comes from inside
its own. Two blocks that synchronise at block scope have not synchronised. So a message lies at its place once
for each scope that it reaches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lapidist.machine.lanes import Geometry, Lanes
from lapidist.machine.memory import Address
from lapidist.machine.sanitize.clocks import GLOBAL, SHARED, Clocks, Packed

if TYPE_CHECKING:
    from lapidist.machine.state import Machine

Array = np.ndarray
PLAIN = 0  # the level of an access that is not ordered at all
SCOPES = ("cta", "cluster", "gpu")
OTHER_NAMES = {"gl": "gpu", "sys": "gpu"}
MEMBARS = ("gl", "sys")  # since sm_70 these are sequential fences of the GPU


class Scopes:
    """Levels 1, 2, 3: block, cluster, GPU. `spans` are the warps of each; neighbours by number share one."""

    def __init__(self, geometry: Geometry) -> None:
        block = geometry.warps
        self.spans = np.array([1, block, block * geometry.cluster_size, block * geometry.blocks])

    @staticmethod
    def level(name: str) -> int:
        return SCOPES.index(OTHER_NAMES.get(name, name)) + 1

    def share(self, levels: Array, warp: int, warps: Array) -> Array:
        """Whether a warp lies with each of the others in one scope of the level that is given for it; none
        does at level 0."""
        spans = self.spans[levels]
        return (levels > PLAIN) & (warps // spans == warp // spans)


class Ordered:
    """The messages in memory."""

    def __init__(self, m: Machine, clocks: Clocks) -> None:
        self.m, self.clocks, self.scopes = m, clocks, Scopes(m.geometry)
        # By place (global addresses, and below 0 shared positions), then by level and number of the scope.
        self.slots: dict[int, dict[tuple[int, int], Packed]] = {}
        self.writers: dict[int, int] = {}
        self.site, self.level = -1, PLAIN

    def level_of(self, site: int) -> int:
        """The scope of the access that an instruction is about to do."""
        return self.level if site == self.site else PLAIN

    def order(self, warp: int, address: object, offset: int, kind: str, scope: str, site: int) -> None:
        """Take in what an ordered access acquires, and publish what it releases."""
        self.site, self.level = site, self.scopes.level(scope)
        if not isinstance(address, Address):
            return
        opcode = self.m.program.kernel.instructions[site].opcode
        acquires, releases = kind in ("acquire", "acq_rel"), kind in ("release", "acq_rel")
        published: list[Packed] | None = None
        for position in np.unique(address.base.astype(np.int64) + offset).tolist():
            place = position if address.space == "global" else -1 - position
            if opcode in ("ld", "atom"):
                self.take(warp, place, acquires)
            if opcode == "st" and self.writers.get(place, warp) != warp:
                # A plain store, unlike an atomic, ends what others published there.
                self.slots.pop(place, None)
            if opcode in ("st", "red", "atom"):
                self.writers[place] = warp
                # It publishes the same at each place, unless it has learned something from the last.
                if published is None or acquires:
                    published = self.message(warp, releases)
                self.give(warp, place, published)
        if releases:
            self.clocks.tick(warp)

    def take(self, warp: int, place: int, acquires: bool) -> None:
        messages = self.slots.get(place, {})
        for level in range(1, self.level + 1):
            message = messages.get((level, warp // int(self.scopes.spans[level])))
            if message is not None and acquires:
                self.clocks.receive(warp, message.message(self.clocks.agents))
            elif message is not None:
                self.clocks.see(warp, message, level)

    def message(self, warp: int, releases: bool) -> list[Packed]:
        """What a warp leaves in memory for each level."""
        message = self.clocks.message(warp)
        if releases:
            return [Packed(message)] * self.level
        published = []
        message.heard[:] = 0
        for level in range(self.level):
            message.vector[:] = message.fenced[level]
            published.append(Packed(message))
        return published

    def give(self, warp: int, place: int, published: list[Packed]) -> None:
        """Leave messages at a place, beside what others left there."""
        for level, message in enumerate(published, start=1):
            if message.is_empty:
                continue
            messages = self.slots.setdefault(place, {})
            scope = level, warp // int(self.scopes.spans[level])
            earlier = messages.get(scope)
            messages[scope] = message if earlier is None else earlier.joined(message, self.clocks.agents)

    def fence(self, warp: int, kind: str) -> None:
        if "mbarrier_init" in kind or "proxy.async.shared" in kind:
            self.clocks.proxy_fence(warp, SHARED)
        elif "proxy.async" in kind:
            self.clocks.proxy_fence(warp, *((GLOBAL,) if "global" in kind else (SHARED, GLOBAL)))
        if "proxy" not in kind:
            names = [name for name in kind.split(".") if name in SCOPES or name in OTHER_NAMES]
            level = self.scopes.level(names[0] if names else "gpu")
            self.clocks.fence(warp, level, sequential=kind.startswith("sc.") or kind in MEMBARS)


def warp_number(g: Lanes) -> int:
    """The group's warp in the whole launch."""
    return g.cohort.first_warp
