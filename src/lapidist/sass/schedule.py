"""A new order for the FFMAs and loads of the main loop.

The register file has two banks (odd and even registers), each read once a cycle. An FFMA reads three registers: it
issues every cycle only if one of them is still in the operand cache (`.reuse`: same operand slot of the FFMA before)
and the other two lie in different banks. So: all columns of a row, then the next row backwards; the last column of a
row and the first of the next one share B's register. Loads go out as soon as the registers they overwrite have been
read for the last time, spread over the loop, instead of all at its end.

What is neither FFMA nor LDS keeps its order, at the distances that the compiler gave it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from lapidist.sass.decode import ZERO, Instruction, field
from lapidist.sass.structure import Loop, Product, require

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
    """The FFMAs' indices: chunk by chunk (the k of one A group), generation by generation, k by k, row by row."""
    rows, columns = axes(loop)
    cells = {(p.chain, p.position): p for p in loop.products}
    span = max(len(group.positions) for group in loop.groups)
    chains: dict[tuple[int, int], dict[int, int]] = {}  # (generation, row) -> column -> accumulator
    for chain, row in rows.items():
        chains.setdefault(row, {})[columns[chain]] = chain
    lines: list[list[int]] = []
    released: dict[int, int] = {}  # register of an A group -> when it was last read
    for start in range(0, loop.steps, span):
        for generation in sorted({g for g, _ in chains}):
            members = [row for row in chains if row[0] == generation]
            base = {row: a_register(loop, cells[min(chains[row].values()), start]) for row in members}
            members.sort(key=lambda row: (released.get(base[row], 0), base[row]))
            for position in range(start, min(start + span, loop.steps)):
                for row in members:
                    lines.append([cells[chain, position].index for _, chain in sorted(chains[row].items())])
            released |= {base[row]: len(lines) + n for n, row in enumerate(members)}
    return serpentine(block, lines)


def a_register(loop: Loop, product: Product) -> int:
    groups = [loop.groups[group] for group, _ in (product.left, product.right)]
    return max(groups, key=lambda group: len(group.positions)).registers[0]


def serpentine(block: list[Instruction], lines: list[list[int]]) -> list[int]:
    """Rows one after the other, each from the column where the last one ended to the best column to turn at."""
    order: list[int] = []
    before: tuple[int, ...] = ()
    for line, following in zip(lines, [*lines[1:], lines[0]], strict=True):
        cost = {i: bank_cycles(block[there].reads, block[i].reads) for i, there in zip(line, following, strict=True)}
        first = min(line, key=lambda i: bank_cycles(block[i].reads, before))
        last = min((i for i in line if i != first), key=lambda i: cost[i])
        order += [first, *(i for i in line if i not in (first, last)), last]
        before = block[last].reads
    return order


def axes(loop: Loop) -> tuple[dict[int, tuple[int, int]], dict[int, int]]:
    """For each accumulator its row, as (generation, register of the row's first A group), and its column.

    Rows whose first group is loaded in the block come in later generations, after the rows whose registers they take. A
    column is named by the register of its first B element.
    """
    first = [p for p in loop.products if p.position == 0]
    require(len(first) == len(loop.homes), "an accumulator has no first product")
    a_group: dict[int, int] = {}
    column: dict[int, int] = {}
    for product in first:
        sides = sorted((product.left, product.right), key=lambda side: len(loop.groups[side[0]].positions))
        (b, element), (a, _) = sides
        require(len(loop.groups[b].positions) == 1 < len(loop.groups[a].positions), "the operands' roles are unclear")
        a_group[product.chain] = a
        column[product.chain] = loop.groups[b].registers[element]
    generation: dict[int, int] = {}
    seen: dict[int, int] = {}
    for group in sorted(set(a_group.values()), key=lambda g: loop.groups[g].load):
        register = loop.groups[group].registers[0]
        generation[group] = seen.get(register, 0)
        seen[register] = generation[group] + 1
    return {chain: (generation[g], loop.groups[g].registers[0]) for chain, g in a_group.items()}, column


@dataclass(slots=True)
class Wait:
    """What must have been issued before: FFMAs at any distance, loads and others at a distance in cycles."""

    products: set[int]
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
            if index == len(block) - 1:  # whoever follows the branch relies on these distances
                for y in (i for i in range(index) if block[i].kind == "other"):
                    others[y] = min(FIXED_LATENCY, cycles[index] - cycles[y])
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
    turns = {n for n, (i, j) in enumerate(pairwise(products), 1) if block[i].reads[0] != block[j].reads[0]} | {0}
    return fill(turns, len(block), products, loads, others, needs)


def fill(turns: set[int], count: int, products: list[int], loads: list[int], others: list[int],
         needs: dict[int, Wait]) -> Placement:
    """Products in their order; where a row ends, one load or, if none may go, one other instruction."""
    placed: dict[int, int] = {}
    result = Placement([], [])
    at, now, last_turn = 0, 0, -1
    branch = others.pop()
    while len(result.order) < count - 1:
        more = at < len(products)
        pool = [*loads, *others[:1]] if not more or (at in turns and last_turn != at) else []
        ready = [(ready_at(needs[i], placed, now), i) for i in pool]
        start, choice = min(ready, key=lambda pair: pair[0], default=(NEVER, -1))
        if more and start > now:
            choice, start = products[at], now
        require(start < NEVER, "no instruction can be issued")
        if more and choice == products[at]:
            at += 1
        else:
            last_turn = at
            (loads if choice in loads else others).remove(choice)
        placed[choice] = start
        result.order.append(choice)
        result.cycle.append(start)
        now = start + 1
    result.order.append(branch)
    result.cycle.append(ready_at(needs[branch], placed, now))
    return result


def ready_at(wait: Wait, placed: dict[int, int], now: int) -> int:
    """The first cycle from `now` on at which an instruction may go; NEVER while something must still come before it.

    Not in the block's first cycles: it may read what the end of the pass before, or the code before the loop, computes.
    """
    if any(i not in placed for i in wait.products) or any(i not in placed for i in wait.others):
        return NEVER
    return max([now, FIXED_LATENCY, *(placed[i] + distance for i, distance in wait.others.items())])


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
