"""Proof that a rescheduled block does what the compiler's block did: same values, and no hazard.

Values: both blocks are run symbolically. A value is an expression over the registers at the start, kept as a number, so
that equal expressions get equal numbers; loads are expressions too, of their address and of the memory operations
before them. Every register must end with the same value, and other instructions must read the same values in the same
order.

Hazards: a result of fixed latency is read no earlier than it is there, and what a load brings or reads is not touched
before a wait on its scoreboard, also across the loop's back edge.
"""

from __future__ import annotations

from collections.abc import Hashable
from itertools import pairwise

from lapidist.sass.decode import NONE, ZERO, Instruction, field
from lapidist.sass.structure import require

FFMA_LATENCY = 4
CONTROL = ((1 << 21) - 1) << 105  # stall, yield, scoreboards, waits, reuse


class Values:
    """Numbers for expressions, shared by the two runs."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}

    def number(self, *expression: Hashable) -> int:
        return self._numbers.setdefault(expression, len(self._numbers))


def verify(old: list[Instruction], new: list[Instruction], left_over: int) -> None:
    """Raises Unrecognised unless `new` may stand for `old`."""
    values = Values()
    require(run(old, values) == run(new, values), "the new order computes something else")
    check_latencies(old, new)
    check_scoreboards(new, left_over)


def run(block: list[Instruction], values: Values) -> tuple[dict[int, int], list[int]]:
    """Final values of the registers that the block writes, and what the other instructions did, in order."""
    registers: dict[int, int] = {ZERO: values.number("zero")}
    trace: list[int] = []
    memory = 0
    uniform: dict[int, int] = {}

    def read(register: int) -> int:
        return registers[register] if register in registers else values.number("start", register)

    for x in block:
        inputs = tuple(read(r) for r in x.reads)
        if x.kind == "ffma":
            registers[x.writes[0]] = values.number("ffma", *sorted(inputs[:2]), inputs[2])
            continue
        operation = field(x.word, 0, 105) & ~(0xFF << 16 | 0xFF << 24) if x.kind == "lds" else x.word & ~CONTROL
        base = field(x.word, 32, 8)
        state = (memory, uniform.get(base, -1) if x.uniform else -1)
        done = values.number(x.kind, operation, inputs, *(state if x.kind == "lds" else ()))
        for element, register in enumerate(x.writes):
            registers[register] = values.number("element", done, element)
        if x.kind == "other":
            trace.append(done)
            memory += x.moves_memory
            if x.uniform:
                uniform |= dict.fromkeys((field(x.word, 16, 8), field(x.word, 16, 8) + 1), done)
    final = {r: v for r, v in registers.items() if v != values.number("start", r)}
    return final, trace


def check_latencies(old: list[Instruction], new: list[Instruction]) -> None:
    """FFMAs by their latency; others at least as far apart as the compiler put them, or 13 cycles."""
    cycle = 0
    ready: dict[int, int] = {}
    for x in new:
        require(all(ready.get(r, 0) <= cycle for r in (*x.reads, *x.writes)), "a result is read before it is there")
        if x.kind == "ffma":
            ready[x.writes[0]] = cycle + FFMA_LATENCY
        require(x.kind == "ffma" or cycle >= 13, "an instruction moved too close to what comes before the block")
        require(x.stall <= 2 or x is new[-1] or not field(x.word, 109, 1), "a long stall that would not be kept")
        cycle += max(1, x.stall)
    for before, after in zip(distances(old), distances(new), strict=True):
        require(after >= min(13, before), "two instructions of fixed latency moved too close")


def distances(block: list[Instruction]) -> list[int]:
    """Cycles from each `other` instruction to the next one, and to the branch at the end."""
    cycle = 0
    cycles: list[int] = []
    for x in block:
        if x.kind == "other":
            cycles.append(cycle)
        cycle += max(1, x.stall)
    return [later - earlier for earlier, later in pairwise(cycles)] + [cycles[-1] - earlier for earlier in cycles]


def check_scoreboards(new: list[Instruction], left_over: int) -> None:
    """Two passes through the new block: the first with nothing under way, the second from what the first leaves."""
    pending: dict[int, int] = {}
    for _ in range(2):
        addresses: dict[int, int] = {}
        for x in new:
            pending = {r: mask & ~x.waits for r, mask in pending.items() if mask & ~x.waits}
            addresses = {r: mask & ~x.waits for r, mask in addresses.items() if mask & ~x.waits}
            touched = {*x.reads, *x.writes}
            require(x.kind == "lds" or not touched & pending.keys(), "a load's result is touched without a wait")
            if x.kind == "lds":
                require(x.sets != NONE, "a load has no scoreboard")
                require(not set(x.reads) & pending.keys(), "an address is under way")
                for register in x.writes:
                    pending[register] = 1 << x.sets
                for register in x.reads:
                    addresses[register] = 1 << x.read_sets if x.read_sets != NONE else 1 << x.sets | 1 << 6
            elif x.kind == "other":
                require(not set(x.writes) & addresses.keys(), "an address is overwritten before its load has read it")
    check_wait_distance(new)
    still = 0
    for mask in pending.values():
        still |= mask
    require(still & ~left_over == 0, "a load is under way at the end without anyone knowing")


def check_wait_distance(block: list[Instruction]) -> None:
    """A scoreboard shows a load two cycles after its issue: a wait before that would pass."""
    for load, x in pairwise(block):
        if load.kind == "lds":
            boards = (1 << load.sets | 1 << load.read_sets) & 0x3F
            depends = set(load.writes) & {*x.reads, *x.writes} or set(load.reads) & set(x.writes)
            require(not (depends and x.waits & boards) or load.stall > 2, "a wait comes too soon after its load")
