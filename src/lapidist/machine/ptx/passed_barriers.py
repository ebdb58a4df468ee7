"""Which lanes have gone past a barrier without it: by where they stand, and how control flows."""

from __future__ import annotations

from collections.abc import Sequence

from lapidist.machine.ptx.basic_blocks import Block, successors
from lapidist.machine.ptx.syntax_tree import Instruction

RETURNS = frozenset(["ret", "exit"])


def is_past(barrier: int, place: int, blocks: list[Block], code: Sequence[Instruction]) -> bool:
    """Whether a lane at the block of code `place` is past the barrier that ends the block `barrier`.

    Every lane comes to `place` behind the barrier, and none from there to the barrier. In a loop it may:
    then lanes there may have come to it in the turn before. A lane that only returns has left out nothing:
    CUDA lets lanes exit early."""
    if place == barrier or returns_at_once(place, blocks, code):
        return False
    behind = reached(successors(blocks[barrier], len(blocks)), place, blocks, code)
    ends = any(blocks[index].kind == "exit" for index in behind)
    return not ends and barrier not in reached([place], -1, blocks, code)


def returns_at_once(place: int, blocks: list[Block], code: Sequence[Instruction]) -> bool:
    visited: set[int] = set()
    block = blocks[place]
    while block.kind == "jump" and block.stop - block.start == 1 and block.index not in visited:
        visited.add(block.index)
        block = blocks[block.target]
    first = code[block.start]
    return first.opcode in RETURNS and first.predicate is None


def reached(
    starts: Sequence[int], without: int, blocks: list[Block], code: Sequence[Instruction]
) -> set[int]:
    """The blocks that control may come to, where one of them is left out."""
    visited = set(starts) - {without}
    ahead = list(visited)
    while ahead:
        block = blocks[ahead.pop()]
        if block.kind == "exit" and code[block.stop - 1].predicate is None:
            continue
        after = {*successors(block, len(blocks))} - visited - {without}
        visited |= after
        ahead += after
    return visited
