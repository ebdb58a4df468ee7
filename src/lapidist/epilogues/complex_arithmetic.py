"""Which functions follow sums of complex numbers: plain arithmetic. Kernels see real and imaginary parts in
turn. They take functions that treat both alike: these add complex numbers, and multiply by real ones."""

from __future__ import annotations

from collections.abc import Set

from lapidist.epilogues.steps import CONSTANT, OPERAND, SUM, Function
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


def roles_of(function: Function, complex_operands: Set[str]) -> dict[str, str]:
    """For each operand whether it is added as a complex number, or multiplies or divides as a real one."""
    added = set(complex_operands)
    while (more := next_addend(function, added)) is not None:
        added.add(more)
    return {name: ADDEND if name in added else FACTOR for name, _ in function.parameters}


def next_addend(function: Function, added: Set[str]) -> str | None:
    """A real operand that is added to complex numbers, and is not among these yet; None: there is none."""
    are_complex: list[bool] = []
    for operation, args, value in function.steps:
        of_args = [are_complex[arg] for arg in args]
        if operation in ("add", "subtract") and len(set(of_args)) > 1:
            return operand_at(function, args[of_args.index(False)])
        if operation == "multiply" and all(of_args):
            raise refused(function, "multiplies two complex values", "Multiply the result")
        if operation == "divide" and of_args[1]:
            raise refused(function, "divides by a complex value", "Divide the result")
        are_complex.append(any(of_args) or operation == SUM or (operation == OPERAND and value in added))
    last = function.results[0].step
    return None if are_complex[last] else operand_at(function, last)


def operand_at(function: Function, number: int) -> str:
    """The operand of a step, where a complex number must be."""
    step = function.steps[number]
    if step.operation == OPERAND:
        return step.value
    raise refused(function, "adds a real value that it computes", "Pass it as a complex operand")


def refused(function: Function, does: str, way_out: str) -> ArgumentError:
    return ArgumentError(
        "epilogue: in kernels, which see real and imaginary parts in turn, it must add complex operands and"
        f" multiply or divide by real ones; {function.name} {does}. {way_out}"
    )
