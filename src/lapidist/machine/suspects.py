"""A read counts once its value is used.

Kernels fetch operands ahead of a loop's end and drop them. Such a read may find nothing written, or race with the next
tile's copy, and does no harm. So a fault of a load whose value leaves its block unused is kept, and raised only when an
instruction reads the register. Moves and conversions only hand the value on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from lapidist.machine.blocks import Block, effects
from lapidist.machine.faults import MachineFault
from lapidist.machine.lanes import Lanes
from lapidist.machine.ordered import warp_number
from lapidist.machine.program import Program

Array = np.ndarray
HANDS_ON = ("mov", "cvt")


@dataclass(slots=True)
class Ahead:
    """A load whose value nobody has used yet: the registers that hold it, in which lanes (a mask), what it read, and what is
    wrong with it."""

    registers: set[str]
    lanes: int
    grains: Array
    fault: MachineFault | None


class Suspects:
    """The loads of each warp whose values are not used yet."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.block_of = {index: block for block in program.blocks for index in range(block.start, block.stop)}
        self.known: dict[int, frozenset[str]] = {}
        self.loads: dict[int, list[Ahead]] = {}

    def ahead_of_use(self, site: int) -> frozenset[str]:
        """The destinations of a load if all the block does afterwards leaves them alone; empty if it uses one."""
        if site not in self.known:
            self.known[site] = frozenset(self.unused_here(site))
        return self.known[site]

    def unused_here(self, site: int) -> set[str]:
        code, block = self.program.kernel.instructions, self.block_of[site]
        if code[site].opcode != "ld":
            return set()
        return self.spread(set(effects(code[site])[1]), site + 1, block) or set()

    def spread(self, held: set[str], start: int, block: Block) -> set[str] | None:
        """Which registers hold the value at the block's end, if these do at `start`; None if an instruction uses it."""
        code, held = self.program.kernel.instructions, set(held)
        for i in code[start : block.stop]:
            reads, writes = effects(i)
            if held.isdisjoint(reads):
                held.difference_update(writes)
            elif i.opcode in HANDS_ON:
                held.update(writes)
            else:
                return None
        guard = code[block.stop].predicate if block.kind == "skip" else None
        return None if guard is not None and guard.name in held else held

    def add(self, g: Lanes, site: int, grains: Array, fault: MachineFault | None) -> None:
        self.loads.setdefault(warp_number(g), []).append(Ahead(set(self.ahead_of_use(site)), mask_of(g), grains, fault))

    def blame(self, warp: int, grain: int, fault: MachineFault) -> bool:
        """A write races with a read of this warp: if the value is still unused, the fault waits for its use."""
        blamed = [load for load in self.loads.get(warp, ()) if (load.grains == grain).any()]
        for load in blamed:
            load.fault = load.fault or fault
        return bool(blamed)

    def enter(self, g: Lanes, block: Block) -> None:
        """Lanes of a warp execute a block: values that it reads are used, values that it overwrites are gone."""
        warp = warp_number(g)
        loads = self.loads.get(warp)
        if not loads:
            return
        here, left = mask_of(g), []
        for load in loads:
            if load.lanes & ~here:  # for lanes elsewhere nothing happens
                left.append(replace(load, lanes=load.lanes & ~here))
            if load.lanes & here:
                held = self.after(load, block)
                if held:
                    left.append(replace(load, registers=held, lanes=load.lanes & here))
        self.loads[warp] = left

    def after(self, load: Ahead, block: Block) -> set[str]:
        """Which registers hold the value behind a block; a use brings out what is wrong with it."""
        if load.registers.isdisjoint(block.reads):
            return load.registers - block.writes
        held = self.spread(load.registers, block.start, block)
        if held is None and load.fault is not None:
            raise load.fault
        return held or set()


def mask_of(g: Lanes) -> int:
    return int(np.bitwise_or.reduce(np.uint64(1) << g.lane.astype(np.uint64)))
