"""Who runs next: residency of blocks, groups of lanes at one place, barriers, waits, deadlock.

In the plain schedule all resident blocks share one cohort. The group with the lowest block index runs, so
that lanes that parted meet again. A group passed over for long runs next, so spinning lanes cannot starve
those that they wait for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lapidist.errors import LapidistError
from lapidist.machine.barrier import Barriers, Waiting
from lapidist.machine.faults import BudgetExceeded, Deadlock, PtxError, Trap
from lapidist.machine.instructions.warp import BarrierRequest
from lapidist.machine.lanes import Cohort, Lanes, part_where, split, united
from lapidist.machine.ptx.basic_blocks import Block
from lapidist.machine.state import Machine

Array = np.ndarray
AGE_LIMIT = 64
POLL_LIMIT = 20_000
JUMPED, FELL_THROUGH = 1, 2
FRUITLESS = 1_000  # polls since the last store: who polls will not come
Progress = Callable[[int, int], None]
# A group becomes a cohort of its own after so many blocks of code apart, if it is large enough to be worth
# it.
FORK_AFTER, FORK_LANES = 24, 256


class Scheduler:
    """The plain schedule. Subclasses choose differently."""

    def __init__(
        self, machine: Machine, order: Sequence[int], budget: int, on_progress: Progress | None = None
    ) -> None:
        self.m, self.budget = machine, budget
        self.pending = order  # a range stays one: a grid may have more blocks than fit into memory
        self.cohorts: list[Cohort] = []
        self.barriers = Barriers(machine)
        self.parked: list[tuple[Cohort, Lanes, int]] = []
        self.woken_at = 0
        self.gave_up_at = -1
        self.warp_runs = np.zeros(len(machine.program.blocks), np.int64)
        self.lane_runs = np.zeros(len(machine.program.blocks), np.int64)
        self.splits = np.zeros(len(machine.program.blocks), np.int64)
        self.went: dict[int, int] = {}  # by block that ends in a branch: JUMPED, FELL_THROUGH, or both
        self.on_progress = on_progress or (lambda started, blocks: None)

    # -- residency --

    def admit(self) -> bool:
        """Start the next wave of blocks once all of the last one are gone."""
        if self.cohorts or not self.pending:
            return False
        count = min(self.m.slots, len(self.pending))
        blocks, self.pending = np.array(self.pending[:count]), self.pending[count:]
        self.on_progress(self.m.geometry.blocks - len(self.pending), self.m.geometry.blocks)
        slots = np.arange(count)
        self.begin(slots, blocks)
        threads = self.m.geometry.threads
        lanes = np.repeat(slots, threads), np.repeat(blocks, threads), np.tile(np.arange(threads), count)
        self.start(Cohort(*lanes, self.m.geometry, self.registers()))
        return True

    def begin(self, slots: Array, blocks: Array) -> None:
        """New blocks start in these slots. Arrivals at barriers of the blocks before are dropped."""
        self.barriers.forget(slots)
        self.m.start_block(slots, blocks)

    def registers(self) -> list[Array]:
        return list(self.m.program.zeros)

    def start(self, cohort: Cohort) -> None:
        self.cohorts.append(cohort)
        self.enqueue(cohort, 0, cohort.all)

    @property
    def together(self) -> bool:
        """Whether all lanes run as one: they come to a barrier at once."""
        return len(self.cohorts) == 1

    # -- the loop --

    def run(self) -> None:
        with np.errstate(all="ignore"):
            while True:
                self.wake()
                choice = self.choose()
                if choice is not None:
                    self.step(*choice)
                elif not (self.progress() or self.admit()):
                    self.fail_or_end()
                    return

    def fail_or_end(self) -> None:
        """Nobody can go on: a collective instruction names lanes that will not come, or it is a deadlock."""
        for cohort in list(self.cohorts):
            for number in list(cohort.groups):
                self.step(cohort, number)
        if self.pending or self.cohorts:
            raise self.deadlock()

    def choose(self) -> tuple[Cohort, int] | None:
        """The group with the lowest block of code, of those that need not wait for others; or one that was
        passed over for long.
        """
        ready = [(cohort, number) for cohort in self.cohorts for number in cohort.groups]
        limit = self.m.steps - AGE_LIMIT * len(self.cohorts)
        overdue = [
            choice for choice in ready if choice[0].groups[choice[1]][1] < limit and self.may_go(*choice)
        ]
        longest = min(overdue, key=lambda choice: choice[0].groups[choice[1]][1], default=None)
        first = longest or min(ready, key=lambda choice: self.turn(*choice), default=None)
        if first is None or not self.turn(*first)[0]:
            return first
        return next((choice for choice in ready if self.may_go(*choice)), None)

    def turn(self, cohort: Cohort, number: int) -> tuple[bool, bool, int]:
        """The order in which groups run. Last are those that miss lanes of a warp at a collective
        instruction; before them, those that poll.
        """
        block, lanes = self.m.program.blocks[number], cohort.groups[number][0]
        partial = (
            block.collective
            and not lanes.full_warps
            and not self.m.meetings.ready(cohort, lanes, block).any()
        )
        return partial, block.polls, number

    def part_ready(self, cohort: Cohort, number: int, lanes: Lanes, since: int) -> Lanes:
        """The lanes whose partners at a collective instruction have come; the others stay."""
        ready = self.m.meetings.ready(cohort, lanes, self.m.program.blocks[number])
        if ready.all() or not ready.any():
            return lanes
        go, stay = split(lanes, ready)
        assert go is not None
        assert stay is not None
        cohort.groups[number] = stay, since
        return go

    def may_go(self, cohort: Cohort, number: int) -> bool:
        """Whether the group may run at all. At a collective instruction without all lanes it may not, while
        another lane can still come: one that runs, or waits at a barrier.
        """
        if not self.turn(cohort, number)[0]:
            return True
        if any(cohort is parked for parked, _, _ in self.parked) or self.barriers.holds(cohort):
            return False
        hopeless = self.m.polls > FRUITLESS and self.all_wait()
        turns = [self.turn(cohort, other)[:2] for other in cohort.groups if other != number]
        return all(partial or (polls and hopeless) for partial, polls in turns)

    def progress(self) -> bool:
        """Let waits give up once, as try_wait may, when no lane can run. False the second time: a
        deadlock."""
        if not self.parked or self.gave_up_at == self.m.events:
            return False
        self.gave_up_at = self.m.events
        self.m.impatient = True
        parked, self.parked = self.parked, []
        for cohort, lanes, number in parked:
            self.enqueue(cohort, number, lanes)
        for cohort, _, number in parked:
            if number in cohort.groups:
                self.step(cohort, number)
        self.m.impatient = False
        return True

    def wake(self) -> None:
        """Let waiting lanes look again if anything happened since they last did."""
        if self.parked and self.m.events != self.woken_at:
            parked, self.parked = self.parked, []
            for cohort, lanes, number in parked:
                self.enqueue(cohort, number, lanes)
        self.woken_at = self.m.events

    def step(self, cohort: Cohort, number: int) -> None:
        lanes, since = cohort.groups.pop(number)
        block = self.m.program.blocks[number]
        if block.collective and (self.m.meetings.pending or not lanes.full_warps):
            lanes = self.part_ready(cohort, number, lanes, since)
        if lanes.index is not None:
            lanes.steps_alone += 1
            if lanes.steps_alone > FORK_AFTER and lanes.n >= FORK_LANES and lanes.full_warps:
                cohort, lanes = self.fork(cohort, lanes, number)
        self.m.steps += 1
        if self.m.steps > self.budget:
            rule = f"the kernel ran {self.budget} blocks of code and did not end; raise budget= if it should"
            raise self.m.fault(BudgetExceeded, rule, block.start, lanes)
        result = self.execute(cohort, number, lanes)
        if self.m.polls and self.m.polls > self.poll_limit():
            self.look_at_polls(number)
        self.m.observer.executed(number, lanes)
        self.warp_runs[number] += lanes.warps
        self.lane_runs[number] += lanes.n
        kind = block.kind
        if kind == "next":
            self.enqueue(cohort, number + 1, lanes)
        elif kind == "jump":
            self.enqueue(cohort, block.target, lanes)
        elif kind in ("branch", "skip"):
            self.branch(cohort, lanes, result, block.target, number + 1)
        elif kind == "exit":
            self.leave(cohort, lanes, result, number + 1)
        elif kind == "barrier":
            self.arrive(cohort, lanes, result, number + 1)
        elif kind == "retry":
            self.retry(cohort, lanes, result, number)
        else:
            self.jump_table(cohort, lanes, result, block.table, block.stop - 1)

    def execute(self, cohort: Cohort, number: int, lanes: Lanes) -> Any:
        """Run a block of code; what it answers says where the lanes go on."""
        try:
            function = self.m.program.function(number, self.m.definedness is not None)
            return function(self.m, lanes, cohort.registers)
        except (LookupError, ArithmeticError, AttributeError, TypeError, ValueError) as error:
            raise self.refused(self.m.program.blocks[number], error) from error

    def look_at_polls(self, last: int) -> None:
        """Raise a deadlock after many looks without a store, when no group does else, nor that of `last`."""
        self.m.polls = 0
        if self.m.program.blocks[last].polls and self.all_wait():
            raise self.polled_in_vain()

    def all_wait(self) -> bool:
        """Whether every group polls, or misses lanes of its warp."""
        return all(any(self.turn(cohort, number)[:2]) for cohort in self.cohorts for number in cohort.groups)

    def poll_limit(self) -> int:
        """How many ordered loads without a store are a deadlock, where no group does anything else."""
        return POLL_LIMIT

    def polled_in_vain(self) -> Deadlock:
        rule = (
            f"memory was polled {POLL_LIMIT} times while nobody stored to global memory; "
            f"{self.resident} blocks were resident (residency= changes that)"
        )
        return self.m.fault(Deadlock, rule, self.m.polled_at)

    @property
    def resident(self) -> int:
        return int((self.m.slot_block >= 0).sum())

    def refused(self, block: Block, error: Exception) -> LapidistError:
        """The error for operands that do not fit their opcode, when only NumPy noticed it."""
        if isinstance(error, LapidistError):
            return error
        first, last = self.m.site(block.start), self.m.site(block.stop - 1)
        return PtxError(f"{first}: from here to line {last.line}, operands do not fit their opcode ({error})")

    def fork(self, cohort: Cohort, lanes: Lanes, number: int) -> tuple[Cohort, Lanes]:
        """Give lanes that stay apart (those of producers, of consumers) a cohort with registers of its own:
        they no longer gather.
        """
        block, slots = self.m.program.blocks[number], self.m.program.slots
        live = {slots[name] for name in block.live_in}
        registers = [lanes.pick_all(r) if n in live else r[:1] for n, r in enumerate(cohort.registers)]
        new = Cohort(lanes.slot, lanes.block, lanes.thread, cohort.geometry, registers)
        self.cohorts.append(new)
        self.retire(cohort)
        return new, new.all

    def enqueue(self, cohort: Cohort, number: int, lanes: Lanes) -> None:
        """Add lanes to those that wait to run a block."""
        if number not in cohort.groups:
            cohort.groups[number] = lanes, self.m.steps
            return
        waiting, since = cohort.groups[number]
        cohort.groups[number] = united([waiting, lanes]), since

    def branch(self, cohort: Cohort, lanes: Lanes, jumps: Array, target: int, after: int) -> None:
        yes, no = split(lanes, jumps)
        self.splits[after - 1] += yes is not None and no is not None
        went = JUMPED * (yes is not None) + FELL_THROUGH * (no is not None)
        self.went[after - 1] = self.went.get(after - 1, 0) | went
        for number, part in ((target, yes), (after, no)):
            if part is not None:
                self.enqueue(cohort, number, part)

    def jump_table(
        self, cohort: Cohort, lanes: Lanes, which: Array, table: tuple[int, ...], site: int
    ) -> None:
        for number in np.unique(which).tolist():
            if number >= len(table):
                raise self.m.fault(Trap, f"brx.idx: index {number} of a table of {len(table)}", site, lanes)
            group = part_where(lanes, which == number)
            assert group is not None
            self.enqueue(cohort, table[number], group)

    def leave(self, cohort: Cohort, lanes: Lanes, leaving: Array, after: int) -> None:
        gone, stay = split(lanes, leaving)
        if stay is not None:
            self.enqueue(cohort, after, stay)
        if gone is None:
            return
        self.m.exit(gone)
        self.m.events += 1
        if self.barriers.open:
            self.release(self.barriers.after_exits(gone.slot))
        self.retire(cohort)

    def retire(self, cohort: Cohort) -> None:
        """Forget a cohort when all its lanes have exited."""
        if cohort.groups or any(cohort is parked for parked, _, _ in self.parked):
            return
        if self.barriers.holds(cohort):
            return
        self.cohorts.remove(cohort)

    def retry(self, cohort: Cohort, lanes: Lanes, ready: Array, number: int) -> None:
        go, stay = split(lanes, ready)
        if go is not None:
            self.enqueue(cohort, number + 1, go)
        if stay is not None:
            self.parked.append((cohort, stay, number))

    # -- what was reached --

    def reached_lines(self) -> frozenset[int]:
        """Lines of PTX that some lane executed."""
        code = self.m.program.kernel.instructions
        blocks = [
            block for block, runs in zip(self.m.program.blocks, self.warp_runs.tolist(), strict=True) if runs
        ]
        return frozenset(i.site.line for block in blocks for i in code[block.start : block.stop])

    def ways(self) -> dict[int, int]:
        """Which ways lanes went at each branch, by its line of PTX."""
        blocks = self.m.program.blocks
        return {
            self.m.site(blocks[number].stop - 1).line: went
            for number, went in self.went.items()
            if blocks[number].kind == "branch"
        }

    # -- barriers --

    def arrive(self, cohort: Cohort, lanes: Lanes, request: BarrierRequest, after: int) -> None:
        """Bring lanes to a barrier of their block or cluster; some go on, and may let others go."""
        if self.together and self.barriers.everybody(lanes, request):
            self.enqueue(cohort, after, lanes)
            return
        released = self.barriers.arrive(cohort, lanes, request, after)
        if "arrive" in request.action:
            self.enqueue(cohort, after, lanes)
        self.release(released)

    def release(self, released: list[Waiting]) -> None:
        """Let lanes go on, those of one cohort and place together."""
        together: dict[tuple[int, int], list[Lanes]] = {}
        for cohort, lanes, after in released:
            together.setdefault((id(cohort), after), []).append(lanes)
        for (_, after), parts in together.items():
            self.enqueue(parts[0].cohort, after, parts[0] if len(parts) == 1 else united(parts))

    # -- deadlocks --

    def deadlock(self) -> Deadlock:
        """The fault, which says who waits for what."""
        lines = []
        site, lanes = 0, None
        for key, barrier in list(self.barriers.open.items())[:4]:
            slots = self.barriers.slots(key)
            lines.append(
                f"{self.place(slots.start)}: {barrier.arrived} of {barrier.expected} threads at"
                f" {key[1]} {key[2]}, {self.gone(slots)} have exited"
            )
            site, lanes = barrier.site, barrier.waiting[0][1] if barrier.waiting else lanes
        for _, group, number in self.parked[:4]:
            site, lanes = self.m.program.blocks[number].start, group
            lines.append(
                f"{self.place(int(group.slot[0]))}: {group.n} threads wait at"
                f" {self.m.site(site)}{self.waited_for(site)}"
            )
        if self.pending:
            lines.append(
                f"{len(self.pending)} blocks have not started ({self.m.slots} resident; residency= changes"
                " that)"
            )
        return self.m.fault(Deadlock, "nobody can go on:\n    " + "\n    ".join(lines), site, lanes)

    def place(self, slot: int) -> str:
        return f"block {self.m.geometry.block_index(int(self.m.slot_block[slot]))}"

    def gone(self, slots: slice) -> int:
        return sum(self.m.gone[slots]) - (slots.stop - slots.start) * (-self.m.geometry.threads % 32)

    def waited_for(self, site: int) -> str:
        barrier = self.m.mbarriers.table.get(self.m.mbarriers.last_wait.get(site, -1))
        if barrier is None:
            return ""
        at = barrier.address % self.m.shared_stride
        need = f"{barrier.pending} of {barrier.expected} arrivals and {barrier.bytes} bytes"
        return f", for phase {barrier.phase} of the mbarrier at {at:#x}, which still needs {need}"
