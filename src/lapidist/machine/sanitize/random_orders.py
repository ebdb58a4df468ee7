"""The fuzzed schedule: every warp on its own, random priorities, blocks in shuffled order in a rolling set of
slots.

The warp with the highest priority sprints; priorities are redrawn every few dozen picks. That puts long
distances between warps, which lockstep never does, and finds missing barriers. A warp passed over too often
runs next, so spinning warps cannot starve the one they wait for. A seed replays a schedule."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from lapidist.machine.faults import RESIDENCY, Deadlock
from lapidist.machine.lanes import Cohort, Lanes, split
from lapidist.machine.residency import are_independent
from lapidist.machine.sanitize.joint_runs import JointRuns
from lapidist.machine.sanitize.lazy import LazyCopies
from lapidist.machine.sanitize.lazy_products import LazyProducts
from lapidist.machine.sanitize.sanitizer import Sanitizer
from lapidist.machine.scheduler import AGE_LIMIT, FELL_THROUGH, JUMPED, Progress, Scheduler
from lapidist.machine.state import Machine

Array = np.ndarray
REDRAW = 40  # picks until other priorities are drawn
IN_WAVES = 512  # the same where the order is no matter
UNSTARTED_POLLS = 2_000  # after so many, with blocks that have not started, more must be resident
ENGINE_CHANCE = 0.02
AHEAD_CHANCE = 0.25
OVERDUE = 4 * AGE_LIMIT  # picks after which a warp runs next; of many warps four times a turn of all
SPLITTING = 0.5  # how often lanes that ask who is active are so without some that came with them
BEHIND = -0.5  # the priority of a warp that polled in vain: all others are at least 0
GIVING_UP = 0.4  # how often a try_wait answers false, as it may at any time


class FuzzedScheduler(Scheduler):
    def __init__(
        self,
        machine: Machine,
        sanitizer: Sanitizer,
        seed: int,
        budget: int,
        on_progress: Progress | None = None,
        in_order: bool = False,
    ) -> None:
        self.in_order = in_order
        self.in_waves = are_independent(machine.program, machine.geometry)
        self.sprint_length = IN_WAVES if self.in_waves else REDRAW
        self.random = np.random.default_rng(seed)
        size = machine.geometry.cluster_size
        clusters = self.random.permutation(machine.geometry.blocks // size)
        clusters = np.sort(clusters) if in_order else clusters
        order = (clusters[:, None] * size + np.arange(size)).reshape(-1).tolist()
        super().__init__(machine, order, budget, on_progress)
        self.sanitizer = sanitizer
        self.lazy = LazyCopies(sanitizer)
        self.joint = JointRuns(sanitizer, self.lazy, self.in_waves)
        machine.copies = self.lazy
        machine.products = self.lazy_products = LazyProducts(sanitizer)
        machine.gives_up = lambda: bool(self.random.random() < GIVING_UP)
        self.free = list(range(machine.slots // size))
        self.living: dict[int, int] = {}
        self.ended: list[int] = []  # warps of clusters that have ended
        self.winner: Cohort | None = None
        self.picks = self.drawn = self.redrawn = 0
        self.collective = [block.collective for block in machine.program.blocks]
        self.asking = self.find_asking()

    # -- residency --

    def admit(self) -> bool:
        """Start a cluster as soon as another has ended. Where none can tell when others ran, start many once
        all have: warps that start together are computed together."""
        size, geometry = self.m.geometry.cluster_size, self.m.geometry
        if not self.pending or len(self.free) < (self.m.slots // size if self.in_waves else 1):
            return False
        self.forget_ended()
        while self.pending and self.free:
            place = self.free.pop(int(self.random.integers(len(self.free))))
            blocks, self.pending = self.pending[:size], self.pending[size:]
            slots = np.arange(place * size, place * size + size)
            self.begin(slots, np.array(blocks))
            self.on_progress(geometry.blocks - len(self.pending), geometry.blocks)
            self.living[place] = size * geometry.warps
            for slot, block in zip(slots.tolist(), blocks, strict=True):
                for start in range(0, geometry.threads, 32):
                    threads = np.arange(start, min(start + 32, geometry.threads))
                    same = np.ones(len(threads), np.int64)
                    cohort = Cohort(same * slot, same * block, threads, geometry, self.registers())
                    self.sanitizer.definedness.begin(cohort)
                    self.start(cohort)
        return True

    @property
    def lacks_blocks(self) -> bool:
        """Whether blocks have not started that a chip might have started."""
        return bool(self.pending) and not self.in_order

    def poll_limit(self) -> int:
        return min(super().poll_limit(), UNSTARTED_POLLS) if self.lacks_blocks else super().poll_limit()

    def polled_in_vain(self) -> Deadlock:
        if not self.lacks_blocks:
            return super().polled_in_vain()
        rule = (
            f"blocks wait for blocks that have not started: {self.resident} are resident,"
            f" {len(self.pending)} are not (residency= changes that)"
        )
        return self.m.fault(Deadlock, rule, self.m.polled_at, name=RESIDENCY)

    def forget_ended(self) -> None:
        """Free what is known of warps that have ended: memory grows with the blocks that are resident, not
        with the grid. While copies are under way, which may be theirs, as many are kept as run."""
        if self.lazy.engine and len(self.ended) < self.m.slots * self.m.geometry.warps:
            return
        for warp in self.ended:
            self.sanitizer.clocks.forget(warp)
            self.sanitizer.definedness.forget(warp)
            self.lazy_products.queues.pop(warp, None)
        self.ended.clear()

    def retire(self, cohort: Cohort) -> None:
        before = len(self.cohorts)
        super().retire(cohort)
        if len(self.cohorts) < before:
            self.joint.forget(cohort.first_warp)
            place = int(cohort.slot[0]) // self.m.geometry.cluster_size
            self.living[place] -= 1
            if self.living[place] == 0:
                size, warps = self.m.geometry.cluster_size, self.m.geometry.warps
                first = int(cohort.block[0]) // size * size * warps
                self.ended += range(first, first + size * warps)
                self.free.append(place)
                self.admit()

    def enqueue(self, cohort: Cohort, number: int, lanes: Lanes) -> None:
        super().enqueue(cohort, number, lanes)
        self.joint.standing.come(cohort, number)

    def leave(self, cohort: Cohort, lanes: Lanes, leaving: Array, after: int) -> None:
        gone = lanes.where(leaving)
        if gone is not None:
            self.lazy.leave(gone)
        super().leave(cohort, lanes, leaving, after)

    def run(self) -> None:
        self.admit()
        super().run()
        self.sanitizer.finish()

    def find_asking(self) -> frozenset[int]:
        """Blocks of code that ask which lanes are active, where some of a warp may go on without the rest."""
        code = self.m.program.kernel.instructions
        return frozenset(
            number
            for number, block in enumerate(self.m.program.blocks)
            if any(i.opcode == "activemask" for i in code[block.start : block.stop])
            and not block.collective
            and block.kind != "exit"
        )

    def step(self, cohort: Cohort, number: int) -> None:
        if number in self.asking and self.random.random() < SPLITTING:
            self.step_in_parts(cohort, number)
        else:
            self.step_together(cohort, number)

    def step_in_parts(self, cohort: Cohort, number: int) -> None:
        """Run a block with some lanes of a group, and let the others come later: PTX promises nobody that
        lanes which went the same way are active together."""
        lanes, since = cohort.groups[number]
        first, later = split(lanes, self.random.random(lanes.n) < 0.5)
        if first is not None:
            cohort.groups[number] = first, since
        self.step_together(cohort, number)
        if first is not None and later is not None:
            self.enqueue(cohort, number, later)

    def step_together(self, cohort: Cohort, number: int) -> None:
        if self.in_waves and self.sprint(cohort):
            return
        lanes, _ = cohort.groups[number]
        if self.sanitizer.suspects.loads.get(cohort.first_warp):
            self.sanitizer.suspects.enter(lanes, self.m.program.blocks[number])
        self.sanitizer.definedness.enter(cohort.first_warp)
        polls = self.m.polls
        super().step(cohort, number)
        if 0 < polls < self.m.polls and self.only_polls(cohort):
            self.give_way(cohort)
        self.sprint(cohort)

    def only_polls(self, cohort: Cohort) -> bool:
        return all(self.m.program.blocks[number].polls for number in cohort.groups)

    def give_way(self, cohort: Cohort) -> None:
        """Put a warp that looked in vain behind all that have something to do, until memory is written to. It
        would look again for the rest of its sprint."""
        if cohort is self.winner and cohort.priority > BEHIND:
            self.winner = None
        cohort.priority, cohort.looked = BEHIND, self.m.writes

    def sprint(self, cohort: Cohort) -> bool:
        """Steps of the winner through blocks that were computed ahead, if there are any. They change nothing
        but its place: no choice is drawn, and nobody else wakes."""
        most = min(self.sprint_length - 1 - (self.picks - self.drawn), self.budget - self.m.steps)
        if cohort is not self.winner or most <= 0 or self.lazy.engine or len(cohort.groups) != 1:
            return False
        way = self.joint.sprint(cohort, most)
        for (number, after), times in Counter(way).items():
            block = self.m.program.blocks[number]
            self.warp_runs[number] += times
            self.lane_runs[number] += times * cohort.n
            if block.kind == "branch":
                went = JUMPED if after == block.target else FELL_THROUGH
                self.went[block.index] = self.went.get(block.index, 0) | went
        if way:
            self.picks += len(way)
            self.m.steps += len(way)
            cohort.groups.clear()
            self.enqueue(cohort, way[-1][1], cohort.all)
        return bool(way)

    def execute(self, cohort: Cohort, number: int, lanes: Lanes) -> Any:
        turn = self.joint.turn(cohort, number, lanes)
        if turn is None:
            return super().execute(cohort, number, lanes)
        run, row = turn
        return run.answer(row)

    @property
    def together(self) -> bool:
        """Never: the clocks must see each warp of a block arrive at a barrier."""
        return False

    # -- choice --

    def choose(self) -> tuple[Cohort, int] | None:
        self.picks += 1
        if self.lazy.engine and self.random.random() < ENGINE_CHANCE:
            self.run_engine()
            self.wake()
        # The winner sprints: it stays until it waits or priorities are redrawn.
        if (
            self.winner is None
            or self.picks - self.drawn >= self.sprint_length
            or not self.can_run(self.winner)
        ):
            self.draw()
        return None if self.winner is None else (self.winner, self.place_in(self.winner))

    def draw(self) -> None:
        """Choose the ready warp with the highest priority, or first one that was passed over too often."""
        since, self.drawn = self.picks - self.drawn, self.picks
        if self.picks - self.redrawn >= self.sprint_length:
            self.redrawn = self.picks
            for cohort, priority in zip(
                self.cohorts, self.random.random(len(self.cohorts)).tolist(), strict=True
            ):
                if cohort.looked != self.m.writes or not self.only_polls(cohort):
                    cohort.priority = priority
        winner, highest, can_run, collects = None, -1.0, self.can_run, any(self.collective)
        overdue = max(OVERDUE, 4 * REDRAW * len(self.cohorts))  # less would make warps take turns
        if self.in_waves:  # they stay near each other so
            overdue = self.sprint_length * len(self.cohorts)
        for cohort in self.cohorts:  # thousands of a large launch, at each draw
            if cohort.groups and (not collects or can_run(cohort)):
                cohort.passed = passed = cohort.passed + since
                # A warp that was passed over too often ranks by that number: every priority is below 1.
                rank = cohort.priority if passed <= overdue else passed
                if rank > highest:
                    winner, highest = cohort, rank
        if winner is not None:
            winner.passed = 0
        self.winner = winner

    def can_run(self, cohort: Cohort) -> bool:
        """Whether some lanes of a warp need not wait for its others. Mostly no further call is needed."""
        for number, (lanes, _) in cohort.groups.items():
            if not self.collective[number] or lanes.full_warps or self.may_go(cohort, number):
                return True
        return False

    def place_in(self, cohort: Cohort) -> int:
        """The block of code at which a warp goes on: mostly the one furthest behind, now and then another.
        Nothing makes lanes that parted meet but what waits for all of the warp. Lanes that spin let the
        others go on after a while."""
        if len(cohort.groups) == 1:
            return next(iter(cohort.groups))
        for number, (_, since) in cohort.groups.items():
            if self.m.steps - since > AGE_LIMIT * (4 + len(self.cohorts)) and self.may_go(cohort, number):
                return number
        if len(cohort.groups) > 1 and self.random.random() < AHEAD_CHANCE:
            free = [number for number in cohort.groups if not self.turn(cohort, number)[0]]
            if free:
                return free[int(self.random.integers(len(free)))]
        return min(cohort.groups, key=lambda number: self.turn(cohort, number))

    # -- asynchronous work --

    def run_engine(self) -> None:
        """Let one piece of asynchronous work happen, any of those under way."""
        self.lazy.engine.pop(int(self.random.integers(len(self.lazy.engine))))()

    def progress(self) -> bool:
        if self.lazy.engine:
            self.run_engine()
            return True
        return super().progress()
