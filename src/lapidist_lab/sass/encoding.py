"""What the assembler makes a warp wait for: cycles behind an instruction, and scoreboards before it. nvdisasm
does not print them.

An instruction has 16 bytes since compute capability 7.0, and bits of the upper eight hold both (Jia et al.,
"Dissecting the NVIDIA Volta GPU architecture via microbenchmarking", 2018). A scoreboard is one of six
counters of results that have not come."""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import NamedTuple

from lapidist.launch import Binary

INSTRUCTION_BYTES = 16
STALL_BIT, STALL_MASK = 41, 15  # of the upper eight bytes
RESULT_BIT, SCOREBOARD_MASK, NONE = 46, 7, 7  # the scoreboard that its result counts on
WAIT_BIT, WAIT_MASK = 52, 63  # the scoreboards that must be empty before it starts
SECTION = struct.Struct("<IIQQQQIIQQ")  # of a 64-bit ELF file: name, type, flags, address, offset, size, ...


class Controls(NamedTuple):
    """Of one instruction. `result`: its scoreboard; None: its result comes after a fixed time."""

    stall: int
    result: int | None
    waits: frozenset[int]


@lru_cache(maxsize=64)
def stalls_of(binary: Binary) -> tuple[int, ...]:
    """The stall count of each instruction, at least one cycle."""
    return tuple(controls.stall for controls in controls_of(binary))


@lru_cache(maxsize=64)
def controls_of(binary: Binary) -> tuple[Controls, ...]:
    code = section(binary.cubin, f".text.{binary.entry}")
    whole = code[: len(code) // INSTRUCTION_BYTES * INSTRUCTION_BYTES]
    return tuple(controls_in(upper) for _, upper in struct.iter_unpack("<QQ", whole))


def controls_in(upper: int) -> Controls:
    result, waits = upper >> RESULT_BIT & SCOREBOARD_MASK, upper >> WAIT_BIT & WAIT_MASK
    awaited = frozenset(place for place in range(WAIT_MASK.bit_length()) if waits >> place & 1)
    return Controls(max(upper >> STALL_BIT & STALL_MASK, 1), None if result == NONE else result, awaited)


def section(elf: bytes, name: str) -> bytes:
    """A section of an ELF file; empty if it has none of this name."""
    if elf[:4] != b"\x7fELF":
        return b""
    (table,) = struct.unpack_from("<Q", elf, 0x28)
    size, count, names = struct.unpack_from("<HHH", elf, 0x3A)
    rows = [SECTION.unpack_from(elf, table + index * size) for index in range(count)]
    spelt = rows[names][4]
    for row in rows:
        start = spelt + row[0]
        if elf[start : elf.index(b"\0", start)] == name.encode():
            return elf[row[4] : row[4] + row[5]]
    return b""
