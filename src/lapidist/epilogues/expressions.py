"""Values that an epilogue's function computes with while it is traced: an operation adds a step to a tape."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterable, Sequence
from numbers import Real
from types import FrameType
from typing import Any, Protocol

import numpy as np

from lapidist.dtypes import is_real_array
from lapidist.epilogues.operations import OPERATIONS
from lapidist.epilogues.philox import SEEDS, is_seed
from lapidist.epilogues.steps import CONSTANT, OPERAND, POSITION, SEED, SUM, Function, Parameter, Result, Step
from lapidist.errors import ArgumentError

POWERS = range(1, 9)
FUNCTIONS = "Use the functions of lapidist: exp, tanh, where, clamp ..."
WHERE = "Choose with lapidist.where(condition, a, b)"


class ReturnedValue(Protocol):
    """What a function returned: an Output."""

    value: Any
    dtype: str
    then: str


class Fixed:
    """An object whose attributes cannot be set: steps are referred to by their numbers."""

    __slots__ = ()

    def __init__(self, **parts: Any) -> None:
        for name, value in parts.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, *_: Any) -> None:
        raise ArgumentError(
            f"{name}: is an attribute of a traced value, which stays as it is; got an assignment or del,"
            f" {place_now()}. Give what you compute a name of its own: y = acc + 1, say"
        )

    __delattr__ = __setattr__


class Tape(Fixed):
    """The steps of the function that is being traced. Equal steps are one."""

    name: str
    _steps: list[Step]
    _numbers: dict[Step, int]

    def __init__(self, name: str) -> None:
        super().__init__(name=name, _steps=[], _numbers={})

    def add(self, step: Step) -> int:
        number = self._numbers.setdefault(step, len(self._steps))
        if number == len(self._steps):
            self._steps.append(step)
        return number

    def apply(self, operation: str, *args: Any, value: str = "") -> Expression:
        row = OPERATIONS[operation]
        numbers = tuple(
            self._condition(arg) if place in row.takes_conditions else self.number(arg)
            for place, arg in enumerate(args)
        )
        return Expression(self, self.add(Step(operation, numbers, value)))

    def number(self, value: Any) -> int:
        """The number of a value's step; a condition counts as 1 or 0."""
        if not isinstance(value, Expression):
            return self._constant(value)
        if value.tape is not self:
            raise ArgumentError(
                f"{self.name}: must compute with its own operands; got a value of {value.tape.name},"
                f" {place_now()}. Pass it as an operand"
            )
        return value.step if not self._is_condition(value.step) else self.apply("where", value, 1.0, 0.0).step

    def _condition(self, value: Any) -> int:
        if isinstance(value, Expression) and value.tape is self and self._is_condition(value.step):
            return value.step
        return self.apply("not_equal", value, 0.0).step

    def _is_condition(self, step: int) -> bool:
        operation = self._steps[step].operation
        return operation in OPERATIONS and OPERATIONS[operation].condition

    def may_be_condition(self, value: Any) -> bool:
        """Whether a value is true or false; operands may be arrays of bool."""
        if not isinstance(value, Expression) or value.tape is not self:
            return isinstance(value, (Expression, bool, np.bool_))
        return self._is_condition(value.step) or self._steps[value.step].operation == OPERAND

    def _constant(self, value: Any) -> int:
        if isinstance(value, Real) or is_real_array(value):
            return self.add(Step(CONSTANT, (), float(value).hex()))
        if hasattr(value, "refusal"):  # a Pair, or what can only be returned
            raise value.refusal()
        raise ArgumentError(
            f"{self.name}: must compute with operands and numbers; got {type(value).__name__}, {place_now()}."
            " Pass arrays as operands: name: lapidist.Row, Column or Tile"
        )

    def operand(self, parameter: Parameter, kind: type[Expression]) -> Expression:
        return kind(self, self.add(Step(OPERAND, (), parameter.name)))

    def seed(self, value: Any) -> Expression:
        """A Scalar or a captured integer as a seed."""
        if isinstance(value, Scalar) and value.tape is self:
            return Expression(self, self.add(Step(SEED, (), self._steps[value.step].value)))
        if not is_seed(value):
            got = type(value).__name__ if isinstance(value, Expression) else repr(value)
            raise ArgumentError(
                f"seed: must be a Scalar or a captured integer, {SEEDS}; got {got}, {place_now()}. Pass it as"
                " an operand: seed: lapidist.Scalar"
            )
        return Expression(self, self.add(Step(SEED, (), str(int(value)))))

    def position(self) -> Expression:
        """The element's number in D, row by row."""
        return Expression(self, self.add(Step(POSITION)))

    def function(
        self, parameters: tuple[Parameter, ...], results: Sequence[ReturnedValue], paired: bool
    ) -> Function:
        """The function of the steps that the results need."""
        columns = [
            tuple(map(self.number, result.value if isinstance(result.value, tuple) else (result.value,)))
            for result in results
        ]
        order = self._needed(number for numbers in columns for number in numbers)
        steps = (self._steps[number] for number in order)
        stored = (
            Result(order[first], result.dtype, order[second[0]] if second else None, result.then)
            for (first, *second), result in zip(columns, results, strict=True)
        )
        function = Function(
            self.name,
            parameters,
            tuple(step._replace(args=tuple(order[arg] for arg in step.args)) for step in steps),
            tuple(stored),
            paired,
        )
        for step in function.steps:
            if step.operation == OPERAND and step.value in function.seeds:
                raise ArgumentError(
                    f"{self.name}: a seed must be nothing else; got {step.value} in arithmetic, too. Pass it"
                    " twice, by two names"
                )
        return function

    def _needed(self, numbers: Iterable[int]) -> dict[int, int]:
        """The new numbers of steps that values depend on, by their old ones."""
        needed, pending = set[int](), list(numbers)
        while pending:
            number = pending.pop()
            if number not in needed:
                needed.add(number)
                pending += self._steps[number].args
        return {number: place for place, number in enumerate(sorted(needed))}


class Expression(Fixed):
    """A value of the kernel, for arithmetic, comparisons and lapidist's functions."""

    __slots__ = ("step", "tape")

    tape: Tape
    step: int

    def __init__(self, tape: Tape, step: int = 0) -> None:
        if not isinstance(tape, Tape):
            kind, got = type(self).__name__, type(tape).__name__
            way_out = f"Write def f(acc, x: lapidist.{kind}), and epilogue=f(x=array)"
            raise ArgumentError(
                f"{kind}: annotates an operand of an epilogue; got a call with {got}. {way_out}"
            )
        super().__init__(tape=tape, step=step)

    def __add__(self, other: Any) -> Expression:
        return self.tape.apply("add", self, other)

    def __radd__(self, other: Any) -> Expression:
        return self.tape.apply("add", other, self)

    def __sub__(self, other: Any) -> Expression:
        return self.tape.apply("subtract", self, other)

    def __rsub__(self, other: Any) -> Expression:
        return self.tape.apply("subtract", other, self)

    def __mul__(self, other: Any) -> Expression:
        return self.tape.apply("multiply", self, other)

    def __rmul__(self, other: Any) -> Expression:
        return self.tape.apply("multiply", other, self)

    def __truediv__(self, other: Any) -> Expression:
        return self.tape.apply("divide", self, other)

    def __rtruediv__(self, other: Any) -> Expression:
        return self.tape.apply("divide", other, self)

    def __pow__(self, exponent: Any) -> Expression:
        if isinstance(exponent, Real) and exponent == 0.5:
            return self.tape.apply("sqrt", self)
        if not isinstance(exponent, Real) or exponent not in POWERS:
            raise self._no_power(exponent)
        result = self
        for _ in range(POWERS.index(exponent)):  # type: ignore[arg-type]  # a float may be a whole number
            result = result * self
        return result

    def __rpow__(self, base: Any) -> Expression:
        raise self._no_power(self)

    def _no_power(self, exponent: Any) -> ArgumentError:
        got = "a value" if isinstance(exponent, Expression) else repr(exponent)
        powers = f"Powers are {POWERS[0]} to {POWERS[-1]} and 0.5"
        return untraceable(self, f"** {got}", f"{powers}; others are lapidist.exp(y * lapidist.log(x))")

    def __neg__(self) -> Expression:
        return self.tape.apply("negative", self)

    def __pos__(self) -> Expression:
        return self

    def __abs__(self) -> Expression:
        return self.tape.apply("absolute", self)

    def __lt__(self, other: Any) -> Expression:
        return self.tape.apply("less", self, other)

    def __le__(self, other: Any) -> Expression:
        return self.tape.apply("less_equal", self, other)

    def __gt__(self, other: Any) -> Expression:
        return self.tape.apply("less", other, self)

    def __ge__(self, other: Any) -> Expression:
        return self.tape.apply("less_equal", other, self)

    def __eq__(self, other: Any) -> Expression:  # type: ignore[override]
        return self.tape.apply("equal", self, other)

    def __ne__(self, other: Any) -> Expression:  # type: ignore[override]
        return self.tape.apply("not_equal", self, other)

    __hash__ = None  # type: ignore[assignment]

    def __and__(self, other: Any) -> Expression:
        return self._joined("both", "&", self, other)

    def __or__(self, other: Any) -> Expression:
        return self._joined("any_of", "|", self, other)

    __rand__, __ror__ = __and__, __or__

    def __invert__(self) -> Expression:
        return self._joined("no", "~", self)

    def _joined(self, operation: str, sign: str, *conditions: Any) -> Expression:
        """Of numbers these are operations on bits in Python, NumPy and torch."""
        if not all(map(self.tape.may_be_condition, conditions)):
            way_out = "Compare first: (acc != 0) & (acc < 1), say"
            raise untraceable(self, f"{sign} of a number, which would change its bits", way_out)
        return self.tape.apply(operation, *conditions)

    # ---- what cannot be traced ----

    def __bool__(self) -> bool:
        raise untraceable(self, "if, and, or, not, min or max, which decide", f"{WHERE}, and join by & and |")

    def __float__(self) -> float:
        raise untraceable(self, "a call that wants a number", FUNCTIONS)

    __int__ = __index__ = __complex__ = __len__ = __round__ = __float__  # type: ignore[assignment]

    def __iter__(self) -> Any:
        raise untraceable(self, "a loop over it", "A function sees one element at a time")

    def __getitem__(self, _: Any) -> Any:
        raise untraceable(
            self, "an index", "A function sees one element at a time; the operand's kind says which"
        )

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **more: Any) -> Any:
        name = ufunc.__name__
        if name in SWAPPED:
            name, inputs = SWAPPED[name], inputs[::-1]
        name = BY_NUMPY.get(name, name)
        row = OPERATIONS.get(name)
        if method != "__call__" or more or row is None or row.arity != len(inputs):
            raise untraceable(self, f"numpy.{ufunc.__name__}", FUNCTIONS)
        return self.tape.apply(name, *inputs)

    def __array_function__(self, function: Any, *_: Any) -> Any:
        raise untraceable(self, f"numpy.{function.__name__}", FUNCTIONS)

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise untraceable(self, "an array of it", "A function sees one element at a time")


# operations by NumPy's names where these differ, and comparisons with swapped arguments
BY_NUMPY = {row.called: name for name, row in OPERATIONS.items() if row.called} | {"fabs": "absolute"}
SWAPPED = {"greater": "less", "greater_equal": "less_equal"}


class Scalar(Expression):
    """A number for all of D: a Python number, or an array of one element.

    >>> import numpy as np
    >>> import lapidist
    >>> @lapidist.epilogue
    ... def times(acc, factor: lapidist.Scalar):
    ...     return acc * factor
    >>> lapidist.matmul(np.eye(2), np.eye(2), epilogue=times(factor=3.0))
    array([[3., 0.],
           [0., 3.]])
    """


class Row(Expression):
    """A value for each column of D: an array of n elements, with the batch's dimensions before it if it has
    any.

    >>> import numpy as np
    >>> import lapidist
    >>> @lapidist.epilogue
    ... def times(acc, factor: lapidist.Row):
    ...     return acc * factor
    >>> lapidist.matmul(np.eye(2), np.eye(2), epilogue=times(factor=np.array([1.0, 2.0])))
    array([[1., 0.],
           [0., 2.]])
    """


class Column(Expression):
    """A value for each row of D: an array of m elements, with the batch's dimensions before it if it has any.

    >>> import numpy as np
    >>> import lapidist
    >>> @lapidist.epilogue
    ... def times(acc, factor: lapidist.Column):
    ...     return acc * factor
    >>> lapidist.matmul(np.eye(2), np.eye(2), epilogue=times(factor=np.array([1.0, 2.0])))
    array([[1., 0.],
           [0., 2.]])
    """


class Tile(Expression):
    """A value for each element of D: an array of m x n, with the batch's dimensions before it if it has any.

    >>> import numpy as np
    >>> import lapidist
    >>> @lapidist.epilogue
    ... def times(acc, factor: lapidist.Tile):
    ...     return acc * factor
    >>> lapidist.matmul(np.eye(2), np.eye(2), epilogue=times(factor=np.array([[1.0, 2.0], [3.0, 4.0]])))
    array([[1., 0.],
           [0., 4.]])
    """


KINDS: dict[str, type[Expression]] = {kind.__name__: kind for kind in (Scalar, Row, Column, Tile)}


def the_sum(tape: Tape, which: str = "") -> Expression:
    return Expression(tape, tape.add(Step(SUM, value=which)))


def untraceable(value: Expression, use: str, way_out: str) -> ArgumentError:
    return ArgumentError(
        f"{value.tape.name}: must say what becomes of any value, which is known when a kernel runs; got"
        f" {use}, {place_now()}. {way_out}"
    )


LIBRARIES = ("lapidist.", "numpy.")  # no frame of theirs is the caller's


def place_now() -> str:
    """Where the caller's code is that is being traced."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__", "")).startswith(LIBRARIES):
        frame = frame.f_back
    return "in unknown code" if frame is None else place_of(frame.f_code.co_filename, frame.f_lineno)


def place_of(file: str, line: int) -> str:
    text = linecache.getline(file, line).strip()
    return f"at {file}:{line}" + (f" `{text}`" if text else "")
