"""Instructions to basic blocks: where control can enter and leave, and which registers live across.

A block ends at a branch, or at an instruction that may have to wait (a barrier). A wait for an mbarrier or
for wgmmas has a block of its own: it is executed again until it succeeds. A guarded wait becomes a branch
around it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from lapidist.machine.faults import PtxError
from lapidist.machine.ptx.syntax_tree import (
    Imm,
    Instruction,
    Kernel,
    Operand,
    Pair,
    Reg,
    Sym,
    Tuple,
    Vec,
    flatten,
)

# Opcodes whose first operand is read, never written.
NO_DESTINATION = frozenset(
    [
        "st",
        "red",
        "bra",
        "brx",
        "ret",
        "exit",
        "trap",
        "bar",
        "barrier",
        "fence",
        "membar",
        "cp",
        "prefetch",
        "prefetchu",
        "discard",
        "applypriority",
        "setmaxnreg",
        "stmatrix",
        "nanosleep",
        "call",
        "$push",
        "griddepcontrol",
        "brkpt",
        "pmevent",
        "multimem",
        "tensormap",
    ]
)
# Opcodes whose destination is also a source.
READS_DESTINATION = frozenset(["wgmma"])
# Instructions that all the lanes they name execute together.
COLLECTIVE = frozenset(
    ["shfl", "vote", "match", "elect", "redux", "wmma", "mma", "ldmatrix", "stmatrix", "wgmma", "setmaxnreg"]
)


@dataclass(slots=True)
class Block:
    """Instructions [start, stop). `kind` says how it ends:

    "next" falls through and "jump" goes to `target`. "branch" goes to `target` where the guard holds, else
    falls through. "skip" falls through where the guard of the following wait holds, else goes to `target`.
    "exit", "table", "barrier" and "retry" (run again until it succeeds) speak for themselves."""

    index: int
    start: int
    stop: int
    kind: str = "next"
    target: int = -1
    table: tuple[int, ...] = ()
    collective: bool = False
    mask: Operand | None = None  # of a collective that it begins with: which lanes; none where it is for all
    meets: bool = False  # it begins with a bar.warp.sync, at which lanes may meet those of other places
    reads: set[str] = field(default_factory=set)
    writes: set[str] = field(default_factory=set)
    live_in: set[str] = field(default_factory=set)
    live_out: set[str] = field(default_factory=set)
    polls: bool = False  # it lies on a loop that looks at memory until that changes


def build_blocks(kernel: Kernel) -> list[Block]:
    masks = Masks(kernel)
    starts = leaders(kernel, masks)
    block_at = {start: index for index, start in enumerate(starts)}
    blocks = []
    for index, start in enumerate(starts):
        stop = starts[index + 1] if index + 1 < len(starts) else len(kernel.instructions)
        block = Block(index, start, stop)
        finish(block, kernel, block_at)
        find_registers(block, kernel, masks.effects)
        first = kernel.instructions[start]
        block.mask, block.meets = masks.of(first), is_warp_barrier(first) and first.predicate is None
        blocks.append(block)
    find_live_out(blocks)
    for block in blocks:
        if any(may_poll(i) for i in kernel.instructions[block.start : block.stop]):
            mark_loop(block, blocks)
    return blocks


def may_poll(i: Instruction) -> bool:
    """Whether it may wait for another thread's store: an ordered load, or an atomic that takes a lock or adds
    nothing."""
    if i.opcode == "atom":
        return bool({"cas", "exch"} & set(i.mods)) or i.operands[2:3] == (Imm(0),)
    return i.opcode == "ld" and any(mod in ("acquire", "relaxed", "volatile") for mod in i.mods)


def mark_loop(block: Block, blocks: list[Block]) -> None:
    """Mark the blocks of the shortest loop through `block`."""
    came_from, ahead = {block.index: -1}, [block.index]
    for index in ahead:
        for after in successors(blocks[index], len(blocks)):
            if after == block.index:
                while index >= 0:
                    blocks[index].polls = True
                    index = came_from[index]
                return
            if after not in came_from:
                came_from[after] = index
                ahead.append(after)


def wait_kind(i: Instruction) -> str:
    """ "barrier", "retry" or "" for an instruction that never waits."""
    if i.opcode in ("bar", "barrier") and "warp" not in i.mods:
        return "barrier"
    if (i.opcode, i.mods[:1]) in (("mbarrier", ("try_wait",)), ("wgmma", ("wait_group",))):
        return "retry"
    return ""


MASKS = {"shfl": 4, "vote": 2, "match": 2, "redux": 2, "elect": 1, "bar": 0}
EVERYBODY = (Imm(-1), Imm(0xFFFFFFFF))


def is_warp_barrier(i: Instruction) -> bool:
    return i.opcode == "bar" and "warp" in i.mods


def is_collective(i: Instruction) -> bool:
    return i.opcode in COLLECTIVE or is_warp_barrier(i)


class Masks:
    """Which lanes collective instructions name, where these need not be all of the warp. `effects` has an
    entry for each instruction."""

    def __init__(self, kernel: Kernel) -> None:
        self.effects = [effects(i) for i in kernel.instructions]
        written = [
            (name, i)
            for i, (_, writes) in zip(kernel.instructions, self.effects, strict=True)
            for name in writes
        ]
        counts = Counter(name for name, _ in written)
        self.all_lanes = {name for name, i in written if counts[name] == 1 and moves_all(i)}

    def of(self, i: Instruction) -> Operand | None:
        place = MASKS.get(i.opcode, len(i.operands))
        mask = i.operands[place] if is_collective(i) and place < len(i.operands) else None
        if mask in EVERYBODY or (isinstance(mask, Reg) and mask.name in self.all_lanes):
            return None
        return mask if isinstance(mask, Imm | Reg) else None


def moves_all(i: Instruction) -> bool:
    source = i.operands[1] if len(i.operands) == 2 else None
    return i.opcode == "mov" and i.predicate is None and source in EVERYBODY


def leaders(kernel: Kernel, masks: Masks) -> list[int]:
    """Sorted indices where blocks begin."""
    code = kernel.instructions
    starts = {0, *kernel.labels.values()}
    some = False  # the block has begun with a collective instruction of some lanes
    for index, i in enumerate(code):
        some = some and index not in starts
        # Only where a block begins can lanes wait for those that such an instruction names.
        if masks.of(i) is not None or (some and is_collective(i)):
            starts.add(index)
            some = masks.of(i) is not None
        wait = wait_kind(i)
        if wait or i.opcode in ("bra", "brx", "ret", "exit", "trap"):
            starts.add(index + 1)
        # Lanes that diverged may reach a warp barrier at different times. They do what stands before it
        # independently, so a block must begin here.
        if i.opcode == "activemask":  # a schedule may run some of the lanes alone here
            starts |= {index, index + 1}
        if wait == "retry" or (wait and i.predicate is not None) or is_warp_barrier(i):
            starts.add(index)
    return sorted(index for index in starts if index < len(code))


BRANCH_OPERANDS = {"bra": 1, "brx": 2}


def finish(block: Block, kernel: Kernel, block_at: dict[int, int]) -> None:
    """Set how the block ends."""
    last = kernel.instructions[block.stop - 1]
    if len(last.operands) < BRANCH_OPERANDS.get(last.opcode, 0):
        raise PtxError(f"{last.site}: a branch without a target")
    after = kernel.instructions[block.stop] if block.stop < len(kernel.instructions) else None
    if last.opcode == "bra":
        block.kind = "jump" if last.predicate is None else "branch"
        block.target = target_of(last, last.operands[0], kernel, block_at)
    elif last.opcode == "brx":
        names = kernel.branch_tables.get(
            last.operands[1].name if isinstance(last.operands[1], Sym) else "", ()
        )
        block.kind, block.table = (
            "table",
            tuple(target_of(last, Sym(name), kernel, block_at) for name in names),
        )
    elif after is None and last.predicate is not None:
        raise PtxError(f"{last.site}: control runs off the end of the kernel")
    elif last.opcode in ("ret", "exit") or (after is None and never_returns(last)):
        block.kind = "exit"
    elif wait_kind(last):
        block.kind = wait_kind(last)
    elif after is None:
        raise PtxError(f"{last.site}: control runs off the end of the kernel")
    elif wait_kind(after) and after.predicate is not None:
        block.kind, block.target = "skip", block_at[block.stop + 1]


def never_returns(i: Instruction) -> bool:
    """The kernel ends here in a fault."""
    failed = i.opcode == "call" and (Sym("__assertfail") in i.operands or Sym("__lostcall") in i.operands)
    return i.predicate is None and (i.opcode == "trap" or failed)


def target_of(i: Instruction, operand: Operand, kernel: Kernel, block_at: dict[int, int]) -> int:
    if not isinstance(operand, Sym) or operand.name not in kernel.labels:
        raise PtxError(f"{i.site}: the branch target is not a label of this kernel")
    index = kernel.labels[operand.name]
    if index not in block_at:
        raise PtxError(f"{i.site}: the label stands behind the last instruction")
    return block_at[index]


# ---- which registers a block needs and leaves ----


def registers(operand: Operand) -> list[str]:
    if isinstance(operand, Reg):
        return [operand.name]
    if isinstance(operand, Imm):
        return []
    return [item.name for item in flatten(operand) if isinstance(item, Reg)]


def effects(i: Instruction) -> tuple[list[str], list[str]]:
    """Registers that the instruction reads, and those that it writes."""
    reads = [i.predicate.name] if i.predicate is not None else []
    writes: list[str] = []
    sources = i.operands
    if sources and isinstance(sources[0], Reg | Vec | Pair | Tuple) and i.opcode not in NO_DESTINATION:
        writes = registers(sources[0])
        sources = sources[1:]
    # A guarded write keeps the old value in some lanes.
    if i.predicate is not None or i.opcode in READS_DESTINATION:
        reads += writes
    return reads + [name for operand in sources for name in registers(operand)], writes


def find_registers(block: Block, kernel: Kernel, all_effects: list[tuple[list[str], list[str]]]) -> None:
    for index in range(block.start, block.stop):
        i, (reads, writes) = kernel.instructions[index], all_effects[index]
        block.reads.update(name for name in reads if name not in block.writes)
        block.writes.update(writes)
        block.collective |= is_collective(i)
    if block.kind == "skip":
        guard = kernel.instructions[block.stop].predicate
        if guard is not None and guard.name not in block.writes:
            block.reads.add(guard.name)


def successors(block: Block, count: int) -> list[int]:
    numbers = list(block.table)
    if block.target >= 0:
        numbers.append(block.target)
    if block.kind in ("next", "branch", "skip", "barrier", "retry", "exit") and block.index + 1 < count:
        numbers.append(block.index + 1)
    return numbers


def find_live_out(blocks: list[Block]) -> None:
    """Backward data flow to a fixed point."""
    for block in blocks:
        block.live_in = set(block.reads)
    changed = True
    while changed:
        changed = False
        for block in reversed(blocks):
            block.live_out = set().union(*(blocks[s].live_in for s in successors(block, len(blocks))))
            live_in = block.reads | (block.live_out - block.writes)
            changed |= live_in != block.live_in
            block.live_in = live_in
