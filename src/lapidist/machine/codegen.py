"""Basic blocks to Python functions over many lanes.

A register is a NumPy array with one element a lane, or with one element in all when its value is uniform. A
block becomes `def b7(m, g, R)`: m is the machine, g the lanes that execute it, R the registers. The opcodes
themselves are emitters registered by the other modules; one that nobody registered is an error, never
skipped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from lapidist.machine.faults import PtxError
from lapidist.machine.ptx.basic_blocks import Block
from lapidist.machine.ptx.instruction_set import prefixes
from lapidist.machine.ptx.signatures import SINK, operands_error, require_signature, signatures_of
from lapidist.machine.ptx.syntax_tree import (
    TYPE_BYTES,
    Addr,
    Imm,
    Instruction,
    Not,
    Operand,
    Reg,
    Special,
    Sym,
    Vec,
)

if TYPE_CHECKING:
    from lapidist.machine.program import Program
    from lapidist.machine.state import Machine

# Registers that hold the upper and lower half of the address of the grid's barrier, and the shift of each.
ENVIRONMENT = {"envreg1": 32, "envreg2": 0}
# Comments that mark where instructions begin, and where a skip decides.
BEFORE, BEFORE_SKIP = "# before ", "# skip before "
# NumPy code in which a register of so many bytes is stored.
STORAGE = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}
KINDS = {"b": "u", "u": "u", "s": "i", "f": "f"}


def storage(kind: str) -> str:
    if kind == "pred":
        return "b1"
    if kind in ("f32", "f64"):
        return "f4" if kind == "f32" else "f8"
    return STORAGE[TYPE_BYTES[kind]]


def code_of(kind: str) -> str:
    """The NumPy code of a PTX type; packed and bf16 types are seen as their bits."""
    if kind == "pred":
        return "b1"
    if kind in ("bf16", "f16x2", "bf16x2", "tf32", "b128"):
        return STORAGE[TYPE_BYTES[kind]]
    return KINDS[kind[0]] + str(TYPE_BYTES[kind])


# ---- the registry of opcodes ----

F = TypeVar("F", bound=Callable[..., Any])
Emitter = Callable[["Builder", Instruction, "Mods"], None]
OPCODES: dict[str, Emitter] = {}
NAMESPACE: dict[str, Any] = {
    code: np.dtype(code)
    for code in ["b1", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "c16"]
}
NAMESPACE["np"] = np


def opcode(*names: str) -> Callable[[Emitter], Emitter]:
    """Register an emitter for dotted names; the longest registered prefix of an instruction wins."""

    def register(emitter: Emitter) -> Emitter:
        OPCODES.update(dict.fromkeys(names, emitter))
        return emitter

    return register


def runtime(function: F) -> F:
    """Let generated code call the function by its name."""
    NAMESPACE[function.__name__] = function
    return function


class Mods:
    """An instruction's modifiers, taken one by one; what remains at the end is unknown."""

    def __init__(self, i: Instruction, modifiers: tuple[str, ...]) -> None:
        self.i, self.remaining = i, list(modifiers)

    def flag(self, *names: str) -> bool:
        """Take those of the names that are present; whether there were any."""
        present = [name for name in names if name in self.remaining]
        for name in present:
            self.remaining.remove(name)
        return bool(present)

    def choose(self, *names: str, default: str | None = None) -> str:
        """Take the one of `names` that is present."""
        for name in self.remaining:
            if name in names:
                self.remaining.remove(name)
                return name
        if default is None:
            raise PtxError(f"{self.i.site}: needs one of: {', '.join(names)}")
        return default

    def type(self) -> str:
        """Take the next type modifier."""
        for name in self.remaining:
            if name in TYPE_BYTES:
                self.remaining.remove(name)
                return name
        raise PtxError(f"{self.i.site}: no type that the machine knows")

    def end(self) -> None:
        if self.remaining:
            raise PtxError(f"{self.i.site}: modifier .{self.remaining[0]} is not known here")


# ---- writing one block ----


class Builder:
    """Collects the lines of one block's function. Emitters talk to it only."""

    def __init__(self, program: Program, block: Block) -> None:
        self.program, self.block = program, block
        self.lines: list[str] = []
        self.memo: dict[tuple[Any, ...], str] = {}
        self.versions: dict[str, int] = {}
        self.lanes = "g"
        self.result = "None"
        self.index = 0
        self.fresh = 0

    # -- text --

    def line(self, text: str) -> None:
        self.lines.append(("        " if self.lanes != "g" else "    ") + text)

    def new(self, prefix: str = "t") -> str:
        self.fresh += 1
        return f"{prefix}{self.fresh}"

    def once(self, key: tuple[Any, ...], expression: str, prefix: str = "t") -> str:
        """A local that holds the expression: one for each key, written at its first use."""
        key = (self.lanes, *key)
        if key not in self.memo:
            name = self.new(prefix)
            self.line(f"{name} = {expression}")
            self.memo[key] = name
        return self.memo[key]

    def variable(self, register: str) -> str:
        return f"v{self.program.slots[register]}"

    def version(self, operand: Operand) -> tuple[Any, ...]:
        """A key that changes whenever the operand's value does."""
        if isinstance(operand, Reg):
            return (operand.name, self.versions.get(operand.name, 0))
        return (operand,)

    # -- operands --

    def read(self, operand: Operand, code: str) -> str:
        """The operand as an expression of NumPy type `code`."""
        if isinstance(operand, Reg):
            return self.read_register(operand, code)
        if isinstance(operand, Imm):
            return self.program.constant(immediate(operand, code, self.i))
        if isinstance(operand, Special):
            name = self.special(operand)
            return name if code in ("u4", "b4") else f"{name}.astype({code})"
        if isinstance(operand, Sym):
            return self.symbol(operand, code)
        if isinstance(operand, Not):
            return f"~{self.read(operand.item, 'b1')}"
        if isinstance(operand, Vec) and code[1:] in ("4", "8", "16"):
            return self.pack(operand, code)
        raise PtxError(f"{self.i.site}: an operand form that the machine does not know here: {operand}")

    def symbol(self, operand: Sym, code: str) -> str:
        """The address of a variable; that of a shared one in a cluster has the rank of the lanes' block."""
        place, variable = (
            self.program.symbol(operand, code, self.i),
            self.program.kernel.variables.get(operand.name),
        )
        if variable is None or variable.space != "shared":
            return place
        return self.once(("own", operand, code), f"m.ranked_address({self.lanes}, {place})")

    def special(self, operand: Special) -> str:
        if operand.name.startswith(("clock", "globaltimer")):
            return f"m.clock({self.lanes}, {operand.name!r})"
        if operand.name in ENVIRONMENT:
            return f"m.grid_barrier({ENVIRONMENT[operand.name]})"
        return self.once(("special", operand.name), f"special({self.lanes}, {operand.name!r})", "s")

    def read_register(self, operand: Reg, code: str) -> str:
        name, stored = self.variable(operand.name), storage(self.program.kernel.registers[operand.name])
        if self.lanes != "g":
            name = self.once(("pick", *self.version(operand)), f"{self.lanes}.pick({name})")
        if stored == code:
            return name
        if stored[1:] == code[1:]:
            return self.once(("view", code, *self.version(operand)), f"{name}.view({code})")
        if int(stored[1:]) > int(code[1:]) and stored[0] == "u":
            narrow = f"{name}.astype(u{code[1:]})"
            return narrow if code[0] == "u" else f"{narrow}.view({code})"
        raise PtxError(f"{self.i.site}: {operand.name} is a {stored} register, the instruction needs {code}")

    def pack(self, operand: Vec, code: str) -> str:
        """{a, b}: the parts become one wider value, the first lowest."""
        part = f"u{int(code[1:]) // len(operand.items)}"
        parts = ", ".join(self.read(item, part) for item in operand.items)
        return f"pack_parts({code}, {parts})"

    def assign(self, operand: Operand, expression: str, code: str) -> None:
        """operand = expression, where the guard holds; widened as its register needs."""
        if isinstance(operand, Vec):
            self.unpack(operand, expression, code)
            return
        if not isinstance(operand, Reg):
            if operand == SINK:
                return
            raise PtxError(f"{self.i.site}: the destination must be a register, got {operand}")
        name, stored = self.variable(operand.name), storage(self.program.kernel.registers[operand.name])
        expression = converted(expression, code, stored, self.i)
        if self.lanes != "g":
            expression = f"{self.lanes}.merge({name}, {expression})"
        elif self.i.predicate is not None:
            expression = f"select({self.guard()}, {expression}, {name})"
        self.line(f"{name} = {expression}")
        self.versions[operand.name] = self.versions.get(operand.name, 0) + 1
        if operand.name in self.program.read_late:
            self.line(f"m.products.overwritten({self.lanes}, {operand.name!r}, {self.index})")

    def unpack(self, operand: Vec, expression: str, code: str) -> None:
        part = f"u{int(code[1:]) // len(operand.items)}"
        parts = self.new()
        self.line(f"{parts} = unpack_parts({expression}, {part})")
        for number, item in enumerate(operand.items):
            self.assign(item, f"{parts}[{number}]", part)

    def assign_many(self, operands: tuple[Operand, ...], expression: str, code: str) -> None:
        values = self.new()
        self.line(f"{values} = {expression}")
        self.line(f"if len({values}) != {len(operands)}: refuse_count(m, {self.index}, len({values}))")
        for number, operand in enumerate(operands):
            self.assign(operand, f"{values}[{number}]", code)

    def guard(self) -> str:
        """The instruction's predicate as an expression over the block's lanes."""
        if self.i.predicate is None:
            return "TRUE"
        name = self.variable(self.i.predicate.name)
        return f"~{name}" if self.i.negated else name

    @contextmanager
    def guarded(self) -> Iterator[str]:
        """Emit lines that only the lanes execute for which the predicate holds; yields the name of those
        lanes.
        """
        if self.i.predicate is None:
            yield self.lanes
            return
        lanes = self.new("q")
        self.line(f"{lanes} = g.where({self.guard()})")
        self.line(f"if {lanes} is not None:")
        outer, memo = self.lanes, dict(self.memo)
        self.lanes = lanes
        yield lanes
        self.line("pass")
        self.lanes, self.memo = outer, memo

    def address(self, operand: Operand, space: str) -> str:
        """A local with the resolved base of an address; the constant offset is left to the access."""
        key, base = self.base(operand)
        return self.once(("at", space, *key), f"m.{space}_at({self.lanes}, {base}, {self.index})", "a")

    def base(self, operand: Operand) -> tuple[tuple[Any, ...], str]:
        """The base of an address: a key that changes whenever it does, and its value."""
        if not isinstance(operand, Addr):
            raise PtxError(f"{self.i.site}: needs an address in brackets, got {operand}")
        base, wide = operand.base, "u8"
        if isinstance(base, Reg) and TYPE_BYTES[self.program.kernel.registers[base.name]] == 4:
            wide = "u4"
        return self.version(base), self.read(base, wide)

    # -- the function --

    def emit(self, index: int) -> None:
        self.index, self.i = index, self.program.kernel.instructions[index]
        i = self.i
        self.line(f"{BEFORE}{index}")
        signatures = signatures_of(i)
        if signatures is not None:
            require_signature(i, *signatures)
        for name in prefixes(i.opcode, i.mods):
            if name in OPCODES:
                self.emit_with(OPCODES[name], Mods(i, i.mods[name.count(".") :]))
                return
        raise PtxError(f"{i.site}: the machine does not know this opcode")

    def emit_with(self, emitter: Emitter, mods: Mods) -> None:
        try:
            emitter(self, self.i, mods)
        except PtxError:
            raise
        except (
            LookupError,
            ArithmeticError,
            AttributeError,
            TypeError,
            ValueError,
        ) as error:  # an emitter takes its operands apart
            raise operands_error(self.i) from error
        mods.end()

    def source(self) -> str:
        block, slots = self.block, self.program.slots
        for index in range(block.start, block.stop):
            self.emit(index)
        if block.kind == "skip":
            self.index, self.i = block.stop, self.program.kernel.instructions[block.stop]
            self.line(f"{BEFORE_SKIP}{block.stop}")
            self.result = f"~({self.guard()})"
        body = self.lines
        reads = sorted(slots[name] for name in block.reads)
        # A guarded write also needs the old value, which find_registers counts as a read.
        writes = sorted(slots[name] for name in block.writes & block.live_out)
        head = [f"def b{block.index}(m, g, R):"]
        if reads:
            head += ["    if g.index is None:"] + [f"        v{n} = R[{n}]" for n in reads]
            head += ["    else:", "        pick = g.pick_all"] + [
                f"        v{n} = pick(R[{n}])" for n in reads
            ]
        tail = []
        if writes:
            tail += ["    if g.index is None:"] + [f"        R[{n}] = v{n}" for n in writes]
            tail += ["    else:", "        put = g.put"] + [
                f"        R[{n}] = put(R[{n}], v{n})" for n in writes
            ]
        return "\n".join([*head, *body, *tail, f"    return {self.result}"])


@runtime
def refuse_count(m: Machine, site: int, count: int) -> None:
    raise PtxError(f"{m.site(site)}: needs {count} registers in braces")


def immediate(operand: Imm, code: str, i: Instruction) -> np.ndarray:
    """An immediate as a one-element array. Integer literals in float instructions are not PTX."""
    size = int(code[1:])
    if operand.kind == "int":
        if code[0] == "f":
            raise PtxError(f"{i.site}: an integer literal where a float is needed")
        if code == "b1":
            return np.array([bool(operand.value)])
        return np.array([operand.value % (1 << 8 * size)], f"u{size}").view(code)
    if operand.kind == "f64" and code == "f4":
        return np.array([operand.value], "u8").view("f8").astype("f4")
    bits = np.array([operand.value], "u8" if operand.kind == "f64" else "u4")
    if bits.dtype.itemsize != size:
        raise PtxError(f"{i.site}: a {operand.kind} literal where {size} bytes are needed")
    return bits.view(code)


def converted(expression: str, code: str, stored: str, i: Instruction) -> str:
    """An expression of type `code` as one of the type that a register is stored in: the same bits, or
    extended by the sign of `code`."""
    if code == stored:
        return expression
    have, want = int(code[1:]), int(stored[1:])
    if have == want and "b1" not in (code, stored):
        return f"({expression}).view({stored})"
    if have < want and stored[0] == "u" and code != "b1":
        if code[0] == "i":
            return f"({expression}).astype(i{want}).view({stored})"
        bits = f"({expression})" if code[0] == "u" else f"({expression}).view(u{have})"
        return f"{bits}.astype({stored})"
    raise PtxError(f"{i.site}: a result of type {code} does not fit a register kept as {stored}")
