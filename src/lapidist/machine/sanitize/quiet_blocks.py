"""Quiet blocks of code: they calculate, load plainly and store plainly, and nothing else.

Nobody can tell when such a block is computed, as long as nobody writes what it loads, and as what it writes
is held back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from lapidist.machine.instructions.access import HINTS
from lapidist.machine.program import Program
from lapidist.machine.ptx.basic_blocks import effects, is_collective
from lapidist.machine.ptx.syntax_tree import TYPE_BYTES, Addr, Imm, Instruction, Special, Sym, flatten

# Of one lane each, with the same bits however many lanes are computed together.
CALCULATES = frozenset(
    [
        "mov",
        "add",
        "sub",
        "mul",
        "mad",
        "fma",
        "neg",
        "abs",
        "min",
        "max",
        "shl",
        "shr",
        "and",
        "or",
        "xor",
        "not",
        "lop3",
        "cvt",
        "cvta",
        "setp",
        "selp",
        "bfe",
        "bfi",
        "prmt",
        "div",
        "rem",
        "mul24",
        "mad24",
        "sad",
    ]
)
SPACES = frozenset(["global", "shared", "shared::cta", "param", "const"])
CHANGING = ("clock", "globaltimer", "envreg")  # special registers that are no constants of a lane
LOAD_WORDS = frozenset([*SPACES, *HINTS, *TYPE_BYTES, "v2", "v4", "v8", "weak"])
STORE_WORDS = LOAD_WORDS - {"param", "const"}
TARGETS = frozenset(["global", "shared", "shared::cta"])
# Of whole warps, each product and each tile with the same bits however many warps are computed together.
MATRICES = frozenset(["mma", "wmma", "ldmatrix"])
WHOLE_WARPS = MATRICES | {"shfl"}
COPY_WORDS = frozenset(["async", "ca", "cg", "shared", "shared::cta", "global", "L2::64B", "L2::128B"])
GROUP_WORDS = frozenset(["async", "commit_group", "wait_group", "wait_all"])


@dataclass(frozen=True)
class Way:
    """`answers` are the registers, by slot, in which waits say that they are over."""

    waits: bool
    answers: frozenset[int]


class QuietBlocks:
    """Which blocks of a kernel are quiet. `in_clusters` says whether addresses of shared variables have
    ranks; `constant`, whether a special register is the same for all lanes of a launch. `followed` are loads
    whose values are followed."""

    def __init__(
        self, program: Program, constant: Callable[[str], bool], in_clusters: bool, followed: frozenset[int]
    ) -> None:
        self.program, self.in_clusters, self.followed = program, in_clusters, followed
        self.constant = cache(constant)
        self.code = program.kernel.instructions
        self.answers: dict[int, bool] = {}
        self.passing: dict[int, bool] = {}
        self.uniform_after = cache(self.find_uniform)

    def __contains__(self, number: int) -> bool:
        if number not in self.answers:
            self.answers[number] = self.is_quiet(number)
        return self.answers[number]

    def drop(self, number: int) -> None:
        """Count a block as not quiet from here on."""
        self.answers[number] = False

    def is_quiet(self, number: int) -> bool:
        block = self.program.blocks[number]
        last = self.code[block.stop - 1]
        meets = block.kind == "barrier" and all(isinstance(operand, Imm) for operand in last.operands)
        if not (meets or block.kind in ("next", "jump", "branch")):
            return False
        if any(name in self.program.read_late for name in block.writes):
            return False
        code = self.code[block.start : block.stop]
        if block.collective and any(is_collective(i) and i.opcode not in WHOLE_WARPS for i in code):
            return False
        body = code if block.kind == "next" else code[:-1]
        return all(self.is_calm(i, site) for site, i in enumerate(body, block.start))

    def way_behind(self, start: int, stop: int) -> Way | None:
        """The way from one block to another through waits and arrivals, which change no register but their
        answers; None if it is another way."""
        answers, waits = set[str](), False
        while start != stop:
            if start < 0 or not self.passes(start):
                return None
            block = self.program.blocks[start]
            if block.kind == "retry":
                answers |= block.writes & block.live_out
            start, waits = start + (2 if block.kind == "branch" else 1), True
        return Way(waits, frozenset(self.program.slots[name] for name in answers))

    def passes(self, number: int) -> bool:
        """Whether a block that is not quiet waits, or leaves its registers as they were. Some of its lanes
        may go through the next block."""
        if number not in self.passing:
            block = self.program.blocks[number]
            same = number not in self and block.writes.isdisjoint(block.live_out)
            around = block.kind == "branch" and block.target == number + 2
            self.passing[number] = (
                block.kind == "retry"
                or (same and block.kind == "next")
                or (same and around and self.passes(number + 1))
            )
        return self.passing[number]

    def is_calm(self, i: Instruction, site: int) -> bool:
        items = [item for operand in i.operands for item in flatten(operand)]
        changing = any(isinstance(item, Special) and item.name.startswith(CHANGING) for item in items)
        if i.opcode == "cp" and not self.in_clusters:
            return COPY_WORDS.issuperset(i.mods) or GROUP_WORDS.issuperset(i.mods)
        guarded = i.predicate is not None and not (i.opcode == "st" and "global" in i.mods)
        if guarded or changing or site in self.followed:
            return False
        if self.in_clusters and any(isinstance(item, Sym) for item in items):
            return False
        if i.opcode == "st":
            named = isinstance(i.operands[0], Addr) and i.operands[0].base in self.local_names
            written = STORE_WORDS.issuperset(i.mods) and not TARGETS.isdisjoint(i.mods)
            return written and not named and site not in self.program.update_sites
        if i.opcode in MATRICES:
            moves = i.opcode == "ldmatrix" or not {"load", "store"}.isdisjoint(i.mods)
            return not moves or not TARGETS.isdisjoint(i.mods)
        if i.opcode != "ld":
            return (i.opcode in CALCULATES and "cc" not in i.mods) or i.opcode == "shfl"
        spaces = SPACES.intersection(i.mods)
        named = isinstance(i.operands[1], Addr) and i.operands[1].base in self.local_names
        return bool(spaces) and LOAD_WORDS.issuperset(i.mods) and not named

    @property
    def local_names(self) -> list[Sym]:
        """Variables that lie in local memory, though a load names parameter space."""
        return [Sym(name) for name, v in self.program.kernel.variables.items() if v.space == "local"]

    def find_uniform(self, number: int, uniform: frozenset[int]) -> tuple[frozenset[int], frozenset[int]]:
        """The registers, by slot, that a warp keeps as one value behind a block, if it kept `uniform` so
        before. Also the loads that have one address."""
        block, slots = self.program.blocks[number], self.program.slots
        held, sites = set(uniform), set()
        for site in range(block.start, block.stop):
            i = self.code[site]
            reads, writes = ([slots[name] for name in part] for part in effects(i))
            one = held.issuperset(reads) and all(
                self.constant(item.name)
                for operand in i.operands
                for item in flatten(operand)
                if isinstance(item, Special)
            )
            if i.opcode == "ld" and one:
                sites.add(site)
            # a shared address is one of the lanes' own block: the machine keeps it by lane
            by_lane = i.opcode == "ld" and not {"shared", "shared::cta"}.isdisjoint(i.mods)
            by_lane |= i.opcode in WHOLE_WARPS
            (held.update if one and not by_lane else held.difference_update)(writes)
        return frozenset(held), frozenset(sites)
