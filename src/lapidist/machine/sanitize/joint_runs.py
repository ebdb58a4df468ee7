"""Quiet blocks of code, computed once for all warps that come to them; each warp takes its part in its turn.

A schedule runs every warp alone, and a call of NumPy costs much the same for 32 lanes as for thousands. So
the first warp that comes to a quiet block computes it for all that stand there, block after block, ahead of
their turns. In its turn a warp checks and notes what it read, all loads of the block together. It takes the
part only if the block would come to the same values and to no fault: nobody has written to what it loaded,
and no check finds anything. Else the warp runs the block by itself, as if nothing had been computed."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from lapidist.errors import LapidistError
from lapidist.machine.instructions.warp import BarrierRequest
from lapidist.machine.lanes import Cohort, Lanes, special
from lapidist.machine.memory import Address
from lapidist.machine.observer import Observer
from lapidist.machine.ptx.basic_blocks import Block
from lapidist.machine.sanitize.ordered import PLAIN
from lapidist.machine.sanitize.quiet_blocks import QuietBlocks
from lapidist.machine.sanitize.sanitizer import Sanitizer
from lapidist.machine.sanitize.shadow import WRITTEN, Shadow, shadow_of

Array = np.ndarray
WARP = 32
LANES = np.arange(WARP)
MOST_ELEMENTS = 1 << 21  # of what waits for its turn: how far a run may be ahead
NOWHERE = -1


@dataclass(slots=True)
class Reads:
    """What a block loads from one range: its grains, a row a warp, and of each the lane and the load."""

    shadow: Shadow
    at: Array
    lanes: Array
    sites: Array


@dataclass(slots=True)
class JointRun:
    """One block, computed for these warps. `registers` are those behind it, of which `live` are used later
    and `written` were written since the warps came together; a warp by itself keeps those in `uniform` as one
    value. `after` is where each warp goes on."""

    number: int
    cohorts: list[Cohort]
    group: Lanes
    registers: list[Array]
    live: frozenset[int]
    written: frozenset[int]
    uniform: frozenset[int]
    jumps: Array | BarrierRequest | None
    one_jump: bool
    after: list[int]
    changes: list[int]
    reads: list[Reads] = field(default_factory=list)

    def part(self, values: Array, row: int, one: bool) -> Array:
        """A warp's part of a register."""
        if len(values) == 1:
            return values if one else np.repeat(values, WARP)
        return values[row * WARP : row * WARP + (1 if one else WARP)]

    def answer(self, row: int) -> Array | BarrierRequest | None:
        """What the block answers to a warp: which lanes jump, or what they ask at a barrier."""
        jumps = self.jumps
        return self.part(jumps, row, self.one_jump) if isinstance(jumps, np.ndarray) else jumps

    @property
    def elements(self) -> int:
        return sum(reads.at.size for reads in self.reads)


@dataclass(slots=True)
class Turns:
    """What was computed ahead for a warp, each with its row there: `ahead` waits for its turn, the warp's
    registers stand behind `done`."""

    ahead: deque[tuple[JointRun, int]] = field(default_factory=deque)
    done: tuple[JointRun, int] | None = None

    @property
    def last(self) -> tuple[JointRun, int] | None:
        return self.ahead[-1] if self.ahead else self.done


class Loads(Observer):
    """Writes down the loads of a joint run."""

    def __init__(self) -> None:
        self.list: list[tuple[Address, int, int, int]] = []

    def accessed(
        self, address: Address, offset: int, size: int, site: int, kind: str, values: tuple[Array, ...] = ()
    ) -> None:
        self.list.append((address, offset, size, site))


class JointRuns:
    def __init__(self, sanitizer: Sanitizer, cohorts: list[Cohort]) -> None:
        self.m, self.sanitizer, self.cohorts = sanitizer.m, sanitizer, cohorts
        self.turns: dict[int, Turns] = {}  # by warp
        self.running: Cohort | None = None
        in_clusters = sanitizer.geometry.cluster_size > 1
        ahead_of_use, program = sanitizer.suspects.ahead_of_use, self.m.program
        self.quiet = QuietBlocks(program, ahead_of_use, self.is_constant, in_clusters)
        # Not where somebody counts accesses one by one, nor where wgmma fills registers that warps hold.
        multiplies = any(i.opcode == "wgmma" for i in program.kernel.instructions)
        self.alone = multiplies or type(sanitizer.counter) is not Observer

    def is_constant(self, name: str) -> bool:
        """Whether a special register is the same for all lanes, as that of the warp that runs shows."""
        return self.running is not None and len(special(self.running.all, name)) == 1

    def forget(self, warp: int) -> None:
        self.turns.pop(warp, None)

    def turn(self, cohort: Cohort, number: int, lanes: Lanes) -> tuple[JointRun, int] | None:
        """The block that a warp is to run, and its row there, if it was computed with others; else None, and
        the warp's registers are what they must be."""
        turns, self.running = self.turns.get(cohort.first_warp), cohort
        if number not in self.quiet or lanes.index is not None or not self.may_join(cohort, number):
            if turns is not None:
                turns.ahead.clear()  # which begins with this block, and it runs that by itself
            self.settle(cohort, turns)
            return None
        if turns is None:
            turns = self.turns[cohort.first_warp] = Turns()
        if turns.ahead or self.compute(cohort, number, turns):
            run, row = turns.ahead[0]
            if self.note(cohort, run, row):
                turns.done = turns.ahead.popleft()
                if not turns.ahead and run.after[row] not in self.quiet:
                    self.settle(cohort, turns)
                return run, row
            turns.ahead.clear()
        self.settle(cohort, turns)
        return None

    def may_join(self, cohort: Cohort, number: int) -> bool:
        """Whether nobody else watches, and the block touches no register whose bits are undefined."""
        undefined = self.sanitizer.definedness.warps.get(cohort.first_warp)
        if undefined:
            block = self.m.program.blocks[number]
            if not (undefined.keys().isdisjoint(block.reads) and undefined.keys().isdisjoint(block.writes)):
                return False
        return not self.alone and cohort.n == WARP and self.m.observer is self.sanitizer

    def settle(self, cohort: Cohort, turns: Turns | None) -> None:
        """Give a warp its registers behind the last block that it took."""
        if turns is not None and turns.done is not None:
            run, row = turns.done
            for slot in run.written:
                cohort.registers[slot] = run.part(run.registers[slot], row, slot in run.uniform)
            turns.done = None

    # -- ahead --

    def compute(self, cohort: Cohort, number: int, turns: Turns) -> bool:
        """Compute a block for a warp and those that stand where it does; whether there are any."""
        before = self.continued(turns.last[0], number) if turns.last else self.begun(cohort, number)
        if before is None:
            return False
        block, program = self.m.program.blocks[number], self.m.program
        loads, registers = Loads(), list(before.registers)
        self.m.observer = loads
        try:
            jumps = program.function(number)(self.m, before.group, registers)
        except (LapidistError, LookupError, ArithmeticError, AttributeError, TypeError, ValueError):
            self.quiet.drop(number)  # who comes to it in turn fails, and says so
            return False
        finally:
            self.m.observer = self.sanitizer
        live = frozenset(program.slots[name] for name in block.live_out)
        uniform, single = self.quiet.uniform_after(number, before.uniform)
        reads = self.reads_of(loads, len(before.cohorts), single)
        if reads is None:
            self.quiet.drop(number)
            return False
        guard = program.kernel.instructions[block.stop - 1].predicate if block.kind == "branch" else None
        one_jump = guard is not None and program.slots[guard.name] in uniform
        run = JointRun(
            number,
            before.cohorts,
            before.group,
            registers,
            live,
            live & (before.written | {program.slots[name] for name in block.writes}),
            uniform,
            jumps,
            one_jump,
            next_blocks(block, jumps, len(before.cohorts)),
            [self.changes(one) for one in before.cohorts],
            reads,
        )
        for row, one in enumerate(run.cohorts):
            self.turns[one.first_warp].ahead.append((run, row))
        return True

    def continued(self, run: JointRun, number: int) -> JointRun | None:
        """A run with those of its warps that go on at a block and have nothing else ahead."""
        most = max(4, MOST_ELEMENTS // max(run.elements, 1))
        rows = []
        for row, one in enumerate(run.cohorts):
            turns = self.turns.get(one.first_warp)
            if turns is None or run.after[row] != number or turns.last is None or len(turns.ahead) >= most:
                continue
            if turns.last[0] is run and self.may_join(one, number):
                rows.append(row)
        if len(rows) == len(run.cohorts):
            return run
        return self.narrowed(run, rows) if len(rows) > 1 else None

    def narrowed(self, run: JointRun, rows: list[int]) -> JointRun:
        cohorts, registers = [run.cohorts[row] for row in rows], list(run.registers)
        for slot in run.live:
            values = run.registers[slot]
            if len(values) > 1:
                registers[slot] = values.reshape(-1, WARP)[rows].reshape(-1)
        return replace(before_block(cohorts, registers, run.live, run.uniform), written=run.written)

    def begun(self, cohort: Cohort, number: int) -> JointRun | None:
        """All warps that stand at a block, with nothing ahead, and keep the same registers as one value."""
        slots = [self.m.program.slots[name] for name in self.m.program.blocks[number].live_in]
        cohorts = [one for one in self.cohorts if self.stands_at(one, number)]
        if len(cohorts) < 2:
            return None
        forms = [len(cohort.registers[slot]) for slot in slots]
        cohorts = [one for one in cohorts if [len(one.registers[slot]) for slot in slots] == forms]
        if len(cohorts) < 2:
            return None
        registers, uniform = list(self.m.program.zeros), set()
        for slot in slots:
            values = [one.registers[slot] for one in cohorts]
            if len(values[0]) > 1:
                registers[slot] = np.concatenate(values)
                continue
            uniform.add(slot)
            same = all(value is values[0] for value in values)
            registers[slot] = values[0] if same else np.repeat(np.concatenate(values), WARP)
        for one in cohorts:
            self.turns.setdefault(one.first_warp, Turns())
        return before_block(cohorts, registers, frozenset(slots), frozenset(uniform))

    def stands_at(self, cohort: Cohort, number: int) -> bool:
        place, turns = cohort.groups.get(number), self.turns.get(cohort.first_warp)
        fresh = turns is None or turns.last is None
        if place is None:  # the warp whose turn it is stands in no list
            return fresh and not cohort.groups and cohort is self.running
        alone = place[0].index is None and len(cohort.groups) == 1
        return fresh and alone and self.may_join(cohort, number)

    # -- what was read --

    def reads_of(self, loads: Loads, rows: int, single: frozenset[int]) -> list[Reads] | None:
        """All loads of a run, by range; None if one is not of a kind that can be noted together."""
        parts: dict[int, tuple[Shadow, list[tuple[Array, Array, Array]]]] = {}
        s = self.sanitizer
        for address, offset, size, site in loads.list:
            if address.space == "param":
                continue
            shadow, key = s.shared, NOWHERE
            positions = address.base.astype(np.int64) + offset  # which may be below 0
            if address.space == "global":
                region = self.m.globals.find(address.lo + offset)
                if region is None or region.undefined is not None or address.hi + offset + size > region.end:
                    return None
                shadow = shadow_of(s.globals, region, s.grain, s.clocks)
                positions = address.addresses.astype(np.int64) + (offset - (region.start & -16))
                key = region.start
            elif address.space != "shared":
                return None
            each = max(size // shadow.grain, 1)
            at, lanes = shadow.grains(positions, size).reshape(-1, each), np.repeat(LANES, each)
            if key != NOWHERE and site in single:
                at, lanes = np.broadcast_to(at[::WARP], (rows, each)), np.repeat(LANES[:1], each)
            if at.size != rows * len(lanes):
                return None
            sites = np.full(len(lanes), site, np.int32)
            parts.setdefault(key, (shadow, []))[1].append((at.reshape(rows, -1), lanes, sites))
        return [
            Reads(shadow, np.concatenate([at for at, _, _ in of], axis=1), *joined(of))
            for shadow, of in parts.values()
        ]

    def note(self, cohort: Cohort, run: JointRun, row: int) -> bool:
        """Note what a warp read, if its part holds: what it loaded is still there, and no check of a load
        finds anything."""
        warp, clocks, races = cohort.first_warp, self.sanitizer.clocks, self.sanitizer.races
        for reads in run.reads:
            shadow = reads.shadow
            if shadow is not self.sanitizer.shared:
                if shadow.ever_written or self.m.overlaps or self.m.heap.space is not None:
                    return False
                continue
            at = reads.at[row]
            if run.changes[row] != self.changes(cohort) or not (shadow.state[at] == WRITTEN).all():
                return False
            near = races.near(warp)
            if shadow.racing_write(at, warp, near, clocks, PLAIN, races.scopes) >= 0:
                return False
            if shadow.racing_lane(at, warp, reads.lanes, clocks) >= 0:
                return False
        now = clocks.now(warp)
        for reads in run.reads:
            clocks.touch(warp, LANES)
            if reads.shadow is self.sanitizer.shared:
                reads.shadow.note_read(reads.at[row], races.column(warp), warp, now, reads.sites, reads.lanes)
            else:
                reads.shadow.log_read(reads.at[row], warp, now, reads.sites, reads.lanes)
        return True

    def changes(self, cohort: Cohort) -> int:
        """How often shared memory of the warp's cluster was written to."""
        place = int(cohort.slot[0]) // self.sanitizer.geometry.cluster_size
        return int(self.sanitizer.shared.changes[place])


def joined(parts: Sequence[tuple[Array, Array, Array]]) -> tuple[Array, Array]:
    return np.concatenate([part[1] for part in parts]), np.concatenate([part[2] for part in parts])


def before_block(
    cohorts: list[Cohort], registers: list[Array], live: frozenset[int], uniform: frozenset[int]
) -> JointRun:
    """Warps as one group, with nothing computed yet."""
    slots, blocks, threads = (
        np.concatenate([getattr(one, name) for one in cohorts]) for name in ("slot", "block", "thread")
    )
    group = Cohort(slots, blocks, threads, cohorts[0].geometry, registers).all
    return JointRun(NOWHERE, cohorts, group, registers, live, frozenset(), uniform, None, False, [], [])


def next_blocks(block: Block, jumps: object, warps: int) -> list[int]:
    """Where each warp goes on; NOWHERE if its lanes part, or wait at a barrier."""
    if block.kind == "barrier":
        return [NOWHERE] * warps
    if not isinstance(jumps, np.ndarray):
        return [block.target if block.kind == "jump" else block.index + 1] * warps
    if len(jumps) == 1:
        return [block.target if jumps[0] else block.index + 1] * warps
    rows = jumps.reshape(warps, WARP)
    targets = np.where(rows.all(axis=1), block.target, np.where(rows.any(axis=1), NOWHERE, block.index + 1))
    return [int(place) for place in targets]
