"""What the streams and events of a program put in order, and what they do not.

Launches and copies are done in the order of the calls. On a card, those of two streams may run in any order,
unless events or waits of the host order them. Two that touch one place, one of them as a writer, are a race.

    stream a | copy x   saxpy(x, y)  record e
    stream b |                                 wait e   sum(y)      without the wait: sum may read y too early

Each stream and the host know by a clock which operations of every stream came before."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from lapidist.machine.faults import Race, Site
from lapidist.machine.sanitize.sanitized_launch import Touched

Array = np.ndarray
Clock = dict[int, int]
DEFAULT, LEGACY, NOT_BLOCKING, BRANCH = 0, 1, 1, 0x100
MOST_OPERATIONS = 256  # that are remembered
NO_SITES: Mapping[int, Site] = {}


@dataclass(frozen=True)
class Ranges:
    """Bytes, as ranges in order, each with the line of PTX that touched its first one."""

    starts: Array
    ends: Array
    lines: Array

    def meet(self, other: Ranges) -> tuple[int, int] | None:
        """The first of these ranges that meets one of the other's, and which one."""
        if not len(other.ends):
            return None
        after = np.searchsorted(other.ends, self.starts, side="right")
        behind = np.minimum(after, len(other.ends) - 1)
        meeting = (after < len(other.ends)) & (other.starts[behind] < self.ends)
        index = int(np.argmax(meeting)) if meeting.any() else -1
        return None if index < 0 else (index, int(behind[index]))


@dataclass
class Operation:
    """A launch or copy. `sites` are a kernel's instructions, by line of PTX."""

    name: str
    writes: Ranges
    reads: Ranges
    sites: Mapping[int, Site] = field(default_factory=dict)
    stream: int = DEFAULT
    moment: int = 0
    is_in_graph: bool = False

    def place(self, line: int) -> str:
        site = self.sites.get(line)
        return self.name if site is None else f"{self.name} at {site.source or f'PTX line {line}'}"


def of_touched(name: str, touched: Sequence[Touched], sites: Mapping[int, Site]) -> Operation:
    """A launch, without its atomic writes: kernels synchronise by them."""
    writes = [ranges_of(t.start, t.grain, np.where(t.ordered, 0, t.written)) for t in touched]
    reads = [ranges_of(t.start, t.grain, t.read) for t in touched]
    return Operation(name, together(writes), together(reads), sites)


def of_copy(name: str, targets: Sequence[int], sources: Sequence[int], nbytes: int) -> Operation:
    return Operation(name, rows(targets, nbytes), rows(sources, nbytes), NO_SITES)


def rows(addresses: Sequence[int], nbytes: int) -> Ranges:
    starts = np.array(sorted(addresses) if nbytes else [], np.int64)
    return Ranges(starts, starts + nbytes, np.zeros(len(starts), np.int64))


def ranges_of(start: int, grain: int, lines: Array) -> Ranges:
    touched = np.zeros(len(lines) + 2, np.int8)
    touched[1:-1] = lines > 0
    edges = np.diff(touched)
    first, behind = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    return Ranges(start + grain * first, start + grain * behind, lines[first])


def together(parts: Sequence[Ranges]) -> Ranges:
    """The ranges of regions that lie apart."""
    ordered = sorted((part for part in parts if len(part.starts)), key=lambda part: int(part.starts[0]))
    if not ordered:
        return rows([], 0)
    columns = zip(*((part.starts, part.ends, part.lines) for part in ordered), strict=True)
    return Ranges(*map(np.concatenate, columns))


def join(clock: Clock, other: Clock) -> None:
    for stream, moment in other.items():
        clock[stream] = max(clock.get(stream, 0), moment)


class StreamOrder:
    def __init__(self) -> None:
        self.clocks: dict[int, Clock] = {DEFAULT: {}}
        self.host: Clock = {}
        self.events: dict[int, Clock] = {}
        self.not_blocking: set[int] = set()  # these do not wait for the default stream
        self.branches: set[int] = set()  # of graphs
        self.operations: deque[Operation] = deque(maxlen=MOST_OPERATIONS)

    def create(self, stream: int, flags: int) -> None:
        self.clocks[stream] = {}
        if flags & NOT_BLOCKING:
            self.not_blocking.add(stream)
        else:
            self.not_blocking.discard(stream)
        (self.branches.add if flags & BRANCH else self.branches.discard)(stream)

    def clock(self, stream: int) -> Clock:
        """What came before the next operation of a stream."""
        number = DEFAULT if stream == LEGACY else stream
        clock = self.clocks.setdefault(number, {})
        join(clock, self.host)
        if number == DEFAULT:
            for blocking in self.clocks.keys() - self.not_blocking:
                join(clock, self.clocks[blocking])
        elif number not in self.not_blocking:
            join(clock, self.clocks[DEFAULT])
        return clock

    def record(self, event: int, stream: int) -> None:
        self.events[event] = dict(self.clock(stream))

    def stream_waits(self, stream: int, event: int) -> None:
        join(self.clock(stream), self.events.get(event, {}))

    def host_waits(self, clocks: Sequence[Clock]) -> None:
        for clock in clocks:
            join(self.host, clock)

    def begin(self, operation: Operation, stream: int) -> Race | None:
        """Note an operation; the race with an earlier one, if there is one."""
        clock = self.clock(stream)
        operation.stream = DEFAULT if stream == LEGACY else stream
        operation.is_in_graph = stream in self.branches
        operation.moment = clock[operation.stream] = clock.get(operation.stream, 0) + 1
        unordered = [o for o in self.operations if o.moment > clock.get(o.stream, 0)]
        self.operations.append(operation)
        return next(filter(None, (race_of(earlier, operation) for earlier in reversed(unordered))), None)


def race_of(earlier: Operation, later: Operation) -> Race | None:
    pairs = (
        (later.writes, earlier.writes, "written", "writes"),
        (later.writes, earlier.reads, "written", "reads"),
        (later.reads, earlier.writes, "read", "writes"),
    )
    for mine, other, done, does in pairs:
        meeting = mine.meet(other)
        if meeting is not None:
            line, line_before = int(mine.lines[meeting[0]]), int(other.lines[meeting[1]])
            address = max(int(mine.starts[meeting[0]]), int(other.starts[meeting[1]]))
            who = "" if later.sites else f" by {later.name}"
            is_graph = earlier.is_in_graph and later.is_in_graph
            where, orders = ("branch of a graph", "dependency") if is_graph else ("stream", "event or wait")
            rule = (
                f"a race of streams: memory is {done} here{who}, and {earlier.place(line_before)} {does} it"
                f" in another {where}; no {orders} orders the two"
            )
            site = later.sites.get(line) or earlier.sites.get(line_before)
            return Race(rule, site, address=address, name="stream-race")
    return None
