"""A kernel as compiled Python functions, one a block, with the layout of its variables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from lapidist.machine.codegen import BEFORE, BEFORE_SKIP, ENVIRONMENT, NAMESPACE, Builder, storage
from lapidist.machine.computed_once import lazily
from lapidist.machine.faults import PtxError
from lapidist.machine.lanes import SHARED_START
from lapidist.machine.memory import PARAM_WINDOW
from lapidist.machine.ptx.basic_blocks import Block, build_blocks, effects, registers
from lapidist.machine.ptx.confined_pointers import confined_pointers
from lapidist.machine.ptx.parse import parse_kernel
from lapidist.machine.ptx.passed_barriers import is_past
from lapidist.machine.ptx.pointer_sources import Source, is_load_or_store, pointer_sources
from lapidist.machine.ptx.sums_in_place import update_sites
from lapidist.machine.ptx.syntax_tree import Instruction, Kernel, Special, Sym, Vec, flatten


@dataclass
class Program:
    """A kernel ready to run. All of it is translated. A block's Python is compiled when a lane first comes to
    it: most blocks of a large kernel serve borders that a launch does not have."""

    kernel: Kernel
    blocks: list[Block]
    slots: dict[str, int]
    constants: list[np.ndarray]
    layout: dict[str, int]
    objects: dict[str, object] = field(default_factory=dict)  # what generated code names beside the constants
    sources: list[str] = field(default_factory=list)
    space: dict[str, Any] = field(default_factory=dict)
    functions: dict[tuple[int, bool], Callable[..., Any]] = field(default_factory=dict)
    past: dict[tuple[int, int], bool] = field(default_factory=dict)  # what `passed` answered

    def function(self, number: int, follows: bool = False) -> Callable[..., Any]:
        """The compiled function of a block of code; one that `follows` undefined values as it runs."""
        function = self.functions.get((number, follows))
        if function is None:
            source = self.following(self.sources[number]) if follows else self.sources[number]
            exec(compile(source, f"<block {number} of {self.kernel.name}>", "exec"), self.space)
            function = self.functions[number, follows] = self.space[f"b{number}"]
        return function

    def following(self, source: str) -> str:
        """A block that tells before each instruction what its registers hold, while the warp has undefined
        values."""
        lines = []
        for line in source.split("\n"):
            text = line.lstrip()
            indent, site = line[: len(line) - len(text)], int(text.split()[-1]) if text[:1] == "#" else -1
            if text.startswith(BEFORE_SKIP):
                line = f"{indent}if T.on: T.decide(g, {site})"
            elif text.startswith(BEFORE) and self.kernel.instructions[site].operands:
                i = self.kernel.instructions[site]
                names = effects(i)[0] if i.opcode != "wgmma" else [i.predicate.name] if i.predicate else []
                held = ", ".join(f"{name!r}: v{self.slots[name]}" for name in dict.fromkeys(names))
                line = f"{indent}if T.on: T.follow(g, {site}, {{{held}}})"
                if i.opcode not in ("mov", "wgmma") and not self.written_late.isdisjoint(names):
                    line += f"\n{indent}m.products.used(g, {site}, {{{held}}})"
            lines.append(line)
        return "\n".join([lines[0], "    T = m.definedness", *lines[1:]])

    def passed(self, barrier: int, place: int) -> bool:
        """Whether who stands at a block of code has left out the barrier at the end of another one."""
        answer = self.past.get((barrier, place))
        if answer is None:
            answer = self.past[barrier, place] = is_past(
                barrier, place, self.blocks, self.kernel.instructions
            )
        return answer

    @lazily
    def read_late(self) -> frozenset[str]:
        """Registers that wgmmas may read until they are waited for."""
        products = (i for i in self.kernel.instructions if i.opcode == "wgmma" and "mma_async" in i.mods)
        return frozenset(
            name for i in products if isinstance(i.operands[1], Vec) for name in registers(i.operands[1])
        )

    @lazily
    def written_late(self) -> frozenset[str]:
        """Registers that wgmmas write until they are waited for, and those to which these are moved."""
        code = self.kernel.instructions
        names = {name for i in code if i.opcode == "wgmma" for name in effects(i)[1]}
        moves = [effects(i) for i in code if i.opcode == "mov"] if names else []
        grown = True
        while grown:
            grown = False
            for reads, writes in moves:
                if not names.isdisjoint(reads) and not names.issuperset(writes):
                    names.update(writes)
                    grown = True
        return frozenset(names)

    @lazily
    def specials(self) -> frozenset[str]:
        """The special registers that the kernel reads."""
        items = (item for i in self.kernel.instructions for op in i.operands for item in flatten(op))
        return frozenset(item.name for item in items if isinstance(item, Special))

    @lazily
    def update_sites(self) -> frozenset[int]:
        """Stores that add to what was loaded from their own place."""
        return update_sites(self.kernel, self.blocks)

    @lazily
    def pointer_sources(self) -> dict[int, frozenset[Source]]:
        """What the addresses of accesses to global memory are computed from, by site."""
        return pointer_sources(self.kernel, is_load_or_store)

    @lazily
    def confined_pointers(self) -> dict[int, frozenset[Source]]:
        """The same of accesses whose addresses come from nowhere else."""
        return confined_pointers(self.kernel)

    @property
    def syncs_grid(self) -> bool:
        """Whether the kernel meets at a barrier of all blocks, whose address it takes from these
        registers."""
        return not self.specials.isdisjoint(ENVIRONMENT)

    @lazily
    def zeros(self) -> list[np.ndarray]:
        """The first values of registers. All warps share them, as a write gives a register another array."""
        return [frozen(np.zeros(1, storage(kind))) for kind in self.kernel.registers.values()]

    def constant(self, value: np.ndarray) -> str:
        self.constants.append(frozen(value))
        return f"K{len(self.constants) - 1}"

    def symbol(self, operand: Sym, code: str, i: Instruction) -> str:
        """The address of a variable or parameter, in its own space."""
        name, bits = operand.name, 8 * int(code[1:])
        if name in self.layout:
            return self.constant(number((self.layout[name] + operand.offset) % (1 << bits), code))
        # 32 bits hold the place in parameter space, which a load from there takes too
        if name in self.kernel.parameters:
            address = PARAM_WINDOW + self.kernel.parameters[name].offset + operand.offset
            return self.constant(number(address % (1 << bits), code))
        if name in self.kernel.variables:
            if bits != 64:
                raise PtxError(f"{i.site}: the address of {name} has 64 bits, not {bits}")
            return f"m.variable({name!r}, {operand.offset})"
        if name in self.kernel.functions and bits == 64:
            return self.constant(number(self.kernel.functions[name], code))
        raise PtxError(f"{i.site}: {name} is no variable or parameter of this module")

    @property
    def shared_static(self) -> int:
        """Bytes up to the end of the static shared variables, from address 0."""
        return self.extent("shared", SHARED_START)

    @property
    def local_bytes(self) -> int:
        return self.extent("local", 0)

    def extent(self, space: str, start: int) -> int:
        mine = [v for v in self.kernel.variables.items() if v[1].space == space]
        return max((self.layout[name] + variable.size for name, variable in mine), default=start)


def number(bits: int, code: str) -> np.ndarray:
    return np.array([bits], f"u{code[1:]}").view(code)


def frozen(value: np.ndarray) -> np.ndarray:
    value.flags.writeable = False
    return value


def lay_out(kernel: Kernel) -> dict[str, int]:
    """Addresses of shared and local variables; dynamic shared memory (size 0) follows the static."""
    layout: dict[str, int] = {}
    ends = {"shared": SHARED_START, "local": 0}
    for name, variable in sorted(kernel.variables.items(), key=lambda pair: pair[1].size == 0):
        if variable.space in ends:
            align = max(variable.align, 16 if variable.size == 0 else 1)
            layout[name] = -(-ends[variable.space] // align) * align
            ends[variable.space] = layout[name] + variable.size
    return layout


@lru_cache(maxsize=64)
def compile_program(text: str, entry: str) -> Program:
    """PTX text to a Program; kept in memory, so the second launch of a kernel starts at once."""
    kernel = parse_kernel(text, entry)
    if not kernel.instructions:
        raise PtxError(f"entry {entry!r}: the kernel has no instructions")
    slots = {name: number for number, name in enumerate(kernel.registers)}
    program = Program(kernel, build_blocks(kernel), slots, [], lay_out(kernel))
    program.sources += [Builder(program, block).source() for block in program.blocks]
    program.space |= NAMESPACE
    program.space |= {f"K{number}": value for number, value in enumerate(program.constants)}
    program.space |= program.objects
    return program
