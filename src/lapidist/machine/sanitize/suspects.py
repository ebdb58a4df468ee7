"""Reads ahead of their use: a read counts once its value is used.

Kernels fetch operands ahead of a loop's end and drop them. Such a read may find nothing written, or race
with the next tile's copy, and does no harm. So a fault of a load whose value leaves its block unused is
kept, and raised only when an instruction reads the register. Moves and conversions only hand the value on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from lapidist.machine.faults import MachineFault
from lapidist.machine.lanes import Lanes
from lapidist.machine.program import Program
from lapidist.machine.ptx.basic_blocks import Block, effects
from lapidist.machine.sanitize.ordered import warp_number
from lapidist.machine.sanitize.shadow import Shadow

Array = np.ndarray
HANDS_ON, LOADS = ("mov", "cvt"), ("ld", "ldmatrix")
WARP = 32
ALL_LANES = (1 << WARP) - 1


@dataclass(slots=True)
class Reading:
    """What the lanes of a load read (`grains`, a row a lane or one for all), when, and where in the code.
    `before` is when those grains were read before, `faults` what is wrong, by lane: lanes that diverged are
    at different rounds of a loop. `counts` are the lanes that have not dropped their value."""

    readers: Array
    grains: Array
    column: int
    moment: int
    before: Array
    faults: dict[int, MachineFault]
    counts: int
    site: int

    def rows_of(self, lanes: int) -> Array:
        """Which rows of `grains` these lanes read."""
        theirs = (np.uint64(lanes) >> self.readers.astype(np.uint64)) & np.uint64(1) != 0
        return theirs if len(self.grains) > 1 else theirs.any(keepdims=True)


@dataclass(slots=True)
class Ahead:
    """A load whose value nobody has used yet: the registers that hold it, and in which lanes (a mask)."""

    registers: frozenset[str]
    lanes: int
    reading: Reading


class Suspects:
    """The loads of each warp whose values are not used yet."""

    def __init__(self, program: Program, shadow: Shadow, report: Callable[[MachineFault], None]) -> None:
        self.program, self.shadow, self.report = program, shadow, report
        self.block_of = {
            site: block.index for block in program.blocks for site in range(block.start, block.stop)
        }
        self.unused_loads: dict[int, frozenset[str]] = {}
        self.loads: dict[int, list[Ahead]] = {}
        self.effects = cache(lambda site: effects(program.kernel.instructions[site]))
        self.spread = cache(self.spread_once)

    def ahead_of_use(self, site: int) -> frozenset[str]:
        """The destinations of a load if all the block does afterwards leaves them alone; empty if it uses
        one.
        """
        if site not in self.unused_loads:
            is_load = self.program.kernel.instructions[site].opcode in LOADS
            held = (
                self.spread(frozenset(self.effects(site)[1]), site + 1, self.block_of[site])
                if is_load
                else None
            )
            self.unused_loads[site] = held or frozenset()
        return self.unused_loads[site]

    def spread_once(self, registers: frozenset[str], start: int, number: int) -> frozenset[str] | None:
        """Which registers hold the value at the block's end, if these do at `start`; None if an instruction
        uses it.
        """
        code, held, block = self.program.kernel.instructions, set(registers), self.program.blocks[number]
        for site in range(start, block.stop):
            reads, writes = self.effects(site)
            if held.isdisjoint(reads):
                held.difference_update(writes)
            elif code[site].opcode in HANDS_ON:
                held.update(writes)
            else:
                return None
        guard = code[block.stop].predicate if block.kind == "skip" else None
        return None if guard is not None and guard.name in held else frozenset(held)

    def add(self, g: Lanes, reading: Reading) -> None:
        ahead = Ahead(self.ahead_of_use(reading.site), mask_of(g), reading)
        self.loads.setdefault(warp_number(g), []).append(ahead)

    def blame(self, warp: int, grain: int, fault: MachineFault) -> bool:
        """Whether a fault waits for the use of a value: it does where a write races with a read of this
        warp whose value is still unused."""
        unused = False
        for load in self.loads.get(warp, ()):
            rows = (load.reading.grains == grain).any(axis=1)
            for lane in load.reading.readers[rows if len(rows) > 1 else slice(int(rows[0]) * 32)].tolist():
                if load.lanes >> lane & 1:
                    load.reading.faults.setdefault(lane, fault)
                    unused = True
        return unused

    def enter(self, g: Lanes, block: Block) -> None:
        """Follow lanes of a warp into a block: values that it reads are used, values that it overwrites
        are gone."""
        warp = warp_number(g)
        loads = self.loads.get(warp, [])
        entering, unsettled = mask_of(g), []
        for load in loads:
            mine, elsewhere = load.lanes & entering, load.lanes & ~entering
            held = self.after(load, block, mine) if mine else load.registers
            if held is load.registers:
                unsettled.append(load)
                continue
            if elsewhere:  # for lanes elsewhere nothing happens
                unsettled.append(replace(load, lanes=elsewhere))
            if held:
                unsettled.append(replace(load, registers=held, lanes=mine))
            elif held is not None:
                self.forget(load.reading, mine)
        self.loads[warp] = unsettled

    def after(self, load: Ahead, block: Block, lanes: int) -> frozenset[str] | None:
        """Which registers hold the value behind a block that these lanes execute; None if it is used. A
        use raises what is wrong."""
        if load.registers.isdisjoint(block.reads):
            return (
                load.registers if load.registers.isdisjoint(block.writes) else load.registers - block.writes
            )
        held = self.spread(load.registers, block.start, block.index)
        if held is None:
            for lane, fault in load.reading.faults.items():
                if lanes >> lane & 1:
                    self.report(fault)
        return held

    def forget(self, reading: Reading, lanes: int) -> None:
        """Take back the reads of lanes that dropped the value, where they alone read."""
        reading.counts &= ~lanes
        gone = reading.rows_of(lanes) & ~reading.rows_of(reading.counts)
        at, before = reading.grains[gone].reshape(-1), reading.before[gone].reshape(-1)
        alone = ~np.isin(at, reading.grains[reading.rows_of(reading.counts)])
        self.shadow.forget_read(at[alone], reading.column, reading.moment, reading.site, before[alone])


def mask_of(g: Lanes) -> int:
    if g.index is None and g.n == WARP:
        return ALL_LANES
    return int(np.bitwise_or.reduce(np.uint64(1) << g.lane.astype(np.uint64)))
