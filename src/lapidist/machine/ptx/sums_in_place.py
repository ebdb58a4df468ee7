"""Sums that a kernel builds up in memory, read off its instructions: which stores add to what was loaded from
their own place."""

from __future__ import annotations

from lapidist.machine.ptx.basic_blocks import Block, effects, registers
from lapidist.machine.ptx.syntax_tree import Addr, Instruction, Kernel, Operand, Reg

OPERATIONS = ("add", "sub", "mul", "mad", "fma", "min", "max", "and", "or", "xor", "not", "neg")


def update_sites(kernel: Kernel, blocks: list[Block]) -> frozenset[int]:
    """Stores whose value was computed, in their block, from a load of their place."""
    code = kernel.instructions
    return frozenset(
        site
        for block in blocks
        for site in range(block.start, block.stop)
        if code[site].opcode == "st" and is_update(code, block, site)
    )


def place_of(operand: Operand) -> tuple[object, int] | None:
    return (operand.base, operand.offset) if isinstance(operand, Addr) else None


def is_update(code: list[Instruction], block: Block, site: int) -> bool:
    place, needed = place_of(code[site].operands[0]), set(registers(code[site].operands[1]))
    base, computed = place[0] if place else None, False
    for earlier in range(site - 1, block.start - 1, -1):
        i = code[earlier]
        reads, writes = effects(i)
        if isinstance(base, Reg) and base.name in writes:
            return False
        if needed.isdisjoint(writes):
            continue
        if i.opcode == "ld" and place_of(i.operands[1]) == place:
            return computed
        needed.difference_update(writes)
        needed.update(reads)
        computed |= i.opcode in OPERATIONS
    return False
