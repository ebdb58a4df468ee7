"""Functions of complex numbers as functions of pairs of real ones: their real and imaginary parts, which are
neighbouring columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from typing import NamedTuple

from lapidist.epilogues.steps import CONSTANT, OPERAND, SUM, Function, Parameter, Result, Step


class Parts(NamedTuple):
    """The steps of a value's parts; real values have no imaginary one."""

    re: int
    im: int | None = None


Names = Mapping[str, tuple[str, str]]  # of the parts of complex operands


def in_pairs(function: Function, complex_operands: Set[str], conjugated: Set[str]) -> tuple[Function, Names]:
    """The function with two real operands for each complex one. `conjugated`: whose imaginary parts are the
    negatives of what is read.
    """
    used_names, names = {name for name, _ in function.parameters}, dict[str, tuple[str, str]]()
    for name in sorted(complex_operands):
        parts = f"{name}_re", f"{name}_im"
        while used_names & set(parts):
            parts = f"{parts[0]}_", f"{parts[1]}_"
        names[name], used_names = parts, used_names | set(parts)
    tape, values = Tape(names, conjugated), list[Parts]()
    for step in function.steps:
        values.append(tape.value(step, [values[arg] for arg in step.args]))
    re, im = values[function.results[0].step]
    result = Result(re, other=tape.add(CONSTANT, value=(0.0).hex()) if im is None else im)
    parameters = tuple(
        Parameter(part, kind) for name, kind in function.parameters for part in names.get(name, (name,))
    )
    how = {"parameters": parameters, "steps": tuple(tape.steps), "results": (result,), "paired": True}
    return replace(function, **how), names  # type: ignore[arg-type]


class Tape:
    """Steps of real numbers, each once."""

    def __init__(self, names: Names, conjugated: Set[str]) -> None:
        self.names, self.conjugated, self.steps = names, conjugated, list[Step]()

    def add(self, operation: str, *args: int, value: str = "") -> int:
        step = Step(operation, args, value)
        if step not in self.steps:
            self.steps.append(step)
        return self.steps.index(step)

    def value(self, step: Step, args: list[Parts]) -> Parts:
        operation, _, value = step
        if operation == SUM:
            return Parts(self.add(SUM, value="[0]"), self.add(SUM, value="[1]"))
        if operation == OPERAND and value in self.names:
            re, im = (self.add(OPERAND, value=name) for name in self.names[value])
            return Parts(re, self.add("negative", im) if value in self.conjugated else im)
        if operation in (OPERAND, CONSTANT):
            return Parts(self.add(operation, value=value))
        if operation == "negative":
            return self.negative(*args)
        if operation == "multiply":
            return self.product(*args)
        return self.quotient(*args) if operation == "divide" else self.sum(operation, *args)

    def negative(self, z: Parts) -> Parts:
        return Parts(self.add("negative", z.re), None if z.im is None else self.add("negative", z.im))

    def sum(self, operation: str, z: Parts, w: Parts) -> Parts:
        """Or the difference."""
        re, im = self.add(operation, z.re, w.re), z.im
        if w.im is not None and z.im is not None:
            im = self.add(operation, z.im, w.im)
        elif w.im is not None:
            im = self.add("negative", w.im) if operation == "subtract" else w.im
        return Parts(re, im)

    def scaled(self, operation: str, z: Parts, by: int) -> Parts:
        return Parts(self.add(operation, z.re, by), None if z.im is None else self.add(operation, z.im, by))

    def product(self, z: Parts, w: Parts) -> Parts:
        if w.im is None:
            return self.scaled("multiply", z, w.re)
        if z.im is None:
            return self.scaled("multiply", w, z.re)
        re = self.add("subtract", self.add("multiply", z.re, w.re), self.add("multiply", z.im, w.im))
        im = self.add("add", self.add("multiply", z.re, w.im), self.add("multiply", z.im, w.re))
        return Parts(re, im)

    def quotient(self, z: Parts, w: Parts) -> Parts:
        """The divisor's larger part becomes 1 before it is squared, which could overflow."""
        if w.im is None:
            return self.scaled("divide", z, w.re)
        size = self.add("maximum", self.add("absolute", w.re), self.add("absolute", w.im))
        re, im = self.add("divide", w.re, size), self.add("divide", w.im, size)
        square = self.add("add", self.add("multiply", re, re), self.add("multiply", im, im))
        conjugate = Parts(re, self.add("negative", im))
        return self.scaled("divide", self.scaled("divide", self.product(z, conjugate), square), size)
