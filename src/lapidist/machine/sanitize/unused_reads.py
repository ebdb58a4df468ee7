"""Reads of global memory that the kernel also writes: such a read counts once something depends on its value.

Threads behind a tile's end often load what another thread writes, and drop the value. So a value that was
loaded from such memory is followed through registers. Where an address, a branch or a store depends on it,
the read is noted, and what was wrong with it is reported. A read whose value is dropped is none. A value
follows from loads and from lanes, a set of each: that may be too much, and never too little."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from lapidist.machine.faults import MachineFault
from lapidist.machine.instructions.warp import shuffle
from lapidist.machine.lanes import Lanes
from lapidist.machine.ptx.basic_blocks import COLLECTIVE, NO_DESTINATION, effects
from lapidist.machine.ptx.syntax_tree import Instruction, Operand, Reg, flatten
from lapidist.machine.sanitize.clocks import Clocks
from lapidist.machine.sanitize.ordered import warp_number
from lapidist.machine.sanitize.shadow import Shadow
from lapidist.machine.sanitize.undefined_bits import ONE, targets
from lapidist.machine.sanitize.undefined_numbers import arithmetic_of
from lapidist.machine.state import Machine

if TYPE_CHECKING:
    from lapidist.machine.sanitize.races import Access, Races

Array = np.ndarray
MOST = 64  # loads of a warp whose values are followed: bits of a word
DECIDING = (
    *NO_DESTINATION,
    *(COLLECTIVE - {"shfl"}),
    "ld",
    "atom",
    "mbarrier",
    "activemask",
    "fns",
    "alloca",
)
LOADS, LANES = 0, 1  # the rows of a value's words


@dataclass(slots=True)
class Read:
    """What the lanes of a load read: the grains, and the lane of each. `waiting` are the lanes on whose value
    nothing depends yet, `faults` what is wrong with their reads."""

    shadow: Shadow
    at: Array
    lanes: Array
    warp: int
    moment: int
    site: int
    waiting: int
    faults: dict[int, MachineFault] = field(default_factory=dict)


class UnusedReads:
    """`words` are of the registers of the warp that runs. Two rows of bits are the loads and the lanes that
    each lane's value follows from."""

    def __init__(self, m: Machine, clocks: Clocks, sites: frozenset[int]) -> None:
        self.m, self.clocks, self.code = m, clocks, m.program.kernel.instructions
        self.sites = sites  # loads from ranges that the kernel may write
        self.warps: dict[int, dict[str, Array]] = {}
        self.words: dict[str, Array] = {}
        self.warp, self.dropped = -1, False  # dropped: a register holds no such value any more
        self.reads: dict[int, list[Read | None]] = {}  # by warp, a load each bit
        self.waiting: dict[int, Array] = {}  # by shadow, how many lanes read each grain and wait
        self.named = cache(lambda site: frozenset(name for part in effects(self.code[site]) for name in part))
        self.arithmetic = cache(lambda site: arithmetic_of(self.code[site]))

    # -- reads --

    def load(self, races: Races, access: Access, at: Array) -> None:
        """Note a plain load of global memory when something depends on it."""
        g, shadow, warp = access.g, access.shadow, warp_number(access.g)
        self.clocks.touch(warp, g.lane)
        lanes = shadow.lanes_of(g, access.positions, access.size)
        if lanes is None:  # one place for all
            at, lanes = np.tile(at, g.n), np.repeat(g.lane, len(at))
        waiting = int(np.bitwise_or.reduce(np.int64(1) << g.lane.astype(np.int64)))
        read = Read(shadow, at, lanes, warp, self.clocks.now(warp), access.site, waiting)
        read.faults = races.faults_of_load(access)
        counts = self.waiting.setdefault(id(shadow), np.zeros(len(shadow.writer), np.int16))
        np.add.at(counts, at, 1)
        bit = np.uint64(self.place_of(read))
        words = np.stack([np.full(g.n, ONE << bit), ONE << g.lane.astype(np.uint64)])
        for target in targets(self.code[access.site]):
            self.put(target.name, g.lane, words)

    def place_of(self, read: Read) -> int:
        """The bit of a read. If there is none left, the oldest read counts as used."""
        reads = self.reads.setdefault(read.warp, [None] * MOST)
        if None not in reads:
            oldest = min(range(MOST), key=lambda bit: reads[bit].moment)  # type: ignore[union-attr]
            first = reads[oldest]
            assert first is not None
            self.use(first, first.waiting)
            for words in self.words.values():
                words[LOADS] &= ~(ONE << np.uint64(oldest))
            reads[oldest] = None
        bit = reads.index(None)
        reads[bit] = read
        return bit

    def use(self, read: Read, lanes: int) -> None:
        """Something depends on what these lanes read."""
        used = read.waiting & lanes
        if not used:
            return
        read.waiting &= ~used
        some = (np.int64(used) >> read.lanes.astype(np.int64)) & 1 != 0
        at = read.at[some]
        np.subtract.at(self.waiting[id(read.shadow)], at, 1)
        read.shadow.replay()
        read.shadow.note_earlier_read(at, read.warp, read.moment, read.site, read.lanes[some])
        for lane, fault in list(read.faults.items()):
            if used >> lane & 1:
                self.m.report(fault)

    def drop(self, read: Read) -> None:
        some = (np.int64(read.waiting) >> read.lanes.astype(np.int64)) & 1 != 0
        np.subtract.at(self.waiting[id(read.shadow)], read.at[some], 1)

    def waits(self, shadow: Shadow, at: Array) -> bool:
        """Whether somebody read one of these grains, and its value waits."""
        counts = self.waiting.get(id(shadow))
        return counts is not None and bool(counts[at].any())

    def meet_write(self, races: Races, access: Access, at: Array, lanes: Array | None) -> None:
        """A write meets reads whose values wait: it races with those that nothing orders before it."""
        if not self.waits(access.shadow, at):
            return
        for warp, reads in self.reads.items():
            for read in reads:
                if read is not None and read.waiting and read.shadow is access.shadow:
                    self.meet(races, access, at, lanes, warp, read)

    def meet(
        self, races: Races, access: Access, at: Array, lanes: Array | None, warp: int, read: Read
    ) -> None:
        mine = warp_number(access.g)
        if warp == mine and (lanes is None or access.level):
            return
        if warp != mine and read.moment <= self.clocks.row(mine).vector[warp]:
            return
        place = races.place(read.site)
        for index in np.flatnonzero(np.isin(at, read.at)).tolist():
            for lane in np.unique(read.lanes[read.at == at[index]]).tolist():
                if not read.waiting >> lane & 1 or lane in read.faults:
                    continue
                if warp != mine:
                    racing = not self.clocks.knows(mine, warp, lane, read.moment)
                    who = races.name(warp)
                else:
                    writer, moment = lanes[index : index + 1], np.array([read.moment])  # type: ignore[index]
                    racing = writer[0] != lane and bool(
                        self.clocks.unordered(mine, writer, np.array([lane]), moment)[0]
                    )
                    who = f"lane {lane} of this warp"
                if racing:
                    story = f"written here, and read by {who} at {place}"
                    read.faults[lane] = races.fault_of(access, index, story)

    # -- values --

    def enter(self, warp: int) -> bool:
        self.warp, self.words = warp, self.warps.get(warp, {})
        return bool(self.words)

    def forget(self, warp: int) -> None:
        """A warp has ended."""
        self.warps.pop(warp, None)
        for read in self.reads.pop(warp, []):
            if read is not None:
                self.drop(read)

    def put(self, name: str, lanes: Array, words: Array | int) -> None:
        held = self.words.get(name)
        if held is None:
            if isinstance(words, int) or not words.any():
                return
            held = self.words[name] = np.zeros((2, 32), np.uint64)
            self.warps[self.warp] = self.words
        held[:, lanes] = words
        if not held[LOADS].any():
            del self.words[name]
            self.dropped = True

    def of(self, operand: Operand, g: Lanes) -> Array:
        total = np.zeros((2, g.n), np.uint64)
        for item in flatten(operand):
            if isinstance(item, Reg) and item.name in self.words:
                total |= self.words[item.name][:, g.lane]
        return total

    def depend(self, g: Lanes, *operands: Operand) -> None:
        """Something depends on these operands in these lanes."""
        for operand in operands:
            words = self.of(operand, g)
            loads = int(np.bitwise_or.reduce(words[LOADS])) if g.n else 0
            for bit in range(loads.bit_length()):
                read = self.reads[self.warp][bit] if loads >> bit & 1 else None
                if read is not None:
                    mine = words[LOADS] >> np.uint64(bit) & ONE != 0
                    self.use(read, int(np.bitwise_or.reduce(words[LANES][mine])))

    def follow(self, g: Lanes, site: int, values: Mapping[str, Array]) -> None:
        """Called before each instruction while the warp has values that are followed."""
        i = self.code[site]
        if self.words.keys().isdisjoint(self.named(site)):
            return
        arithmetic = self.arithmetic(site)
        if arithmetic is not None:
            held = [self.words[name] for name in arithmetic.sources if name in self.words]
            words = np.bitwise_or.reduce(held)[:, g.lane] if held else 0
            self.put(arithmetic.target, g.lane, words)
            return
        chooser = None
        if i.predicate is not None:
            guard = values[i.predicate.name]
            if decides(i):
                self.depend(g, i.predicate)
            else:
                chooser = self.of(i.predicate, g)
                for target in targets(i):
                    self.put(target.name, g.lane, self.of(target, g) | chooser)
            lanes = g.where(~guard if i.negated else guard)
            if lanes is None:
                return
            if lanes is not g:
                chooser = None if chooser is None else chooser[:, lanes.within]
                values = {n: value if len(value) == 1 else value[lanes.within] for n, value in values.items()}
            g = lanes
        self.execute(g, i, site, values, chooser)

    def execute(
        self, g: Lanes, i: Instruction, site: int, values: Mapping[str, Array], chooser: Array | None
    ) -> None:
        words = np.zeros((2, g.n), np.uint64)
        if i.opcode == "shfl":
            self.depend(g, *i.operands[2:5])
            words = self.shuffled(g, i, site, values)
        elif i.opcode == "selp":
            yes = np.broadcast_to(values[i.operands[3].name] != 0, (g.n,))  # type: ignore[union-attr]
            words = np.where(yes, self.of(i.operands[1], g), self.of(i.operands[2], g))
            words |= self.of(i.operands[3], g)
        elif decides(i):
            self.depend(g, *i.operands[0 if i.opcode in (*NO_DESTINATION, "wgmma") else 1 :])
        else:
            for operand in i.operands[1:]:
                words |= self.of(operand, g)
        if chooser is not None:
            words |= chooser
        for target in targets(i) if i.opcode not in NO_DESTINATION else ():
            self.put(target.name, g.lane, words)

    def shuffled(self, g: Lanes, i: Instruction, site: int, values: Mapping[str, Array]) -> Array:
        mode = next(mod for mod in i.mods if mod in ("up", "down", "bfly", "idx"))
        by, clamp, mask = (
            (values[operand.name] if isinstance(operand, Reg) else np.array([operand.value])).astype("u4")  # type: ignore[union-attr]
            for operand in i.operands[2:5]
        )
        words = self.of(i.operands[1], g)
        rows = [shuffle(self.m, g, mode, row, by, clamp, mask, site)[0] for row in words]
        return np.stack(rows)

    def decide(self, g: Lanes, site: int) -> None:
        """The guard of an instruction by which lanes part."""
        guard = self.code[site].predicate
        if guard is not None and guard.name in self.words:
            self.depend(g, guard)

    def executed(self, number: int, g: Lanes) -> None:
        """Forget what is not used behind a block, and reads whose values are gone."""
        if not (self.words or self.dropped):
            return
        live = self.m.program.blocks[number].live_out
        for name in [name for name in self.words if name not in live]:
            self.put(name, g.lane, 0)
        if not self.dropped:
            return
        self.dropped, loads = False, 0
        for words in self.words.values():
            loads |= int(np.bitwise_or.reduce(words[LOADS]))
        reads = self.reads.get(self.warp, [])
        for bit, read in enumerate(reads):
            if read is not None and not loads >> bit & 1:
                self.drop(read)
                reads[bit] = None


def decides(i: Instruction) -> bool:
    """Whether others may see what an instruction makes of its operands: all but calculations by one lane."""
    return i.opcode in DECIDING or i.opcode.startswith("$")
