"""Cases spread over processes, by their groups: the same cases whatever the number of processes."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import NamedTuple

from lapidist.fuzz.cases import Outcome, Run, outcomes
from lapidist.fuzz.doses import GROUP

GRACE = 60.0  # seconds after the end for a group under way: kernels are compiled in some
ENOUGH = 2**62


class Extent(NamedTuple):
    """Cases from 0 on, until there are so many or the time is over."""

    cases: int | None
    seconds: float | None

    @property
    def last(self) -> int:
        return (ENOUGH if self.cases is None else self.cases) - 1

    @property
    def groups(self) -> int:
        return self.last // GROUP + 1


def in_processes(run: Run, extent: Extent, count: int) -> Iterator[Outcome]:
    """In this process where one is enough. What the others have not finished at the end is dropped."""
    end = time.monotonic() + (ENOUGH if extent.seconds is None else extent.seconds)
    if count == 1:
        yield from share(run, extent, end, 0, 1)
        return
    with workers(run, extent, end, count) as ends:
        open_ends = list(ends)
        while open_ends and (left := end + GRACE - time.monotonic()) > 0:
            for each in wait(open_ends, min(left, 1.0)):
                assert isinstance(each, Connection)
                try:
                    yield from each.recv()
                except EOFError:
                    open_ends.remove(each)


def share(run: Run, extent: Extent, end: float, first: int, step: int) -> Iterator[Outcome]:
    """Of one process: every so many groups."""
    for group in range(first, extent.groups, step):
        for outcome in outcomes(run, group, extent.last):
            yield outcome
            if time.monotonic() > end:
                return


@contextmanager
def workers(run: Run, extent: Extent, end: float, count: int) -> Iterator[list[Connection]]:
    """Clocks of all processes of a computer agree, so the end is the same."""
    context, started, ends = get_context("spawn"), [], []
    try:
        for number in range(count):
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=work, args=(theirs, run, extent, end, number, count), daemon=True)
            process.start()
            theirs.close()
            started.append(process)
            ends.append(ours)
        yield ends
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.join()


def work(to: Connection, run: Run, extent: Extent, end: float, number: int, count: int) -> None:
    """Ctrl-C reaches all processes of a terminal; the first one ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for outcome in share(run, extent, end, number, count):
        to.send([outcome])
    to.close()
