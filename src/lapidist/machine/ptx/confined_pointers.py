"""Accesses to global memory whose addresses come from parameters and variables alone, read off a kernel's
instructions: none of them was loaded from memory."""

from __future__ import annotations

from lapidist.machine.ptx.basic_blocks import effects, registers
from lapidist.machine.ptx.pointer_sources import (
    OTHER_SPACES,
    Source,
    address_of,
    parameter_offsets,
    parameters,
    pointer_sources,
)
from lapidist.machine.ptx.syntax_tree import Instruction, Kernel

# What memory gives and these compute from is an index, no address.
MAKES_NUMBERS = frozenset(["mul", "shl", "shr", "div", "rem", "cvt", "setp", "popc", "clz", "bfind"])
GIVES = frozenset(["ld", "ldu", "atom"])


def confined_pointers(kernel: Kernel) -> dict[int, frozenset[Source]]:
    """By site: what the address may be computed from, and nothing else."""
    loaded, sources = loaded_registers(kernel), pointer_sources(kernel, is_access)
    confined = dict[int, frozenset[Source]]()
    for site, origins in sources.items():
        base = address_of(kernel.instructions[site])
        if origins and loaded.isdisjoint(registers(base) if base is not None else ()):
            confined[site] = origins
    return confined


def is_access(i: Instruction) -> bool:
    """Whether an instruction reads or writes global memory at an address that it names."""
    if i.opcode == "cp":
        return "async" in i.mods and "tensor" not in i.mods and any(m.startswith("global") for m in i.mods)
    return i.opcode in ("ld", "st", "atom", "red") and OTHER_SPACES.isdisjoint(i.mods)


def loaded_registers(kernel: Kernel) -> set[str]:
    """Registers that may hold an address which was loaded from memory, or moved by a call."""
    offsets, loaded = parameter_offsets(kernel), set[str]()
    steps: list[tuple[list[str], list[str]]] = []
    for i in kernel.instructions:
        reads, writes = effects(i)
        if i.opcode in GIVES or i.opcode.startswith("$"):
            is_parameter = "param" in i.mods and parameters(kernel, i, offsets)
            loaded.update(() if is_parameter else writes)
        elif writes and i.opcode not in MAKES_NUMBERS:
            steps.append((registers(i.operands[3]) if i.opcode == "mad" else reads, writes))
    grown = True
    while grown:
        grown = False
        for reads, writes in steps:
            if not loaded.isdisjoint(reads) and not loaded.issuperset(writes):
                loaded.update(writes)
                grown = True
    return loaded
