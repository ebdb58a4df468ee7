"""PTX text to instructions.

The grammar covers what compilers emit: nested scopes (inline asm), several statements on a line, vectors,
tensor coordinates, initialised module variables, `.loc`. Names are resolved here: a register or label
declared in an inner scope gets a name of its own, so the later passes see one flat list."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import lru_cache

from lapidist.machine.faults import PtxError, Site
from lapidist.machine.ptx.call_reader import FRAME, CallReader, Statement
from lapidist.machine.ptx.declarations import (
    MOST_BYTES,
    VARIABLE,
    block_rule,
    parse_parameters,
    parse_variables,
)
from lapidist.machine.ptx.device_library import linked
from lapidist.machine.ptx.inlined_functions import RETURN, Function, call_of, function_of, prototype_of
from lapidist.machine.ptx.instruction_set import refusal
from lapidist.machine.ptx.operand_syntax import OperandParser, Scope
from lapidist.machine.ptx.source_text import SourceText
from lapidist.machine.ptx.syntax_tree import (
    FUNCTION_WINDOW,
    TYPE_BYTES,
    Imm,
    Instruction,
    Kernel,
    Operand,
    Pair,
    Reg,
    Sym,
    Variable,
    flatten,
)


@lru_cache(maxsize=64)
def parse_kernel(text: str, entry: str) -> Kernel:
    """The kernel `entry` of a PTX module, with the module's variables that it uses."""
    return ModuleParser(text).kernel(entry)


# ---- reading the module ----

LINE_DIRECTIVE = re.compile(r"\.(version|target|address_size|file|loc)\b[^\n]*")
LINKAGE = re.compile(r"\.(visible|extern|weak|common)\b")
FUNCTION = re.compile(r"\.(entry|func)\b")
REGISTER = re.compile(r"\.reg\b\s*((?:\.\w+\s*)+)(.*)", re.S)
LABEL = re.compile(r"([\w$%]+)\s*:(?!:)")
LOC = re.compile(r"\.loc\s+(\d+\s+\d+\s+\d+)(?:.*inlined_at\s+(\d+\s+\d+\s+\d+))?")
MOST_REGISTERS = 1 << 20


class ModuleParser(SourceText):
    """Splits the text into module variables and kernel bodies, keeping line numbers."""

    def __init__(self, text: str) -> None:
        super().__init__(linked(text))
        self.variables: dict[str, Variable] = {}
        self.entries: dict[str, tuple[str, int, int]] = {}
        self.functions: dict[str, Function] = {}
        target = re.search(r"\.target\s+(\w+)", self.text)
        self.target = target.group(1) if target else "sm_80"
        self.scan()

    def scan(self) -> None:
        """Walk the module's top level."""
        position = 0
        while (position := self.skip_blank(position)) < len(self.text):
            if match := LINE_DIRECTIVE.match(self.text, position) or LINKAGE.match(self.text, position):
                position = match.end()
            elif self.text.startswith(".section", position):
                position = self.matching(self.find("{", position)) + 1
            elif FUNCTION.match(self.text, position):
                position = self.scan_function(position)
            elif VARIABLE.match(self.text, position):
                end = self.find(";", position)
                for variable in parse_variables(self.text[position:end], self, position):
                    self.variables[variable.name] = variable
                position = end + 1
            else:
                raise self.error(position, "not a module-level directive")

    def scan_function(self, position: int) -> int:
        """Note where the header and the body are; returns the position behind them."""
        brace, semicolon = self.text.find("{", position), self.text.find(";", position)
        if brace < 0 or 0 <= semicolon < brace:
            if semicolon < 0:
                raise self.error(position, "a function without body or ';'")
            return semicolon + 1
        end = self.matching(brace)
        header = self.text[position:brace]
        if match := re.match(r"\.entry\s+([\w$]+)", header):
            self.entries[match.group(1)] = (header, brace, end)
        elif function := function_of(header, brace, end):
            self.functions[function[0]] = function[1]
        return end + 1

    def kernel(self, entry: str) -> Kernel:
        if entry not in self.entries:
            names = ", ".join(self.entries) or "none"
            raise PtxError(f"entry: the module has no kernel {entry!r}; it has: {names}")
        header, brace, end = self.entries[entry]
        kernel = Kernel(entry, self.target, parameters=parse_parameters(header, self, brace - len(header)))
        if kernel.parameter_bytes > MOST_BYTES["param"]:
            rule = (
                f"a kernel has at most {MOST_BYTES['param']} bytes of parameters, {entry}"
                f" {kernel.parameter_bytes}"
            )
            raise self.error(brace - len(header), rule)
        kernel.most_threads = math.prod(block_rule(header, "maxntid") or (0,))
        kernel.most_registers = math.prod(block_rule(header, "maxnreg") or (0,))
        kernel.least_blocks = math.prod(block_rule(header, "minnctapersm") or (0,))
        kernel.required_block = block_rule(header, "reqntid")
        kernel.required_cluster = block_rule(header, "reqnctapercluster")
        kernel.functions = {name: FUNCTION_WINDOW + 16 * n for n, name in enumerate(self.functions, 1)}
        BodyParser(self, kernel).parse(brace + 1, end)
        used = {
            item.name
            for i in kernel.instructions
            for op in i.operands
            if not isinstance(op, Reg | Imm)
            for item in flatten(op)
            if isinstance(item, Sym)
        }
        for name in self.with_pointers(used):
            kernel.variables.setdefault(name, self.variables[name])
        return kernel

    def with_pointers(self, names: set[str]) -> list[str]:
        """Module variables among `names`, in order of declaration, with those that their initial values point
        to.
        """
        reached, queue = set(), [name for name in names if name in self.variables]
        while queue:
            name = queue.pop()
            if name not in reached:
                reached.add(name)
                queue += [target for _, target in self.variables[name].pointers if target in self.variables]
        return [name for name in self.variables if name in reached]


# ---- reading a body ----

INSTRUCTION = re.compile(r"(?:@(!?)\s*([\w$%]+)\s+)?([a-z]\w*)((?:\s*(?:\.|::)\s*\w+)*)\s*(.*)", re.S)


@lru_cache(maxsize=1024)
def modifiers_of(text: str) -> tuple[str, ...]:
    """Those of an instruction; a kernel has thousands of few."""
    return tuple(re.findall(r"\.(\w+(?:::\w+)*)", text.replace(" ", "")))


# What add.cc and its like leave, and addc and its like take. No register has such a name.
CARRY = Reg("%carry@")


class BodyParser(CallReader):
    """Statements of one kernel body, first split, then resolved once all labels of a scope are known."""

    def __init__(self, module: ModuleParser, kernel: Kernel) -> None:
        super().__init__(module, kernel, module.functions)
        self.inlined_at: dict[str, str | None] = {}  # by file, line and column

    def parse(self, position: int, end: int) -> None:
        statements: list[Statement] = []
        self.read(position, end, Scope(None, 0), statements)
        self.resolve(statements)

    def read(self, position: int, end: int, scope: Scope, statements: list[Statement]) -> None:
        outermost, text = scope, self.module.text
        while (position := self.module.skip_blank(position)) < end:
            if text[position] == "{":
                self.scopes += 1
                scope, position = Scope(scope, self.scopes), position + 1
            elif text[position] == "}":
                if scope is outermost or scope.parent is None:
                    raise self.module.error(position, "'}' without '{'")
                scope, position = scope.parent, position + 1
            elif match := LINE_DIRECTIVE.match(text, position):
                self.read_loc(match.group())
                position = match.end()
            elif match := LABEL.match(text, position):
                statements.append((scope, "label " + scope.declare(match.group(1)), position, ""))
                position = match.end()
            else:
                stop = self.module.find(";", position)
                self.statement(scope, text[position:stop], position, statements)
                position = stop + 1

    def read_loc(self, text: str) -> None:
        """Note a source line and those that it was inlined at, which stand in directives of their own
        shortly before."""
        if match := LOC.match(text):
            inner, outer = match.groups()
            self.inlined_at[inner] = outer
            chain = [inner]
            while (outer := self.inlined_at.get(chain[-1])) and outer not in chain:
                chain.append(outer)
            self.source = ", inlined at ".join(self.source_line(place) for place in chain)

    def source_line(self, place: str) -> str:
        number, line, _ = place.split()
        return f"{self.module.files.get(int(number), '?')}:{line}"

    def statement(self, scope: Scope, text: str, position: int, statements: list[Statement]) -> None:
        """Declarations take effect at once; instructions wait until all labels are known."""
        if match := REGISTER.match(text):
            self.declare_registers(scope, match, position)
        elif VARIABLE.match(text):
            for variable in parse_variables(text, self.module, position):
                if variable.space == "param":  # an argument or result of a call: each thread has its own
                    variable = replace(variable, space="local")
                self.kernel.variables[scope.declare(variable.name)] = variable
        elif text.startswith(".pragma") or not text.strip():
            pass
        elif "callprototype" in text and (extents := prototype_of(text)):
            # The label that names the prototype stands just before it.
            self.prototypes[statements[-1][1].removeprefix("label ")] = extents
        elif (
            "call" in text
            and (call := call_of(text))
            and (call.name in self.functions or call.name.startswith("%"))
        ):
            self.call(call, scope, position, statements)
        elif self.reading and (match := RETURN.match(text.strip())):
            self.end_of_call(match.group(1) or "", scope, position, statements)
        else:
            statements.append((scope, text.strip(), position, self.source))

    def declare_registers(self, scope: Scope, match: re.Match[str], position: int) -> None:
        kind = match.group(1).split()[-1].lstrip(".")
        if kind not in TYPE_BYTES:
            raise self.module.error(position, f"unknown register type .{kind}")
        for item in match.group(2).split(","):
            base, _, count = item.strip().partition("<")
            number = count.rstrip("> ")
            if count and not (number.isdigit() and int(number) <= MOST_REGISTERS):
                raise self.module.error(
                    position, f"{item.strip()} is not NAME<COUNT> with at most {MOST_REGISTERS} registers"
                )
            names = [base] if not count else [f"{base}{n}" for n in range(int(number))]
            for name in names:
                self.kernel.registers[scope.declare(name)] = kind

    def resolve(self, statements: list[Statement]) -> None:
        kernel = self.kernel
        for scope, text, position, source in statements:
            if text.startswith("label "):
                kernel.labels[text[6:]] = len(kernel.instructions)
            elif text.startswith(".branchtargets"):
                # The label that names the table stands just before it.
                name = next(reversed(kernel.labels), None)
                if name is None:
                    raise self.module.error(position, "a table of branch targets without a label before it")
                targets = re.findall(r"[\w$%]+", text.removeprefix(".branchtargets"))
                kernel.branch_tables[name] = tuple(scope.find(target) or target for target in targets)
            elif text.startswith(FRAME):
                line = self.module.line_of(position)
                site = Site(kernel.name, line, self.module.lines[line - 1].strip(), source)
                kernel.instructions.append(self.frame_instruction(text, site))
            else:
                kernel.instructions.append(self.instruction(scope, text, position, source))

    def instruction(self, scope: Scope, text: str, position: int, source: str) -> Instruction:
        shown = " ".join(text.split())
        site = Site(self.kernel.name, self.module.line_of(position), shown + ";", source)
        match = INSTRUCTION.match(shown)
        if match is None:
            raise PtxError(f"{site}: not an instruction")
        negated, guard, opcode, mods, operands_text = match.groups()
        modifiers = modifiers_of(mods)
        reason = refusal(opcode, modifiers)
        if reason:
            raise PtxError(f"{site}: the machine does not run {opcode}: {reason}")
        parser = OperandParser(operands_text, scope, self.kernel, site)
        predicate = parser.name(guard) if guard else None
        if predicate is not None and not isinstance(predicate, Reg):
            raise PtxError(f"{site}: the guard {guard} is not a declared predicate")
        operands = self.with_carry(opcode, modifiers, parser.all())
        return Instruction(opcode, modifiers, operands, predicate, bool(negated), site)

    def with_carry(
        self, opcode: str, modifiers: tuple[str, ...], operands: tuple[Operand, ...]
    ) -> tuple[Operand, ...]:
        """The operands with the carry flag among them: a second destination, and a last source."""
        leaves, takes = "cc" in modifiers and bool(operands), opcode in ("addc", "subc", "madc")
        if leaves or takes:
            self.kernel.registers[CARRY.name] = "pred"
        if leaves:
            operands = Pair(operands[0], CARRY), *operands[1:]
        return (*operands, CARRY) if takes else operands
