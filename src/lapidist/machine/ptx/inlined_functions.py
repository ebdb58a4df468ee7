"""Functions of a module, and the text of calls: by name, or through a pointer with a prototype."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lapidist.machine.ptx.syntax_tree import TYPE_BYTES

HEADER = re.compile(r"\.func\s*(?:\.noreturn\s*)?(?:\(([^)]*)\)\s*)?([\w$]+)\s*(?:\(([^)]*)\))?")
CALL = re.compile(
    r"(?:@(!?)\s*([\w$%]+)\s+)?call\s*(?:\.\s*uni)?\s+(?:\(([^)]*)\)\s*,\s*)?(%?[\w$]+)\s*"
    r"(?:,\s*\(([^)]*)\)\s*)?(?:,\s*([\w$]+)\s*)?$"
)
PROTOTYPE = re.compile(r"\.callprototype\s*(?:\(([^)]*)\)\s*)?_\s*(?:\(([^)]*)\))?")
RETURN = re.compile(r"(@!?\s*[\w$%]+\s+)?ret(?:\s*\.\s*uni)?$")
BACK = "$back"  # where a function returns to: no compiler's label
MOST_STATEMENTS = 1 << 18  # of a kernel and all that it calls
Extents = tuple[tuple[int, ...], tuple[int, ...]]  # bytes of results, and of parameters


@dataclass(frozen=True, slots=True)
class Function:
    """Where its body lies in the text, and its results and parameters in order."""

    brace: int
    end: int
    names: tuple[str, ...]
    extents: Extents
    in_registers: bool  # parameters; compilers leave them in .param space

    @property
    def results(self) -> int:
        return len(self.extents[0])


@dataclass(frozen=True, slots=True)
class Call:
    name: str  # of a function, or of the register that holds its address
    passed: tuple[str, ...]  # variables for results and parameters in order
    around: str  # the guard of a branch around it, or nothing
    prototype: str


def function_of(header: str, brace: int, end: int) -> tuple[str, Function] | None:
    match = HEADER.match(header)
    if match is None:
        return None
    results, name, parameters = match.groups()
    declared = [*items(results), *items(parameters)]
    names = tuple(re.sub(r"\[[^]]*\]", "", declaration).split()[-1] for declaration in declared)
    in_registers = any(".reg" in declaration.split() for declaration in declared)
    return name, Function(brace, end, names, (extents(results), extents(parameters)), in_registers)


def call_of(statement: str) -> Call | None:
    match = CALL.match(" ".join(statement.split()))
    if match is None:
        return None
    negated, guard, results, name, parameters, prototype = match.groups()
    around = "" if guard is None else f"@{'' if negated else '!'}{guard} "
    return Call(name, (*items(results), *items(parameters)), around, prototype or "")


def prototype_of(statement: str) -> Extents | None:
    match = PROTOTYPE.match(" ".join(statement.split()))
    return None if match is None else (extents(match[1]), extents(match[2]))


def extents(declarations: str | None) -> tuple[int, ...]:
    """Bytes of each declared result or parameter."""
    sizes = []
    for declaration in items(declarations):
        kinds = [word for word in re.findall(r"\.(\w+)", declaration) if word in TYPE_BYTES]
        count = re.search(r"\[\s*(\d{1,9})\s*\]", declaration)
        sizes.append((TYPE_BYTES[kinds[0]] if kinds else 0) * int(count[1] if count else 1))
    return tuple(sizes)


def items(listed: str | None) -> list[str]:
    return [item.strip() for item in (listed or "").split(",") if item.strip()]
