"""Functions of a module, and calls of them. A call is read as the function's body with names of its own: what
a function declares lies in a scope that sees nothing of its caller but the parameters."""

from __future__ import annotations

import re
from dataclasses import dataclass

HEADER = re.compile(r"\.func\s*(?:\(([^)]*)\)\s*)?([\w$]+)\s*(?:\(([^)]*)\))?")
CALL = re.compile(
    r"(?:@(!?)\s*([\w$%]+)\s+)?call\s*(?:\.\s*uni)?\s+(?:\(([^)]*)\)\s*,\s*)?([\w$]+)\s*(?:,\s*\(([^)]*)\)\s*)?$"
)
RETURN = re.compile(r"(@!?\s*[\w$%]+\s+)?ret(?:\s*\.\s*uni)?$")
BACK = "$back"  # where a function returns to: no compiler's label
MOST_STATEMENTS = 1 << 18  # of a kernel and all that it calls


@dataclass(frozen=True, slots=True)
class Function:
    """Where its body lies in the text, and its results and parameters in order."""

    brace: int
    end: int
    names: tuple[str, ...]
    in_registers: bool  # parameters; compilers leave them in .param space


@dataclass(frozen=True, slots=True)
class Call:
    name: str
    passed: tuple[str, ...]  # variables for results and parameters in order
    around: str  # the guard of a branch around it, or nothing


def function_of(header: str, brace: int, end: int) -> tuple[str, Function] | None:
    match = HEADER.match(header)
    if match is None:
        return None
    results, name, parameters = match.groups()
    declared = [*items(results), *items(parameters)]
    names = tuple(re.sub(r"\[[^]]*\]", "", declaration).split()[-1] for declaration in declared)
    return name, Function(brace, end, names, any(".reg" in declaration.split() for declaration in declared))


def call_of(statement: str) -> Call | None:
    match = CALL.match(" ".join(statement.split()))
    if match is None:
        return None
    negated, guard, results, name, parameters = match.groups()
    around = "" if guard is None else f"@{'' if negated else '!'}{guard} "
    return Call(name, (*items(results), *items(parameters)), around)


def items(listed: str | None) -> list[str]:
    return [item.strip() for item in (listed or "").split(",") if item.strip()]
