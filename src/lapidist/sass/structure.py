"""Recognises a block as the main loop of an outer-product matrix multiply, in terms of values instead of registers.

Each accumulator is a chain of FFMAs, one per k. An FFMA multiplies an element of an A group (the registers of one load:
one row, several k) with one of a B group (one k, several columns). Rows, columns and k follow from who shares operands.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace

from lapidist.sass.decode import ZERO, Instruction, with_field


class Unrecognised(Exception):
    """The block is no outer product that this pass understands: it is left as the compiler made it."""


def require(condition: bool, reason: str) -> None:
    if not condition:
        raise Unrecognised(reason)


@dataclass(slots=True)
class Group:
    """The registers that one load fills: `load` is its index in the block, -1 if it was filled before the block."""

    load: int
    registers: tuple[int, ...]  # in the compiler's code
    positions: set[int] = field(default_factory=set)  # the k at which it is read
    chains: set[int] = field(default_factory=set)  # who reads it
    is_live_out: bool = False


@dataclass(frozen=True, slots=True)
class Product:
    """One FFMA: accumulator `chain` at k = `position`; operands as (group, element)."""

    index: int
    chain: int
    position: int
    left: tuple[int, int]
    right: tuple[int, int]


@dataclass(slots=True)
class Loop:
    """A block's values. `homes[chain]` is the register that holds the accumulator when the block starts and ends."""

    groups: list[Group]
    homes: list[int]
    products: list[Product]
    steps: int  # k per pass through the block


def normalised(block: list[Instruction], loop: Loop) -> list[Instruction]:
    """Every row's element in operand slot a, to be shared by neighbours; every accumulator always at home."""
    result = list(block)
    for product in loop.products:
        x, home = block[product.index], loop.homes[product.chain]
        a, b, _ = x.reads
        if len(loop.groups[product.left[0]].positions) < len(loop.groups[product.right[0]].positions):
            a, b = b, a
        word = x.word
        for start, register in ((16, home), (24, a), (32, b), (64, home)):
            word = with_field(word, start, 8, register)
        result[product.index] = replace(x, word=word, reads=(a, b, home), writes=(home,))
    return result


def recognise(block: list[Instruction]) -> Loop:
    """The values of a block; raises Unrecognised."""
    groups, where = live_in_groups(block)
    homes: list[int] = []
    holder: dict[int, tuple[int, int]] = {}  # register -> (chain, products so far)
    products: list[Product] = []
    for index, instruction in enumerate(block):
        if instruction.kind == "lds":
            for element, register in enumerate(instruction.writes):
                where[register] = (len(groups), element)
                holder.pop(register, None)
            groups.append(Group(index, instruction.writes))
        elif instruction.kind == "ffma":
            a, b, c = instruction.reads
            if c not in holder:
                require(c not in where and c != ZERO, "an FFMA adds to what is no accumulator")
                holder[c] = (len(homes), 0)
                homes.append(c)
            chain, position = holder.pop(c)
            require(a in where and b in where, "an FFMA multiplies what no load brought")
            products.append(Product(index, chain, position, where[a], where[b]))
            (d,) = instruction.writes
            where.pop(d, None)
            holder[d] = (chain, position + 1)
        else:
            for register in instruction.writes:
                require(register not in holder, "an accumulator is overwritten")
                where.pop(register, None)
    return finish(groups, where, homes, holder, products)


def live_in_groups(block: list[Instruction]) -> tuple[list[Group], dict[int, tuple[int, int]]]:
    """Aligned register groups that are multiplied before anything in the block writes them."""
    written: set[int] = set()
    factors: set[int] = set()
    width = max((len(x.writes) for x in block if x.kind == "lds"), default=0)
    require(width > 0, "no loads")
    for instruction in block:
        if instruction.kind == "ffma":
            factors |= {r for r in instruction.reads[:2] if r not in written}
        written |= set(instruction.writes)
    groups: list[Group] = []
    where: dict[int, tuple[int, int]] = {}
    for base in sorted({r // width * width for r in factors}):
        registers = tuple(range(base, base + width))
        where |= {r: (len(groups), element) for element, r in enumerate(registers)}
        groups.append(Group(-1, registers))
    return groups, where


def finish(
    groups: list[Group],
    where: dict[int, tuple[int, int]],
    homes: list[int],
    holder: dict[int, tuple[int, int]],
    products: list[Product],
) -> Loop:
    require(len(homes) > 0, "no accumulators")
    steps = len(products) // len(homes)
    for chain, home in enumerate(homes):
        require(holder.get(home) == (chain, steps), "an accumulator does not end where it began")
    for product in products:
        for group, _ in (product.left, product.right):
            groups[group].positions.add(product.position)
            groups[group].chains.add(product.chain)
    held: dict[int, int] = defaultdict(int)
    for group, _ in where.values():
        held[group] += 1
    for number, group in enumerate(groups):
        unread = group.load >= 0 and not group.positions
        require(not unread or held[number] == len(group.registers), "a load that no one reads")
        group.is_live_out = unread
    return Loop(groups, homes, products, steps)
