"""Which bits of registers were ever written: undefined values are followed until they matter.

A kernel may load what nobody wrote, and drop it or mask it out. So a value carries its undefined bits, as in
valgrind. A fault is where they decide an address, a branch or what is stored for others to read. Nothing is
followed while a warp has no undefined value: that is the usual case, and costs one test an instruction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from lapidist.machine.faults import Uninitialised
from lapidist.machine.instructions.fragments import a_map, c_map
from lapidist.machine.instructions.tensorcore import tile_rows, tile_words
from lapidist.machine.instructions.warpgroup_mma import PIECE, PendingProduct, a_positions, b_positions
from lapidist.machine.lanes import Cohort, Lanes
from lapidist.machine.ptx.basic_blocks import NO_DESTINATION, effects
from lapidist.machine.ptx.syntax_tree import TYPE_BYTES, Addr, Instruction, Operand, Reg, Vec, flatten
from lapidist.machine.sanitize.ordered import warp_number
from lapidist.machine.sanitize.undefined_bits import (
    Step,
    results_of,
    smeared,
    sums_of,
    targets,
    undefined_elements,
    undefined_metadata,
    width_mask,
)
from lapidist.machine.sanitize.undefined_branches import UndefinedBranches
from lapidist.machine.sanitize.undefined_memory import Origin, UndefinedMemory, as_octets, as_words
from lapidist.machine.sanitize.undefined_numbers import Arithmetic, arithmetic_of
from lapidist.machine.sanitize.unused_reads import UnusedReads
from lapidist.machine.state import Machine

Array = np.ndarray
DECIDES = ("bra", "brx", "exit", "ret", "trap", "bar", "barrier")
NOTHING = frozenset[str]()
FOLLOWED = ("ld", "ldmatrix")  # loads whose values carry what was undefined in memory
DEFINING = (
    "atom",
    "mbarrier",
    "bar",
    "barrier",
    *FOLLOWED,
)  # their results are defined, if what they are given is


@dataclass(slots=True)
class Storing:
    """A store whose addresses are not known yet: its undefined bytes, a row for each lane of the warp."""

    site: int
    octets: Array
    origin: Origin
    names: list[str]


class Definedness:
    """`bits` are the undefined bits of the registers of the warp that runs, by name: one word a lane."""

    def __init__(self, m: Machine, unused: UnusedReads) -> None:
        self.m, self.code, self.unused = m, m.program.kernel.instructions, unused
        self.warps: dict[int, dict[str, Array]] = {}
        self.origins: dict[str, Origin] = {}
        self.on, self.warp = False, -1
        self.bits: dict[str, Array] = {}
        self.storing: Storing | None = None
        self.named = cache(lambda site: frozenset(name for part in effects(self.code[site]) for name in part))
        self.arithmetic = cache(lambda site: arithmetic_of(self.code[site]))
        self.branches = UndefinedBranches(self.code, m.program.blocks)
        first = m.program.blocks[0].live_in - kept_by_guarded_loads(self.code)
        self.unset = [(name, width_mask(self.width(name))) for name in sorted(first)]

    def width(self, name: str) -> int:
        kind = self.m.program.kernel.registers[name]
        return 1 if kind == "pred" else 8 * TYPE_BYTES[kind]

    # -- warps --

    def begin(self, cohort: Cohort) -> None:
        """A warp starts: nobody wrote its registers."""
        if self.unset:
            self.warps[warp_number(cohort.all)] = {name: np.full(32, mask) for name, mask in self.unset}
            for name, _ in self.unset:
                self.origins.setdefault(name, Origin(f"{name}, which was never set"))

    def enter(self, warp: int) -> None:
        self.warp = warp
        self.bits = self.warps.get(self.warp, {})
        self.on = self.unused.enter(self.warp) or bool(self.bits)
        self.storing = None

    def executed(self, number: int, lanes: Lanes) -> None:
        """Forget what is not used behind a block."""
        if not self.on:
            return
        live = self.m.program.blocks[number].live_out | self.branches.kept(self.warp)
        for name in [name for name in self.bits if name not in live]:
            self.put(name, lanes, np.zeros(lanes.n, np.uint64))
        for name, doubtful, origin in self.branches.executed(self.warp, number, lanes):
            self.doubt(name, lanes, doubtful, origin)
        self.unused.executed(number, lanes)
        self.on = bool(self.bits or self.unused.words)

    def followed(self, warp: int) -> frozenset[str]:
        """The registers of a warp whose values are followed."""
        bits, words = self.warps.get(warp), self.unused.warps.get(warp)
        return frozenset([*(bits or ()), *(words or ())]) if bits or words else NOTHING

    def forget(self, warp: int) -> None:
        """A warp has ended."""
        self.warps.pop(warp, None)
        self.unused.forget(warp)
        self.branches.forget(warp)

    # -- registers --

    def put(self, name: str, g: Lanes, bits: Array, origin: Origin | None = None) -> None:
        held = self.bits.get(name)
        if held is None:
            if not bits.any():
                return
            held = self.bits[name] = np.zeros(32, np.uint64)
            self.warps[self.warp] = self.bits
            self.on = True
        held[g.lane] = bits
        if origin is not None and bits.any():
            self.origins[name] = origin
        if not held.any():
            del self.bits[name]

    def follow(self, g: Lanes, site: int, values: dict[str, Array]) -> None:
        """Called before each instruction while the warp has undefined values."""
        i = self.code[site]
        self.storing = None
        self.unused.follow(g, site, values)
        if self.bits.keys().isdisjoint(self.named(site)):
            return
        arithmetic = self.arithmetic(site)
        if arithmetic is not None:
            self.calculate(g, arithmetic)
            return
        if i.predicate is not None:
            taken = self.taken(g, i, site, values)
            if taken is None:
                return
            g, values = taken
        step = Step(self.m, g, i, site, values, self.bits)
        self.check_addresses(step)
        if i.opcode.startswith("$") or i.opcode == "call":
            for target in targets(i):
                self.assign(step, [(target, np.zeros(g.n, np.uint64))])
        elif i.opcode in ("st", "stmatrix"):
            self.begin_store(step)
        elif i.opcode in NO_DESTINATION and "red" not in i.mods:
            self.check_sources(step, i.operands)
        elif i.opcode in DEFINING or (i.opcode == "wmma" and "load" in i.mods):
            self.check_sources(step, i.operands[1:])
            self.assign(step, [(target, np.zeros(g.n, np.uint64)) for target in targets(i)])
        elif i.opcode != "wgmma":  # its D is set where it is issued
            self.assign(step, results_of(step))

    def calculate(self, g: Lanes, arithmetic: Arithmetic) -> None:
        names = [name for name in arithmetic.sources if name in self.bits]
        undefined = np.zeros(32, bool)
        for name in names:
            undefined |= self.bits[name] != 0
        bits = undefined[g.lane] * arithmetic.whole
        self.put(arithmetic.target, g, bits, self.origin_of(names))

    def taken(
        self, g: Lanes, i: Instruction, site: int, values: dict[str, Array]
    ) -> tuple[Lanes, dict[str, Array]] | None:
        """The lanes for which the instruction's guard holds, and what their operands hold. An undefined guard
        decides a branch; if it chooses a register's value, that value is undefined."""
        assert i.predicate is not None
        guard = values[i.predicate.name]
        doubt = self.bits.get(i.predicate.name)
        if doubt is not None and doubt[g.lane].any():
            if i.opcode == "bra" and self.chooses_registers(g, site, i.predicate.name, doubt[g.lane] != 0):
                return None
            if i.opcode in NO_DESTINATION or i.opcode in ("mbarrier", "atom"):
                self.report("a branch", i.predicate.name, g, site, doubt[g.lane])
            else:
                origin = self.origins[i.predicate.name]
                for target in targets(i):
                    bits = smeared(doubt[g.lane], self.width(target.name))  # type: ignore[union-attr]
                    self.put(target.name, g, bits, origin)  # type: ignore[union-attr]
                return None
        lanes = g.where(~guard if i.negated else guard)
        if lanes is None or lanes is g:
            return None if lanes is None else (g, values)
        return lanes, {
            name: value if len(value) == 1 else value[lanes.within] for name, value in values.items()
        }

    def chooses_registers(self, g: Lanes, site: int, guard: str, lanes: Array) -> bool:
        """Whether a branch on an undefined guard decides nothing but values of registers, which are undefined
        then."""
        region = self.branches.region(site)
        if region is None:
            return False
        if region.written:
            origin = self.origins[guard]
            self.branches.begin(self.warp, region, g, lanes, origin)
            for name in sorted(region.written):
                self.doubt(name, g, lanes, origin)
        return True

    def doubt(self, name: str, g: Lanes, lanes: Array, origin: Origin) -> None:
        """In these lanes of a group a register is undefined, whatever it holds."""
        held = self.bits[name][g.lane] if name in self.bits else np.zeros(g.n, np.uint64)
        self.put(name, g, np.where(lanes, width_mask(self.width(name)), held), origin)

    def decide(self, g: Lanes, site: int) -> None:
        """The guard of an instruction by which lanes part."""
        self.unused.decide(g, site)
        guard = self.code[site].predicate
        held = None if guard is None else self.bits.get(guard.name)
        if guard is not None and held is not None and held[g.lane].any():
            self.report("a branch", guard.name, g, site, held[g.lane])

    def assign(self, step: Step, results: list[tuple[Operand, Array]]) -> None:
        origin = self.origin_of([name for name in step.values if name in self.bits])
        for target, bits in results:
            if isinstance(target, Reg):
                self.put(target.name, step.g, bits, origin)

    def origin_of(self, names: list[str]) -> Origin | None:
        return next((self.origins[name] for name in names if name in self.origins), None)

    # -- where undefined bits matter --

    def check_addresses(self, step: Step) -> None:
        for operand in step.i.operands:
            if isinstance(operand, Addr):
                for item in flatten(operand)[1:]:
                    self.check(step, item, "an address")

    def check_sources(self, step: Step, operands: tuple[Operand, ...]) -> None:
        decided = "a branch" if step.i.opcode in DECIDES else f"what {step.i.opcode} is given"
        for operand in operands:
            for item in [] if isinstance(operand, Addr) else flatten(operand):
                self.check(step, item, "a stored result" if step.i.opcode in ("atom", "red") else decided)

    def check(self, step: Step, item: Operand, decided: str) -> None:
        if isinstance(item, Reg) and item.name in self.bits:
            bits = step.undefined(item)
            if bits.any():
                self.report(decided, item.name, step.g, step.site, bits)

    def report(self, decided: str, name: str, g: Lanes, site: int, bits: Array) -> None:
        """Report a register on which something depends. It counts as defined from here on."""
        self.fault(decided, self.origins[name], g, site, int(np.argmax(bits != 0)))
        self.put(name, g, np.zeros(g.n, np.uint64))

    def fault(self, decided: str, origin: Origin, g: Lanes, site: int, lane: int) -> None:
        rule = f"{decided} depends on {origin.sentence(self.m)}"
        name = "unset-register" if origin.site < 0 else ""
        self.m.report(self.m.fault(Uninitialised, rule, site, g, lane, name=name))

    # -- memory --

    def begin_store(self, step: Step) -> None:
        """Note which bytes of a store are undefined; it calls `stored` when its addresses are known."""
        source = step.i.operands[1]
        items = source.items if isinstance(source, Vec) else (source,)
        if step.i.opcode == "stmatrix":
            words = [step.undefined(item).astype("u4") for item in items]
            rows = tile_rows(step.g, words, "trans" in step.i.mods).view("u1").reshape(-1, 16)
            octets = np.zeros((32, 16), "u1")
            octets[: len(rows)] = rows
        else:
            count = next((int(mod[1:]) for mod in step.i.mods if mod in ("v2", "v4", "v8")), 1)
            size, parts = step.typed // 8, items if count > 1 else (source,)
            rows = np.concatenate([as_octets(step.undefined(part), size) for part in parts], axis=1)
            octets = np.zeros((32, rows.shape[1]), "u1")
            octets[step.g.lane] = rows
        names = [name for item in flatten(source) if (name := name_of(item)) in self.bits]
        origin = self.origin_of(names)
        if octets.any() and origin is not None:
            self.storing = Storing(step.site, octets, origin, names)

    def stored(self, g: Lanes, site: int, memory: UndefinedMemory | None, positions: Array) -> None:
        """A store writes undefined bytes: memory of the kernel's own holds them, others would read them."""
        store = self.storing
        if store is None or store.site != site:
            return
        octets = store.octets[g.lane]
        if not octets.any():
            return
        if memory is None:
            self.fault("a stored result", store.origin, g, site, int(np.argmax(octets.any(axis=1))))
            for name in store.names:  # they count as defined from here on
                self.put(name, g, np.zeros(g.n, np.uint64))
        else:
            memory.mark(positions, octets[-1:] if len(positions) == 1 else octets, store.origin)

    def read(self, g: Lanes, site: int, octets: Array, origin: Origin, addresses: Array) -> None:
        """An access reads undefined bytes, a row a lane or one for all: a fault if they are not followed."""
        if self.loaded(g, site, octets, origin):
            return
        row = int(np.argmax(octets.any(axis=1)))
        rule = f"a read of {origin.story}"
        self.m.report(self.m.fault(Uninitialised, rule, site, g, row, int(addresses[row])))

    def loaded(self, g: Lanes, site: int, octets: Array, origin: Origin) -> bool:
        """Whether a load of undefined bytes is followed: its registers then have undefined bits."""
        i = self.code[site]
        if i.opcode not in FOLLOWED:
            return False
        items = targets(i)
        if i.opcode == "ldmatrix":
            rows = np.broadcast_to(octets, (8 * len(items), 16))
            words = tile_words(g, np.ascontiguousarray(rows), "trans" in i.mods)
            parts = [word.astype(np.uint64) for word in words]
        else:
            kind = next(mod for mod in reversed(i.mods) if mod in TYPE_BYTES)
            size, rows = TYPE_BYTES[kind], np.broadcast_to(octets, (g.n, octets.shape[1]))
            parts = [as_words(rows[:, size * n : size * (n + 1)], kind) for n in range(len(items))]
        for item, bits in zip(items, parts, strict=True):
            assert isinstance(item, Reg)
            self.put(item.name, g, bits & width_mask(self.width(item.name)), origin)
        return True

    def shuffled_from_nobody(self, lanes: Lanes, lost: Array, site: int) -> None:
        """What the marked lanes got is undefined."""
        if lost.any():
            target = targets(self.code[site])[0]
            held = self.bits.get(target.name, np.zeros(32, np.uint64))[lanes.lane]
            origin = Origin("what a shuffle gives of a lane that takes no part in it", site)
            self.put(target.name, lanes, np.where(lost, width_mask(32), held), origin)

    # -- wgmma --

    def multiplied(self, p: PendingProduct, memory: UndefinedMemory, written: bool) -> None:
        """What a wgmma leaves in D: rows by A's undefined elements, columns by B's. `written` says that all
        it reads in memory is defined."""
        i, mma = self.code[p.site], p.mma
        d = i.operands[0]
        names = [item.name for item in d.items if isinstance(item, Reg)] if isinstance(d, Vec) else []
        read = [name for item in flatten(i.operands[1]) if (name := name_of(item)) in self.bits]
        read += [name for name in names if name in self.bits] if p.c else []
        step, chosen = Step(self.m, p.g, i, p.site, {}, self.bits), name_of(i.operands[3])
        sparse = mma.selector is not None and chosen in self.bits
        if sparse and undefined_metadata(step, i.operands[3], i.operands[4], mma.kinds[1], mma.depth):
            self.report("an address", chosen, p.g, p.site, step.undefined(i.operands[3]))
        if written and not read:
            for name in names:
                self.bits.pop(name, None)  # all lanes of the warp multiply
            return
        place = b_positions(self.m, p, 0)
        second, other = memory.elements(place, mma.transposed_b, mma.kinds[2]), place
        if p.a_registers:
            table = a_map(16, mma.stored, mma.kinds[1])
            first = undefined_elements(step, i.operands[1], mma.kinds[1])[table]
        else:
            place = a_positions(self.m, p, 0, int(p.g.thread[0]) // 32 % 4)
            first = memory.elements(place, mma.transposed_a, mma.kinds[1])
            other = place if first.any() else other
        total = np.logical_or.outer(first.any(axis=1), second.any(axis=1))
        if p.c:
            total = total | undefined_elements(step, d, mma.kinds[0])[c_map(16, mma.n)]
        origin = self.origin_of(read) or memory.origin(other.reshape(-1), PIECE, p.site)
        for item, bits in sums_of(p.g, total, mma.kinds[0], d):
            assert isinstance(item, Reg)
            self.put(item.name, p.g, bits, origin)


def name_of(item: Operand) -> str:
    return item.name if isinstance(item, Reg) else ""


def kept_by_guarded_loads(code: Sequence[Instruction]) -> set[str]:
    """Registers of guarded vector loads. At a matrix's edge a piece comes whole or not at all, and what it
    does not bring is written over later: its author chooses what is used of it.
    """
    guarded = [i for i in code if i.opcode == "ld" and i.predicate is not None]
    return {name for i in guarded if isinstance(i.operands[0], Vec) for name in effects(i)[1]}
