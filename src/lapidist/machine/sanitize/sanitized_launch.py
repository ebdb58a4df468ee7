"""Launches that overlap: blocks may start while the launch before still runs, and ask to wait for its end.

What the launch before writes may be touched behind `griddepcontrol.wait` only: the warp's own, or one that it
is ordered after. So may what it reads be written. Where nothing is known of the launch before, this holds for
all of global memory. Prefetches touch nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from lapidist.machine.faults import Race
from lapidist.machine.lanes import Lanes
from lapidist.machine.sanitize.clocks import Clocks
from lapidist.machine.sanitize.only_read import OnlyRead
from lapidist.machine.sanitize.ordered import warp_number
from lapidist.machine.sanitize.shadow import Shadow
from lapidist.machine.state import Machine

Array = np.ndarray
NEVER = np.iinfo(np.int32).max
PART = 1 << 20  # grains


@dataclass(frozen=True, slots=True)
class Touched:
    """What a launch did to a range of global memory, by grains: the lines of PTX that wrote and that read, 0
    where none did; and where the last write was an atomic one, or ordered otherwise."""

    kernel: str
    start: int
    grain: int
    written: Array
    read: Array
    ordered: Array

    def first(self, addresses: Array, size: int, kind: str) -> tuple[int, str, int] | None:
        """The first access among these that meets a write, or as a write a read: which, what, and where."""
        offsets = (addresses[:, None] - self.start + np.arange(0, size, min(self.grain, size))) // self.grain
        inside = (offsets >= 0) & (offsets < len(self.written))
        at = np.where(inside, offsets, 0)
        for lines, verb in ((self.written, "writes"), (self.read, "reads")):
            met = inside & (lines[at] > 0)
            if met.any() and (verb == "writes" or kind != "load"):
                row, column = np.argwhere(met)[0]
                return int(row), verb, int(lines[at[row, column]])
        return None


@dataclass
class Earlier:
    """What the launches before may still do: `touched` until the wait, `unwaited` behind it too, as a launch
    waits for the one before it alone. `known` is false where nobody recorded them."""

    known: bool = False
    touched: list[Touched] = field(default_factory=list)
    unwaited: list[Touched] = field(default_factory=list)


class LaunchOrder:
    def __init__(self, m: Machine, clocks: Clocks) -> None:
        self.m, self.clocks = m, clocks
        self.earlier = Earlier()
        self.waited = np.full(clocks.warps, NEVER, np.int32)  # the moment of each warp's first wait
        self.triggered = np.zeros(m.geometry.blocks, bool)  # blocks that let the next launch start, unwaited

    def trigger(self, lanes: Lanes) -> None:
        """griddepcontrol.launch_dependents."""
        if not self.has_waited(warp_number(lanes)):
            self.triggered[lanes.block[0]] = True

    def has_waited(self, warp: int) -> bool:
        """Whether a warp has waited, or comes after one that has."""
        return bool((self.clocks.row(warp).vector[: self.clocks.warps] >= self.waited).any())

    def wait(self, lanes: Lanes) -> None:
        warp = warp_number(lanes)
        if self.waited[warp] == NEVER:
            self.waited[warp] = self.clocks.now(warp)
            self.clocks.tick(warp)

    def check(self, g: Lanes, site: int, addresses: Array, size: int, kind: str) -> None:
        """Raise a race if a warp touches global memory that a launch before may still be at."""
        if not self.m.overlaps:
            return
        waited = self.has_waited(warp_number(g))
        if not waited and not self.earlier.known:
            rule = "global memory is touched before griddepcontrol.wait: the launch before may still be at it"
            self.m.report(self.m.fault(Race, rule, site, g))
        for touched in [*self.earlier.unwaited, *([] if waited else self.earlier.touched)]:
            meeting = touched.first(addresses, size, kind)
            if meeting is not None:
                row, verb, line = meeting
                when = (
                    "behind griddepcontrol.wait, which waits for the launch between them alone; that one did"
                    " not wait"
                )
                rule = (
                    f"global memory that {touched.kernel} {verb}, at its PTX line {line}, is"
                    f" {'read' if kind == 'load' else 'written'}"
                    f" {when if waited else 'before griddepcontrol.wait'}: that launch may still run"
                )
                self.m.report(self.m.fault(Race, rule, site, g, row if g.n > 1 else 0, int(addresses[row])))

    def of_this(self, shadows: dict[int, Shadow], only_read: dict[int, OnlyRead]) -> Earlier:
        """What the next launch is to know: of the launches before this one, too, unless every block has
        waited for them. If all blocks let it start before they waited, its own wait is for both."""
        blocks = self.waited.reshape(self.m.geometry.blocks, -1) < NEVER
        before, unwaited = list[Touched](), list[Touched]()
        if self.m.overlaps:
            unwaited = self.earlier.unwaited
            if not blocks.any(axis=1).all():
                unwaited = [*unwaited, *self.earlier.touched]
            elif self.triggered.all():
                before = self.earlier.touched
        for shadow in shadows.values():
            shadow.replay()
        mine = [
            self.touched(start, shadows.get(start), only_read.get(start)) for start in shadows | only_read
        ]
        return Earlier(True, [*before, *mine], unwaited)

    def touched(self, start: int, shadow: Shadow | None, only_read: OnlyRead | None) -> Touched:
        """What this launch did to a range. A large one has many grains, so they are looked at part by part,
        and lines are as short as they can be."""
        lines = np.array([i.site.line for i in self.m.program.kernel.instructions])
        lines = lines.astype(np.min_scalar_type(lines.max()))
        noted = shadow or only_read
        assert noted is not None
        count = noted.count
        written, read = np.zeros(count, lines.dtype), np.zeros(count, lines.dtype)
        ordered = np.zeros(count, bool)
        for begin in range(0, count, PART):
            part = slice(begin, begin + PART)
            if shadow is not None and shadow.ever_written:
                written[part] = np.where(shadow.written[part] > 0, lines[shadow.write_site[part]], 0)
                ordered[part] = shadow.level[part] > 0
            if shadow is not None and shadow.last_read.any():
                read[part] = np.where((shadow.read[part] > 0).any(axis=1), lines[shadow.read_site(part)], 0)
            if only_read is not None:  # beside the reads of TMA
                read[part] = np.maximum(read[part], only_read.lines(lines, part))
        return Touched(self.m.program.kernel.name, start & -16, noted.grain, written, read, ordered)
