"""One block of code that warps computed together, and what of it waits for the turn of each."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from lapidist.machine.instructions.warp import BarrierRequest
from lapidist.machine.lanes import Cohort, Lanes
from lapidist.machine.ptx.basic_blocks import Block
from lapidist.machine.sanitize.held_reads import NOWHERE, WARP, Reads
from lapidist.machine.sanitize.held_stores import GlobalStores
from lapidist.machine.sanitize.held_writes import Writes

Array = np.ndarray
YES_OR_NO = (np.array([False]), np.array([True]))


@dataclass(slots=True)
class JointRun:
    """One block, computed for these warps. `registers` are those behind it, of which `live` are used later
    and `written` were written since the warps came together; a warp by itself keeps those in `uniform` as one
    value. `after` is where each warp goes on."""

    number: int
    cohorts: list[Cohort]
    group: Lanes
    registers: list[Array]
    live: frozenset[int]
    written: frozenset[int]
    uniform: frozenset[int]
    jumps: Array | BarrierRequest | None
    one_jump: bool
    after: list[int]
    changes: list[int]
    marks: int
    strays: int
    reads: list[Reads] = field(default_factory=list)
    writes: Writes | None = None
    stores: GlobalStores | None = None
    meets: bool = False  # nobody is to be ahead of its end: it ends at a barrier, or writes
    goes: list[int] | None = None  # of each warp whether all its lanes jump; below 0 where they part
    answers: frozenset[int] = frozenset()  # registers of waits before it, which must have answered yes
    loads: bool = False  # it reads memory that others may write
    plain: bool = False  # it reads global memory at most
    all_written: bool = False  # what it loads from shared memory was written when it was computed
    certain: bool = (
        False  # it, and all before it, read nothing that the kernel may write, and foresaw no wait
    )
    elements: int = 0  # how many grains its reads hold
    ends: bool = False  # no sprint leads past it
    steps: tuple[tuple[int, int], ...] = ()  # of several blocks in a row: each, and where all warps go on

    def part(self, values: Array, row: int, one: bool) -> Array:
        """A warp's part of a register."""
        if len(values) == 1:
            return values if one else np.repeat(values, WARP)
        return values[row * WARP : row * WARP + (1 if one else WARP)]

    def answer(self, row: int) -> Array | BarrierRequest | None:
        """What the block answers to a warp: which lanes jump, or what they ask at a barrier."""
        jumps = self.jumps
        if self.goes is not None and self.goes[row] >= 0:
            return YES_OR_NO[self.goes[row]]
        return self.part(jumps, row, self.one_jump) if isinstance(jumps, np.ndarray) else jumps


@dataclass(slots=True)
class Turns:
    """What was computed ahead for a warp, each with its row there: `ahead` waits for its turn, the warp's
    registers stand behind `done`."""

    ahead: deque[tuple[JointRun, int]] = field(default_factory=deque)
    done: tuple[JointRun, int] | None = None
    settled: tuple[JointRun, int] | None = None  # the block behind which it has its registers still

    def drop(self) -> None:
        """The warp goes another way."""
        self.ahead.clear()
        self.settled = None

    @property
    def last(self) -> tuple[JointRun, int] | None:
        return self.ahead[-1] if self.ahead else self.done


def before_block(
    cohorts: list[Cohort], registers: list[Array], live: frozenset[int], uniform: frozenset[int]
) -> JointRun:
    """Warps as one group, with nothing computed yet."""
    slots, blocks, threads = (
        np.concatenate([getattr(one, name) for one in cohorts]) for name in ("slot", "block", "thread")
    )
    group = Cohort(slots, blocks, threads, cohorts[0].geometry, registers).all
    before = JointRun(
        NOWHERE, cohorts, group, registers, live, frozenset(), uniform, None, False, [], [], 0, 0
    )
    before.certain = True
    return before


def whole_jumps(jumps: object, warps: int) -> list[int] | None:
    """Of each warp at a branch, 1 if all its lanes jump, 0 if none does, and -1 if they part."""
    if not isinstance(jumps, np.ndarray):
        return None
    if len(jumps) == 1:
        return [int(jumps[0])] * warps
    rows = jumps.reshape(warps, WARP)
    answers: list[int] = np.where(rows.all(axis=1), 1, np.where(rows.any(axis=1), -1, 0)).tolist()
    return answers


def next_blocks(block: Block, goes: list[int] | None, warps: int) -> list[int]:
    """Where each warp goes on; NOWHERE if its lanes part."""
    if goes is None:
        return [block.target if block.kind == "jump" else block.index + 1] * warps
    return [(block.index + 1, block.target, NOWHERE)[jump] for jump in goes]
