"""Hopper machine code as fields: the .text sections of a cubin, its 128-bit instructions, its straight-line blocks.

Only what rescheduling needs is decoded. The bit positions are those of sm_70 to sm_90 (read off nvdisasm's output); an
instruction that is not in the tables below is `OTHER`, touches every register that its operand bytes could name, and is
never moved.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

BYTES = 16  # of an instruction
ZERO = 255  # RZ, the register that reads zero
NONE = 7  # in a scoreboard field: none; in the predicate field: always

FFMA = 0x223  # register, register, register
LDS = 0x984
BRANCH = 0x947
BRANCHES = {BRANCH, 0x945, 0x942, 0x943, 0x944, 0x949, 0x94A, 0x94D, 0x950, 0x95A, 0x941}

# Arithmetic of one 32-bit result at a fixed latency. The low byte of an opcode names the operation, the rest the form.
SCALAR = {0x02: "mov", 0x07: "sel", 0x0C: "isetp", 0x10: "iadd3", 0x11: "lea", 0x12: "lop3", 0x19: "shf",
          0x1C: "plop3", 0x24: "imad"}
# Work of the uniform datapath: it touches no register of the threads.
UNIFORM = {0x82, 0x83, *range(0x86, 0x8E), 0x8F, 0x90, 0x91, 0x92, 0x99, 0x9A, 0x9C, 0xA4, 0xB9, 0xC3}
NO_OPERATION = 0x918


def field(word: int, start: int, bits: int) -> int:
    return (word >> start) & ((1 << bits) - 1)


def with_field(word: int, start: int, bits: int, value: int) -> int:
    mask = ((1 << bits) - 1) << start
    return (word & ~mask) | (value << start)


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: its word and what is read from it. `kind` is "ffma", "lds" or "other"."""

    word: int
    kind: str
    reads: tuple[int, ...]  # registers, without RZ; of an FFMA in the order of the slots a, b, c (with RZ)
    writes: tuple[int, ...]
    moves_memory: bool  # an access or a fence: keeps its place among the loads
    uniform: bool  # writes (other) or reads (LDS) the uniform registers

    @property
    def stall(self) -> int:
        return field(self.word, 105, 4)

    @property
    def sets(self) -> int:
        """The scoreboard that tells when the result is there; NONE: fixed latency (or a later load's scoreboard)."""
        return field(self.word, 110, 3)

    @property
    def read_sets(self) -> int:
        return field(self.word, 113, 3)

    @property
    def waits(self) -> int:
        return field(self.word, 116, 6)

    @property
    def reuse(self) -> int:
        return field(self.word, 122, 4)


def decode(word: int) -> Instruction:
    opcode, always = field(word, 0, 12), field(word, 12, 4) == NONE
    d, a, b, c = (field(word, start, 8) for start in (16, 24, 32, 64))
    plain = always and field(word, 72, 33) == 0 and field(word, 110, 6) == 0x3F  # no sign, rounding or scoreboard bits
    if opcode == FFMA and plain and d != ZERO:
        return Instruction(word, "ffma", (a, b, c), (d,), False, False)
    width = {4: 1, 5: 2, 6: 4}.get(field(word, 73, 3), 0)
    if opcode == LDS and always and width:
        return Instruction(word, "lds", known(a), tuple(range(d, d + width)), True, bool(field(word, 91, 1)))
    return decode_other(word, opcode, d, a, b, c)


def known(*registers: int) -> tuple[int, ...]:
    return tuple(r for r in registers if r != ZERO)


def decode_other(word: int, opcode: int, d: int, a: int, b: int, c: int) -> Instruction:
    operation, form = opcode & 0xFF, opcode >> 9
    if operation in SCALAR and opcode >> 8 in (2, 4, 8, 0xA, 0xC):
        register_b = (b,) if form == 1 else ()
        if SCALAR[operation] == "plop3":  # predicates only
            return Instruction(word, "other", (), (), False, False)
        if SCALAR[operation] == "isetp":
            return Instruction(word, "other", known(a, *register_b), (), False, False)
        return Instruction(word, "other", known(a, *register_b, c, d), known(d), False, False)
    if operation in UNIFORM or opcode == NO_OPERATION:
        return Instruction(word, "other", (), (), False, True)
    if operation == 0xA7:  # SYNCS: mbarrier operations
        return Instruction(word, "other", known(a, b, c), known(d), True, True)
    if opcode in BRANCHES:
        return Instruction(word, "other", (), (), True, True)
    near = known(*sorted({r + i for r in (d, a, b, c) for i in range(4) if r + i < ZERO}))
    return Instruction(word, "other", near, near, True, True)


# ---- the cubin ----


def text_sections(cubin: bytes) -> Iterator[tuple[int, int]]:
    """(offset, bytes) of each .text section of an ELF64 file."""
    (table,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names_index = struct.unpack_from("<HHH", cubin, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", cubin, table + i * size) for i in range(count)]
    names = sections[names_index][4]
    for section in sections:
        start = names + section[0]
        if cubin[start : cubin.index(b"\0", start)].startswith(b".text."):
            yield section[4], section[5]


def read_words(cubin: bytes, offset: int, size: int) -> list[int]:
    return [int.from_bytes(cubin[p : p + BYTES], "little") for p in range(offset, offset + size, BYTES)]


def branch_target(word: int, index: int) -> int:
    """The instruction that a branch names, in a section where it stands at `index`."""
    high = field(word, 34, 48)
    high -= (high >> 47) << 48
    return index + 1 + (high * 256 + field(word, 16, 8)) * 4 // BYTES


def straight_blocks(words: list[int]) -> list[range]:
    """Maximal runs that are entered at the first instruction only and left after the last only."""
    starts = {0, len(words)}
    for index, word in enumerate(words):
        if field(word, 0, 12) in BRANCHES:
            starts |= {index + 1, branch_target(word, index)}
    bounds = sorted(s for s in starts if 0 <= s <= len(words))
    return [range(a, b) for a, b in pairwise(bounds)]
