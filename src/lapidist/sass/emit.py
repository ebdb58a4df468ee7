"""Control bits for a new order: stalls, operand reuse, scoreboards.

Loads answer through five scoreboards (a counter each: a wait is for all loads on it), the sixth tells that a load has
read its address. A load is put where its wait, and the waits of its neighbours there, cost the fewest cycles.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lapidist.sass.decode import NONE, Instruction, with_field
from lapidist.sass.schedule import Placement
from lapidist.sass.structure import require

LOAD_CYCLES = 64  # from a load's issue to its data, with the other warp of the scheduler taking every second slot
READ_BOARD = 5
BOARDS = range(5)


@dataclass(slots=True)
class Boards:
    """Which scoreboard each load answers on, and who waits for which."""

    sets: dict[int, int]
    waits: dict[int, int] = field(default_factory=dict)  # instruction -> mask
    left_over: int = 0  # mask of what may be under way when the block ends


def emit(block: list[Instruction], placement: Placement) -> tuple[list[int], int]:
    """The new words, and the scoreboards that whoever comes after the block must wait for."""
    order = placement.order
    require(all(x.kind != "other" or x.sets == NONE for x in block), "another instruction uses a scoreboard")
    boards = assign(block, order)
    last_readers = address_readers(block, order)
    words: list[int] = []
    for slot, index in enumerate(order):
        x = block[index]
        stall = placement.cycle[slot + 1] - placement.cycle[slot] if slot + 1 < len(order) else x.stall
        require(stall <= 15, "two instructions lie too far apart")
        word = with_field(x.word, 105, 4, stall)
        word = with_field(word, 109, 1, 1)
        if x.kind == "other":
            words.append(with_field(word, 116, 6, x.waits & ~sum(1 << b for b in BOARDS) | last_readers.get(index, 0)))
            continue
        word = with_field(word, 116, 6, boards.waits.get(index, 0))
        if x.kind == "lds":
            word = with_field(word, 110, 3, boards.sets[index])
            word = with_field(word, 113, 3, READ_BOARD if index in last_readers else NONE)
        else:
            word = with_field(word, 122, 4, reuse(block, order, slot))
        words.append(word)
    return words, boards.left_over


def reuse(block: list[Instruction], order: list[int], slot: int) -> int:
    """Slots a and b that the next FFMA reads again; as ptxas does, also across a load or integer work in between."""
    x = block[order[slot]]
    for index in order[slot + 1 : slot + 4]:
        y = block[index]
        if y.kind == "ffma":
            same = [s for s in (0, 1) if x.reads[s] == y.reads[s] and x.reads[s] not in x.writes]
            return sum(1 << s for s in same)
        if y.kind == "other" and y.moves_memory:
            return 0
    return 0


def address_readers(block: list[Instruction], order: list[int]) -> dict[int, int]:
    """The last load before an instruction that overwrites its address, and that instruction with the wait it needs."""
    result: dict[int, int] = {}
    for slot, index in enumerate(order):
        if block[index].kind != "other":
            continue
        for earlier in reversed(order[:slot]):
            y = block[earlier]
            if y.kind == "lds" and set(y.reads) & set(block[index].writes):
                result[earlier] = result[index] = 1 << READ_BOARD
                break
    return result


def assign(block: list[Instruction], order: list[int]) -> Boards:
    entry = entry_masks(block)
    boards = Boards({})
    reads = reads_of(block, order)
    due: list[list[int]] = [[] for _ in BOARDS]  # slots at which someone waits on the board
    for register, mask in entry.items():
        for board in BOARDS:
            if mask >> board & 1:
                due[board].append(len(order) + reads[register][0])
    for slot, index in enumerate(order):
        if block[index].kind == "lds":
            first = min(next_read(reads[r], slot, len(order)) for r in block[index].writes)
            board = min(BOARDS, key=lambda b: (penalty(slot, first, due[b]), len(due[b]), b))
            boards.sets[index] = board
            due[board].append(first)
    add_waits(block, order, entry, boards)
    return boards


def penalty(slot: int, first: int, due: list[int]) -> int:
    """Cycles lost when a load issued at `slot` and first read at `first` shares a board with loads due at these slots."""
    shared = (max(0, slot + LOAD_CYCLES - wait) for wait in due if wait > slot)
    return max(0, slot + LOAD_CYCLES - first) + sum(shared)


def reads_of(block: list[Instruction], order: list[int]) -> dict[int, list[int]]:
    """The slots at which FFMAs read each register."""
    reads: dict[int, list[int]] = {}
    for slot, index in enumerate(order):
        if block[index].kind == "ffma":
            for register in block[index].reads:
                reads.setdefault(register, []).append(slot)
    return reads


def next_read(reads: list[int], slot: int, count: int) -> int:
    """The first read after `slot`, in this pass through the block or the next."""
    return next((r for r in reads if r > slot), count + reads[0])


def entry_masks(block: list[Instruction]) -> dict[int, int]:
    """For each register read before it is written: the scoreboards that the compiler had waited for by then."""
    masks: dict[int, int] = {}
    written: set[int] = set()
    waited = 0
    for x in block:
        waited |= x.waits
        if x.kind == "ffma":
            for register in x.reads:
                if register not in written:
                    masks.setdefault(register, waited)
        written |= set(x.writes)
    return masks


def add_waits(block: list[Instruction], order: list[int], entry: dict[int, int], boards: Boards) -> None:
    """Each FFMA that is first to read what a load brought waits for it, also for loads of the pass before this one."""
    pending: dict[int, int] = dict(entry)  # register -> boards that must have been empty since its load was issued
    for index in order:  # what the pass before leaves under way
        if block[index].kind == "lds":
            for register in block[index].writes:
                pending[register] = entry.get(register, 0) | 1 << boards.sets[index]
    for index in order:
        x = block[index]
        if x.kind == "lds":
            for register in x.writes:
                pending[register] = 1 << boards.sets[index]
        elif x.kind == "ffma":
            mask = 0
            for register in x.reads:
                mask |= pending.get(register, 0)
            if mask:
                boards.waits[index] = mask
                for register, boards_left in list(pending.items()):
                    pending[register] = boards_left & ~mask
    for mask in pending.values():
        boards.left_over |= mask
