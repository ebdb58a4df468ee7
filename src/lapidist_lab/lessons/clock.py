"""A log of one block as a timeline: when each warp issues, and what it waits for.

The model is simple, and the page says so. One block has the SM to itself, and each warp starts an
instruction a cycle, in order. Memory answers after LATENCY cycles; what a block of code loads is asked for
together, as the assembler arranges it. Tensor cores multiply at their full rate."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from lapidist.machine.counters import class_of
from lapidist.machine.program import Program
from lapidist.machine.ptx.basic_blocks import effects
from lapidist.machine.ptx.matrix_shapes import tensor_flops
from lapidist.machine.ptx.syntax_tree import Imm, Instruction
from lapidist_lab.lessons.serving import sectors_of, turns_of_words
from lapidist_lab.lessons.watch import Copy, Meeting, Multiplication, Request, Run, Signal, Watcher

LATENCY = 500  # cycles until global memory answers
SECTORS_A_CYCLE = 4


@dataclass(slots=True)
class Segment:
    """What a warp did from `begin` to `end`; `parts` are the cycles of each kind of work in it."""

    begin: float
    end: float
    kind: str
    line: int
    parts: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Moment:
    """What a warp did at this time."""

    time: float
    event: Request | Copy | Multiplication | str
    site: int


@dataclass(slots=True)
class Flight:
    """A copy, from its order until a warp knows that it has landed."""

    begin: float
    end: float
    warp: int
    name: str


class Warp:
    """The time of a warp, and what it waits for."""

    def __init__(self) -> None:
        self.now = 0.0
        self.ready: dict[str, float] = {}  # registers that memory still owes
        self.first_load = 0.0  # when the block of code under way first loaded
        self.segments: list[Segment] = []
        self.moments: list[Moment] = []
        self.copies: list[float] = []  # landings of cp.async not yet in a group
        self.groups: list[float] = []
        self.order: list[Flight] = []
        self.flights: list[list[Flight]] = []
        self.tensor, self.products, self.product_groups = 0.0, 0.0, list[float]()

    def spend(self, cycles: float, kind: str, line: int) -> None:
        """Let time pass. A kind without segments of its own belongs to the current one."""
        last = self.segments[-1] if self.segments else None
        group = SEGMENT_OF.get(kind, "")
        if last is None or (group and last.kind != group and last.kind) or last.kind == "wait":
            last = Segment(self.now, self.now, group, line)
            self.segments.append(last)
        last.kind = last.kind or group
        self.now += cycles
        last.end = self.now
        last.parts[kind] = last.parts.get(kind, 0.0) + cycles

    def wait_until(self, time: float, why: str, line: int) -> None:
        """Let time pass in a wait; a wait for wgmma counts as multiplying."""
        if time > self.now and why == "wgmma":
            self.spend(time - self.now, "multiply", line)
        elif time > self.now:
            self.segments.append(Segment(self.now, time, "wait", line, {why: time - self.now}))
            self.now = time


# the kinds that begin a segment of their own
SEGMENT_OF = {
    "global": "global",
    "copy": "global",
    "store": "store",
    "shared load": "work",
    "multiply": "work",
}


class Clock:
    """Plays a log. `rate` is the flops that a quarter of an SM's tensor cores does in a cycle."""

    def __init__(self, program: Program, watcher: Watcher, rate: float, line_of: dict[int, int]) -> None:
        self.program, self.rate, self.line_of = program, rate, line_of
        self.code = program.kernel.instructions
        self.warps: dict[int, Warp] = defaultdict(Warp)
        self.meetings: dict[int, float] = defaultdict(float)
        self.arrivals: dict[tuple[int, int], float] = defaultdict(float)
        self.complete: dict[tuple[int, int], float] = {}
        self.landing: dict[tuple[int, int], list[Flight]] = defaultdict(list)
        self.phase: dict[int, int] = defaultdict(int)
        self.flights: list[Flight] = []
        self.multiplied: dict[int, float] = {}  # when a product is complete, by the identity of its event
        self.effects: dict[int, tuple[list[str], list[str]]] = {}
        for entry in watcher.log:
            if isinstance(entry, Run):
                self.run(self.warps[entry.warp], entry)
            elif isinstance(entry, Meeting):
                self.meet(entry)
            else:
                self.complete[entry.barrier, entry.phase] = self.arrivals[entry.barrier, entry.phase]

    # -- code --

    def run(self, warp: Warp, entry: Run) -> None:
        block = self.program.blocks[entry.number]
        warp.first_load = 0.0
        happened = defaultdict(list)
        for event in entry.happened:
            happened[event.site].append(event)
        for site in range(block.start, block.stop):
            self.step(warp, site, happened.get(site, []), entry.warp)
        if block.kind == "barrier":
            warp.moments.append(Moment(warp.now, "barrier", block.stop - 1))

    def step(self, warp: Warp, site: int, events: Sequence[object], number: int) -> None:
        i, line = self.code[site], self.line_of.get(site, 0)
        reads, writes = self.registers(site)
        late = max((warp.ready.pop(name) for name in reads if name in warp.ready), default=0.0)
        warp.wait_until(late, "data from global memory", line)
        for event in events:
            self.happen(warp, event, line, number)
        if not events:
            self.other(warp, i, line, site)
        if any(isinstance(event, Request) and event.space == "global" for event in events):
            if i.opcode == "cp":
                self.fly(warp, number, i)
            warp.first_load = warp.first_load or warp.now
            warp.ready.update(dict.fromkeys(writes, warp.first_load + LATENCY))

    def registers(self, site: int) -> tuple[list[str], list[str]]:
        if site not in self.effects:
            self.effects[site] = effects(self.code[site])
        return self.effects[site]

    def fly(self, warp: Warp, number: int, i: Instruction) -> None:
        warp.copies.append(warp.now + LATENCY)
        if not warp.order:
            warp.order.append(Flight(warp.now, warp.now, number, "cp.async"))

    def happen(self, warp: Warp, event: object, line: int, number: int) -> None:
        if isinstance(event, Request):
            kind = (
                "global" if event.space == "global" else "store" if event.action != "load" else "shared load"
            )
            if event.space == "global" and self.code[event.site].opcode == "cp":
                kind = "copy"
            if not (event.space == "shared" and self.code[event.site].opcode == "cp"):
                warp.moments.append(Moment(warp.now, event, event.site))
                warp.spend(cycles_of(event), kind, line)
        elif isinstance(event, Copy):
            warp.moments.append(Moment(warp.now, event, event.site))
            warp.spend(1, "copy", line)
            flight = Flight(warp.now, warp.now + LATENCY, number, "TMA load" if event.loads else "TMA store")
            self.flights.append(flight)
            for barrier in event.barriers:
                key = barrier, self.phase[barrier]
                self.landing[key].append(flight)
                self.arrivals[key] = max(self.arrivals[key], warp.now + LATENCY)
        elif isinstance(event, Multiplication):
            warp.moments.append(Moment(warp.now, event, event.site))
            start = max(warp.tensor, warp.now)
            warp.tensor = start + tensor_flops(self.code[event.site]) / self.rate
            warp.products = warp.tensor
            self.multiplied[id(event)] = warp.tensor
            warp.spend(1, "multiply", line)
        elif isinstance(event, Signal):
            self.signal(warp, event, line)

    def signal(self, warp: Warp, event: Signal, line: int) -> None:
        key = event.barrier, event.phase
        if event.kind == "arrive":
            self.arrivals[key] = max(self.arrivals[key], warp.now)
            self.phase[event.barrier] = event.phase
        elif event.kind == "complete":
            self.complete[key] = self.arrivals[key]
            self.phase[event.barrier] = event.phase + 1
        else:
            key_before = event.barrier, event.phase - 1
            warp.wait_until(self.complete.get(key_before, 0.0), "mbarrier", line)
            warp.moments.append(Moment(warp.now, "mbarrier", event.site))
            for flight in self.landing.pop(key_before, []):
                flight.end = max(warp.now, flight.end)

    def other(self, warp: Warp, i: Instruction, line: int, site: int) -> None:
        """An instruction that touches no memory."""
        group = class_of(i)
        if "commit_group" in i.mods or "wait_group" in i.mods or "wait_all" in i.mods:
            self.grouped(warp, i, line, site)
        elif group.startswith(("fma", "float")):
            warp.spend(1, "multiply", line)
        elif group == "tensor":
            warp.spend(max(tensor_flops(i) / self.rate, 1), "multiply", line)
        else:
            warp.spend(1, "other", line)

    def grouped(self, warp: Warp, i: Instruction, line: int, site: int) -> None:
        """A commit of cp.async or wgmma, or a wait for all but the last groups."""
        wgmma = i.opcode == "wgmma"
        groups = warp.product_groups if wgmma else warp.groups
        warp.spend(1, "other", line)
        if "bulk" in i.mods:
            return
        if "commit_group" in i.mods:
            groups.append(warp.products if wgmma else max(warp.copies, default=0.0))
            if not wgmma:
                warp.copies = []
                warp.flights.append(warp.order)
                self.flights += warp.order
                warp.order = []
            return
        pending = i.operands[0].value if i.operands and isinstance(i.operands[0], Imm) else 0
        done = groups[: len(groups) - pending]
        warp.wait_until(max(done, default=0.0), "wgmma" if wgmma else "cp.async", line)
        warp.moments.append(Moment(warp.now, "wgmma" if wgmma else "cp.async", site))
        del groups[: len(done)]
        if not wgmma:
            for flights in warp.flights[: len(done)]:
                for flight in flights:
                    flight.end = warp.now
            del warp.flights[: len(done)]

    # -- barriers --

    def meet(self, meeting: Meeting) -> None:
        for number in meeting.arrived:
            self.meetings[meeting.barrier] = max(self.meetings[meeting.barrier], self.warps[number].now)
        for number in meeting.released:
            warp = self.warps[number]
            warp.wait_until(
                self.meetings[meeting.barrier], "barrier", warp.segments[-1].line if warp.segments else 0
            )
        if meeting.released:
            self.meetings.pop(meeting.barrier, None)


def cycles_of(request: Request) -> float:
    """Cycles of a request: shared memory serves a turn a cycle, L1 four sectors."""
    if request.space == "global":
        return max(len(sectors_of(request.at, request.present, request.size)) / SECTORS_A_CYCLE, 1)
    return int(turns_of_words(request.at, request.present, request.size, request.action == "load").max()) + 1
