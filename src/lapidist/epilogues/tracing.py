"""@lapidist.epilogue: a Python function, traced once into what becomes of each sum before it is stored."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from functools import update_wrapper
from numbers import Number
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from lapidist.epilogues.expressions import KINDS, Expression, Tape, place_of, the_sum
from lapidist.epilogues.results import Pair, outputs_of
from lapidist.epilogues.steps import SCALAR, Function, Parameter
from lapidist.errors import ArgumentError, LapidistError

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
FIXED_ELSEWHERE = ("torch.dtype",)  # of what may not be imported
OWN = ("lapidist", "numpy", "math")  # functions of these are what they are


class BoundEpilogue(NamedTuple):
    """An epilogue and the values of its operands, by name."""

    function: Function
    values: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"<{self.function}>"


class Epilogue:
    """A traced function. Call it with its operands, by name: what comes back is what matmul, gemm and plan
    take."""

    def __init__(self, function: FunctionType) -> None:
        update_wrapper(self, function)
        self._python = function
        self._defaults = dict(defaults_of(function))
        self.function = traced(function)
        self._names = tuple(each.name for each in self.function.parameters)

    def __reduce__(self) -> str:
        """By its name in its module, as functions are pickled."""
        return self.__qualname__  # type: ignore[attr-defined,no-any-return]

    def __call__(self, /, *values: Any, **operands: Any) -> Any:
        if tuple(operands) == self._names and not values:  # as calls mostly are
            for value in operands.values():
                if value is None:
                    break
            else:
                return BoundEpilogue(self.function, operands)
        if any(isinstance(each, (Expression, Pair)) for each in (*values, *operands.values())):
            # inside of another one, which is being traced
            return self._python(*values, **operands)
        name, known = self.function.name, [each.name for each in self.function.parameters]
        if values:
            raise ArgumentError(
                f"{name}: operands must be named, as"
                f" {', '.join(f'{each}=' for each in known) or 'it has none'};"
                f" got {len(values)} without a name. The sum is not passed"
            )
        for each in operands:
            if each not in known:
                raise ArgumentError(
                    f"{name}: must have operands {', '.join(known) or '(none)'}; got {each!r}. Leave it out"
                )
        given = {**self._defaults, **operands}
        for each in known:
            if given.get(each) is None:
                raise ArgumentError(f"{name}: must have a value for {each}; got None. Pass {each}=")
        return BoundEpilogue(self.function, {each: given[each] for each in known})

    def __repr__(self) -> str:
        return f"<lapidist.epilogue {self.function}>"

    def __str__(self) -> str:
        return self.function.text


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
            f"epilogue: must be a Python function; got {type(function).__name__}. Write one with def"
        )
    return Epilogue(function)


def traced(function: FunctionType) -> Function:
    name = function.__name__
    first, *operands = signature_of(function)
    parameters, paired = parameters_of(function, operands), first.annotation is Pair
    require_fixed_captures(name, function, set())
    tape = Tape(name)
    sums = Pair(the_sum(tape, "[0]"), the_sum(tape, "[1]")) if paired else the_sum(tape)
    values = {each.name: tape.operand(each, KINDS[each.kind]) for each in parameters}
    try:
        result = function(sums, **values)
        return tape.function(parameters, outputs_of(name, result, paired), paired).known()
    except LapidistError:
        raise
    except Exception as error:  # of the function, or of what it returned
        raise ArgumentError(
            f"{name}: must call what can be traced; got {type(error).__name__}: {error},"
            f" {failed_at(function, error)}."
            " Use arithmetic, comparisons and the functions of lapidist"
        ) from error


def failed_at(function: FunctionType, error: BaseException) -> str:
    """The line of the function, not of what it called."""
    line, trace = function.__code__.co_firstlineno, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code is function.__code__:
            line = trace.tb_lineno
        trace = trace.tb_next
    return place_of(function.__code__.co_filename, line)


def signature_of(function: FunctionType) -> list[inspect.Parameter]:
    """The sum, then the operands."""
    name, line = function.__name__, first_line_of(function)
    try:
        found = list(inspect.signature(function, eval_str=True).parameters.values())
    except Exception as error:  # annotations are any expressions
        raise ArgumentError(
            f"{name}: annotations must be known; got {type(error).__name__}: {error}, {line}. Import"
            f" lapidist, and write lapidist.{', '.join(KINDS)} or Pair"
        ) from error
    if not found:
        raise ArgumentError(
            f"{name}: must take the sum; got a function without parameters, {line}. Write def {name}(acc)"
        )
    if found[0].annotation in KINDS.values():
        first, kind = found[0].name, found[0].annotation.__name__
        way_out = (
            f"Write def {name}(acc, {first}: lapidist.{kind})"
            if first != "acc"
            else "Leave the annotation out"
        )
        raise ArgumentError(
            f"{name}: the first parameter is the sum; {first} is annotated as a {kind}, {line}. {way_out}"
        )
    return found


def first_line_of(function: FunctionType) -> str:
    return place_of(function.__code__.co_filename, function.__code__.co_firstlineno)


def parameters_of(function: FunctionType, operands: Sequence[inspect.Parameter]) -> tuple[Parameter, ...]:
    name, line = function.__name__, first_line_of(function)
    plain = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    found = []
    for each in operands:
        kind = getattr(each.annotation, "__name__", str(each.annotation))
        if each.kind not in plain:
            raise ArgumentError(
                f"{name}: operands are passed by name; {each} cannot be, {line}. Write {name}(acc,"
                f" {each.name}: lapidist.Row), say"
            )
        if each.annotation is not KINDS.get(kind):
            raise ArgumentError(
                f"{name}: operands must be annotated lapidist.Scalar, Row, Column or Tile; {each.name} is"
                f" not,"
                f" {line}. Write {each.name}: lapidist.Row, say"
            )
        if each.default is not inspect.Parameter.empty and kind != SCALAR:
            raise ArgumentError(
                f"{name}: a Scalar alone may have a default; {each.name} is a {kind}, {line}. Leave it out"
            )
        found.append(Parameter(each.name, kind))
    return tuple(found)


# ---- what a function may see beside its operands ----


def require_fixed_captures(name: str, function: FunctionType, seen: set[FunctionType]) -> None:
    """What may change later would not be seen to change."""
    seen.add(function)
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    for captured, value, line in captures(function.__code__, function.__globals__, cells):
        inner = value._python if isinstance(value, Epilogue) else value
        if not isinstance(inner, FunctionType):
            require_fixed(name, captured, value, function, line)
        elif inner not in seen and (inner.__module__ or "").partition(".")[0] not in OWN:
            for each, default in defaults_of(inner):
                require_fixed(name, f"{captured}'s default of {each}", default, function, line)
            require_fixed_captures(name, inner, seen)


def require_fixed(name: str, captured: str, value: Any, function: FunctionType, line: int) -> None:
    if not is_fixed(value):
        raise ArgumentError(
            f"{name}: must capture numbers, functions and modules alone, which are the same at each call; got"
            f" {captured}, a {type(value).__name__}, {place_of(function.__code__.co_filename, line)}."
            f" {'Write a function with def' if callable(value) else 'Pass it as an operand'}"
        )


def defaults_of(function: FunctionType) -> Iterator[tuple[str, Any]]:
    for each in inspect.signature(function).parameters.values():
        if each.default is not inspect.Parameter.empty:
            yield each.name, each.default


def is_fixed(value: Any) -> bool:
    if isinstance(value, (tuple, frozenset)):
        return all(map(is_fixed, value))
    kind = type(value)
    return isinstance(value, FIXED) or f"{kind.__module__}.{kind.__qualname__}" in FIXED_ELSEWHERE


def captures(
    code: CodeType, names: Mapping[str, Any], cells: Mapping[str, CellType]
) -> Iterator[tuple[str, Any, int]]:
    """Names from outside of the function that it uses, with their values and lines: global `names`, and
    variables of functions around it. Functions that it defines itself have code of their own."""
    line = code.co_firstlineno
    for each in dis.get_instructions(code):
        start = getattr(each, "line_number", each.starts_line)
        line = start if isinstance(start, int) and not isinstance(start, bool) else line
        if each.opname in ("LOAD_GLOBAL", "LOAD_NAME") and each.argval in names:
            yield each.argval, names[each.argval], line
        elif each.argval in cells and each.opname.startswith("LOAD"):
            try:
                yield each.argval, cells[each.argval].cell_contents, line
            except ValueError:
                continue  # not filled yet: the call will say so
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            own = {name: cells[name] for name in inner.co_freevars if name in cells}
            yield from captures(inner, names, own)
