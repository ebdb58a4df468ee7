"""Neighbouring shared loads, of which the assembler makes one wide load.

PTX from an unrolled loop loads element after element; ptxas joins loads of one base register and adjoining
offsets where the alignment allows. Without this the counts of such loops would be those of a machine that
does not exist."""

from __future__ import annotations

from lapidist.machine.ptx.basic_blocks import Block, effects
from lapidist.machine.ptx.syntax_tree import TYPE_BYTES, Addr, Instruction, Kernel, Reg

WIDEST = 16
ENDS = ("st", "bar", "barrier", "atom", "red", "cp", "mbarrier", "fence", "membar", "stmatrix", "wmma")


def merged_loads(kernel: Kernel, blocks: list[Block]) -> dict[int, tuple[int, int]]:
    """By the site of a load that is joined to others: the offset of the first of its group, and the bytes
    of all."""
    groups: dict[int, tuple[int, int]] = {}
    for block in blocks:
        open_runs: dict[str, dict[int, int]] = {}  # base register and type: offset -> site
        for site in range(block.start, block.stop):
            i = kernel.instructions[site]
            key = mergeable(i)
            if key is not None:
                address = i.operands[1]
                assert isinstance(address, Addr)
                open_runs.setdefault(key, {}).setdefault(address.offset, site)
            written = set(effects(i)[1])
            for run in [run for run in open_runs if i.opcode in ENDS or run.split()[0] in written]:
                join(open_runs.pop(run), element_bytes(run), groups)
        for run, sites in open_runs.items():
            join(sites, element_bytes(run), groups)
    return groups


def mergeable(i: Instruction) -> str | None:
    """Base register and type of a plain scalar load from shared memory."""
    if i.opcode != "ld" or "shared" not in i.mods or i.predicate is not None or len(i.mods) != 2:
        return None
    address = i.operands[1]
    if not isinstance(address, Addr) or not isinstance(address.base, Reg) or i.mods[1] not in TYPE_BYTES:
        return None
    return f"{address.base.name} {i.mods[1]}"


def element_bytes(run: str) -> int:
    return TYPE_BYTES[run.split()[1]]


def join(sites: dict[int, int], size: int, groups: dict[int, tuple[int, int]]) -> None:
    """Note groups of loads, greedily: the widest that starts at an aligned offset and has no gap."""
    width = WIDEST
    loads = dict(sites)
    while width > size:
        for start in sorted(loads):
            group = range(start, start + width, size)
            if start % width == 0 and all(offset in loads for offset in group):
                for offset in group:
                    groups[loads.pop(offset)] = start, width
        width //= 2
