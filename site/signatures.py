"""What the reference shows of a signature: types that a reader can write, and no parameter without a use.

An alias of a Literal is shown as its values. `Any` is left out: the list of parameters says what fits.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Class, Expr, Extension, Function, Module

NO_SUCH = "NoReturn"  # the type of **unknown, which catches misspelt names
UNTYPED = re.compile(r"Any( \| None)?")


class Signatures(Extension):
    def on_package(self, *, pkg: Module, loader: Any, **_: Any) -> None:
        for module in modules_of(pkg):
            for function in functions_of(module):
                show(function, loader.modules_collection)


def modules_of(module: Module) -> list[Module]:
    inner = [each for each in module.modules.values() if not each.is_alias]
    return [module, *(deeper for each in inner for deeper in modules_of(each))]


def functions_of(scope: Module | Class) -> list[Function]:
    methods = [each for inner in scope.classes.values() if not inner.is_alias for each in functions_of(inner)]
    return [*(each for each in scope.functions.values() if not each.is_alias), *methods]


def show(function: Function, collection: Any) -> None:
    for parameter in list(function.parameters):
        if str(parameter.annotation) == NO_SUCH:
            del function.parameters[parameter.name]
        else:
            parameter.annotation = written_out(parameter.annotation, collection)
    function.returns = written_out(function.returns, collection)


def written_out(annotation: str | Expr | None, collection: Any) -> str | Expr | None:
    """The type with the values of Literals in the place of their names; None for what says nothing."""
    if annotation is None or UNTYPED.fullmatch(str(annotation)):
        return None
    names = [] if isinstance(annotation, str) else list(annotation.iterate(flat=True))
    text = str(annotation)
    for name in names:
        value = literal(getattr(name, "canonical_path", ""), collection)
        text = re.sub(rf"\b{name}\b", value, text) if value else text
    return text if text != str(annotation) else annotation


def literal(path: str, collection: Any) -> str:
    """What an alias stands for, where it is a Literal, alone or beside others; else nothing."""
    try:
        value = str(collection[path].value)
    except (KeyError, AttributeError, ValueError):
        return ""
    return value if value.startswith("Literal[") else ""
