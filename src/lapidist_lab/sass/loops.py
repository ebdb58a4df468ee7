"""Where a listing loops, and which of its loops is the main one.

A loop is natural: a jump back to a line that every way from the start to the jump passes through. It has all
lines that lead to the jump without leaving through that line. Cold code that the compiler has put behind the
end is then counted where it belongs, and a jump back from there is not taken for a loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from lapidist_lab.sass.listing import Line

WORK = {"fma": 1, "mma": 64}  # multiply-adds of a thread, roughly: what decides which loop is the main one


@dataclass(frozen=True, slots=True)
class Block:
    """Lines [start, stop) that run together, and the blocks that may follow."""

    start: int
    stop: int
    followers: tuple[int, ...]


def main_loop(lines: Sequence[Line]) -> frozenset[int] | None:
    """The lines of the loop that multiplies most and is not merely the frame of an inner one.

    A loop is a frame when a loop inside it holds half of its multiply-adds or more: the walk over tiles
    around the walk over k. None when no loop multiplies."""
    fmas = {loop: sum(WORK.get(lines[index].kind, 0) for index in loop) for loop in loops_of(lines)}
    working = [loop for loop, count in fmas.items() if count]
    kernels = [
        loop
        for loop in working
        if not any(inner < loop and 2 * fmas[inner] >= fmas[loop] for inner in working)
    ]
    return max(kernels, key=lambda loop: fmas[loop], default=None)


def loops_of(lines: Sequence[Line]) -> list[frozenset[int]]:
    """Every natural loop, as the set of its lines. Loops with one entry are one loop."""
    blocks = blocks_of(lines)
    before = predecessors(blocks)
    dominators = dominators_of(blocks, before)
    bodies: dict[int, set[int]] = {}
    for index, block in enumerate(blocks):
        for head in block.followers:
            if head in dominators[index]:
                bodies.setdefault(head, {head}).update(body_of(head, index, before))
    return [
        frozenset(line for index in body for line in range(blocks[index].start, blocks[index].stop))
        for body in bodies.values()
    ]


def blocks_of(lines: Sequence[Line]) -> list[Block]:
    starts = {0}
    for index, line in enumerate(lines):
        if line.target is not None:
            starts.add(line.target)
        if line.target is not None or not line.falls:
            starts.add(index + 1)
    bounds = [*sorted(start for start in starts if start < len(lines)), len(lines)]
    number = {start: index for index, start in enumerate(bounds)}
    blocks = []
    for start, stop in pairwise(bounds):
        last = lines[stop - 1]
        after = {stop} if last.falls else set()
        if last.target is not None:
            after.add(last.target)
        blocks.append(Block(start, stop, tuple(sorted(number[line] for line in after if line < len(lines)))))
    return blocks


def predecessors(blocks: Sequence[Block]) -> list[list[int]]:
    """For each block the blocks that lead to it; blocks that cannot be reached lead nowhere."""
    reached, queue = {0}, [0]
    before: list[list[int]] = [[] for _ in blocks]
    while queue:
        index = queue.pop()
        for follower in blocks[index].followers:
            before[follower].append(index)
            if follower not in reached:
                reached.add(follower)
                queue.append(follower)
    return before


def dominators_of(blocks: Sequence[Block], before: Sequence[Sequence[int]]) -> list[set[int]]:
    """For each block those that every way to it passes through, itself included. Blocks lie nearly in order:
    few rounds.
    """
    everything = set(range(len(blocks)))
    dominators = [{0}, *({*everything} for _ in blocks[1:])]
    changed = True
    while changed:
        changed = False
        for index in range(1, len(blocks)):
            if not before[index]:
                continue
            common = set.intersection(*(dominators[earlier] for earlier in before[index])) | {index}
            if common != dominators[index]:
                dominators[index], changed = common, True
    for index in range(1, len(blocks)):
        if not before[index]:
            dominators[index] = {index}
    return dominators


def body_of(head: int, tail: int, before: Sequence[Sequence[int]]) -> set[int]:
    """The blocks from which `tail` is reached without passing `head`."""
    body, queue = {head, tail}, [tail]
    while queue:
        index = queue.pop()
        if index == head:
            continue
        new = set(before[index]) - body
        body |= new
        queue += new
    return body
