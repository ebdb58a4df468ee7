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
    for slot, index in enumerate(order[:-1]):
        x = block[index]
        word = with_stall(x.word, placement.cycle[slot + 1] - placement.cycle[slot])
        if x.kind == "other":
            words.append(with_field(word, 116, 6, x.waits | last_readers.get(index, 0)))
            continue
        word = with_field(word, 116, 6, boards.waits.get(index, 0))
        if x.kind == "lds":
            word = with_field(word, 110, 3, boards.sets[index])
            word = with_field(word, 113, 3, READ_BOARD if index in last_readers else NONE)
        else:
            word = with_field(word, 122, 4, reuse(block, order, slot))
        words.append(word)
    branch = block[order[-1]]  # what it waited for, each reader and the successor wait for now
    words.append(with_field(branch.word, 116, 6, last_readers.get(order[-1], 0)))
    return words, boards.left_over | branch.waits


def with_stall(word: int, stall: int) -> int:
    """Cycles until the next instruction. Bit 109 keeps the warp selected, and with it the operand cache; longer stalls
    are not kept with it set (measured: a predicate was read too early)."""
    require(stall <= 15, "two instructions lie too far apart")
    return with_field(with_field(word, 105, 4, stall), 109, 1, int(stall <= 2))


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
    """Whatever was under way before the loop is there when it is entered (see __init__.settle)."""
    boards = Boards({})
    reads = reads_of(block, order)
    spans = {
        index: (slot, min(next_read(reads[r], slot, len(order)) for r in block[index].writes))
        for slot, index in enumerate(order)
        if block[index].kind == "lds"
    }
    for _ in range(4):  # each load to the board where it costs least, given the others: settles in two rounds
        for index in reversed(spans):
            cost = [0] * len(BOARDS)
            for other, board in boards.sets.items():
                if other != index:
                    one, two = spans[index], spans[other]
                    cost[board] += 1 + delay(one, two, len(order)) + delay(two, one, len(order))
            boards.sets[index] = min(BOARDS, key=lambda board: cost[board])
    add_waits(block, order, boards)
    return boards


def delay(load: tuple[int, int], other: tuple[int, int], count: int) -> int:
    """Cycles by which a load's reader (issue and first read are given) waits longer for the other one on its board."""
    issue, first = load
    behind = [at for at in (other[0], other[0] + count) if issue < at < first]
    return max(0, max(behind) + LOAD_CYCLES - first) if behind else 0


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


def add_waits(block: list[Instruction], order: list[int], boards: Boards) -> None:
    """Each FFMA that is first to read what a load brought waits for it, also for loads of the pass before this one."""
    pending: dict[int, int] = {}  # register -> boards that were not waited for since its load was issued
    for index in (*order, *order):
        x = block[index]
        if x.kind == "lds":
            pending |= dict.fromkeys(x.writes, 1 << boards.sets[index])
        elif x.kind == "ffma":
            mask = boards.waits.get(index, 0)
            for register in x.reads:
                mask |= pending.get(register, 0)
            if mask:
                boards.waits[index] = mask
                pending = {register: left & ~mask for register, left in pending.items()}
    for mask in pending.values():
        boards.left_over |= mask
