"""Cases spread over processes, by their groups: the same cases whatever the number of processes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from typing import NamedTuple

from lapidist.build.processes import Process
from lapidist_lab.fuzz.doses import GROUP
from lapidist_lab.fuzz.judging import WRONG
from lapidist_lab.fuzz.seeded_cases import Outcome, Run, outcomes

GRACE = 60.0  # seconds after the end for a group under way: kernels are compiled in some
LONGEST = 300.0  # seconds without a word of a process
ENOUGH = 2**62
# each process computes references: more threads would wait for each other
ALONE = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")


class Extent(NamedTuple):
    """How long a run is: a number of cases, or seconds."""

    cases: int | None
    seconds: float | None

    @property
    def last(self) -> int:
        return (ENOUGH if self.cases is None else self.cases) - 1

    @property
    def groups(self) -> int:
        return self.last // GROUP + 1

    @property
    def end(self) -> float:
        return time.monotonic() + (ENOUGH if self.seconds is None else self.seconds)


def in_processes(run: Run, extent: Extent, count: int) -> Iterator[Outcome]:
    """Outcomes of `count` processes, or of this one alone. Unfinished groups are dropped at the end."""
    end = extent.end
    if count == 1:
        yield from share(run, extent, end, 0, 1)
        return
    os.environ.update({name: os.environ.get(name, "1") for name in ALONE})
    workers = [Worker(run, extent, end, number, count) for number in range(count)]
    try:
        while any(worker.open for worker in workers) and time.monotonic() < end + GRACE:
            wait([worker.outcomes for worker in workers if worker.open], 1.0)
            for worker in workers:
                yield from worker.received()
    finally:
        for worker in workers:
            worker.stop()


def share(run: Run, extent: Extent, end: float, first: int, step: int) -> Iterator[Outcome]:
    """Outcomes of one process, which has every `step`-th group."""
    for group in range(first, extent.groups, step):
        for outcome in outcomes(run, group, extent.last):
            yield outcome
            if outcome.lost or time.monotonic() > end:
                return


class Worker:
    """A process, replaced when it is lost. All processes share a clock, so they end at the same time."""

    def __init__(self, run: Run, extent: Extent, end: float, first: int, step: int) -> None:
        self.run, self.extent, self.end, self.step = run, extent, end, step
        self.start(first)

    def start(self, group: int) -> None:
        self.open, self.next, self.heard = True, group * GROUP, time.monotonic()
        self.process = Process(work, self.run, self.extent, self.end, group, self.step)
        self.outcomes = self.process.connection

    def stop(self) -> None:
        self.open = False
        self.process.end()

    def received(self) -> Iterator[Outcome]:
        """Outcomes that have come. A process that died, or is silent for long, failed in its next case."""
        try:
            while self.open and self.outcomes.poll():
                outcome = self.outcomes.recv()
                if outcome is None:
                    self.stop()
                    return
                self.heard, self.next = time.monotonic(), self.after(outcome.number)
                yield outcome
                if outcome.lost:
                    self.restart(outcome.number)
        except (OSError, EOFError):
            yield self.failed("the process has died")
        if self.open and time.monotonic() > self.heard + LONGEST:
            yield self.failed(f"it has not ended in {LONGEST:.0f} s")

    def after(self, number: int) -> int:
        return number + 1 if (number + 1) % GROUP else (number // GROUP + self.step) * GROUP

    def failed(self, words: str) -> Outcome:
        outcome = Outcome(self.next, WRONG, words)
        self.restart(outcome.number)
        return outcome

    def restart(self, number: int) -> None:
        """Go on with the group after the one of this case."""
        self.stop()
        self.start(number // GROUP + self.step)


def work(to: Connection, run: Run, extent: Extent, end: float, first: int, step: int) -> None:
    """Send all outcomes of a process, then None."""
    for outcome in share(run, extent, end, first, step):
        to.send(outcome)
        if outcome.lost:
            return
    to.send(None)
