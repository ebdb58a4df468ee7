"""How long a warp's round of a loop takes, beyond a cycle for each instruction.

Operands. The register file of a quarter of an SM has two banks, even and odd registers; each gives one
register of a warp a cycle. A register read with `.reuse` stays in a cache, which has a place for each bank
and each operand of an instruction. It stays until the next register of that bank is read for that operand, or
memory is accessed. The banks may fall a cycle behind; then the scheduler issues nothing, to no warp. With
this, no constant fitted, the profiler's dispatch stalls of seven kernels come out within a fifth, in pieces
of 32 instructions too (docs/machine.md).

Pauses. The assembler makes a warp rest behind an instruction, and a warp waits for what it loads from shared
memory. Others can go on meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lapidist_lab.sass.listing import Line

BANKS = 2
BEHIND = 1  # cycles that a bank may be behind the scheduler
SHARED_LATENCY = 33  # cycles from a load of shared memory to the first use
ROUNDS = 4  # of a loop, after which each finds what the one before left
MULTIPLIES = ("fma", "mma")
ACCESSES = ("lds", "ldsm", "sts", "ldg", "stg", "ldgsts", "local", "barrier")


@dataclass(slots=True)
class RegisterFile:
    """The banks and the operand cache of one warp: a scheduler stays with a warp as long as that can go
    on."""

    behind: list[int] = field(default_factory=lambda: [0] * BANKS)  # reads that each bank still has to do
    cached: dict[tuple[int, int], int] = field(default_factory=dict)  # bank and operand: register

    def issue(self, line: Line) -> int:
        """Issue an instruction; returns the cycles that it comes late."""
        self.pass_cycle()
        late = 0
        while max(self.behind) > BEHIND:
            self.pass_cycle()
            late += 1
        if line.kind in ACCESSES:
            self.cached.clear()
        for bank, registers in enumerate(self.fetched(line)):
            self.behind[bank] += len(registers)
        return late

    def pass_cycle(self) -> None:
        self.behind = [max(reads - 1, 0) for reads in self.behind]

    def fetched(self, line: Line) -> list[set[int]]:
        """By bank, the registers that the instruction reads and the cache does not have. Updates the
        cache."""
        missing: list[set[int]] = [set() for _ in range(BANKS)]
        for read in line.reads:
            bank = read.register % BANKS
            place = bank, read.operand
            if self.cached.get(place) != read.register:
                missing[bank].add(read.register)
            if read.reused:
                self.cached[place] = read.register
            else:
                self.cached.pop(place, None)
        return missing


def operand_waits(loop: Sequence[Line]) -> int:
    """Cycles of a round in which nothing is issued because a bank is behind."""
    file = RegisterFile()
    return [sum(file.issue(line) for line in loop) for _ in range(ROUNDS)][-1]


def pauses(loop: Sequence[Line]) -> int:
    """Cycles of a round that a warp waits by itself, if it has the scheduler alone."""
    cycle = 0
    ready: dict[int, int] = {}
    for _ in range(ROUNDS):
        start = cycle
        for line in loop:
            cycle = max(cycle, *(ready.get(read.register, 0) for read in line.reads), 0)
            ready.update(dict.fromkeys(line.loaded, cycle + SHARED_LATENCY))
            cycle += line.stall
    return cycle - start - len(loop)


def loads_ahead(loop: Sequence[Line]) -> bool:
    """Whether a quarter of the multiplications of a round or more stand between a load of global memory and
    the next store to shared memory. Then what is stored was asked for while other tiles were multiplied."""
    twice = [*loop, *loop]
    gaps = []
    for start in (index for index, line in enumerate(loop) if line.kind == "ldg"):
        stored = next(
            (index for index in range(start, start + len(loop)) if twice[index].kind == "sts"), None
        )
        if stored is None:
            return False
        gaps.append(sum(line.kind in MULTIPLIES for line in twice[start:stored]))
    return bool(gaps) and 4 * sum(gaps) >= len(gaps) * sum(line.kind in MULTIPLIES for line in loop)
