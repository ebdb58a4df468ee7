"""The values that an epilogue's function returns: D, and results that are stored in further arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

from lapidist.dtypes import name_of
from lapidist.epilogues.expressions import Fixed, place_now
from lapidist.epilogues.passes import FACTORS, QUANTISED, REDUCTIONS, TO_8_BITS
from lapidist.errors import ArgumentError, DTypeError

# types of results; D has the type of the call, unless the function names one
STORED = (
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "int8",
    "uint8",
    "bool",
)
FACTOR = "float32"  # the type of factors
RETURN = "Return D, or a tuple of D and further results"


class Returned(Fixed):
    """A value that a function can only return: operations on it are refused."""

    __slots__ = ()

    @property
    def source_name(self) -> str:
        """The name of lapidist that a caller wrote."""
        return type(self).__name__

    def refusal(self) -> ArgumentError:
        return ArgumentError(
            f"lapidist.{self.source_name}: must be returned as it is; got an operation on it, {place_now()}."
            " Compute with the array that the call gives"
        )


class Reduced(Returned):
    """A reduction of a value over rows, columns or all of D, as `row_sum` returns it. No function computes
    with it."""

    __slots__ = ("then", "value")
    value: Any
    then: str

    def __init__(self, value: Any, then: str) -> None:
        super().__init__(value=value, then=then)

    @property
    def source_name(self) -> str:
        return self.then


class Quantised(Returned):
    """Two results: a value in 8 bits, and its factors, one for 128 neighbours of a row. A second pass finds
    those that make the largest of each 128 the type's largest number. A stored number times its factor is the
    value, so the factors are `scale_a` of the next product.

    >>> import numpy as np
    >>> import lapidist
    >>> @lapidist.epilogue
    ... def activated(acc):
    ...     return lapidist.Quantised(lapidist.relu(acc), "float8_e4m3fn")
    >>> d, factors = lapidist.matmul(np.eye(2), np.full((2, 256), 3.0), epilogue=activated)
    >>> float(d[0, 0]), factors.shape
    (448.0, (2, 2))
    """

    __slots__ = ("dtype", "value")
    value: Any
    dtype: str

    def __init__(self, value: Any, dtype: Any) -> None:
        super().__init__(value=value, dtype=name_of(dtype, "dtype"))
        if isinstance(value, Reduced):
            raise ArgumentError(
                "lapidist.Quantised: must have a value for each element of D; got a reduction,"
                f" {place_now()}. Return it beside D, with lapidist.Output for a type of its own"
            )
        if self.dtype not in TO_8_BITS:
            raise DTypeError(
                f"dtype: must be {', '.join(TO_8_BITS[:-1])} or {TO_8_BITS[-1]}; got {self.dtype}. Name one"
                " of them"
            )

    def results(self) -> tuple[Output, Output]:
        """The value in 8 bits, and its factors."""
        reduced = Reduced(self.value, QUANTISED), Reduced(self.value, FACTORS + self.dtype)
        return Output(reduced[0], self.dtype), Output(reduced[1], FACTOR)


class Pair(NamedTuple):
    """Two neighbouring columns, the first of them even. A function whose first parameter is annotated so gets
    both sums. It returns a Pair where the columns have different values.

    >>> import numpy as np
    >>> import lapidist
    >>> @lapidist.epilogue
    ... def product_and_swapped(acc: lapidist.Pair):
    ...     return acc.first * acc.second, lapidist.Pair(acc.second, acc.first)
    >>> lapidist.matmul(np.eye(2), np.array([[1.0, 2.0, 3.0, 4.0]] * 2), epilogue=product_and_swapped)
    (array([[ 2., 12.],
           [ 2., 12.]]), array([[2., 1., 4., 3.],
           [2., 1., 4., 3.]]))
    """

    first: Any
    second: Any

    def refusal(self) -> ArgumentError:
        """The error for operations: a tuple's + and * would add results, its == would compare no elements."""
        return ArgumentError(
            f"lapidist.Pair: must be computed with one column at a time; got both, {place_now()}. Write"
            " first, second = acc"
        )


class Output(Returned):
    """A result and its type. Without a type it has that of its array, or else D's. D may have a type here
    that the call cannot name, one of 8 bits say.

    >>> import numpy as np
    >>> import lapidist
    >>> @lapidist.epilogue
    ... def relu_and_mask(acc):
    ...     return lapidist.relu(acc), lapidist.Output(acc > 0, "bool")
    >>> a, b = np.array([[1.0, -1.0]]), np.array([[2.0, 3.0], [3.0, 1.0]])
    >>> lapidist.matmul(a, b, epilogue=relu_and_mask)
    (array([[0., 2.]]), array([[False,  True]]))
    """

    __slots__ = ("dtype", "then", "value")
    value: Any
    dtype: str
    then: str

    def __init__(self, value: Any, dtype: Any = None) -> None:
        value, then = (value.value, value.then) if isinstance(value, Reduced) else (value, "")
        super().__init__(value=value, then=then, dtype="" if dtype is None else name_of(dtype, "dtype"))
        if self.dtype and self.dtype not in STORED:
            raise DTypeError(
                f"dtype: a result must be of {', '.join(STORED[:-1])} or {STORED[-1]}; got"
                f" {self.dtype}. Name one of them"
            )


def refuse(value: Any, *_: Any) -> Any:
    raise value.refusal()


for _class in (Pair, Returned):
    for _operator in ("add", "sub", "mul", "truediv", "pow"):
        setattr(_class, f"__{_operator}__", refuse)
        setattr(_class, f"__r{_operator}__", refuse)
    for _operator in ("neg", "pos", "abs", "invert", "and", "or", "lt", "le", "gt", "ge", "eq", "ne", "bool"):
        setattr(_class, f"__{_operator}__", refuse)


def outputs_of(name: str, returned: Any, paired: bool) -> list[Output]:
    """D and further results, as outputs."""
    several = isinstance(returned, tuple) and not isinstance(returned, Pair)
    values = returned if several else (returned,)
    if not values or any(value is None for value in values):
        raise ArgumentError(f"{name}: must return what is stored; got {returned}. {RETURN}")
    for value in values:
        if isinstance(value, (tuple, list, dict)) and not isinstance(value, Pair):
            raise ArgumentError(
                f"{name}: must return values, each what one array takes; got {len(value)} in a"
                f" {type(value).__name__}. {RETURN}"
            )
    outputs: list[Output] = []
    for value in values:
        if isinstance(value, Quantised):
            outputs += value.results()
        else:
            outputs.append(value if isinstance(value, Output) else Output(value))
    if outputs[0].then in REDUCTIONS:
        raise ArgumentError(f"{name}: must return D first; got a reduction. {RETURN}")
    if not paired and any(isinstance(output.value, Pair) for output in outputs):
        raise ArgumentError(
            f"{name}: must take pairs to return them; got one sum. Write def {name}(acc: lapidist.Pair, ...)"
        )
    return outputs
