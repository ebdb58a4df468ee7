"""Races: two accesses to one place, one of them a write, that no clock orders, by two warps or by two lanes
of one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from lapidist.machine.faults import MachineFault, Race
from lapidist.machine.lanes import Lanes
from lapidist.machine.memory import Address
from lapidist.machine.sanitize.clocks import Clocks
from lapidist.machine.sanitize.equal_stores import OTHER, ROUNDED, SAME, Storing, difference
from lapidist.machine.sanitize.ordered import PLAIN, Scopes, warp_number
from lapidist.machine.sanitize.shadow import Shadow
from lapidist.machine.sanitize.suspects import Suspects
from lapidist.machine.sanitize.unused_reads import UnusedReads
from lapidist.machine.state import Machine

Array = np.ndarray


@dataclass(slots=True)
class Access:
    """An access of lanes of a warp ("load", "store", "atomic") to some bytes each: positions in a shadow,
    one a lane, one for all, or those of all of a copy. `level` is the scope of an ordered access; what TMA
    does is not `generic`."""

    shadow: Shadow
    g: Lanes
    positions: Array
    size: int
    site: int
    kind: str
    level: int = PLAIN
    generic: bool = True

    @property
    def done(self) -> str:
        return "read" if self.kind == "load" else "written"


class Races:
    """Looks at the last accesses of each place. In the shadow of shared memory every warp of a cluster has a
    column, and behind those its tensor core."""

    def __init__(
        self,
        m: Machine,
        clocks: Clocks,
        shared: Shadow,
        scopes: Scopes,
        suspects: Suspects,
        unused: UnusedReads,
    ) -> None:
        self.m, self.clocks, self.shared, self.scopes, self.suspects = m, clocks, shared, scopes, suspects
        self.unused = unused
        self.columns = m.geometry.warps * m.geometry.cluster_size
        self.neighbours: tuple[int, Array] | None = None  # the agents asked for last, and the first warp
        self.storing: Storing | None = None  # what the store writes that is looked at

    # -- who --

    def column(self, warp: int) -> int:
        return warp % self.columns

    def columns_of(self, warp: int) -> list[int]:
        """The columns of a warp and of its tensor core."""
        return list(range(self.column(warp), self.shared.readers, self.columns))

    def agents(self, warp: int) -> Array:
        """The agents of the columns: the warps of this warp's cluster, then their tensor cores."""
        first = warp // self.columns * self.columns
        if self.neighbours is None or self.neighbours[0] != first:
            warps = first + np.arange(self.columns)
            self.neighbours = first, np.concatenate([warps, warps + self.clocks.warps])[: self.shared.readers]
        return self.neighbours[1]

    def near(self, warp: int) -> slice:
        """The warps that share memory with a warp."""
        first = warp // self.columns * self.columns
        return slice(first, first + self.columns)

    def name(self, agent: int) -> str:
        warp, core = agent % self.clocks.warps, "the tensor core of " if agent >= self.clocks.warps else ""
        geometry = self.m.geometry
        return f"{core}warp {warp % geometry.warps} of block {geometry.block_index(warp // geometry.warps)}"

    # -- accesses --

    def look(self, access: Access, at: Array) -> None:
        """Raise a race of this access with an earlier one to its grains; else note it as the last one
        there."""
        shadow, g, level, warp = access.shadow, access.g, access.level, warp_number(access.g)
        now = self.clocks.now(warp)
        self.clocks.touch(warp, g.lane)
        self.check_writes(access, at, warp)
        lanes = shadow.lanes_of(g, access.positions, access.size) if access.generic else None
        if lanes is not None and not level:
            self.check_lanes(access, at, lanes)
        elif lanes is not None and access.shadow is self.shared:
            self.check_step(access, at, lanes)
        if access.kind != "load" and not (level and access.kind == "atomic"):
            self.check_reads(access, at, warp)
            self.unused.meet_write(self, access, at, lanes)
        if level and access.kind != "store":
            shadow.note_ordered_read(at, warp, now, level, self.scopes)
        if access.kind != "load":
            shadow.note_write(at, warp, now, access.site, level, access.generic, lanes)
        elif not level:
            shadow.note_read(at, self.column(warp), warp, now, access.site, lanes)

    def faults_of_load(self, access: Access) -> dict[int, MachineFault]:
        """What is wrong with a plain load, by lane."""
        g, first = access.g, self.fault_of_load(access)
        if first is None:
            return {}
        if g.n == 1:
            return {int(g.lane[0]): first}
        rows, wrong = np.broadcast_to(access.positions, (g.n,)), dict[int, MachineFault]()
        for position, lane in enumerate(g.lane.tolist()):
            one = replace(access, g=g.one(position), positions=rows[position : position + 1])
            fault = self.fault_of_load(one)
            if fault is not None:
                wrong[lane] = fault
        return wrong

    def fault_of_load(self, access: Access) -> MachineFault | None:
        at = access.shadow.grains(access.positions, access.size)
        lanes = access.shadow.lanes_of(access.g, access.positions, access.size)
        self.m.holds_back = True
        try:
            self.check_writes(access, at, warp_number(access.g))
            if lanes is not None:
                self.check_lanes(access, at, lanes)
        except MachineFault as fault:
            return fault
        finally:
            self.m.holds_back = False
        return None

    def note_stores(self, warp: int, at: Array, lanes: Array, sites: Array) -> bool:
        """Note plain stores of a warp's lanes to shared memory if none of them races with an earlier access
        or with work that reads its place; whether none does. Each grain has its lane and site."""
        if not self.may_store(warp, at, lanes):
            return False
        self.stored(warp, at, lanes, sites)
        return True

    def may_store(self, warp: int, at: Array, lanes: Array) -> bool:
        shadow, clocks = self.shared, self.clocks
        return not (
            shadow.reading[at].any()
            or shadow.racing_write(at, warp, self.near(warp), clocks, PLAIN, self.scopes) >= 0
            or shadow.racing_lane(at, warp, lanes, clocks) >= 0
            or shadow.racing_read_lane(at, self.column(warp), warp, lanes, clocks)[0] >= 0
            or shadow.racing_read(at, self.columns_of(warp), warp, clocks, self.agents(warp))[0] >= 0
        )

    def stored(self, warp: int, at: Array, lanes: Array, sites: Array) -> None:
        now = self.clocks.now(warp)
        self.clocks.touched[warp, lanes] = now
        self.shared.note_write(at, warp, now, sites, PLAIN, True, lanes)

    def look_at_products(self, access: Access, at: Array) -> None:
        """Check reads of a tensor core, which count for itself: lanes that wait for them may say that they
        are done."""
        warp = warp_number(access.g)
        self.check_writes(access, at, warp)
        column, moment = self.columns_of(warp)[1], self.clocks.product_moment(warp)
        access.shadow.note_read(at, column, self.clocks.warps + warp, moment, access.site, None)

    def check_writes(self, access: Access, at: Array, warp: int) -> None:
        shadow = access.shadow
        near = self.near(warp) if shadow.readers else slice(None)

        def find(some: Array | slice) -> int:
            return shadow.racing_write(at[some], warp, near, self.clocks, access.level, self.scopes)

        index, change = self.first(access, at, find)
        if index >= 0:
            who, where = self.name(int(shadow.writer[at[index]])), self.place(shadow.write_site[at[index]])
            self.report(access, index, f"{access.done} here, and written by {who} at {where}", change=change)

    def first(self, access: Access, at: Array, find: Callable[[Array | slice], int]) -> tuple[int, int]:
        """Index into `at` of what meets a write, as `find` has it of some of them, or -1; and how its value
        differs from the one stored there. It is the one of those that meet a write which differs most."""
        index = find(slice(None))
        if index < 0 or access.kind != "store" or access.level or self.storing is None:
            return index, OTHER
        changes, stores = self.storing.changes(self.stores_floats(access.site)), len(access.positions)
        if len(changes) != stores:
            changes = np.array([changes.max()])
        if access.shadow.level[at[index]] or not access.shadow.generic[at[index]] or len(changes) != stores:
            return index, OTHER
        for least in (OTHER, ROUNDED):
            unequal = np.flatnonzero(np.repeat(changes >= least, len(at) // stores))
            other = find(unequal) if len(unequal) else -1
            if other >= 0:
                return int(unequal[other]), least
        return index, SAME

    def stores_floats(self, site: int) -> bool:
        """Whether what an instruction stores may be rounded: not where its type says integer."""
        mods = self.m.program.kernel.instructions[site].mods
        return not any(mod[0] in "us" and mod[1:].isdigit() for mod in mods)

    def check_reads(self, access: Access, at: Array, warp: int) -> None:
        shadow = access.shadow
        agents = self.agents(warp) if shadow.readers else None
        index, reader = shadow.racing_read(at, self.columns_of(warp), warp, self.clocks, agents)
        if index >= 0:
            story = (
                f"written here, and read by {self.name(reader)} at"
                f" {self.place(shadow.site_of_read(int(at[index])))}"
            )
            self.report(access, index, story, reader, int(at[index]))

    def check_lanes(self, access: Access, at: Array, lanes: Array) -> None:
        """Check against other lanes of the warp, which are ordered where it meets: at bar.warp.sync and at
        barriers of the block."""
        shadow, warp = access.shadow, warp_number(access.g)
        index, change = self.first(
            access, at, lambda some: shadow.racing_lane(at[some], warp, lanes[some], self.clocks)
        )
        if index >= 0:
            lane, where = shadow.lane[at[index]], self.place(shadow.write_site[at[index]])
            story = f"{access.done} here, and written by lane {lane} of this warp at {where}"
            self.report(access, index, story, change=change)
        if access.kind == "load":
            return
        column = self.column(warp) if shadow.readers else 0
        index, lane, site = shadow.racing_read_lane(at, column, warp, lanes, self.clocks)
        if index >= 0:
            story = f"written here, and read by lane {lane} of this warp at {self.place(site)}"
            self.report(access, index, story, warp, int(at[index]))

    def check_step(self, access: Access, at: Array, lanes: Array) -> None:
        """Report a volatile access to what another lane of the warp wrote, or read, since the two last met.
        Only lanes that run in step are in order, and nobody promises that they do."""
        program, block = self.m.program, self.suspects.block_of[access.site]
        if "volatile" not in program.kernel.instructions[access.site].mods or program.blocks[block].polls:
            return  # a loop may look until another lane has written
        warp = warp_number(access.g)
        if access.kind == "load":
            index = self.shared.racing_lane(at, warp, lanes, self.clocks)
            self.volatile.note_read(at, self.column(warp), warp, self.clocks.now(warp), access.site, lanes)
            other, done, site = self.shared.lane[at[index]], "written", int(self.shared.write_site[at[index]])
        else:
            column = self.column(warp)
            index, other, site = self.volatile.racing_read_lane(at, column, warp, lanes, self.clocks)
            done = "read"
        if index >= 0:
            rule = f"{access.done} here, and {done} by lane {other} of this warp at {self.place(site)}"
            position = index // max(access.size // self.shared.grain, 1)
            place = int(access.positions[position]) % self.m.shared_stride
            rule += ": only lanes in step do so in this order"
            self.m.report(self.m.fault(Race, rule, access.site, access.g, position, place, "lanes-in-step"))

    @cached_property
    def volatile(self) -> Shadow:
        """Volatile reads of shared memory, which race with nobody, by PTX."""
        return Shadow(len(self.m.shared_bytes), self.shared.grain, self.clocks.agents, self.shared.readers)

    def check_equal(self, address: Address, offset: int, values: tuple[Array, ...], site: int) -> None:
        """Raise a race if lanes of one instruction write different values to one place: which one stays is
        not defined."""
        if all(len(value) == 1 for value in values):
            return
        g = address.g
        if len(address.base) == g.n and (address.base[1:] > address.base[:-1]).all():
            return
        bases, first, which = np.unique(address.base, return_index=True, return_inverse=True)
        if len(bases) == g.n:
            return
        stored = which if len(address.base) > 1 else np.zeros(g.n, np.int64)
        floats, changes = self.stores_floats(site), np.zeros(g.n, np.int64)
        for value in values:
            held = np.broadcast_to(value, (g.n,))
            changes = np.maximum(changes, difference(held, held[first][stored], floats))
        change = int(changes.max())
        if change != SAME:
            lane = int(np.argmax(changes == change))
            place = int(address.addresses[min(lane, len(address.addresses) - 1)]) + offset
            what, name = ("different values", "")
            if change == ROUNDED:
                what, name = "values that differ in their last bits", "rounded-stores"
            rule = f"lanes of one instruction write {what} to one place"
            self.m.report(self.m.fault(Race, rule, site, g, lane, place, name))

    # -- reports --

    def place(self, site: int) -> str:
        return self.m.site(int(site)).place

    def report(
        self, access: Access, index: int, story: str, reader: int = -1, grain: int = 0, change: int = OTHER
    ) -> None:
        """Raise the race; if it is with a read whose value is still unused, it waits for that use."""
        fault = self.fault_of(access, index, story, change)
        if access.shadow is not self.shared or not self.suspects.blame(reader, grain, fault):
            self.m.report(fault)

    def fault_of(self, access: Access, index: int, story: str, change: int = OTHER) -> MachineFault:
        lane = index // max(access.size // access.shadow.grain, 1)
        address, space = int(access.positions[lane]), "global"
        if access.shadow is self.shared:
            address, space = address % self.m.shared_stride, "shared"
        what, name = {
            SAME: ("the same value twice in", "equal-stores"),
            ROUNDED: ("values that differ in their last bits in", "rounded-stores"),
            OTHER: ("a race on", ""),
        }[change]
        rule = f"{what} {space} memory: {story}; nothing orders the two"
        return self.m.fault(Race, rule, access.site, access.g, lane, address, name)
