"""Quiet blocks of code, computed once for all warps that come to them; each warp takes its part in its turn.

A schedule runs every warp alone, and a call of NumPy costs much the same for 32 lanes as for thousands. So
the first warp that comes to a quiet block computes it for all that stand there, block after block, ahead of
their turns. In its turn a warp checks and notes what it read, all loads of the block together. It takes the
part only if the block would come to the same values and to no fault: nobody has written to what it loaded,
and no check finds anything. Else the warp runs the block by itself, as if nothing had been computed."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from lapidist.errors import LapidistError
from lapidist.machine.lanes import Cohort, Lanes, special
from lapidist.machine.observer import Observer
from lapidist.machine.sanitize.held_reads import LANES, NOWHERE, WARP, Reads, reads_of
from lapidist.machine.sanitize.held_stores import stores_of
from lapidist.machine.sanitize.held_writes import HeldWrites
from lapidist.machine.sanitize.joint_notes import JointNotes
from lapidist.machine.sanitize.joint_run import JointRun, Turns, before_block, next_blocks, whole_jumps
from lapidist.machine.sanitize.lazy import LazyCopies
from lapidist.machine.sanitize.only_read import OnlyRead
from lapidist.machine.sanitize.quiet_blocks import QuietBlocks
from lapidist.machine.sanitize.sanitizer import Sanitizer
from lapidist.machine.sanitize.shadow import WRITTEN
from lapidist.machine.sanitize.standing import Standing

Array = np.ndarray
YES = np.array([True])
LONGEST_CHAIN = 64  # blocks of code
MOST_ELEMENTS = 1 << 21  # of what waits for its turn: how far a run may be ahead


class JointRuns:
    """`in_waves` says that warps sprint through what is ahead, whenever it is their turn."""

    def __init__(self, sanitizer: Sanitizer, lazy: LazyCopies, in_waves: bool) -> None:
        self.in_waves = in_waves
        self.m, self.sanitizer, self.lazy = sanitizer.m, sanitizer, lazy
        self.notes = JointNotes(sanitizer, lazy)
        self.turns: dict[int, Turns] = {}  # by warp
        self.standing = Standing()
        self.running: Cohort | None = None
        self.slots_behind = cache(self.find_slots_behind)
        self.taken: tuple[JointRun, int] | None = None  # what a warp took last, or was to take
        in_clusters = sanitizer.geometry.cluster_size > 1
        program = self.m.program
        self.quiet = QuietBlocks(program, self.is_constant, in_clusters, sanitizer.unused.sites)
        # Not where somebody counts accesses one by one, nor where wgmma fills registers that warps hold.
        multiplies = any(i.opcode == "wgmma" for i in program.kernel.instructions)
        self.alone = multiplies or type(sanitizer.counter) is not Observer

    def is_constant(self, name: str) -> bool:
        """Whether a special register is the same for all lanes, as that of the warp that runs shows."""
        return self.running is not None and len(special(self.running.all, name)) == 1

    def forget(self, warp: int) -> None:
        self.turns.pop(warp, None)
        self.standing.forget(warp)

    def turn(self, cohort: Cohort, number: int, lanes: Lanes) -> tuple[JointRun, int] | None:
        """The block that a warp is to run, and its row there, if it was computed with others; else None, and
        the warp's registers are what they must be."""
        turns, self.running = self.turns.get(cohort.first_warp), cohort
        if number not in self.quiet or lanes.index is not None or not self.may_join(cohort, number):
            self.settle(cohort, turns)
            if turns is not None and not self.quiet.passes(number):
                turns.drop()  # what begins with this block, and it runs that by itself
            return None
        if turns is None:
            turns = self.turns[cohort.first_warp] = Turns()
        if turns.ahead and (turns.ahead[0][0].steps or not self.comes_as_foreseen(cohort, number, turns)):
            self.settle(cohort, turns)
            turns.drop()
        if (turns.ahead or self.compute(cohort, number, turns)) and turns.ahead and self.take(cohort, turns):
            return turns.done or self.taken
        self.settle(cohort, turns)
        turns.drop()
        return None

    def comes_as_foreseen(self, cohort: Cohort, number: int, turns: Turns) -> bool:
        """Whether a warp goes on at the block that was computed ahead, with the answers of its waits that
        were foreseen."""
        run, _ = turns.ahead[0]
        if run.number != number:
            return False
        return turns.done is not None or self.answered(cohort, run.answers)

    def answered(self, cohort: Cohort, answers: frozenset[int]) -> bool:
        """Whether all waits of a warp said that they are over, where one may give up before."""
        return all(cohort.registers[slot].all() for slot in answers)

    def take(self, cohort: Cohort, turns: Turns) -> bool:
        """Let a warp take what is ahead for it; whether it may."""
        run, row = self.taken = turns.ahead[0]
        if not self.notes.note(cohort, run, row):
            return False
        turns.done = turns.ahead.popleft()
        if not turns.ahead and run.after[row] not in self.quiet:
            self.settle(cohort, turns)  # else it may go on with others from there
        return True

    def sprint(self, cohort: Cohort, most: int) -> list[tuple[int, int]]:
        """Let a warp take at most so many blocks that were computed ahead, one after the other, while it
        alone says what happens. Returns which blocks, and where it goes on behind each."""
        way = list[tuple[int, int]]()
        warp, turns = cohort.first_warp, self.turns.get(cohort.first_warp)
        suspects, followed = self.sanitizer.suspects.loads, self.sanitizer.definedness.followed
        number, (lanes, _) = next(iter(cohort.groups.items()))
        if turns is None or lanes.index is not None or suspects.get(warp) or followed(warp):
            return way
        if not turns.ahead or not self.comes_as_foreseen(cohort, number, turns):
            return way
        ahead, clocks, touched = turns.ahead, self.sanitizer.clocks, False
        strays = self.sanitizer.ranges.strays
        while ahead and len(way) < most:
            run, row = ahead[0]
            after = run.after[row]
            if run.number != number or after == NOWHERE or run.ends:
                break
            if run.plain and ((run.certain and run.strays == strays) or self.is_as_it_was(run)):
                if run.loads and not touched:
                    clocks.touch(warp, LANES)
                    touched = True
                for reads in run.reads:
                    reads.shadow.log_read(reads.at[row], warp, clocks.now(warp), reads.sites, reads.lanes)
                turns.done = ahead.popleft()
                if not ahead and after not in self.quiet:
                    self.settle(cohort, turns)
                if run.steps:
                    way += run.steps
                    number = after
                    continue
            elif not self.take(cohort, turns):
                break
            elif suspects.get(warp):
                way.append((number, after))
                break
            way.append((number, after))
            number = after
        return way

    def is_as_it_was(self, run: JointRun) -> bool:
        """Whether nobody has written to the ranges of global memory that a run read."""
        strays = self.sanitizer.ranges.strays
        return run.strays == strays and not any(reads.shadow.ever_written for reads in run.reads)

    def may_join(self, cohort: Cohort, number: int, ahead: bool = False) -> bool:
        """Whether nobody else watches, and the block touches no register whose value is followed; to a warp
        that is to come there, those matter which it will use."""
        followed = self.sanitizer.definedness.followed(cohort.first_warp)
        if followed:
            block = self.m.program.blocks[number]
            names = followed & block.live_in if ahead else followed
            if not (names.isdisjoint(block.reads) and names.isdisjoint(block.writes)):
                return False
        return not self.alone and cohort.n == WARP and self.m.observer is self.sanitizer

    def settle(self, cohort: Cohort, turns: Turns | None) -> None:
        """Give a warp its registers behind the last block that it took."""
        if turns is not None and turns.done is not None:
            run, row = turns.done
            for slot in run.written:
                cohort.registers[slot] = run.part(run.registers[slot], row, slot in run.uniform)
            turns.done, turns.settled = None, turns.done

    # -- ahead --

    def compute(self, cohort: Cohort, number: int, turns: Turns) -> bool:
        """Compute a block for a warp and those that stand where it does; whether there are any."""
        last = turns.last or turns.settled
        before = self.continued(last, number, cohort) if last else None
        before = before or self.begun(cohort, number)
        run = None if before is None else self.computed(number, before)
        if run is None:
            if before is not None:
                self.quiet.drop(number)  # who comes to it in turn may fail, and says so
            return False
        chain = self.chained(run) if self.in_waves and run.certain else None
        for row, one in enumerate(run.cohorts):
            self.turns[one.first_warp].ahead.append((run, row))
            if chain is not None:
                self.turns[one.first_warp].ahead.append((chain, row))
        return True

    def chained(self, run: JointRun) -> JointRun | None:
        """The blocks behind a run as one, as long as all its warps go the same way, and nothing that anybody
        may do changes it. To take each by itself would take longer than to compute it."""
        if any(self.sanitizer.definedness.followed(one.first_warp) for one in run.cohorts):
            return None
        steps, last, loads = list[tuple[int, int]](), run, False
        while len(steps) < LONGEST_CHAIN and same(last.after) and last.after[0] in self.quiet:
            number = last.after[0]
            behind = self.computed(number, last)
            if behind is None or not behind.certain or not behind.plain or behind.ends:
                break
            if not same(behind.after):
                break
            steps.append((number, behind.after[0]))
            last, loads = behind, loads or behind.loads
        if not steps:
            return None
        return replace(last, number=steps[0][0], steps=tuple(steps), loads=loads)

    def computed(self, number: int, before: JointRun) -> JointRun | None:
        """A block for these warps, to be taken in turns; None if it cannot be."""
        held, registers = HeldWrites(self.m, self.sanitizer.shared), list(before.registers)
        self.m.observer = self.m.recorder = self.m.copies = held
        try:
            jumps = self.m.program.function(number)(self.m, before.group, registers)
        except (LapidistError, LookupError, ArithmeticError, AttributeError, TypeError, ValueError):
            return None
        finally:
            self.m.observer, self.m.recorder, self.m.copies = self.sanitizer, None, self.lazy
        return self.run_of(number, before, held, registers, jumps)

    def run_of(
        self, number: int, before: JointRun, held: HeldWrites, registers: list[Array], jumps: Any
    ) -> JointRun | None:
        """What was computed, to be taken in turns; None if it cannot be."""
        block, program, shared = self.m.program.blocks[number], self.m.program, self.sanitizer.shared
        live, written = self.slots_behind(number)
        uniform, single = self.quiet.uniform_after(number, before.uniform)
        rows = len(before.cohorts)
        reads = reads_of(self.sanitizer, held.loads, rows, single) if held.joint else None
        if reads is None:
            return None
        stores = None
        if held.global_stores:
            starts = (
                address.lo + offset for address, offset, _, _ in held.loads if address.space == "global"
            )
            regions = [self.m.globals.find(start) for start in starts]
            loaded_from = {region.start for region in regions if region is not None}
            stores = stores_of(self.sanitizer, held.global_stores, loaded_from, rows)
            if stores is None:
                return None
        loaded = [part.at for part in reads if part.shadow is shared]
        writes = held.writes(rows, loaded)
        if not held.joint:
            return None
        certain = self.logs_at_once(before, reads)
        reads = [] if certain else reads
        elements = sum(part.at.size for part in reads)
        guard = program.kernel.instructions[block.stop - 1].predicate if block.kind == "branch" else None
        goes = whole_jumps(jumps, rows)
        return JointRun(
            number,
            before.cohorts,
            before.group,
            registers,
            live,
            live & (before.written | written),
            uniform,
            jumps,
            guard is not None and program.slots[guard.name] in uniform,
            next_blocks(block, goes, rows),
            [self.notes.changes(one) for one in before.cohorts] if loaded else [],
            shared.marks,
            self.sanitizer.ranges.strays,
            reads,
            writes,
            stores,
            block.kind == "barrier" or held.is_seen,
            goes,
            before.answers,
            any(load[0].space != "param" for load in held.loads),
            block.kind != "barrier"
            and (writes or stores) is None
            and all(part.shadow is not shared for part in reads),
            all((shared.state[at] == WRITTEN).all() for at in loaded),
            certain,
            elements,
            block.kind == "barrier" or block.target == number + 1,
        )

    def logs_at_once(self, before: JointRun, reads: list[Reads]) -> bool:
        """Log what all warps read, if each of them will read it whatever the others do."""
        certain = before.certain and all(isinstance(part.shadow, OnlyRead) for part in reads)
        for part in reads if certain else ():
            part.shadow.log_read(part.at, NOWHERE, 0, part.sites, part.lanes)
        return certain

    def find_slots_behind(self, number: int) -> tuple[frozenset[int], frozenset[int]]:
        """The registers that are used behind a block, and those that it writes."""
        block, slots = self.m.program.blocks[number], self.m.program.slots
        live, written = (frozenset(slots[name] for name in part) for part in (block.live_out, block.writes))
        return live, written

    def continued(self, last: tuple[JointRun, int], number: int, first: Cohort) -> JointRun | None:
        """A run with those of its warps that go on at a block and have nothing else ahead. Those of the first
        one's cluster may come there behind waits: then what they wait for has happened."""
        run, mine = last
        way = self.quiet.way_behind(run.after[mine], number)
        if way is None or (way.waits and run.meets) or not self.answered(first, way.answers):
            return None
        most, after, all_turns = max(4, MOST_ELEMENTS // max(run.elements, 1)), run.after[mine], self.turns
        rows = []
        for row, one in enumerate(run.cohorts):  # a hundred of a large launch, at each block
            turns = all_turns.get(one.first_warp)
            if turns is None or run.after[row] != after:
                continue
            ahead = turns.ahead
            place = ahead[-1] if ahead else turns.done or turns.settled
            if place is None or place[0] is not run or (way.waits and not self.shares_cluster(one, first)):
                continue
            come = self.stands_at(one, number, turns) if run.meets else len(ahead) < most
            if come and self.may_join(one, number, ahead=True):
                rows.append(row)
        if len(rows) < 2 or mine not in rows:
            return None
        if way.waits:
            run = replace(run, registers=list(run.registers), answers=way.answers, certain=False)
            for slot in way.answers:
                run.registers[slot] = YES
            run.uniform |= way.answers
        return run if len(rows) == len(run.cohorts) else self.narrowed(run, rows)

    def shares_cluster(self, one: Cohort, other: Cohort) -> bool:
        size = self.sanitizer.geometry.cluster_size
        return int(one.slot[0]) // size == int(other.slot[0]) // size

    def narrowed(self, run: JointRun, rows: list[int]) -> JointRun:
        cohorts, registers = [run.cohorts[row] for row in rows], list(run.registers)
        for slot in run.live:
            values = run.registers[slot]
            if len(values) > 1:
                registers[slot] = values.reshape(-1, WARP)[rows].reshape(-1)
        narrow = before_block(cohorts, registers, run.live, run.uniform)
        return replace(narrow, written=run.written, answers=run.answers, certain=run.certain)

    def begun(self, cohort: Cohort, number: int) -> JointRun | None:
        """All warps that stand at a block, with nothing ahead, and keep the same registers as one value."""
        answers, before = frozenset[int](), NOWHERE
        if number and self.m.program.blocks[number - 1].kind == "retry":
            way = self.quiet.way_behind(number - 1, number)
            if way is not None and self.answered(cohort, way.answers):
                answers, before = way.answers, number - 1
        others, waiting = self.standing.at(number), self.standing.at(before)
        cohorts = [cohort] if self.stands_at(cohort, number, self.turns.get(cohort.first_warp)) else []
        cohorts += [one for one in others if self.stands_at(one, number, self.turns.get(one.first_warp))]
        cohorts += [one for one in waiting if self.waits_for(one, before, number, cohort)]
        if len(cohorts) < 2:
            return None
        for one in cohorts:
            self.settle(one, self.turns.get(one.first_warp))
        named, live = self.m.program.slots, self.m.program.blocks[number].live_in
        slots = [named[name] for name in live if named[name] not in answers]
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
        for slot in answers:
            registers[slot] = YES
        begun = before_block(cohorts, registers, frozenset(slots) | answers, frozenset(uniform) | answers)
        return replace(begun, answers=answers, certain=not answers)

    def waits_for(self, cohort: Cohort, before: int, number: int, first: Cohort) -> bool:
        """Whether a warp stands at a wait that is over for another one of its cluster."""
        turns, lanes = self.turns.get(cohort.first_warp), cohort.groups[before][0]
        alone = lanes.index is None and len(cohort.groups) == 1 and not (turns is not None and turns.ahead)
        return alone and self.shares_cluster(cohort, first) and self.may_join(cohort, number, ahead=True)

    def stands_at(self, cohort: Cohort, number: int, turns: Turns | None) -> bool:
        place = cohort.groups.get(number)
        if turns is not None and turns.ahead:
            return False
        if place is None:  # the warp whose turn it is stands in no list
            return not cohort.groups and cohort is self.running
        return place[0].index is None and len(cohort.groups) == 1 and self.may_join(cohort, number)


def same(after: list[int]) -> bool:
    """Whether all warps go on at one block."""
    return after[0] != NOWHERE and after.count(after[0]) == len(after)
