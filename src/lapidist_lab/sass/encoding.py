"""Stall counts: for how many cycles the assembler makes a warp wait behind an instruction. nvdisasm does not
print them.

An instruction has 16 bytes since compute capability 7.0; four bits of the upper eight hold the count (Jia
et al., "Dissecting the NVIDIA Volta GPU architecture via microbenchmarking", 2018)."""

from __future__ import annotations

import struct
from functools import lru_cache

from lapidist.launch import Binary

INSTRUCTION_BYTES = 16
STALL_BIT, STALL_MASK = 41, 15  # of the upper eight bytes
SECTION = struct.Struct("<IIQQQQIIQQ")  # of a 64-bit ELF file: name, type, flags, address, offset, size, ...


@lru_cache(maxsize=64)
def stalls_of(binary: Binary) -> tuple[int, ...]:
    """The stall count of each instruction, at least one cycle."""
    code = section(binary.cubin, f".text.{binary.entry}")
    uppers = (
        upper
        for _, upper in struct.iter_unpack("<QQ", code[: len(code) // INSTRUCTION_BYTES * INSTRUCTION_BYTES])
    )
    return tuple(max(upper >> STALL_BIT & STALL_MASK, 1) for upper in uppers)


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
