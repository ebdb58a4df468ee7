"""Sums that a kernel builds up in registers and in memory, read off its instructions: which of them may begin
in a register that nobody wrote, and which stores add to what was loaded from their own place."""

from __future__ import annotations

from lapidist.machine.ptx.basic_blocks import Block, effects, registers, successors
from lapidist.machine.ptx.syntax_tree import Addr, Instruction, Kernel, Operand, Reg

SUMS = {"fma": 3, "mad": 3, "mma": 3, "wmma": 3, "dp4a": 3, "dp2a": 3}  # the operand that is added to
OPERATIONS = ("add", "sub", "mul", "mad", "fma", "min", "max", "and", "or", "xor", "not", "neg")


# ---- in registers ----


def unset_sums(kernel: Kernel, blocks: list[Block]) -> dict[int, list[tuple[int, str]]]:
    """By block: sums that some path reaches without a write to the register that they add to."""
    code = kernel.instructions
    unset: list[set[str]] = [set() for _ in blocks]
    unset[0] = set(kernel.registers)
    ahead = [0]
    while ahead:
        index = ahead.pop()
        after = set(unset[index])
        for i in code[blocks[index].start : blocks[index].stop]:
            follow(i, after)
        for follower in successors(blocks[index], len(blocks)):
            if not after <= unset[follower]:
                unset[follower] |= after
                ahead.append(follower)
    sites: dict[int, list[tuple[int, str]]] = {}
    for block, left in zip(blocks, unset, strict=True):
        for site in range(block.start, block.stop):
            for name in sorted(added_to(code[site]) & left):
                sites.setdefault(block.index, []).append((site, name))
            follow(code[site], left)
    return sites


def added_to(i: Instruction) -> set[str]:
    """Registers whose old values a sum of one warp begins with."""
    if i.opcode in SUMS and len(i.operands) > SUMS[i.opcode] and "load" not in i.mods:
        return set(registers(i.operands[SUMS[i.opcode]]))
    if i.opcode == "add" and len(i.operands) == 3 and isinstance(i.operands[0], Reg):
        return {i.operands[0].name} & {name for operand in i.operands[1:] for name in registers(operand)}
    return set()


def follow(i: Instruction, unset: set[str]) -> None:
    """Follow an instruction: what it writes is set, but for a copy of what is not."""
    _, written = effects(i)
    copied = i.opcode == "mov" and len(i.operands) == 2 and set(registers(i.operands[1])) & unset
    if i.predicate is None:
        unset.difference_update(written)
    if copied:
        unset.update(written)


# ---- in memory ----


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
