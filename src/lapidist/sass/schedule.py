"""A new order for the FFMAs and loads of the main loop.

The register file has two banks (odd and even registers), each read once a cycle. An FFMA reads three registers, so it
issues every cycle only if one of them is still in the operand cache (`.reuse`: same operand slot of the FFMA before) and
the other two lie in different banks. So: all columns of a row, then the next row backwards; the last column of a row and
the first of the next one share B's register. Loads go out as soon as the registers they overwrite have been read for the
last time, spread over the loop, instead of all at its end.

Everything that is neither FFMA nor LDS keeps its slot, so the distances among those instructions stay the compiler's.
"""

from __future__ import annotations

from dataclasses import dataclass

from lapidist.sass.decode import ZERO, Instruction, field
from lapidist.sass.structure import Loop, require

FIXED_LATENCY = 13  # no fixed-latency result of this chip takes longer
SCOREBOARD_LATENCY = 4  # a wait sooner after the load that it is for finds the scoreboard still clear
NEVER = 1 << 30


def bank_cycles(reads: tuple[int, ...], before: tuple[int, ...]) -> int:
    """Cycles that an FFMA takes to read its operands after one that read `before` (empty: the first of a block)."""
    cached = [slot for slot in (0, 1) if before and before[slot] == reads[slot]]
    fetched = [r for slot, r in enumerate(reads) if r != ZERO and slot not in cached]
    odd = sum(r & 1 for r in fetched)
    return max(odd, len(fetched) - odd, 1)


def product_order(block: list[Instruction], loop: Loop) -> list[int]:
    """The FFMAs' indices: generation by generation, k by k, row by row."""
    rows, columns = axes(block, loop)
    cells = {(p.chain, p.position): p.index for p in loop.products}
    lines: list[dict[int, int]] = []
    for generation in sorted({g for _, g in rows.values()}):
        members = sorted({row for row, g in rows.values() if g == generation})
        chains = {(rows[c][0], columns[c]): c for c in rows if rows[c][1] == generation}
        for position in range(loop.steps):
            for row in members:
                lines.append({col: cells[chains[row, col], position] for col in sorted(set(columns.values()))})
    return serpentine(block, lines)


def serpentine(block: list[Instruction], lines: list[dict[int, int]]) -> list[int]:
    """Rows one after the other, each from the column where the last one ended to the best column to turn at."""
    order: list[int] = []
    before: tuple[int, ...] = ()
    for line, following in zip(lines, [*lines[1:], lines[0]]):
        first = min(line, key=lambda c: (bank_cycles(block[line[c]].reads, before), c))
        last = min((c for c in line if c != first), key=lambda c: (turn(block, line[c], following[c]), c))
        order += [line[first], *(i for c, i in line.items() if c not in (first, last)), line[last]]
        before = block[order[-1]].reads
    return order


def turn(block: list[Instruction], here: int, there: int) -> int:
    return bank_cycles(block[there].reads, block[here].reads)


def axes(block: list[Instruction], loop: Loop) -> tuple[dict[int, tuple[int, int]], dict[int, int]]:
    """For each accumulator: (its row, the row's generation) and its column.

    A row is named by the registers that hold its A group; rows whose group was loaded in the block come in later
    generations, after the rows that they replace. A column is named by the register of its B element at the first k.
    """
    row_of: dict[int, int] = {}
    column_of: dict[int, int] = {}
    for product in loop.products:
        if product.position:
            continue
        sides = sorted((product.left, product.right), key=lambda side: len(loop.groups[side[0]].positions))
        (b_group, element), (a_group, _) = sides
        require(len(loop.groups[a_group].positions) > 1, "no operand is used at several k")
        require(len(loop.groups[b_group].positions) == 1, "both operands are used at several k")
        row_of[product.chain] = a_group
        column_of[product.chain] = loop.groups[b_group].registers[element]
    require(len(row_of) == len(loop.homes), "an accumulator has no first product")
    generation: dict[int, int] = {}
    seen: dict[int, int] = {}
    for group in sorted(set(row_of.values()), key=lambda g: loop.groups[g].load):
        base = loop.groups[group].registers[0]
        generation[group] = seen.get(base, 0)
        seen[base] = generation[group] + 1
    rows = {chain: (loop.groups[g].registers[0], generation[g]) for chain, g in row_of.items()}
    return rows, column_of


@dataclass(slots=True)
class Wait:
    """What must have been issued before: FFMAs and loads at any distance, others at a distance in cycles."""

    instructions: set[int]
    others: dict[int, int]


def waits(block: list[Instruction], cycles: list[int]) -> dict[int, Wait]:
    """For each load and other instruction, from the compiler's order. Others keep their order and distances."""
    result: dict[int, Wait] = {}
    previous = -1
    for index, x in enumerate(block):
        if x.kind == "ffma":
            continue
        before, others = set[int](), dict[int, int]()
        for earlier in range(index):
            y = block[earlier]
            if x.kind == "lds" and y.kind == "ffma" and set(x.writes) & (set(y.reads) | set(y.writes)):
                before.add(earlier)
            elif x.kind == "lds" and y.kind == "other" and orders(y, x):
                others[earlier] = min(FIXED_LATENCY, cycles[index] - cycles[earlier])
            elif x.kind == "other" and y.kind == "lds" and orders(x, y):
                others[earlier] = SCOREBOARD_LATENCY
        if x.kind == "other":
            if previous >= 0:
                others[previous] = min(FIXED_LATENCY, cycles[index] - cycles[previous])
            previous = index
        result[index] = Wait(before, others)
    return result


def orders(other: Instruction, load: Instruction) -> bool:
    """Whether a load must stay on its side of this instruction."""
    if other.moves_memory or set(other.writes) & set(load.reads + load.writes) or set(other.reads) & set(load.writes):
        return True
    if not (other.uniform and load.uniform):
        return False
    return field(other.word, 16, 8) in (field(load.word, 32, 8), field(load.word, 32, 8) - 1)


@dataclass(slots=True)
class Placement:
    """The new order: old indices, and the cycle at which each is issued if nothing but latencies and stalls counts."""

    order: list[int]
    cycle: list[int]


def reorder(block: list[Instruction], loop: Loop) -> Placement:
    """A new order of the whole block; raises Unrecognised if none was found."""
    products = product_order(block, loop)
    old_cycles = [0]
    for x in block:
        old_cycles.append(old_cycles[-1] + max(1, x.stall))
    needs = waits(block, old_cycles)
    rank = {index: n for n, index in enumerate(products)}
    users = readers_of_loads(block)
    loads = sorted(users, key=lambda i: (min((rank[r] for r in users[i]), default=len(products)), i))
    others = [i for i, x in enumerate(block) if x.kind == "other"]
    turns = {n for n, (x, y) in enumerate(zip(products, products[1:]), 1) if block[x].reads[0] != block[y].reads[0]} | {0}
    return fill(turns, len(block), products, loads, others, needs)


def fill(turns: set[int], count: int, products: list[int], loads: list[int], others: list[int],
         needs: dict[int, Wait]) -> Placement:
    """Products in their order; at a turn, one load or other instruction, loads first."""
    placed: dict[int, int] = {}
    result = Placement([], [])
    at, now, last_turn = 0, 0, -1
    last = others.pop()  # the branch
    while len(result.order) < count - 1:
        more = at < len(products)
        if more and (at not in turns or last_turn == at):
            choice, start = products[at], now
        else:
            last_turn = at
            start, choice = min(
                ((ready_at(needs[i], placed, now), i) for i in (*loads, *others[:1])), key=lambda pair: pair[0],
                default=(NEVER, -1),
            )
            if more and start > now:
                choice, start = products[at], now
        require(start < NEVER, "no instruction can be issued")
        if more and choice == products[at]:
            at += 1
        else:
            (loads if choice in loads else others).remove(choice)
        placed[choice] = start
        result.order.append(choice)
        result.cycle.append(start)
        now = start + 1
    result.order.append(last)
    result.cycle.append(ready_at(needs[last], placed, now))
    return result


def ready_at(wait: Wait, placed: dict[int, int], now: int) -> int:
    """The first cycle from `now` on at which an instruction may go; NEVER while something must still come before it."""
    if any(i not in placed for i in wait.instructions) or any(i not in placed for i in wait.others):
        return NEVER
    return max([now, *(placed[i] + distance for i, distance in wait.others.items())])


def readers_of_loads(block: list[Instruction]) -> dict[int, list[int]]:
    """The FFMAs that read what each load brings."""
    writer: dict[int, int] = {}
    readers: dict[int, list[int]] = {i: [] for i, x in enumerate(block) if x.kind == "lds"}
    for index, x in enumerate(block):
        if x.kind == "ffma":
            for register in x.reads:
                if register in writer:
                    readers[writer[register]].append(index)
        for register in x.writes:
            if x.kind == "lds":
                writer[register] = index
            else:
                writer.pop(register, None)
    return readers
