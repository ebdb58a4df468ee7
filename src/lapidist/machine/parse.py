"""PTX text to instructions.

The grammar covers what compilers emit: nested scopes (inline asm), several statements on a line, vectors, tensor
coordinates, initialised module variables, `.loc`. Names are resolved here: a register or label declared in an inner
scope gets a name of its own, so the later passes see one flat list.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import lru_cache

from lapidist.machine.faults import PtxError, Site

TYPE_BYTES = {"pred": 1, "b128": 16}
TYPE_BYTES |= {f"{kind}{bits}": bits // 8 for kind in "bsuf" for bits in (8, 16, 32, 64)}
TYPE_BYTES |= {"bf16": 2, "f16x2": 4, "bf16x2": 4, "tf32": 4}

SPECIALS = frozenset(
    [f"{base}.{axis}" for base in "tid ntid ctaid nctaid clusterid nclusterid cluster_ctaid cluster_nctaid".split() for axis in "xyz"]
    + "laneid warpid nwarpid smid nsmid gridid cluster_ctarank cluster_nctarank is_explicit_cluster".split()
    + "lanemask_eq lanemask_lt lanemask_le lanemask_ge lanemask_gt dynamic_smem_size total_smem_size".split()
    + "clock clock64 clock_hi globaltimer globaltimer_lo globaltimer_hi".split()
)

# ---- what an operand can be ----


@dataclass(frozen=True, slots=True)
class Reg:
    name: str


@dataclass(frozen=True, slots=True)
class Special:
    name: str


@dataclass(frozen=True, slots=True)
class Imm:
    """An integer, or the bits of a float with its width ("f32", "f64")."""

    value: int
    kind: str = "int"


@dataclass(frozen=True, slots=True)
class Sym:
    """A variable, function or label; `%` of a name that is no register means nothing."""

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Addr:
    """[base + offset], or [base, {coordinates}] for a tensor map; `extra` holds further items inside the brackets."""

    base: Reg | Sym | Imm
    offset: int = 0
    extra: tuple[Operand, ...] = ()


@dataclass(frozen=True, slots=True)
class Vec:
    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """`d|p`: two destinations."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Not:
    item: Reg


@dataclass(frozen=True, slots=True)
class Tuple:
    """Parenthesised list, in calls."""

    items: tuple[Operand, ...]


Operand = Reg | Special | Imm | Sym | Addr | Vec | Pair | Not | Tuple
SINK = Sym("_")

# ---- what a kernel is ----


@dataclass(frozen=True, slots=True)
class Instruction:
    opcode: str
    mods: tuple[str, ...]
    operands: tuple[Operand, ...]
    predicate: Reg | None
    negated: bool
    site: Site


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable in some space; `data` is its initial value, `size` 0 means dynamic shared memory."""

    name: str
    space: str
    align: int
    size: int
    data: bytes = b""
    pointers: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    offset: int
    size: int
    type: str


@dataclass
class Kernel:
    name: str
    target: str
    parameters: dict[str, Parameter] = field(default_factory=dict)
    registers: dict[str, str] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    branch_tables: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def parameter_bytes(self) -> int:
        return max((p.offset + p.size for p in self.parameters.values()), default=0)


@lru_cache(maxsize=64)
def parse_kernel(text: str, entry: str) -> Kernel:
    """The kernel `entry` of a PTX module, with the module's variables that it uses."""
    return ModuleParser(text).kernel(entry)


# ---- reading the module ----

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
LINE_DIRECTIVE = re.compile(r"\.(version|target|address_size|file|loc)\b[^\n]*")
LINKAGE = re.compile(r"\.(visible|extern|weak|common)\b")
FUNCTION = re.compile(r"\.(entry|func)\b")
REGISTER = re.compile(r"\.reg\s+((?:\.\w+\s*)+)(.*)", re.S)
VARIABLE = re.compile(r"\.(global|const|shared|local|param)\b(.*)", re.S)
LABEL = re.compile(r"([\w$%]+)\s*:(?!:)")
FILE = re.compile(r'\.file\s+(\d+)\s+"([^"]*)"')
LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)(?:.*inlined_at\s+(\d+)\s+(\d+))?")


class ModuleParser:
    """Splits the text into module variables and kernel bodies, keeping line numbers."""

    def __init__(self, text: str) -> None:
        self.lines = text.splitlines()
        self.files = {int(number): name.rsplit("/", 1)[-1] for number, name in FILE.findall(text)}
        # Comments become blanks of the same length: offsets and lines stay right.
        self.text = COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)
        self.starts = [0, *(match.end() for match in re.finditer("\n", self.text))]
        self.variables: dict[str, Variable] = {}
        self.entries: dict[str, tuple[str, int, int]] = {}
        target = re.search(r"\.target\s+(\w+)", self.text)
        self.target = target.group(1) if target else "sm_80"
        self.scan()

    def line_of(self, position: int) -> int:
        return bisect_right(self.starts, position)

    def error(self, position: int, problem: str) -> PtxError:
        line = self.line_of(position)
        shown = self.lines[line - 1].strip() if line <= len(self.lines) else ""
        return PtxError(f"PTX line {line}: {problem}: {shown!r}")

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
        """Remember where an entry's header and body are; functions are only skipped."""
        brace, semicolon = self.text.find("{", position), self.text.find(";", position)
        if brace < 0 or 0 <= semicolon < brace:
            if semicolon < 0:
                raise self.error(position, "a function without body or ';'")
            return semicolon + 1
        end = self.matching(brace)
        header = self.text[position:brace]
        if match := re.match(r"\.entry\s+([\w$]+)", header):
            self.entries[match.group(1)] = (header, brace, end)
        return end + 1

    def kernel(self, entry: str) -> Kernel:
        if entry not in self.entries:
            known = ", ".join(self.entries) or "none"
            raise PtxError(f"entry: the module has no kernel {entry!r}; it has: {known}")
        header, brace, end = self.entries[entry]
        kernel = Kernel(entry, self.target, parameters=parse_parameters(header))
        BodyParser(self, kernel).parse(brace + 1, end)
        used = {item.name for i in kernel.instructions for op in i.operands for item in flatten(op) if isinstance(item, Sym)}
        for name in self.with_pointers(used):
            kernel.variables.setdefault(name, self.variables[name])
        return kernel

    def with_pointers(self, names: set[str]) -> list[str]:
        """Module variables among `names`, in order of declaration, with those that their initial values point to."""
        wanted, queue = set(), [name for name in names if name in self.variables]
        while queue:
            name = queue.pop()
            if name not in wanted:
                wanted.add(name)
                queue += [target for _, target in self.variables[name].pointers if target in self.variables]
        return [name for name in self.variables if name in wanted]

    def skip_blank(self, position: int) -> int:
        while position < len(self.text) and self.text[position].isspace():
            position += 1
        return position

    def find(self, what: str, position: int) -> int:
        found = self.text.find(what, position)
        if found < 0:
            raise self.error(position, f"no {what!r} closes this")
        return found

    def matching(self, brace: int) -> int:
        depth = 0
        for match in re.compile(r"[{}]").finditer(self.text, brace):
            depth += 1 if match.group() == "{" else -1
            if depth == 0:
                return match.start()
        raise self.error(brace, "no '}' closes this")


def parse_parameters(header: str) -> dict[str, Parameter]:
    """Offsets follow the ABI: each parameter at its own alignment."""
    parameters, end = {}, 0
    for match in re.finditer(r"\.param\s+([^,()]*?)([\w$]+)\s*(?:\[(\d+)\])?\s*(?=[,)])", header):
        attributes, name, count = match.groups()
        kinds = [word for word in re.findall(r"\.(\w+)", attributes) if word in TYPE_BYTES]
        if not kinds:
            raise PtxError(f"parameter {name}: no known type in {attributes.strip()!r}")
        size = TYPE_BYTES[kinds[0]]
        pointed = re.search(r"\.ptr\b", attributes)
        explicit = None if pointed else re.search(r"\.align\s+(\d+)", attributes)
        align = int(explicit.group(1)) if explicit else size
        start = -(-end // align) * align
        parameters[name] = Parameter(name, start, size * int(count or 1), kinds[0])
        end = start + size * int(count or 1)
    return parameters


def parse_variables(text: str, module: ModuleParser, position: int) -> list[Variable]:
    """`.shared .align 4 .b8 name[64], other;` and its like in every space."""
    match = VARIABLE.match(text)
    if match is None:
        raise module.error(position, "not a variable declaration")
    space, rest = match.groups()
    align = re.search(r"\.align\s+(\d+)", rest)
    vector = re.search(r"\.v([24])\b", rest)
    kinds = [word for word in re.findall(r"\.(\w+)", rest.split("=")[0]) if word in TYPE_BYTES]
    if not kinds:
        raise module.error(position, "a variable without a known type")
    size = TYPE_BYTES[kinds[0]] * (int(vector.group(1)) if vector else 1)
    names = re.sub(r"\.align\s+\d+|\.attribute\([^)]*\)|\.\w+", " ", rest.split("=")[0], flags=0)
    data, pointers = parse_initialiser(rest.partition("=")[2], kinds[0])
    variables = []
    for name, dims in re.findall(r"([\w$%]+)\s*((?:\[\s*\d*\s*\])*)", names):
        count = 1
        for dim in re.findall(r"\[\s*(\d*)\s*\]", dims):
            count *= int(dim or 0)
        variables.append(Variable(name, space, int(align.group(1)) if align else size, size * count, data, pointers))
    return variables


def parse_initialiser(text: str, kind: str) -> tuple[bytes, tuple[tuple[int, str], ...]]:
    """The bytes of `= {1, 2}` or `= 5`, and (offset, name) of the addresses among them."""
    data, pointers = b"", []
    size = TYPE_BYTES[kind]
    for token in re.findall(r"generic\(\s*[\w$]+\s*\)|-?[\w$.]+", text.replace("{", " ").replace("}", " ")):
        if name := re.fullmatch(r"generic\(\s*([\w$]+)\s*\)|([A-Za-z_$][\w$]*)", token):
            pointers.append((len(data), name.group(1) or name.group(2)))
            data += bytes(size)
            continue
        value = parse_number(token.lstrip("-"))
        bits = value.value if not token.startswith("-") else -value.value
        if value.kind == "f64" and kind == "f32":
            bits = struct.unpack("<I", struct.pack("<f", struct.unpack("<d", struct.pack("<Q", bits))[0]))[0]
        data += (bits % (1 << 8 * size)).to_bytes(size, "little")
    return data, tuple(pointers)


# ---- reading a body ----


@dataclass
class Scope:
    """A `{ }`: its names, mapped to the flat names, and the scope around it."""

    parent: Scope | None
    number: int
    names: dict[str, str] = field(default_factory=dict)

    def find(self, name: str) -> str | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.parent
        return None

    def declare(self, name: str) -> str:
        self.names[name] = name if self.parent is None else f"{name}@{self.number}"
        return self.names[name]


class BodyParser:
    """Statements of one kernel body, first split, then resolved once all labels of a scope are known."""

    def __init__(self, module: ModuleParser, kernel: Kernel) -> None:
        self.module, self.kernel = module, kernel
        self.source = ""
        self.scopes = 0

    def parse(self, position: int, end: int) -> None:
        scope = Scope(None, 0)
        statements: list[tuple[Scope, str, int, str]] = []
        text = self.module.text
        while (position := self.module.skip_blank(position)) < end:
            if text[position] == "{":
                self.scopes += 1
                scope, position = Scope(scope, self.scopes), position + 1
            elif text[position] == "}":
                if scope.parent is None:
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
        self.resolve(statements)

    def read_loc(self, text: str) -> None:
        if match := LOC.match(text):
            number, line, outer, outer_line = match.groups()
            self.source = f"{self.module.files.get(int(number), '?')}:{line}"
            if outer:
                self.source += f", inlined at {self.module.files.get(int(outer), '?')}:{outer_line}"

    def statement(self, scope: Scope, text: str, position: int, statements: list[tuple[Scope, str, int, str]]) -> None:
        """Declarations take effect at once; instructions wait until all labels are known."""
        if match := REGISTER.match(text):
            self.declare_registers(scope, match, position)
        elif VARIABLE.match(text):
            for variable in parse_variables(text, self.module, position):
                self.kernel.variables[scope.declare(variable.name)] = variable
        elif text.startswith(".pragma") or not text.strip():
            pass
        else:
            statements.append((scope, text.strip(), position, self.source))

    def declare_registers(self, scope: Scope, match: re.Match[str], position: int) -> None:
        kind = match.group(1).split()[-1].lstrip(".")
        if kind not in TYPE_BYTES:
            raise self.module.error(position, f"unknown register type .{kind}")
        for item in match.group(2).split(","):
            base, _, count = item.strip().partition("<")
            names = [base] if not count else [f"{base}{n}" for n in range(int(count.rstrip("> ")))]
            for name in names:
                self.kernel.registers[scope.declare(name)] = kind

    def resolve(self, statements: list[tuple[Scope, str, int, str]]) -> None:
        kernel = self.kernel
        for scope, text, position, source in statements:
            if text.startswith("label "):
                kernel.labels[text[6:]] = len(kernel.instructions)
            elif text.startswith(".branchtargets"):
                # The label that names the table stands just before it.
                name = next(reversed(kernel.labels))
                targets = re.findall(r"[\w$%]+", text.removeprefix(".branchtargets"))
                kernel.branch_tables[name] = tuple(scope.find(target) or target for target in targets)
            else:
                kernel.instructions.append(self.instruction(scope, text, position, source))

    def instruction(self, scope: Scope, text: str, position: int, source: str) -> Instruction:
        shown = " ".join(text.split())
        site = Site(self.kernel.name, self.module.line_of(position), shown + ";", source)
        match = re.match(r"(?:@(!?)\s*([\w$%]+)\s+)?([a-z]\w*)((?:(?:\.|::)\w+)*)\s*(.*)", shown, re.S)
        if match is None:
            raise PtxError(f"{site}: not an instruction")
        negated, guard, opcode, mods, rest = match.groups()
        parser = OperandParser(rest, scope, self.kernel, site)
        predicate = parser.name(guard) if guard else None
        if predicate is not None and not isinstance(predicate, Reg):
            raise PtxError(f"{site}: the guard {guard} is not a declared predicate")
        modifiers = tuple(re.findall(r"\.(\w+(?:::\w+)*)", mods))
        return Instruction(opcode, modifiers, parser.all(), predicate, bool(negated), site)


# ---- reading operands ----

TOKEN = re.compile(r"\s*([\w$%.]+|[][{}()|!,+\-])")


class OperandParser:
    def __init__(self, text: str, scope: Scope, kernel: Kernel, site: Site) -> None:
        self.scope, self.kernel, self.site = scope, kernel, site
        self.tokens = TOKEN.findall(text)
        if "".join(self.tokens) != "".join(text.split()):
            raise PtxError(f"{site}: operands that the machine cannot read: {text!r}")
        self.next = 0

    def peek(self) -> str:
        return self.tokens[self.next] if self.next < len(self.tokens) else ""

    def take(self, expected: str = "") -> str:
        token = self.peek()
        if not token or (expected and token != expected):
            raise PtxError(f"{self.site}: expected {expected or 'an operand'!r}, got {token or 'the end'!r}")
        self.next += 1
        return token

    def all(self) -> tuple[Operand, ...]:
        return self.items("")

    def items(self, close: str) -> tuple[Operand, ...]:
        """Comma-separated operands up to the closing token."""
        found: list[Operand] = []
        while self.peek() != close:
            if found:
                self.take(",")
            found.append(self.operand())
        if close:
            self.take(close)
        return tuple(found)

    def operand(self) -> Operand:
        first = self.single()
        if self.peek() == "|":
            self.take()
            return Pair(first, self.single())
        return first

    def single(self) -> Operand:
        token = self.take()
        if token == "[":
            return self.address()
        if token == "{":
            return Vec(self.items("}"))
        if token == "(":
            return Tuple(self.items(")"))
        if token == "!":
            item = self.name(self.take())
            if isinstance(item, Reg):
                return Not(item)
            raise PtxError(f"{self.site}: '!' needs a predicate register")
        if token in "+-":
            number = self.number(self.take())
            return self.negative(number) if token == "-" else number
        if token[0].isdigit():
            return self.number(token)
        item = self.name(token)
        return Sym(item.name, self.offset()) if isinstance(item, Sym) and self.peek() in ("+", "-") else item

    def number(self, token: str) -> Imm:
        try:
            return parse_number(token)
        except ValueError as error:
            raise PtxError(f"{self.site}: {token!r} is not a number") from error

    @staticmethod
    def negative(number: Imm) -> Imm:
        if number.kind == "int":
            return Imm(-number.value)
        return Imm(number.value ^ (1 << (63 if number.kind == "f64" else 31)), number.kind)

    def address(self) -> Addr:
        token = self.take()
        base = self.number(token) if token[0].isdigit() else self.name(token)
        if not isinstance(base, Reg | Sym | Imm):
            raise PtxError(f"{self.site}: {token!r} cannot be an address")
        offset = self.offset()
        extra: list[Operand] = []
        while self.peek() == ",":
            self.take()
            extra.append(self.operand())
        self.take("]")
        return Addr(base, offset, tuple(extra))

    def offset(self) -> int:
        total = 0
        while self.peek() in ("+", "-"):
            sign = 1 if self.take() == "+" else -1
            if self.peek() == "-":
                self.take()
                sign = -sign
            total += sign * self.number(self.take()).value
        return total

    def name(self, token: str) -> Reg | Special | Sym | Imm:
        found = self.scope.find(token)
        flat = found or token
        if flat in self.kernel.registers:
            return Reg(flat)
        if token == "WARP_SZ":
            return Imm(32)
        if token.startswith("%") and found is None:
            if token[1:] not in SPECIALS:
                raise PtxError(f"{self.site}: {token} is neither a declared register nor a special one that the machine has")
            return Special(token[1:])
        return Sym(flat)


def parse_number(token: str) -> Imm:
    """Integers in four bases with optional U, 0f / 0d bit patterns, decimal floats (which are f64)."""
    if match := re.fullmatch(r"0[fF]([0-9a-fA-F]{8})", token):
        return Imm(int(match.group(1), 16), "f32")
    if match := re.fullmatch(r"0[dD]([0-9a-fA-F]{16})", token):
        return Imm(int(match.group(1), 16), "f64")
    plain = token.rstrip("U")
    if re.fullmatch(r"0[0-7]+", plain):
        return Imm(int(plain, 8))
    if "." in plain or re.fullmatch(r"\d+[eE][-+]?\d+", plain):
        return Imm(struct.unpack("<Q", struct.pack("<d", float(plain)))[0], "f64")
    return Imm(int(plain, 0))


def flatten(operand: Operand) -> list[Operand]:
    """The operand and all inside it."""
    inner: tuple[Operand, ...] = ()
    if isinstance(operand, Vec | Tuple):
        inner = operand.items
    elif isinstance(operand, Pair):
        inner = (operand.first, operand.second)
    elif isinstance(operand, Addr):
        inner = (operand.base, *operand.extra)
    elif isinstance(operand, Not):
        inner = (operand.item,)
    return [operand, *(item for one in inner for item in flatten(one))]
