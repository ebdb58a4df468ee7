"""Whether a function of rows gives each row the same bits, whatever other rows it is given."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lapidist.dtypes import integer_from
from lapidist.errors import ArgumentError, DTypeError, ShapeError, shown
from lapidist.frameworks.arrays import framework_of

SIZES = (1, 2, 3, 5, 8, 13, 16, 17, 32, 33, 64, 65, 100, 128, 129, 200, 256, 257, 512, 1000, 1024, 2048, 4096)
STARTS = 3  # for each number of rows: the first, the last, and some between


@dataclass(frozen=True, slots=True)
class Invariance:
    """True if every row had the same bits in all calls.

    Else `m` is the number of rows of the first call that differed, `row` the row among all, `place` the row
    within that call, `element` the index behind it, and `got` and `expected` are its values.
    """

    calls: int
    m: int = 0
    row: int = -1
    place: int = -1
    element: tuple[int, ...] = ()
    got: complex = 0.0
    expected: complex = 0.0

    def __bool__(self) -> bool:
        return self.row < 0

    def __str__(self) -> str:
        if self:
            return f"every row has the same bits in {self.calls} calls"
        at = f" at {self.element}" if self.element else ""
        return (
            f"m = {self.m} differs first, call {self.calls}: as number {self.place} in it, row {self.row} has"
            f" {self.got!r}{at}, among all rows {self.expected!r}"
        )


def invariant(
    function: Callable[..., Any],
    *rows: Any,
    sizes: Sequence[int] = SIZES,
    starts: int = STARTS,
    seed: int = 0,
) -> Invariance:
    """Whether the rows of a function's result have the same bits, however many rows it is given and wherever
    they stand.

    Parameters
    ----------
    function : callable
        Of arrays whose first dimension are rows, to an array of as many rows, or a tuple of them: a product,
        a layer, a model. It must leave its rows as they are, and may return the same memory each time.
    *rows : arrays of NumPy, torch, CuPy or JAX
        The rows, as many as the largest call shall have.
    sizes : numbers of rows, optional
        How many rows the calls have. Those beyond the rows that there are do not count.
    starts : int
        At how many rows calls of each size begin.
    seed : int
        Of the starts, and of the order in which all rows are passed once more.

    Returns
    -------
    Invariance
        True or false; print it for the first difference.

    Examples
    --------
    >>> import numpy as np
    >>> import lapidist
    >>> rows = np.random.default_rng(0).standard_normal((40, 64)).astype(np.float32)
    >>> bool(lapidist.verify.invariant(lambda x: np.tanh(x), rows))
    True
    >>> print(lapidist.verify.invariant(lambda x: x - x.mean(axis=0), rows, sizes=[1]))
    m = 1 differs first, call 2: as number 0 in it, row 0 has 0.0 at (0,), among all rows ...
    """
    if not callable(function):
        raise ArgumentError(
            f"function: must be called with rows; got {type(function).__name__}. Pass lambda x: model(x), say"
        )
    require_calls(sizes, starts)
    count = rows_of(rows)
    expected = results_of(function(*rows), count)
    calls = 1
    for indices, parts in calls_of(rows, count, sizes, starts, seed):
        calls += 1
        results = results_of(function(*parts), len(indices))
        require_alike(results, expected)
        for got, all_rows in zip(results, expected, strict=True):
            values = all_rows[indices]
            at = first_difference(got, values)
            if at is not None:
                row, place, element = int(indices[at[0]]), at[0], at[1:]
                return Invariance(calls, len(indices), row, place, element, got[at].item(), values[at].item())
    return Invariance(calls)


def require_calls(sizes: Any, starts: Any) -> None:
    listed = isinstance(sizes, Iterable)
    for size in sizes if listed else (0,):
        if integer_from(1, size) is None:
            raise ArgumentError(
                f"sizes: must be numbers of rows, 1 or more; got {size if listed else sizes!r}. Leave it out,"
                " or pass (1, 16), say"
            )
    if integer_from(1, starts) is None:
        raise ArgumentError(f"starts: must be a whole number from 1 on; got {shown(starts)}. Leave it out")


def rows_of(rows: Sequence[Any]) -> int:
    counts = {len(array) for array in rows if getattr(array, "shape", ())}
    if not rows or len(counts) != 1 or not all(getattr(array, "shape", ()) for array in rows):
        shapes = [getattr(array, "shape", type(array).__name__) for array in rows]
        raise ShapeError(
            f"rows: must be arrays that have the same number of rows; got {shapes}. Pass those of one batch"
        )
    (count,) = counts
    if count < 2:
        raise ShapeError(f"rows: must be two rows or more, of which calls get some; got {count}. Pass more")
    return count


def calls_of(
    rows: Sequence[Any], count: int, sizes: Sequence[int], starts: int, seed: int
) -> Iterator[tuple[Any, list[Any]]]:
    """The rows of each call by their indices, and the arrays that it is passed: some that follow each other,
    then all in another order.
    """
    draw, everything = random.Random(seed), np.arange(count)
    for size in sizes:
        if size < count:
            last = count - int(size)
            between = (draw.randint(0, last) for _ in range(starts - 2))
            for start in dict.fromkeys([0, last, *between][:starts]):
                part = slice(start, start + size)
                yield everything[part], [array[part] for array in rows]
    order = np.array(draw.sample(range(count), count))
    yield order, [array[order] for array in rows]


def results_of(result: Any, count: int) -> list[Any]:
    """Host copies: a function may return the same memory each time."""
    results = result if isinstance(result, (tuple, list)) else (result,)
    for array in results:
        if not getattr(array, "shape", ()) or len(array) != count:
            shape = getattr(array, "shape", type(array).__name__)
            raise ShapeError(
                f"function: must return as many rows as it is given, {count}; got {shape}. Let it return one"
                " array of rows, or a tuple of them"
            )
    return [host_array(array) for array in results]


def host_array(array: Any) -> Any:
    """A copy of its elements in host memory, with every bit. torch hands NumPy neither bfloat16 nor 8-bit
    floats, so its floats become float64, which holds all of them.
    """
    framework = framework_of(array)
    if framework == "torch":
        array = array.detach()
        array = array.double() if array.dtype.is_floating_point else array
        array = array.resolve_conj().resolve_neg().cpu().numpy()
    copy = array.get() if framework == "cupy" else np.array(array)
    if (
        copy.dtype.kind in "OSUMm" or copy.dtype.char in "gG"
    ):  # objects; long doubles have bytes of no meaning
        raise DTypeError(
            f"function: must return numbers of up to 64 bits a part; got {copy.dtype}. Convert them"
        )
    return copy


def require_alike(results: list[Any], expected: list[Any]) -> None:
    """Whether the rows of a call are of the kind that all rows together are."""
    kinds, expected_kinds = (
        [(array.shape[1:], str(array.dtype)) for array in arrays] for arrays in (results, expected)
    )
    if kinds != expected_kinds:
        raise ShapeError(
            f"function: must return rows of one shape and type; got {kinds} of some rows, of all"
            f" {expected_kinds}. Check it"
        )


def first_difference(got: Any, expected: Any) -> tuple[int, ...] | None:
    """The index of the first element whose bits differ; None: there is none."""
    first, second = (
        np.ascontiguousarray(array).view(np.uint8).reshape(*array.shape, array.itemsize)
        for array in (got, expected)
    )
    differing = np.argwhere((first != second).any(axis=-1))
    return tuple(map(int, differing[0])) if len(differing) else None
