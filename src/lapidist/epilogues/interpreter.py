"""The evaluation of a traced function, step by step, in any library of arrays.

A library is a Namespace: NumPy in numeric.py, its bounds of errors in error_bound.py, torch in
calls/torch_epilogues.py, JAX in jax/epilogue_functions.py. Each says only what differs from the array API."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from lapidist.dtypes import TYPES, numpy_dtype
from lapidist.epilogues.operations import OPERATIONS, Operation
from lapidist.epilogues.passes import finished
from lapidist.epilogues.steps import CONSTANT, OPERAND, POSITIONS, SEED, SUM, Function


class Namespace:
    """A library of arrays, with functions by the names of operations as well. `entries`: operations for which
    another function is called than the library's."""

    def __init__(self, library: Any, **entries: Callable[..., Any]) -> None:
        self.library = library
        self.operations = {
            name: entries.get(name) or self._of_library(name, row) for name, row in OPERATIONS.items()
        }
        vars(self).update(self.operations)

    def _of_library(self, name: str, row: Operation) -> Any:
        return partial(row.meaning, self) if row.meaning else getattr(self.library, row.called or name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.library, name)

    # ---- inputs; `like`: the sums, or other values of the type ----

    def constant(self, number: float, like: Any) -> Any:
        return self.library.asarray(number, dtype=like.dtype)

    def operand(self, value: Any, like: Any) -> Any:
        return self.astype(value, like.dtype)

    def column(self, sums: Any, which: int) -> Any:
        """The first or the second columns of pairs."""
        return sums[..., which::2]

    def seed(self, value: Any) -> Any:
        raise NotImplementedError

    def positions(self, shape: tuple[int, ...], like: Any) -> Any:
        """The numbers of elements, row by row."""
        raise NotImplementedError

    def first_word(self, seed: Any, position: Any) -> Any:
        """The first random word of Philox for each element."""
        raise NotImplementedError

    # ---- results ----

    def joined(self, first: Any, second: Any, shape: tuple[int, ...]) -> Any:
        """A result of columns, or of pairs of neighbouring columns."""
        first = self.broadcast_to(first, shape)
        if second is None:
            return first
        both = self.stack([first, self.broadcast_to(second, shape)], -1)
        return both.reshape(*shape[:-1], 2 * shape[-1])

    def finished(self, values: Any, then: str, dtype: str) -> Any:
        return finished(values, then, dtype, self)

    def astype(self, values: Any, dtype: Any) -> Any:
        """The values in another type: a name, or the library's."""
        return values.astype(numpy_dtype(dtype) if isinstance(dtype, str) else dtype)

    def without_gradient(self, values: Any) -> Any:
        return values

    def sum(self, values: Any, axis: int | None) -> Any:
        return self.library.sum(values, axis)

    def max(self, values: Any, axis: int | None, nothing: float) -> Any:
        """The largest values; `nothing` is that of no values."""
        return self.library.max(values, axis, initial=nothing)

    def pad(self, values: Any, columns: int) -> Any:
        """The values with further columns of zeros."""
        return self.library.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, columns)])


def evaluate(function: Function, sums: Any, operands: Mapping[str, Any], xp: Namespace) -> list[Any]:
    """The results, in the type of the sums; factors in float32. Operands broadcast to the sums. Without
    POSITIONS among operands, elements have their numbers in the sums."""
    shape = (*sums.shape[:-1], sums.shape[-1] // 2) if function.paired else sums.shape
    values: list[Any] = []
    for operation, args, value in function.steps:
        if args:
            more = (value,) if value else ()
            values.append(xp.operations[operation](*[values[arg] for arg in args], *more))
        elif operation == SUM:
            values.append(xp.column(sums, int(value[1])) if value else sums)
        elif operation == OPERAND:
            values.append(xp.operand(operands[value], sums))
        elif operation == CONSTANT:
            values.append(xp.constant(float.fromhex(value), sums))
        elif operation == SEED:
            values.append(xp.seed(int(value) if value.isdigit() else operands[value]))
        else:
            values.append(operands[POSITIONS] if POSITIONS in operands else xp.positions(shape, sums))
    return [
        xp.finished(xp.joined(values[step], None if other is None else values[other], shape), then, dtype)
        for step, dtype, other, then in function.results
    ]


def stored(values: Any, dtype: str, xp: Namespace) -> Any:
    """The values in a result's type: integers are the nearest ones, and 8 bits stop at the largest number.
    Neither has a gradient."""
    if dtype == "bool":
        return values != 0
    bounds = TYPES[dtype].bounds
    if bounds is None:
        return xp.astype(values, dtype)
    values = xp.without_gradient(values)
    if "int" in dtype:
        values = xp.nan_to_num(xp.rint(values), posinf=math.inf, neginf=-math.inf)
    return xp.astype(xp.clip(values, *bounds), dtype)
