"""What a function of an epilogue returns: what D becomes, and results that go to arrays of their own."""

from __future__ import annotations

from typing import Any, NamedTuple

from lapidist.dtypes import name_of
from lapidist.errors import ArgumentError, DTypeError

# types of results; D has that of the call, unless the function names one
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
RETURN = "Return D, or a tuple of D and further results"


class Pair(NamedTuple):
    """Two neighbouring columns, the first of them even: what a function gets whose first parameter is
    annotated so, and what it returns where both columns have a value of their own.

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


class Output:
    """A result with a type of its own. Without one it has the type of its array, or else D's. D itself may
    have a type here that the call could not name, one of 8 bits say.

    >>> import numpy as np
    >>> import lapidist
    >>> @lapidist.epilogue
    ... def relu_and_mask(acc):
    ...     return lapidist.relu(acc), lapidist.Output(acc > 0, "bool")
    >>> a, b = np.array([[1.0, -1.0]]), np.array([[2.0, 3.0], [3.0, 1.0]])
    >>> lapidist.matmul(a, b, epilogue=relu_and_mask)
    (array([[0., 2.]]), array([[False,  True]]))
    """

    __slots__ = ("dtype", "value")

    def __init__(self, value: Any, dtype: Any = None) -> None:
        self.value, self.dtype = value, "" if dtype is None else name_of(dtype, "dtype")
        if self.dtype and self.dtype not in STORED:
            raise DTypeError(
                f"dtype: a result must be of {', '.join(STORED[:-1])} or {STORED[-1]}; got"
                f" {self.dtype}. Name one of them"
            )


def outputs_of(name: str, returned: Any, paired: bool) -> list[Output]:
    """D, and what is stored beside it."""
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
    found = [value if isinstance(value, Output) else Output(value) for value in values]
    if not paired and any(isinstance(each.value, Pair) for each in found):
        raise ArgumentError(
            f"{name}: must take pairs to return them; got one sum. Write def {name}(acc: lapidist.Pair, ...)"
        )
    return found
