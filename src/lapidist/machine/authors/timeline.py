"""What each warp did when, as a trace that Perfetto and chrome://tracing open.

A block of threads is a process of the trace, a warp a thread of it. Time is counted in steps of the schedule,
a microsecond each: it tells the order of events, not how long they take on a chip."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from lapidist.launch import Launch
from lapidist.machine.authors.findings import LINE
from lapidist.machine.faults import MachineFault
from lapidist.machine.instructions.copies import Transfer
from lapidist.machine.instructions.mbarrier import MBarrier
from lapidist.machine.lanes import Lanes
from lapidist.machine.observer import Observer
from lapidist.machine.program import Program, compile_program
from lapidist.machine.run import run

MOST_EVENTS = 500_000
Event = dict[str, Any]


class Timeline(Observer):
    """Notes turns, what a warp waits for between two of them, copies and completed phases."""

    def __init__(self, program: Program) -> None:
        self.program, self.steps = program, 0
        self.events: list[Event] = []
        self.turns: dict[tuple[int, int], Event] = {}  # the last turn of each warp
        self.waits: dict[tuple[int, int], Event] = {}
        self.last: tuple[int, int] | None = None

    def executed(self, number: int, lanes: Lanes) -> None:
        block, start = self.program.blocks[number], self.steps
        self.steps += 1
        first = np.flatnonzero(np.diff(lanes.row, prepend=-1))
        for one, warp in zip(lanes.block[first].tolist(), (lanes.thread[first] // 32).tolist(), strict=True):
            self.note(one, warp, number, start, lanes)
            if block.kind in ("barrier", "retry"):
                site = self.program.kernel.instructions[block.stop - 1].site
                name = f"wait: {site.text.rstrip(';')}"
                wait = self.event(name, one, warp, self.steps, ptx=site.line, source=site.source)
                self.waits[one, warp] = wait

    def note(self, block: int, warp: int, number: int, start: int, lanes: Lanes) -> None:
        """A block of code. A new turn begins where another warp ran, or this one waited."""
        who = block, warp
        waiting, turn = self.waits.pop(who, None), self.turns.get(who)
        if waiting is not None and start > waiting["ts"]:
            self.add({**waiting, "dur": start - waiting["ts"]})
        site = self.program.kernel.instructions[self.program.blocks[number].start].site
        if turn is None or self.last != who or waiting is not None:
            line = LINE.search(site.source)
            turn = self.event(line[0] if line else f"PTX line {site.line}", *who, start, ptx=site.line)
            turn["args"] |= {"lanes": lanes.n, "blocks of code": 0}
            self.turns[who] = turn
            self.add(turn)
        turn["dur"] = start + 1 - turn["ts"]
        turn["args"]["blocks of code"] += 1
        turn["args"]["to ptx"] = site.line
        self.last = who

    def event(self, name: str, block: int, warp: int, ts: int, **args: Any) -> Event:
        return {"name": name, "ph": "X", "pid": block, "tid": warp, "ts": ts, "dur": 0, "args": args}

    def add(self, event: Event) -> None:
        if len(self.events) < MOST_EVENTS:
            self.events.append(event)

    def instant(self, name: str, block: int, warp: int, **args: Any) -> None:
        self.add({**self.event(name, block, warp, self.steps, **args), "ph": "i", "s": "t"})

    def transferred(self, transfer: Transfer) -> None:
        g, site = transfer.g, self.program.kernel.instructions[transfer.site].site
        way = "load" if transfer.to_shared else "store"
        warp = int(g.thread[transfer.lane]) // 32
        self.instant(f"TMA {way}", int(g.block[transfer.lane]), warp, bytes=transfer.nbytes, ptx=site.line)

    def mbarrier_arrived(self, lanes: Lanes, mine: np.ndarray, barrier: MBarrier, site: int) -> None:
        lane = int(np.argmax(mine))
        where = int(lanes.block[lane]), int(lanes.thread[lane]) // 32
        self.instant("arrive", *where, mbarrier=hex(barrier.address), phase=barrier.phase)

    def mark_fault(self, fault: MachineFault) -> bool:
        """Mark a fault where the last turn was; the schedule goes on as long as it can."""
        self.instant(str(fault.name), *(self.last or (0, 0)), fault=str(fault))
        return True

    def content(self, kernel: str) -> str:
        """The trace as JSON."""
        names: list[Event] = []
        for block, warp in sorted(self.turns):
            names.append(meta("process_name", block, 0, f"block {block}"))
            names.append(meta("thread_name", block, warp, f"warp {warp}"))
        trace = {"traceEvents": [*names, *self.events], "otherData": {"kernel": kernel, "unit": "steps"}}
        return json.dumps(trace, default=str)


def meta(name: str, pid: int, tid: int, value: str) -> Event:
    return {"name": name, "ph": "M", "pid": pid, "tid": tid, "args": {"name": value}}


def trace_of(launch: Launch, seed: int = 0) -> str:
    """The trace of one schedule, with what was found on it. It changes the launch's arrays."""
    return timeline_of(launch, seed).content(launch.binary.entry)


def timeline_of(launch: Launch, seed: int) -> Timeline:
    timeline = Timeline(compile_program(launch.binary.ptx, launch.binary.entry))
    try:
        run(launch, sanitize=True, seed=seed, counting=False, watch=timeline, judge=timeline.mark_fault)
    except MachineFault as fault:
        timeline.mark_fault(fault)
    return timeline
