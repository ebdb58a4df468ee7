"""A constant of device code that the host decides, and its line of the header."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Values = Mapping[str, Any]
# How a line of the header defines a name. The preprocessor alone decides which parameters, members and
# statements exist, and puts text into asm: such names are macros.
INT, SIZE, TYPE, MACRO = "int", "size_t", "type", "macro"
LINE = 110  # characters; a longer line has its meaning above it


class Knob(NamedTuple):
    """`default`: the value where the host gives none, or a function of the values before. None: the name is
    then left out, and a source that uses it does not compile.
    """

    name: str
    meaning: str
    default: Any = None
    kind: str = INT

    def value(self, values: Values) -> Any:
        if self.name in values:
            return values[self.name]
        return self.default(values) if callable(self.default) else self.default

    def line(self, value: Any) -> str:
        """An integer that is given as text is an expression of the source (`lapidist static --values`)."""
        kind = MACRO if self.kind == INT and isinstance(value, str) else self.kind
        defined = {MACRO: f"#define {self.name} {value}".rstrip(), TYPE: f"using {self.name} = {value};"}.get(
            kind, f"constexpr {kind} {self.name} = {value};"
        )
        one_line = f"{defined}  // {self.meaning}"
        return one_line if len(one_line) <= LINE else f"// {self.meaning}\n{defined}"


Knobs = tuple[Knob, ...]
Default = Callable[[Values], Any]


def redefined(knobs: Knobs, **defaults: Any) -> Knobs:
    """The same knobs with other defaults."""
    return tuple(
        knob._replace(default=defaults[knob.name]) if knob.name in defaults else knob for knob in knobs
    )
