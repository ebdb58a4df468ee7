"""@lapidist.epilogue: a Python function of a sum, traced once into the steps that kernels run."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from enum import Enum
from functools import update_wrapper
from numbers import Number
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from lapidist.epilogues.expressions import KINDS, Expression, Tape, place_of, the_sum
from lapidist.epilogues.results import Pair, outputs_of
from lapidist.epilogues.steps import SCALAR, Function, Parameter
from lapidist.errors import ArgumentError, LapidistError, shown

# what methods of arrays are called here
METHODS = {
    **dict.fromkeys(("astype", "to", "type", "half", "float", "bfloat16"), 'cast(x, "float16"), say'),
    **dict.fromkeys(("sum", "mean"), "row_sum(x) or column_sum(x) of a further result"),
    **dict.fromkeys(("max", "min"), "row_max(x) or column_max(x) of a further result"),
    **dict.fromkeys(("clip", "clamp_min", "clamp_max"), "clamp(x, low, high)"),
    "abs": "absolute(x)",
    "round": "rint(x)",
}

FIXED = (
    Number,
    str,
    bytes,
    range,
    Enum,
    type(None),
    np.generic,
    np.dtype,
    ModuleType,
    BuiltinFunctionType,
    type,
    np.ufunc,
)
FIXED_TYPE_NAMES = ("torch.dtype",)  # of libraries that may not be imported
TRUSTED = ("lapidist", "numpy", "math")  # their functions capture nothing that changes


class BoundEpilogue(NamedTuple):
    """An epilogue and the values of its operands, by name."""

    function: Function
    values: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"<{self.function}>"


class Epilogue:
    """A traced function. Called with its operands by name, it returns what matmul, gemm and plan take."""

    def __init__(self, function: FunctionType) -> None:
        update_wrapper(self, function)
        self._python = function
        self._defaults = dict(defaults_of(function))
        self.function = traced(function)
        self._names = tuple(parameter.name for parameter in self.function.parameters)

    def __reduce__(self) -> str:
        """The name in its module, by which functions are pickled."""
        return self.__qualname__  # type: ignore[attr-defined,no-any-return]

    def __call__(self, /, *values: Any, **operands: Any) -> Any:
        if tuple(operands) == self._names and not values:  # as calls mostly are
            for value in operands.values():
                if value is None:
                    break
            else:
                return BoundEpilogue(self.function, operands)
        if any(isinstance(value, (Expression, Pair)) for value in (*values, *operands.values())):
            # inside of another one, which is being traced
            return self._python(*values, **operands)
        epilogue = self.function.name
        if values:
            named = ", ".join(f"{name}=" for name in self._names)
            rule = f"operands must be named, as {named}" if named else "must be called without operands"
            raise ArgumentError(
                f"{epilogue}: {rule}; got {len(values)} without a name. The sum is not passed"
            )
        for name in operands:
            if name not in self._names:
                raise ArgumentError(
                    f"{epilogue}: must have operands {', '.join(self._names) or '(none)'}; got {shown(name)}."
                    f" {operand_instead(name, [key for key in self._names if key not in operands])}"
                )
        bound = {**self._defaults, **operands}
        for name in self._names:
            if bound.get(name) is None:
                raise ArgumentError(f"{epilogue}: must have a value for {name}; got None. Pass {name}=")
        return BoundEpilogue(self.function, {name: bound[name] for name in self._names})

    def __repr__(self) -> str:
        return f"<lapidist.epilogue {self.function}>"

    def __str__(self) -> str:
        return self.function.text


def operand_instead(name: str, missing: Sequence[str]) -> str:
    close = list(missing) if len(missing) == 1 else get_close_matches(name, missing, 1)
    return f"Write {close[0]}=" if close else "Leave it out"


def epilogue(function: Callable[..., Any]) -> Epilogue:
    """Make a function of the sum and of operands an epilogue: it is called once, now, to see what it
    computes.

    The first parameter is the sum, after alpha, factors and beta C; annotated with Pair, those of two
    neighbouring columns. The others are annotated with Scalar, Row, Column or Tile.

    Parameters
    ----------
    function : function
        It uses arithmetic, comparisons and the functions of lapidist, and returns what is stored: D, or
        a tuple of D and further results, each of D's type or an `Output` of its own.

    Returns
    -------
    Epilogue
        Called with its operands by name, it gives what `matmul`, `gemm` and `plan` take as `epilogue`.

    Examples
    --------
    >>> import numpy as np
    >>> import lapidist
    >>> @lapidist.epilogue
    ... def bias_relu(acc, bias: lapidist.Row):
    ...     return lapidist.relu(acc + bias)
    >>> lapidist.matmul(np.eye(2), np.ones((2, 3)), epilogue=bias_relu(bias=np.array([1, 0, -2])))
    array([[2., 1., 0.],
           [2., 1., 0.]])
    """
    if not isinstance(function, FunctionType):
        raise ArgumentError(
            f"epilogue: must be a Python function; got {type(function).__name__}. Write one with def, of"
            " lapidist's functions: lapidist.relu(acc), say"
        )
    return Epilogue(function)


def traced(function: FunctionType) -> Function:
    """The steps of a function, which is called once with expressions."""
    name = function.__name__
    first, *operands = signature_of(function)
    parameters, paired = parameters_of(function, operands), first.annotation is Pair
    require_fixed_captures(name, function, set())
    tape = Tape(name)
    sums = Pair(the_sum(tape, "[0]"), the_sum(tape, "[1]")) if paired else the_sum(tape)
    values = {parameter.name: tape.operand(parameter, KINDS[parameter.kind]) for parameter in parameters}
    try:
        result = function(sums, **values)
        return tape.function(parameters, outputs_of(name, result, paired), paired).with_facts()
    except LapidistError:
        raise
    except Exception as error:  # of the function, or of what it returned
        raise ArgumentError(
            f"{name}: must call what can be traced; got {type(error).__name__}: {error},"
            f" {failed_at(function, error)}. {instead_of(error)}"
        ) from error


def instead_of(error: Exception) -> str:
    """What to write where a sum was asked for a method of arrays."""
    import lapidist
    from lapidist.epilogues import functions

    method = (error.name or "") if isinstance(error, AttributeError) else ""
    if method in METHODS:
        return f"Write lapidist.{METHODS[method]}"
    if method in lapidist.__all__ and hasattr(functions, method):
        return f"Write lapidist.{method}(...)"
    return "Use arithmetic, comparisons and the functions of lapidist"


def failed_at(function: FunctionType, error: BaseException) -> str:
    """Where the function failed: its own line, not one of what it called."""
    line, trace = function.__code__.co_firstlineno, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code is function.__code__:
            line = trace.tb_lineno
        trace = trace.tb_next
    return place_of(function.__code__.co_filename, line)


def signature_of(function: FunctionType) -> list[inspect.Parameter]:
    """The parameters: the sum, then the operands."""
    name, line = function.__name__, first_line_of(function)
    try:
        parameters = list(inspect.signature(function, eval_str=True).parameters.values())
    except Exception as error:  # annotations are any expressions
        raise ArgumentError(
            f"{name}: annotations must be known; got {type(error).__name__}: {error}, {line}. Import"
            f" lapidist, and write lapidist.{', '.join(KINDS)} or Pair"
        ) from error
    if not parameters:
        raise ArgumentError(
            f"{name}: must take the sum; got a function without parameters, {line}. Write def {name}(acc)"
        )
    if parameters[0].annotation in KINDS.values():
        first, kind = parameters[0].name, parameters[0].annotation.__name__
        way_out = (
            f"Write def {name}(acc, {first}: lapidist.{kind})"
            if first != "acc"
            else "Leave the annotation out"
        )
        raise ArgumentError(
            f"{name}: the first parameter is the sum; {first} is annotated as a {kind}, {line}. {way_out}"
        )
    return parameters


def first_line_of(function: FunctionType) -> str:
    return place_of(function.__code__.co_filename, function.__code__.co_firstlineno)


def parameters_of(function: FunctionType, operands: Sequence[inspect.Parameter]) -> tuple[Parameter, ...]:
    """The names and kinds of operands, checked."""
    name, line = function.__name__, first_line_of(function)
    plain = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = []
    for operand in operands:
        kind = getattr(operand.annotation, "__name__", str(operand.annotation))
        if operand.kind not in plain:
            raise ArgumentError(
                f"{name}: operands are passed by name; {operand} cannot be, {line}. Write {name}(acc,"
                f" {operand.name}: lapidist.Row), say"
            )
        if operand.annotation is not KINDS.get(kind):
            raise ArgumentError(
                f"{name}: operands must be annotated lapidist.Scalar, Row, Column or Tile; {operand.name} is"
                f" not, {line}. Write {operand.name}: lapidist.Row, say"
            )
        if operand.default is not inspect.Parameter.empty and kind != SCALAR:
            raise ArgumentError(
                f"{name}: a Scalar alone may have a default; {operand.name} is a {kind}, {line}. Leave it out"
            )
        parameters.append(Parameter(operand.name, kind))
    return tuple(parameters)


# ---- what a function may capture ----


def require_fixed_captures(name: str, function: FunctionType, checked: set[FunctionType]) -> None:
    """Refuse captured values that may change: a traced function would not see them change."""
    checked.add(function)
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    for captured, value, line in captures(function.__code__, function.__globals__, cells):
        inner = value._python if isinstance(value, Epilogue) else value
        if not isinstance(inner, FunctionType):
            require_fixed(name, captured, value, function, line)
        elif inner not in checked and (inner.__module__ or "").partition(".")[0] not in TRUSTED:
            for parameter, default in defaults_of(inner):
                require_fixed(name, f"{captured}'s default of {parameter}", default, function, line)
            require_fixed_captures(name, inner, checked)


def require_fixed(name: str, captured: str, value: Any, function: FunctionType, line: int) -> None:
    if not is_fixed(value):
        raise ArgumentError(
            f"{name}: must capture numbers, functions and modules alone, which are the same at each call; got"
            f" {captured}, a {type(value).__name__}, {place_of(function.__code__.co_filename, line)}."
            f" {'Write a function with def' if callable(value) else 'Pass it as an operand'}"
        )


def defaults_of(function: FunctionType) -> Iterator[tuple[str, Any]]:
    for parameter in inspect.signature(function).parameters.values():
        if parameter.default is not inspect.Parameter.empty:
            yield parameter.name, parameter.default


def is_fixed(value: Any) -> bool:
    if isinstance(value, (tuple, frozenset)):
        return all(map(is_fixed, value))
    kind = type(value)
    return isinstance(value, FIXED) or f"{kind.__module__}.{kind.__qualname__}" in FIXED_TYPE_NAMES


def captures(
    code: CodeType, names: Mapping[str, Any], cells: Mapping[str, CellType]
) -> Iterator[tuple[str, Any, int]]:
    """The captured names that a function uses, with their values and lines: global `names`, and variables of
    functions around it. Functions that it defines have code of their own."""
    line = code.co_firstlineno
    for instruction in dis.get_instructions(code):
        start = getattr(instruction, "line_number", instruction.starts_line)
        line = start if isinstance(start, int) and not isinstance(start, bool) else line
        name = instruction.argval
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME") and name in names:
            yield name, names[name], line
        elif name in cells and instruction.opname.startswith("LOAD"):
            try:
                yield name, cells[name].cell_contents, line
            except ValueError:
                continue  # not filled yet: the call will say so
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            free = {name: cells[name] for name in inner.co_freevars if name in cells}
            yield from captures(inner, names, free)
