"""A simulation of a schedule by its cost model. Blocks are dispatched in order to SMs, which share their rate
among the blocks that compute.

Waiting blocks take no time from others. The simulation counts who waits for whom, and finds schedules that
cannot finish.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from lapidist.errors import ArgumentError
from lapidist.schedule.costs import CostModel
from lapidist.schedule.grid import at_least
from lapidist.schedule.units import Schedule, WorkUnit


@dataclass(frozen=True, slots=True)
class Span:
    """What one place on an SM does from `begin` to `end`: start, compute, wait, fixup (a partial sum out or
    in) or reduce.
    """

    sm: int
    place: int
    block: int
    kind: str
    tile: int
    k_begin: int
    k_end: int
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """All spans of a launch, and its end, in the cost model's unit."""

    schedule: Schedule
    costs: CostModel
    sms: int
    occupancy: int
    spans: tuple[Span, ...]
    end: float

    @property
    def efficiency(self) -> float:
        """The time of the iterations alone, spread evenly over full SMs, over the time of the launch."""
        grid = self.schedule.grid
        full = self.costs.iteration / (self.costs.pace(self.occupancy) * self.occupancy)
        return grid.tiles * grid.iterations * full / self.sms / self.end if self.end else 1.0

    def busy(self, kind: str) -> float:
        """SM time of one kind of span. A wait counts as a whole, though another block may use the SM
        meanwhile.
        """
        return sum(span.end - span.begin for span in self.spans if span.kind == kind)


@dataclass(slots=True)
class Step:
    """One thing that a block does: `work` of SM time, after its flag was raised `needed` times. Then it may
    raise the flag.
    """

    kind: str
    unit: WorkUnit
    work: float
    flag: int = -1
    needed: int = 0
    raises: bool = False


@dataclass(slots=True)
class Running:
    """A block on an SM. It computes while `remaining` is positive and it is not waiting."""

    block: int
    sm: int
    place: int
    steps: Iterator[Step]
    step: Step
    remaining: float
    since: float
    waiting: bool = False


def simulate(schedule: Schedule, sms: int, *, occupancy: int = 1, costs: CostModel | None = None) -> Timeline:
    at_least("sms", sms, 1)
    at_least("occupancy", occupancy, 1)
    chip = Chip(schedule, costs or CostModel(), sms, occupancy)
    return chip.run()


def steps_of(schedule: Schedule, index: int, costs: CostModel) -> Iterator[tuple[int, Step]]:
    """The steps of a launched block, each with the number of the schedule's block that it belongs to."""
    started = False
    for block, unit in schedule.units_of_launch(index):
        if not started:
            yield block, Step("start", unit, costs.start)
            started = True
        for step in unit_steps(schedule, unit, costs):
            yield block, step


def unit_steps(schedule: Schedule, unit: WorkUnit, costs: CostModel) -> Iterator[Step]:
    """Handing on the first sum costs `fixup`, adding to what others handed on costs `peer`. One follows the
    other.
    """
    needed = schedule.arrivals_needed(unit)
    if unit.fragment >= 0:
        yield Step("reduce", unit, costs.peer * unit.peers / schedule.fragments, unit.flag, needed)
        return
    yield Step("compute", unit, costs.iteration * unit.iterations)
    if unit.peers == 1:
        return
    alone = unit.first or schedule.reduction == "separate"
    yield Step(
        "fixup",
        unit,
        costs.fixup if alone else costs.peer,
        unit.flag,
        needed,
        raises=not schedule.finishes(unit),
    )


@dataclass(slots=True)
class Chip:
    """The event loop. Each SM has at most one pending event: the next block that finishes its step."""

    schedule: Schedule
    costs: CostModel
    sms: int
    occupancy: int
    now: float = 0.0
    next_index: int = 0
    resident: list[list[Running]] = field(default_factory=list)
    free: list[list[int]] = field(default_factory=list)
    events: list[tuple[float, int, int]] = field(default_factory=list)
    version: list[int] = field(default_factory=list)
    settled: list[float] = field(default_factory=list)
    flags: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    waiters: dict[int, list[Running]] = field(default_factory=lambda: defaultdict(list))
    spans: list[Span] = field(default_factory=list)

    def run(self) -> Timeline:
        self.resident = [[] for _ in range(self.sms)]
        self.free = [list(range(self.occupancy))[::-1] for _ in range(self.sms)]
        self.version, self.settled = [0] * self.sms, [0.0] * self.sms
        for sm in self.first_slots():
            self.place_next(sm)
        while self.events:
            time, sm, version = heapq.heappop(self.events)
            if version == self.version[sm]:
                self.now = time
                self.finish_steps(sm)
        stuck = [running for blocks in self.resident for running in blocks]
        if stuck:
            raise ArgumentError(
                f"schedule: {len(stuck)} blocks wait for ones that are not resident; got room for"
                f" {self.sms * self.occupancy}. Launch fewer persistent blocks, or leave remap off"
            )
        return Timeline(self.schedule, self.costs, self.sms, self.occupancy, tuple(self.spans), self.now)

    def first_slots(self) -> list[int]:
        """One block on each SM, then the second. In a grid of four waves and more, neighbours share an SM."""
        slots = range(self.sms * self.occupancy)
        if self.schedule.remap and self.occupancy > 1:
            return [place // 2 if place < 2 * self.sms else place % self.sms for place in slots]
        return [place % self.sms for place in slots]

    def place_next(self, sm: int) -> None:
        """Dispatch in launch order; blocks without work are skipped."""
        while self.next_index < self.schedule.launch_blocks:
            steps = steps_of(self.schedule, self.next_index, self.costs)
            self.next_index += 1
            first = next(steps, None)
            if first is not None:
                self.settle(sm)
                block, step = first
                running = Running(
                    block, sm, self.free[sm].pop(), (step for _, step in steps), step, step.work, self.now
                )
                self.resident[sm].append(running)
                self.schedule_event(sm)
                return

    def settle(self, sm: int) -> None:
        """Charge the time since the last event to the blocks that computed."""
        active = [running for running in self.resident[sm] if not running.waiting]
        done = (self.now - self.settled[sm]) * self.costs.pace(max(len(active), 1))
        for running in active:
            running.remaining -= done
        self.settled[sm] = self.now

    def schedule_event(self, sm: int) -> None:
        self.version[sm] += 1
        active = [running.remaining for running in self.resident[sm] if not running.waiting]
        if active:
            wait = max(min(active), 0.0) / self.costs.pace(len(active))
            heapq.heappush(self.events, (self.now + wait, sm, self.version[sm]))

    def finish_steps(self, sm: int) -> None:
        self.settle(sm)
        tolerance = 1e-9 * max(self.now, self.costs.iteration)
        for running in [r for r in self.resident[sm] if not r.waiting and r.remaining <= tolerance]:
            self.record(running)
            if running.step.raises:
                self.raise_flag(running.step.unit)
            self.advance(running)
        self.schedule_event(sm)

    def advance(self, running: Running) -> None:
        step = next(running.steps, None)
        running.since = self.now
        if step is None:
            self.resident[running.sm].remove(running)
            self.free[running.sm].append(running.place)
            self.place_next(running.sm)
            return
        running.step, running.remaining = step, step.work
        running.waiting = self.flags[step.flag] < step.needed
        if running.waiting:
            self.waiters[step.flag].append(running)

    def raise_flag(self, unit: WorkUnit) -> None:
        """A separate reduction has a flag for each fragment; they are raised together."""
        count = self.schedule.fragments if self.schedule.reduction == "separate" else 1
        for flag in range(unit.flag, unit.flag + count):
            self.flags[flag] += 1
            for running in [r for r in self.waiters[flag] if self.flags[flag] >= r.step.needed]:
                self.waiters[flag].remove(running)
                self.wake(running)

    def wake(self, running: Running) -> None:
        self.settle(running.sm)
        if self.now > running.since:
            self.record(running, "wait")
        running.waiting, running.since = False, self.now
        self.schedule_event(running.sm)

    def record(self, running: Running, kind: str = "") -> None:
        unit, kind = running.step.unit, kind or running.step.kind
        if self.now > running.since or kind == "compute":
            extent = (unit.tile, unit.k_begin, unit.k_end, running.since, self.now)
            self.spans.append(Span(running.sm, running.place, running.block, kind, *extent))
