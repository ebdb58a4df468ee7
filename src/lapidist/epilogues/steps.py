"""A traced function: what becomes of a sum, step by step. Immutable, prints as it reads, equal where it
computes the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from lapidist.epilogues.passes import ALL, JOINED, LARGEST, QUANTISED, REDUCTIONS, Reduction
from lapidist.epilogues.passes import ROW as OF_ROWS

SUM, OPERAND, CONSTANT = "sum", "operand", "constant"  # steps that take nothing from others
SEED, POSITION = "seed", "position"  # nor do these, which are whole numbers of 64 bits
CAST, DROPOUT_MASK = "cast", "kept"
DROPOUT_MASK_BY_OPERAND = "kept_by"  # by a share that is an operand
POSITIONS = ""  # stands for the elements' numbers among operands, which have names
SCALAR, ROW, COLUMN, TILE = "Scalar", "Row", "Column", "Tile"


class Step(NamedTuple):
    """`args` are numbers of earlier steps. `value` is a constant as float.hex writes it, the name of an
    operand, the type of a cast, or which of two sums: "[0]" or "[1]". Of a seed it is an operand's name or
    digits, of "kept" the share that is dropped."""

    operation: str
    args: tuple[int, ...] = ()
    value: str = ""


class Parameter(NamedTuple):
    """An operand of a function: its name, and SCALAR, ROW, COLUMN or TILE."""

    name: str
    kind: str


class Result(NamedTuple):
    """What is stored: the number of a step, and the type that the function names; "": the array's own. In a
    function of pairs `other` is what the second of two columns gets; without it both have one together.
    `then`: what a second pass makes of all values, by its name in passes.py."""

    step: int
    dtype: str = ""
    other: int | None = None
    then: str = ""

    def text(self, words: Sequence[str]) -> str:
        """`words`: of each step."""
        first = words[self.step]
        both = first if self.other is None else f"Pair({first}, {words[self.other]})"
        made = f"{self.then}({both})" if self.then else both
        return f"{made} as {self.dtype}" if self.dtype else made


@dataclass(frozen=True)
class Function:
    """The first result is D, the others go to arrays of their own. `paired`: its sums are those of two
    neighbouring columns."""

    name: str
    parameters: tuple[Parameter, ...]
    steps: tuple[Step, ...]
    results: tuple[Result, ...]
    paired: bool = False

    @property
    def stores_d(self) -> bool:
        """Whether D is stored as results beside it are: kernels have no other way for pairs, and for D's own
        type none but that of the function."""
        return self.paired or self.results[0].dtype != ""

    @cached_property
    def sources(self) -> tuple[Result, ...]:
        """What second passes read, each once: arrays in the type of the sums."""
        found = (each for each in self.results if each.then and each.then not in LARGEST)
        return tuple(dict.fromkeys(each._replace(dtype="", then="") for each in found))

    @cached_property
    def joined(self) -> tuple[Reduction | None, ...]:
        """Of each source, how kernels may join values of it: along rows or down columns, as all passes want
        that read it, by their one operation; for what is of all of D along rows, which takes less. None: not
        at all."""
        found = []
        for source in self.sources:
            readers = {each.then for each in self.results if each._replace(dtype="", then="") == source}
            known = [REDUCTIONS.get(then) for then in readers - {""}]
            over = {None if each is None else each.over for each in known} - {ALL} or {OF_ROWS}
            operations = {each.operation for each in known if each}
            alone = None not in over and len(over) == len(operations) == 1
            found.append(Reduction(over.pop(), operations.pop()) if alone else None)  # type: ignore[arg-type]
        return tuple(found)

    def neighbours(self, source: Result) -> int:
        """Values of a row that are joined first: those of JOINED columns of the product."""
        return JOINED // 2 if self.paired and source.other is None else JOINED

    @cached_property
    def maxima(self) -> tuple[Result, ...]:
        """The largest of all values, each once, as threads of a kernel keep it."""
        found = (each for each in self.results if each.then in LARGEST)
        return tuple(dict.fromkeys(each._replace(dtype="") for each in found))

    @cached_property
    def grouped(self) -> int | None:
        """Which of the sources a kernel may make D and factors of by itself, where rows of its tiles have
        whole groups. No other second pass reads it."""
        d = self.results[0]
        if d.then != QUANTISED:
            return None
        source = d._replace(dtype="", then="")
        readers = [each for each in self.results if each.then and each._replace(dtype="", then="") == source]
        return self.sources.index(source) if len(readers) == 2 else None

    @cached_property
    def stored(self) -> tuple[Result, ...]:
        """What the function stores in a kernel: results as they are, then what second passes read."""
        own = self.results if self.stores_d else self.results[1:]
        return (*(each for each in own if not each.then), *self.sources, *self.maxima)

    @cached_property
    def seeds(self) -> frozenset[str]:
        """Operands that are seeds."""
        return frozenset(step.value for step in self.steps if step.operation == SEED)

    @cached_property
    def shares(self) -> frozenset[str]:
        """Operands that say which share is dropped."""
        found = (self.steps[step.args[2]] for step in self.steps if step.operation == DROPOUT_MASK_BY_OPERAND)
        return frozenset(step.value for step in found)

    @cached_property
    def is_positioned(self) -> bool:
        """Whether a value depends on where its element is in D."""
        return any(step.operation == POSITION for step in self.steps)

    @property
    def narrows(self) -> bool:
        """Whether D has one column for two of the product."""
        return self.paired and self.results[0].other is None

    @cached_property
    def text(self) -> str:
        """The expression; what is used twice has a line of its own before it."""
        uses = [0] * len(self.steps)
        for step in self.steps:
            for arg in step.args:
                uses[arg] += 1
        stored = [number for each in self.results for number in (each.step, each.other)]
        for place in (each for each in stored if each is not None and len(stored) > 2):
            uses[place] += 1
        lines, words, parts = [], list[str](), list[str]()
        for number, step in enumerate(self.steps):
            word, is_whole = in_words(step, words, parts), step.operation not in INFIX
            if step.args and uses[number] > 1:
                lines.append(f"v{number} = {word}")
                word, is_whole = f"v{number}", True
            words.append(word)
            parts.append(word if is_whole else f"({word})")
        return "; ".join([*lines, ", ".join(each.text(words) for each in self.results)])

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> Any:
        """Without its hash, which another process would not have."""
        return Function, (self.name, self.parameters, self.steps, self.results, self.paired)

    @cached_property
    def _hash(self) -> int:
        return hash((self.parameters, self.steps, self.results, self.paired))

    def __str__(self) -> str:
        return f"{self.name}: {self.text}"

    def known(self) -> Function:
        """With all that follows from its steps at hand. Python 3.11 computes it under a lock, which torch's
        compiler does not trace."""
        for name, each in vars(Function).items():
            if isinstance(each, cached_property) and name != "text":
                getattr(self, name)
        return self


INFIX = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "less": "<",
    "less_equal": "<=",
    "equal": "==",
    "not_equal": "!=",
    "both": "&",
    "any_of": "|",
}


def in_words(step: Step, words: Sequence[str], parts: Sequence[str]) -> str:
    """A step in words. `words` are those of its arguments, `parts` with brackets around operators."""
    if step.operation == SUM:
        return "acc" + step.value
    if step.operation in (OPERAND, SEED):
        return step.value
    if step.operation == POSITION:
        return POSITION
    if step.operation == CONSTANT:
        return f"{float.fromhex(step.value):g}"
    args = [words[arg] for arg in step.args]
    if step.operation in INFIX:
        sums = step.operation == "add"
        left, right = (words[arg] if sums and " + " not in words[arg] else parts[arg] for arg in step.args)
        return f"{left} {INFIX[step.operation]} {right}"
    more = {CAST: [repr(step.value)], DROPOUT_MASK: [step.value]}.get(step.operation, [])
    return f"{step.operation}({', '.join([*args, *more])})"
