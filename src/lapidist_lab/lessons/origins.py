"""Where values come from: the elements in registers and shared memory, followed through each instruction.

A load brings elements by its addresses, a copy keeps them, and A[i, k] B[k, j] belongs to the sum C[i, j].
No value is looked at. What no rule follows holds no element: a name may be missing, but it is not wrong.

Registers and shared memory are cells as wide as an element of A and B; a float32 sum beside float16 fills
two."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from lapidist.machine.instructions.warpgroup_mma import PIECE
from lapidist.machine.instructions.warpgroup_mma import Multiplication as Wgmma
from lapidist.machine.program import Program
from lapidist.machine.ptx.basic_blocks import effects
from lapidist.machine.ptx.syntax_tree import TYPE_BYTES, Instruction, Operand, Reg, Vec
from lapidist_lab.lessons.elements import NOWHERE, Elements

Array = np.ndarray
ATOM = 1024  # bytes after which the swizzle begins anew


@dataclass(slots=True)
class Access:
    """What threads load or store: `addresses` of global memory, or offsets in the block's shared memory."""

    space: str
    action: str
    size: int
    threads: Array
    addresses: Array


@dataclass(slots=True)
class Atom:
    """1024 bytes of shared memory, the period of TMA's swizzle: the first element of each piece of 16 bytes,
    and whether it is read."""

    elements: Array
    read: Array


@dataclass(slots=True)
class WarpProduct:
    """A wgmma of one warp: its descriptors, whether A is in registers, and whether it adds to D."""

    mma: Wgmma
    warp: int
    a: int
    b: int
    in_registers: bool
    adds: bool
    tell: Callable[
        [Array, Array, tuple[Atom, ...]], None
    ]  # takes the elements of A and B, and where they lie


@dataclass(slots=True)
class Executed:
    """What threads of the watched block did in one execution of a block of code, by site.

    `settled` are called when the elements that the site moves have moved."""

    threads: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    accesses: dict[int, list[Access]] = field(default_factory=lambda: defaultdict(list))
    products: dict[int, list[WarpProduct]] = field(default_factory=lambda: defaultdict(list))
    settled: dict[int, list[Callable[[], None]]] = field(default_factory=lambda: defaultdict(list))


class Origins:
    """The elements in each register of a block's threads, and in each cell of its shared memory."""

    def __init__(
        self, program: Program, elements: Elements, threads: int, shared_bytes: int, rules: Mapping[str, Rule]
    ) -> None:
        self.code, self.kinds = program.kernel.instructions, program.kernel.registers
        self.elements, self.size, self.threads = elements, elements.itemsize, threads
        self.shared = np.full(-(-shared_bytes // self.size) + 16, NOWHERE, np.int64)
        self.registers: dict[str, Array] = {}
        self.effects = [effects(i) for i in self.code]
        self.rules = [rules.get(rule_name(i)) for i in self.code]

    # -- registers --

    def width(self, operand: Operand) -> int:
        """The cells of a register, or of several; none where it is narrower than an element."""
        if isinstance(operand, Vec):
            return sum(map(self.width, operand.items))
        return TYPE_BYTES[self.kinds[operand.name]] // self.size if isinstance(operand, Reg) else 0

    def read(self, operand: Operand, threads: Array) -> Array:
        """(threads, cells) of a register, or of several side by side."""
        if isinstance(operand, Vec):
            return np.concatenate([self.read(item, threads) for item in operand.items], axis=1)
        values = self.registers.get(operand.name) if isinstance(operand, Reg) else None
        if values is None:
            return np.full((len(threads), self.width(operand)), NOWHERE, np.int64)
        return values if len(threads) == self.threads else values[threads]

    def write(self, site: int, operand: Operand, threads: Array, values: Array) -> None:
        """Set a register, or several side by side. Cells beyond the values hold no element.

        A guarded instruction may leave some lanes as they are, and a rule cannot tell which: there only
        cells that stay the same keep their element. Accesses to memory know their lanes."""
        if isinstance(operand, Vec):
            start = 0
            for item in operand.items:
                self.write(site, item, threads, values[:, start : start + self.width(item)])
                start += self.width(item)
            return
        width = self.width(operand)
        if not isinstance(operand, Reg) or not width:
            return
        values = padded(values, width)
        i = self.code[site]
        if i.predicate is not None and i.opcode != "ld":
            values = np.where(values == self.read(operand, threads), values, NOWHERE)
        if len(threads) != self.threads:
            old = self.registers.get(operand.name)
            merged = np.full((self.threads, width), NOWHERE, np.int64) if old is None else old.copy()
            merged[threads] = values
            values = merged
        self.registers[operand.name] = values

    # -- memory --

    def at(self, addresses: Array, size: int) -> Array:
        """The elements in `size` bytes of shared memory at each address; none in less than an element."""
        return self.shared[addresses[:, None] // self.size + np.arange(size // self.size)]

    def atom(self, addresses: Array) -> Atom:
        """The atom in which the first address lies, and its pieces that are among the addresses."""
        pieces = (int(addresses.min()) & ~(ATOM - 1)) + PIECE * np.arange(ATOM // PIECE)
        return Atom(self.at(pieces, PIECE)[:, 0], np.isin(pieces, addresses // PIECE * PIECE))

    def loaded(self, access: Access) -> Array:
        """The elements that each thread of an access finds in memory."""
        if access.space == "shared":
            return self.at(access.addresses, access.size)
        steps = self.size * np.arange(access.size // self.size)
        return self.elements.of_addresses(access.addresses[:, None] + steps)

    def put(self, access: Access, values: Array) -> None:
        """Note what a store leaves in shared memory; a part of an element is none."""
        if access.space == "shared":
            cells = max(access.size // self.size, 1)
            positions = access.addresses[:, None] // self.size + np.arange(cells)
            self.shared[positions] = padded(values[:, : access.size // self.size], cells)

    # -- code --

    def execute(self, sites: range, threads: Array, block: Executed) -> None:
        """Follow elements through a block of code, in the order of its instructions."""
        block.threads = threads
        for site in sites:
            rule = self.rules[site]
            reads, writes = self.effects[site]
            moves = site in block.accesses or site in block.products
            moves = moves or any(name in self.registers for name in reads)
            if rule is not None and moves:
                rule(self, site, block)
            elif any(name in self.registers for name in writes):
                self.forget(site, block.threads)
            for call in block.settled.get(site, ()):
                call()

    def forget(self, site: int, threads: Array) -> None:
        """No element is in what the instruction writes."""
        for name in self.effects[site][1]:
            if name in self.registers:
                self.write(site, Reg(name), threads, np.zeros((len(threads), 0), np.int64))


Rule = Callable[[Origins, int, Executed], None]


def rule_name(i: Instruction) -> str:
    """The opcode, with the modifier that says what it does where one opcode does several things."""
    if i.opcode == "cp":
        return "cp.async" if {"ca", "cg"} & {*i.mods} else ""
    return f"{i.opcode}.{i.mods[0]}" if i.opcode in ("wmma", "wgmma") else i.opcode


def padded(values: Array, width: int) -> Array:
    """As many cells, the further ones without an element."""
    if values.shape[1] == width:
        return values
    wide = np.full((len(values), width), NOWHERE, np.int64)
    wide[:, : values.shape[1]] = values[:, :width]
    return wide


# ---- sums of products, by the elements alone ----


def alike(values: Array, width: int) -> Array:
    """One element a row in so many cells, where all its cells hold the same."""
    if values.shape[1] == width:
        return values
    if values.shape[1] == 0:
        return np.full((len(values), width), NOWHERE, np.int64)
    same = (values == values[:, :1]).all(axis=1, keepdims=True)
    return np.repeat(np.where(same, values[:, :1], NOWHERE), width, axis=1)


def united(x: Array, y: Array) -> Array:
    """The element of a sum, or of a choice: that of both, or of the one that has any."""
    return np.where(x == NOWHERE, y, np.where((y == NOWHERE) | (x == y), x, NOWHERE))


def along(values: Array, axis: int) -> Array:
    """The common value along an axis, NOWHERE left out; NOWHERE where they differ."""
    most = values.max(axis=axis)
    least = np.where(values == NOWHERE, np.iinfo(np.int64).max, values).min(axis=axis)
    return np.where(most == least, most, NOWHERE)


def products(elements: Elements, x: Array, y: Array) -> Array:
    """(warps, m, n): the elements of C to which products of (warps, m, k) and (warps, k, n) belong.

    Either may come from A. An element is named where the same k of A and B meet."""
    _, of_b, of_c = elements.starts
    transposed = not ((x >= 0) & (x < of_b)).any()
    if transposed:
        x, y = y.swapaxes(1, 2), x.swapaxes(1, 2)
    a, b = np.where(x < of_b, x, NOWHERE), np.where((y >= of_b) & (y < of_c), y, NOWHERE)
    depth, columns = elements.arrays[0].shape[1], elements.arrays[1].shape[1]
    row, k_of_a = (np.where(a == NOWHERE, NOWHERE, part) for part in np.divmod(a, depth))
    k_of_b, column = (np.where(b == NOWHERE, NOWHERE, part) for part in np.divmod(b - of_b, columns))
    first, second = along(k_of_a, 1), along(k_of_b, 2)
    meet = ((first == second) | (first == NOWHERE) | (second == NOWHERE)).all(axis=1)
    pure = (a == x).all(axis=(1, 2)) & (b == y).all(axis=(1, 2))
    rows, lines = along(row, 2)[:, :, None], along(column, 1)[:, None, :]
    named = (meet & pure)[:, None, None] & (rows != NOWHERE) & (lines != NOWHERE)
    result = np.where(named, of_c + rows * columns + lines, NOWHERE)
    return result.swapaxes(1, 2) if transposed else result
