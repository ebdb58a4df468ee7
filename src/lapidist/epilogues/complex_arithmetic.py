"""Which functions follow sums of complex numbers: plain arithmetic. Kernels see real and imaginary parts in
turn. Functions that add complex numbers, and multiply by real ones, treat both alike. Others are functions of
pairs (complex_pairs.py).
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from typing import NamedTuple

from lapidist.epilogues.steps import CONSTANT, OPERAND, SCALAR, SUM, Function, Parameter, Step
from lapidist.errors import ArgumentError

NUMBERS = SUM, OPERAND, CONSTANT
ARITHMETIC = ("add", "subtract", "multiply", "divide", "negative")
ADDEND, FACTOR = "addend", "factor"


def require_arithmetic(function: Function) -> None:
    """Complex numbers have no order, and no kernel computes functions of them."""
    wrong = [step.operation for step in function.steps if step.operation not in (*NUMBERS, *ARITHMETIC)]
    results = function.results
    if function.paired or len(results) > 1 or results[0].then or results[0].dtype:
        wrong = ["more than one plain result"]
    if wrong:
        raise ArgumentError(
            f"epilogue: of complex numbers must add, subtract, multiply and divide, and return one value;"
            f" {function.name} has {wrong[0]}. Compute with the result"
        )


class DependsOnBoth(Exception):
    """A part of the function's result depends on both parts of a number."""


class InParts(NamedTuple):
    """The function as kernels see it. `roles`: for each operand whether it is added as a complex number, or
    multiplies or divides as a real one. `constants`: what became operands.
    """

    function: Function
    roles: dict[str, str]
    constants: dict[str, float]


def in_parts(function: Function, complex_operands: Set[str]) -> InParts:
    """Real numbers that are added to complex ones become addends, constants among them: these are added to
    real parts alone.
    """
    added, constants = set(complex_operands), dict[str, float]()
    while (addition := next_addend(function, added)) is not None:
        user, number = addition
        step = function.steps[number]
        if step.operation == CONSTANT and user < len(function.steps):
            function, name = with_operand(function, user, number)
            constants[name] = float.fromhex(step.value)
        else:
            name = operand_at(function, number)
        added.add(name)
    roles = {name: ADDEND if name in added else FACTOR for name, _ in function.parameters}
    return InParts(function, roles, constants)


def next_addend(function: Function, added: Set[str]) -> tuple[int, int] | None:
    """A step that adds real numbers to complex ones, or the function's end, and the real numbers' step; None:
    there is none.
    """
    are_complex: list[bool] = []
    for user, (operation, args, value) in enumerate(function.steps):
        of_args = [are_complex[arg] for arg in args]
        if operation in ("add", "subtract") and len(set(of_args)) > 1:
            return user, args[of_args.index(False)]
        if operation == "multiply" and all(of_args):
            raise DependsOnBoth
        if operation == "divide" and of_args[1]:
            raise DependsOnBoth
        are_complex.append(any(of_args) or operation == SUM or (operation == OPERAND and value in added))
    last = function.results[0].step
    return None if are_complex[last] else (len(function.steps), last)


def with_operand(function: Function, user: int, number: int) -> tuple[Function, str]:
    """The function with a new operand in place of what one of its steps takes."""
    name = f"constant_{len(function.parameters)}"
    while any(name == parameter.name for parameter in function.parameters):
        name += "_"

    def moved(step: int) -> int:
        return step + (step >= user)

    steps = [step._replace(args=tuple(map(moved, step.args))) for step in function.steps]
    steps[user] = steps[user]._replace(args=tuple(user if arg == number else arg for arg in steps[user].args))
    steps.insert(user, Step(OPERAND, (), name))
    results = tuple(result._replace(step=moved(result.step)) for result in function.results)
    parameters = (*function.parameters, Parameter(name, SCALAR))
    return replace(function, steps=tuple(steps), results=results, parameters=parameters), name


def operand_at(function: Function, number: int) -> str:
    """The operand of a step, where a complex number must be. A real value that is computed may be added."""
    step = function.steps[number]
    if step.operation != OPERAND:
        raise DependsOnBoth
    return step.value
