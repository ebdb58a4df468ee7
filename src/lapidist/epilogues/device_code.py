"""A traced function in CUDA C++: a statement for each step. epilogue.cuh has the functions that they call."""

from __future__ import annotations

from collections.abc import Mapping

from lapidist.epilogues.operations import OPERATIONS
from lapidist.epilogues.steps import CONSTANT, OPERAND, POSITION, SEED, SUM, Function

UINT64 = "unsigned long long"  # the type of seeds and positions


def statements(function: Function, value: str, loads: Mapping[str, str]) -> str:
    """The function's body; `value` is the type that it computes in, `loads` are expressions for its operands.
    Further results are put by their numbers; D is returned, or put where the function stores it."""
    lines = []
    for number, step in enumerate(function.steps):
        if step.operation == SUM:
            kind, text = value, "sum" + step.value
        elif step.operation == OPERAND:
            kind, text = value, loads[step.value]
        elif step.operation in (SEED, POSITION):
            kind, text = UINT64, f"{step.value}ull" if step.value.isdigit() else loads[step.value]
        elif step.operation == CONSTANT:
            kind, text = value, constant(float.fromhex(step.value), value)
        else:
            row = OPERATIONS[step.operation]
            kind = "bool" if row.condition else value
            text = row.device.format(*(f"v{arg}" for arg in step.args), value=step.value)
        lines.append(f"const {kind} v{number} = {text};")
    if function.paired:
        for place, result in enumerate(function.stored):
            columns = (result.step, result.other)
            lines += (put(place, step, column) for column, step in enumerate(columns) if step is not None)
        return " ".join(lines)
    lines += (put(place, result.step, "which") for place, result in enumerate(function.stored))
    return " ".join([*lines, f"return v{function.results[0].step};"])


def put(place: int, step: int, column: int | str) -> str:
    """A statement that stores a result's value for a column."""
    return f"results.template put<{place}>(v{step}, {column});"


def constant(number: float, value: str) -> str:
    """A literal with every bit of a number; infinities and NaN have none, and call functions."""
    if number != number or number in (float("inf"), float("-inf")):
        text = "fused::not_a_number()" if number != number else "fused::infinity()"
        return f"{value}({'-' if number < 0 else ''}{text})"
    return f"{value}({number.hex()})"
