"""Calls, read as jumps. A call is the function's body in its place, with names of its own: what a function
declares lies in a scope that sees nothing of its caller but the parameters.

A call through a pointer compares it with the functions of its prototype, one after another. A function that
calls itself jumps to its own beginning: a frame keeps the registers and variables of the body around the
call, for each thread, and says where to go on."""

from __future__ import annotations

from dataclasses import dataclass

from lapidist.machine.faults import Site
from lapidist.machine.ptx.inlined_functions import BACK, MOST_STATEMENTS, Call, Extents, Function
from lapidist.machine.ptx.operand_syntax import Scope
from lapidist.machine.ptx.source_text import SourceText
from lapidist.machine.ptx.syntax_tree import Imm, Instruction, Kernel, Reg, Sym, Tuple, Vec

Statement = tuple[Scope, str, int, str]  # its text, where that stands, and the line of the source
FRAME = "frame "  # the text of a statement that keeps or restores one
LOST = "__lostcall"  # what a pointer calls that is no function


@dataclass
class Body:
    """A function's body as it was read for one call: its scopes have the numbers from `first` to `last`."""

    name: str
    first: int
    results: int
    passed: tuple[str, ...]  # variables that stand for its results and parameters
    returns: list[str]  # where it goes on when it ends: behind this call, or behind one of its own
    last: int = 0

    @property
    def entry(self) -> str:
        return f"$entry@{self.first}"

    def declares(self, name: str) -> bool:
        number = name.rpartition("@")[2]
        return number.isdecimal() and self.first <= int(number) <= self.last


@dataclass
class Frame:
    """What a call of the function around it keeps, and then brings back."""

    body: Body
    number: int  # of the way back, among the body's returns
    passed: tuple[str, ...]  # the caller's variables for results and parameters


class CallReader:
    """Reads calls into statements. `functions` are those of the module that have a body."""

    def __init__(self, module: SourceText, kernel: Kernel, functions: dict[str, Function]) -> None:
        self.module, self.kernel, self.functions = module, kernel, functions
        self.source = ""
        self.scopes = 0
        self.reading: list[Body] = []  # functions whose bodies are being read, outermost first
        self.prototypes: dict[str, Extents] = {}
        self.frames: list[Frame] = []
        self.recursive = {name for name in functions if name in self.called_from(name)}

    def read(self, position: int, end: int, scope: Scope, statements: list[Statement]) -> None:
        raise NotImplementedError

    def called_from(self, name: str) -> set[str]:
        """Functions that a function's text names, and those that their text names."""
        reached: set[str] = set()
        queue = [name]
        while queue:
            function = self.functions[queue.pop()]
            words = set(self.module.text[function.brace : function.end].replace(",", " ").split())
            fresh = (words & self.functions.keys()) - reached
            reached |= fresh
            queue += fresh
        return reached

    def call(self, call: Call, scope: Scope, position: int, statements: list[Statement]) -> None:
        """Read a call, with a branch around it where it is guarded."""
        if len(statements) > MOST_STATEMENTS:
            raise self.module.error(position, f"calls make more than {MOST_STATEMENTS} statements of it")
        beyond = self.fresh_label(scope) if call.around else ""
        if beyond:
            statements.append((scope, f"{call.around}bra {beyond}", position, self.source))
        if call.name in self.functions:
            self.call_function(call.name, call.passed, scope, position, statements)
        else:
            self.call_pointer(call, scope, position, statements)
        if beyond:
            statements.append((scope, f"label {scope.names[beyond]}", position, ""))

    def fresh_label(self, scope: Scope) -> str:
        self.scopes += 1
        name = f"{BACK}{self.scopes}"
        scope.names[name] = f"{BACK}@{self.scopes}"
        return name

    def call_function(
        self, name: str, passed: tuple[str, ...], scope: Scope, position: int, statements: list[Statement]
    ) -> None:
        function = self.functions[name]
        if function.in_registers:
            raise self.module.error(position, f"{name} has parameters in registers, not in .param space")
        if len(passed) != len(function.names):
            count = f"{len(function.names)} results and parameters, the call {len(passed)}"
            raise self.module.error(position, f"{name} has {count}")
        arguments = tuple(scope.find(argument) or argument for argument in passed)
        body = next((body for body in self.reading if body.name == name), None)
        if body is None:
            self.read_body(name, function, arguments, position, statements)
        else:
            self.call_again(body, arguments, scope, position, statements)

    def read_body(
        self,
        name: str,
        function: Function,
        arguments: tuple[str, ...],
        position: int,
        statements: list[Statement],
    ) -> None:
        """Read the body in place of the call, with a label behind it."""
        source = self.source
        self.scopes += 1
        inner = Scope(Scope(None, 0), self.scopes)
        body = Body(name, self.scopes, function.results, arguments, [inner.declare(BACK)])
        inner.names |= dict(zip(function.names, arguments, strict=True))
        statements.append((inner, f"label {body.entry}", position, ""))
        self.reading.append(body)
        self.read(function.brace + 1, function.end, inner, statements)
        self.reading.pop()
        body.last = self.scopes
        self.kernel.branch_tables[f"$returns@{body.first}"] = tuple(body.returns)
        self.source = source
        statements.append((inner, f"label {body.returns[0]}", position, ""))

    def call_again(
        self, body: Body, arguments: tuple[str, ...], scope: Scope, position: int, statements: list[Statement]
    ) -> None:
        """A call of a function in its own body, or in that of one that it called."""
        behind = self.fresh_label(scope)
        frame = Frame(body, len(body.returns), arguments)
        body.returns.append(scope.names[behind])
        self.frames.append(frame)
        scope.names[f"$entry{body.first}"] = body.entry
        for text in (
            f"{FRAME}push {len(self.frames) - 1}",
            f"bra $entry{body.first}",
            f"label {scope.names[behind]}",
            f"{FRAME}pop {len(self.frames) - 1}",
        ):
            statements.append((scope, text, position, self.source))

    def end_of_call(self, guard: str, scope: Scope, position: int, statements: list[Statement]) -> None:
        """A `ret` of the function that is being read."""
        body = self.reading[-1]
        if body.name not in self.recursive:
            statements.append((scope, f"{guard}bra {BACK}", position, self.source))
            return
        negated = "@" + (guard.strip()[2:] if "!" in guard else "!" + guard.strip()[1:])
        beyond = self.fresh_label(scope)
        if guard:
            statements.append((scope, f"{negated} bra {beyond}", position, self.source))
        self.kernel.registers[f"$way@{body.first}"] = "u32"
        scope.names[f"$way{body.first}"] = f"$way@{body.first}"
        scope.names[f"$returns{body.first}"] = f"$returns@{body.first}"
        self.frames.append(Frame(body, 0, ()))
        for text in (
            f"{FRAME}way {len(self.frames) - 1}",
            f"brx.idx $way{body.first}, $returns{body.first}",
            f"label {scope.names[beyond]}",
        ):
            statements.append((scope, text, position, self.source))

    def call_pointer(self, call: Call, scope: Scope, position: int, statements: list[Statement]) -> None:
        """Compare the pointer with each function of the call's prototype."""
        extents = self.prototypes.get(scope.find(call.prototype) or call.prototype)
        if extents is None:
            raise self.module.error(position, "a call through a pointer needs its .callprototype before it")
        after = self.fresh_label(scope)
        self.kernel.registers[f"$other@{self.scopes}"] = "pred"
        other = f"$other{self.scopes}"
        scope.names[other] = f"$other@{self.scopes}"
        for name, function in self.functions.items():
            if function.extents != extents or function.in_registers:
                continue
            beyond = self.fresh_label(scope)
            statements.append((scope, f"setp.ne.b64 {other}, {call.name}, {name}", position, self.source))
            statements.append((scope, f"@{other} bra {beyond}", position, self.source))
            self.call_function(name, call.passed, scope, position, statements)
            statements.append((scope, f"bra {after}", position, self.source))
            statements.append((scope, f"label {scope.names[beyond]}", position, ""))
        statements.append((scope, f"call {LOST}, ({call.name})", position, self.source))
        statements.append((scope, f"label {scope.names[after]}", position, ""))

    def frame_instruction(self, text: str, site: Site) -> Instruction:
        """push {registers}, (variables), tag, way; pop with results, too; way $way, tag."""
        action, number = text.removeprefix(FRAME).split()
        frame = self.frames[int(number)]
        body, tag = frame.body, Imm(frame.body.first)
        if action == "way":
            return Instruction("$way", (), (Reg(f"$way@{body.first}"), tag), None, False, site)
        registers = tuple(Reg(name) for name in self.kernel.registers if body.declares(name))
        kept = [name for name, variable in self.kernel.variables.items() if variable.space == "local"]
        variables = tuple(Sym(name) for name in kept if body.declares(name) or name in body.passed)
        pairs = list(zip(body.passed, frame.passed, strict=True))
        pairs = pairs[body.results :] if action == "push" else pairs[: body.results]
        moved = Tuple(tuple(Sym(name) for pair in pairs for name in pair))
        way = Imm(frame.number)
        operands = (Vec(registers), Tuple(variables), moved, tag, way)
        return Instruction(f"${action}", (), operands, None, False, site)
