"""Branches on undefined values that choose registers' values, and nothing else: those values are undefined.

A compiler makes a branch of `x == 0 ? 1 : log(x)`. Where x is of no use, as in a row beyond a matrix, the
branch is of none either. So a branch is a fault only if something else may depend on it than registers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lapidist.machine.lanes import Lanes
from lapidist.machine.ptx.basic_blocks import COLLECTIVE, NO_DESTINATION, Block, successors
from lapidist.machine.ptx.syntax_tree import Instruction
from lapidist.machine.sanitize.undefined_memory import Origin

Array = np.ndarray
MOST_BLOCKS = 24  # of code between a branch and where its ways meet
SEEN_BY_OTHERS = COLLECTIVE | (NO_DESTINATION - {"bra"}) | {"ld", "atom", "mbarrier", "activemask"}


@dataclass(frozen=True)
class Region:
    """The blocks of code between a branch and the block `end`, where all ways from it meet again. `written`
    are the registers that they write, and that are read from `end` on."""

    blocks: frozenset[int]
    end: int
    written: frozenset[str]


@dataclass(slots=True)
class Doubt:
    """Lanes of a warp that took a branch on an undefined value, until they come to the region's end."""

    region: Region
    lanes: Array
    origin: Origin


class UndefinedBranches:
    def __init__(self, code: Sequence[Instruction], blocks: Sequence[Block]) -> None:
        self.code, self.blocks = code, blocks
        self.ends = {block.stop - 1: block.index for block in blocks if block.kind == "branch"}
        self.regions: dict[int, Region | None] = {}
        self.doubts: dict[int, list[Doubt]] = {}  # by warp

    def region(self, site: int) -> Region | None:
        """What the branch at `site` chooses, if that is registers alone."""
        if site not in self.regions:
            number = self.ends.get(site)
            self.regions[site] = None if number is None else self.find(number)
        return self.regions[site]

    def find(self, branch: int) -> Region | None:
        """The smallest region: its end is tried among the blocks that both ways lead to."""
        ways = list(dict.fromkeys(successors(self.blocks[branch], len(self.blocks))))
        reached = self.between(ways, -1, branch)
        for end in () if reached is None else reached:
            inner = self.between(ways, end, branch)
            if inner is not None and all(self.ends_at(number, inner, end) for number in inner):
                chosen = frozenset(name for number in inner for name in self.blocks[number].writes)
                return Region(frozenset(inner), end, chosen & self.blocks[end].live_in)
        return None

    def between(self, ways: Sequence[int], end: int, branch: int) -> list[int] | None:
        """Blocks from `ways` on, as far as `end` or one that does more than write registers. None where they
        lead back to the branch before the end, or are many."""
        ahead = [number for number in ways if number != end]
        for number in ahead:
            if number == branch or len(ahead) > MOST_BLOCKS:
                return None if end >= 0 else ahead
            if self.is_plain(number):
                after = successors(self.blocks[number], len(self.blocks))
                ahead += [n for n in dict.fromkeys(after) if n != end and n not in ahead]
        return ahead

    def ends_at(self, number: int, inner: Sequence[int], end: int) -> bool:
        after = successors(self.blocks[number], len(self.blocks))
        return self.is_plain(number) and bool(after) and all(n == end or n in inner for n in after)

    def is_plain(self, number: int) -> bool:
        """Whether a block of code does nothing but write registers."""
        block = self.blocks[number]
        return block.kind in ("next", "jump", "branch") and not any(
            i.opcode in SEEN_BY_OTHERS or i.opcode[0] == "$" for i in self.code[block.start : block.stop]
        )

    def begin(self, warp: int, region: Region, g: Lanes, doubtful: Array, origin: Origin) -> None:
        lanes = np.zeros(32, bool)
        lanes[g.lane[doubtful]] = True
        self.doubts.setdefault(warp, []).append(Doubt(region, lanes, origin))

    def kept(self, warp: int) -> set[str]:
        """Registers whose bits are noted while the warp has doubts."""
        return {name for doubt in self.doubts.get(warp, ()) for name in doubt.region.written}

    def executed(self, warp: int, number: int, g: Lanes) -> list[tuple[str, Array, Origin]]:
        """Registers that a block of code wrote and a branch chose, each with the group's lanes in doubt."""
        chosen = []
        for doubt in list(self.doubts.get(warp, ())):
            lanes = doubt.lanes[g.lane]
            if number in doubt.region.blocks and lanes.any():
                names = doubt.region.written & self.blocks[number].writes
                chosen += [(name, lanes, doubt.origin) for name in sorted(names)]
            elif number == doubt.region.end:
                doubt.lanes[g.lane] = False
                if not doubt.lanes.any():
                    self.doubts[warp].remove(doubt)
        if warp in self.doubts and not self.doubts[warp]:
            del self.doubts[warp]
        return chosen

    def forget(self, warp: int) -> None:
        self.doubts.pop(warp, None)
