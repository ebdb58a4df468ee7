"""A traced function: the steps from sums to results. Immutable, prints as it reads, equal where it computes
the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from lapidist.epilogues.passes import ALL, JOINED, LARGEST, QUANTISED, REDUCTIONS, Reduction
from lapidist.epilogues.passes import ROW as OF_ROWS

SUM, OPERAND, CONSTANT = "sum", "operand", "constant"  # steps without arguments
SEED, POSITION = "seed", "position"  # without arguments, too: integers of 64 bits
CAST = "cast"
# whether dropout keeps an element: p is a number of the step, or an operand
DROPOUT_MASK, DROPOUT_MASK_BY_OPERAND = "kept", "kept_by"
POSITIONS = ""  # stands for the elements' numbers among operands, which have names
SCALAR, ROW, COLUMN, TILE = "Scalar", "Row", "Column", "Tile"


class Step(NamedTuple):
    """`args` are numbers of earlier steps. `value` is a constant as float.hex writes it, the name of an
    operand, the type of a cast, or which of two sums: "[0]" or "[1]". A seed has an operand's name or digits,
    a DROPOUT_MASK the share that is dropped."""

    operation: str
    args: tuple[int, ...] = ()
    value: str = ""


class Parameter(NamedTuple):
    """An operand of a function: its name, and SCALAR, ROW, COLUMN or TILE."""

    name: str
    kind: str


class Result(NamedTuple):
    """A result: the number of its step, and the type that the function names; "": that of the array. In a
    function of pairs `other` is the step of the second column; without it both columns have one value.
    `then`: the second pass over all values, by its name in passes.py."""

    step: int
    dtype: str = ""
    other: int | None = None
    then: str = ""

    def text(self, words: Sequence[str]) -> str:
        """The result in words; `words` has the text of each step."""
        first = words[self.step]
        both = first if self.other is None else f"Pair({first}, {words[self.other]})"
        values = f"{self.then}({both})" if self.then else both
        return f"{values} as {self.dtype}" if self.dtype else values

    @property
    def source(self) -> Result:
        """The values that the second pass reads, in the type of the sums."""
        return self._replace(dtype="", then="")


@dataclass(frozen=True)
class Function:
    """Steps, and results of which the first is D. `paired`: sums come by two, of neighbouring columns."""

    name: str
    parameters: tuple[Parameter, ...]
    steps: tuple[Step, ...]
    results: tuple[Result, ...]
    paired: bool = False

    @property
    def stores_d(self) -> bool:
        """Whether the function stores D as it stores further results. Kernels can store neither pairs nor a
        type of D that the function names in another way."""
        return self.paired or self.results[0].dtype != ""

    @cached_property
    def sources(self) -> tuple[Result, ...]:
        """The distinct arrays that second passes read."""
        reduced = (result for result in self.results if result.then and result.then not in LARGEST)
        return tuple(dict.fromkeys(result.source for result in reduced))

    def readers(self, source: Result) -> list[Result]:
        """The results that second passes make of a source."""
        return [result for result in self.results if result.then and result.source == source]

    @cached_property
    def joined(self) -> tuple[Reduction | None, ...]:
        """For each source, how kernels may join its values before they store them: the one reduction of all
        its readers. A reduction of all of D is joined along rows, which takes less. None: not at all."""
        joined = []
        for source in self.sources:
            names = {reader.then for reader in self.readers(source)}
            reductions = [REDUCTIONS[name] for name in names & REDUCTIONS.keys()]
            over = {reduction.over for reduction in reductions} - {ALL} or {OF_ROWS}
            operations = {reduction.operation for reduction in reductions}
            agree = len(reductions) == len(names) and len(over) == len(operations) == 1
            joined.append(Reduction(over.pop(), operations.pop()) if agree else None)
        return tuple(joined)

    def neighbours(self, source: Result) -> int:
        """How many values of a row are joined first: those of JOINED columns of the product."""
        return JOINED // 2 if self.paired and source.other is None else JOINED

    @cached_property
    def maxima(self) -> tuple[Result, ...]:
        """The distinct maxima over all of D, which threads of a kernel keep as they go."""
        maxima = (result._replace(dtype="") for result in self.results if result.then in LARGEST)
        return tuple(dict.fromkeys(maxima))

    @cached_property
    def grouped(self) -> int | None:
        """The number of the source that a kernel may quantise itself, into D and factors, where rows of its
        tiles have whole groups. No other second pass reads it."""
        d = self.results[0]
        quantises = d.then == QUANTISED and len(self.readers(d.source)) == 2
        return self.sources.index(d.source) if quantises else None

    @cached_property
    def stored(self) -> tuple[Result, ...]:
        """What the function stores in a kernel: results without a second pass, sources, maxima."""
        results = self.results if self.stores_d else self.results[1:]
        return (*(result for result in results if not result.then), *self.sources, *self.maxima)

    @cached_property
    def seeds(self) -> frozenset[str]:
        """The names of operands that are seeds."""
        return frozenset(step.value for step in self.steps if step.operation == SEED)

    @cached_property
    def shares(self) -> frozenset[str]:
        """The names of operands that say which share dropout drops."""
        masks = [step for step in self.steps if step.operation == DROPOUT_MASK_BY_OPERAND]
        return frozenset(self.steps[mask.args[2]].value for mask in masks)

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
        """The expression, after a line for each value that is used twice."""
        uses = [0] * len(self.steps)
        for step in self.steps:
            for arg in step.args:
                uses[arg] += 1
        stored = [number for result in self.results for number in (result.step, result.other)]
        for number in stored if len(stored) > 2 else ():
            if number is not None:
                uses[number] += 1
        lines, words, parts = [], list[str](), list[str]()
        for number, step in enumerate(self.steps):
            word, is_infix = in_words(step, words, parts), step.operation in INFIX
            if step.args and uses[number] > 1:
                lines.append(f"v{number} = {word}")
                word, is_infix = f"v{number}", False
            words.append(word)
            parts.append(f"({word})" if is_infix else word)
        return "; ".join([*lines, ", ".join(result.text(words) for result in self.results)])

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> Any:
        """Pickled without its hash, which is another one in another process."""
        return Function, (self.name, self.parameters, self.steps, self.results, self.paired)

    @cached_property
    def _hash(self) -> int:
        return hash((self.parameters, self.steps, self.results, self.paired))

    def __str__(self) -> str:
        return f"{self.name}: {self.text}"

    def with_facts(self) -> Function:
        """The function with its cached properties computed. Python 3.11 computes them under a lock, which
        torch's compiler does not trace."""
        for name, attribute in vars(Function).items():
            if isinstance(attribute, cached_property) and name != "text":
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
    """A step in words: by the `words` of its arguments, or by `parts`, with brackets around operators."""
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
        sides = (words[arg] if sums and " + " not in words[arg] else parts[arg] for arg in step.args)
        return f" {INFIX[step.operation]} ".join(sides)
    more = {CAST: [repr(step.value)], DROPOUT_MASK: [step.value]}.get(step.operation, [])
    return f"{step.operation}({', '.join([*args, *more])})"
