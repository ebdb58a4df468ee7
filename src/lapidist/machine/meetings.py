"""Which lanes of a warp have come to a collective instruction, and meetings at several places.

bar.warp.sync counts lanes wherever they execute it: both sides of a branch may have one. The lanes of the
place that runs first meet all others that wait with the same mask. Those are let go, and run on when their
turn comes. Shuffles, votes and matrix instructions give values, and meet at one place alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lapidist.machine.instructions.warp import BIT, mask_bits
from lapidist.machine.lanes import Cohort, Lanes
from lapidist.machine.ptx.basic_blocks import Block
from lapidist.machine.ptx.syntax_tree import Imm, Reg

if TYPE_CHECKING:
    from lapidist.machine.state import Machine

Array = np.ndarray
EVERYBODY = 0xFFFFFFFF


class Meetings:
    """`let_go` are lanes that still stand at a bar.warp.sync, and met the others already: bits, by slot and
    warp."""

    def __init__(self, m: Machine) -> None:
        self.m, self.let_go, self.pending = m, np.zeros_like(m.exited), False

    def ready(self, cohort: Cohort, lanes: Lanes, block: Block) -> Array:
        """For each lane, whether all that its collective instruction names are here or have exited."""
        several = block.meets and (self.pending or self.peers_wait(cohort, block))
        key = self.m.events, block.index
        if several or lanes.readiness is None or lanes.readiness[0] != key:
            named = self.named(lanes, block)
            come = mask_bits(lanes.present | self.m.exited_rows(lanes))[lanes.row]
            if several:
                return self.ready_by_place(lanes, named, come, block.index)
            lanes.readiness = key, (named & ~come) == 0
        return lanes.readiness[1]

    def peers_wait(self, cohort: Cohort, block: Block) -> bool:
        """Whether lanes of the cohort stand at another bar.warp.sync."""
        blocks = self.m.program.blocks
        return any(blocks[number].meets and number != block.index for number in cohort.groups)

    def ready_by_place(self, lanes: Lanes, named: Array, come: Array, place: int) -> Array:
        """The same where lanes of the warps wait at several places, or have been let go."""
        come = come & ~self.let_go[lanes.slot, lanes.thread // 32]
        come |= mask_bits(self.with_equal_masks(lanes, named, place))
        return self.are_free(lanes) | ((named & ~come) == 0)

    def named(self, lanes: Lanes, block: Block) -> Array:
        """The member mask of each lane, or one for all."""
        if isinstance(block.mask, Reg):
            return lanes.pick_all(lanes.cohort.registers[self.m.program.slots[block.mask.name]])
        word = block.mask.value if isinstance(block.mask, Imm) else EVERYBODY
        return np.array([word & EVERYBODY], np.uint32)

    def are_free(self, lanes: Lanes) -> Array:
        """Which of these lanes have been let go."""
        return (self.let_go[lanes.slot, lanes.thread // 32] & BIT[lanes.lane]) != 0

    def with_equal_masks(self, lanes: Lanes, named: Array, place: int = -1) -> Array:
        """(lanes, 32): which lanes of its warp wait at another bar.warp.sync with the mask of each lane."""
        masks = np.zeros((*self.let_go.shape, 32), np.uint32)
        for number, (group, _) in lanes.cohort.groups.items():
            block = self.m.program.blocks[number]
            if block.meets and number != place:
                word = np.where(self.are_free(group), np.uint32(0), self.named(group, block))
                masks[group.slot, group.thread // 32, group.lane] = word
        return masks[lanes.slot, lanes.thread // 32] == np.broadcast_to(named, (lanes.n,))[:, None]

    def arriving(self, g: Lanes) -> Lanes | None:
        """Those of the lanes that nobody has let go; the others go on."""
        if not self.pending:
            return g
        free = self.are_free(g)
        np.bitwise_and.at(self.let_go, (g.slot[free], g.thread[free] // 32), ~BIT[g.lane[free]])
        self.pending = bool(self.let_go.any())
        return g.where(~free)

    def partners(self, g: Lanes, mask: Array) -> Array | None:
        """(warps, 32): lanes that wait elsewhere for these; None if there are none."""
        if g.full_warps:
            return None
        rows = np.zeros((g.warps, 32), bool)
        np.logical_or.at(rows, g.row, self.with_equal_masks(g, mask))
        return rows if rows.any() else None

    def release(self, g: Lanes, partners: Array) -> None:
        """Let these lanes of the warps go, wherever they wait."""
        first = np.searchsorted(g.row, np.arange(g.warps))
        self.let_go[g.slot[first], g.thread[first] // 32] |= mask_bits(partners)
        self.pending = True
        self.m.events += 1
