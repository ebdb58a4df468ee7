"""Several results of groups, or quantised ones: what an epilogue may give, and its values by NumPy.

Only lines of groups are stored. Where k is cut all of D is stored, so everything is as in a batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lapidist.calls.part import Grouping
from lapidist.epilogues.passes import FACTORS, QUANTISED
from lapidist.epilogues.steps import Function
from lapidist.errors import ArgumentError, ShapeError
from lapidist.frameworks.arrays import Operand
from lapidist.planning.second_passes import Pass, RowsOfGroups
from lapidist.problems.ragged import COLS, DEPTH, ROWS, Ragged

Array = np.ndarray[Any, Any]


def require_results_of_groups(function: Function, groups: Grouping, scattered: bool) -> None:
    extent = groups.ragged.extent
    if extent == DEPTH:
        return
    later = [result.then for result in function.results if result.then]
    quantises = all(then == QUANTISED or then.startswith(FACTORS) for then in later)
    if function.is_positioned or not quantises:
        raise ArgumentError(
            "epilogue: of groups must give values for each sum, and draw none;"
            f" {function.name} reduces, or drops. Do that in a further step"
        )
    if later and extent == COLS:
        raise ArgumentError(
            f"epilogue: groups of columns cut those that share a factor; {function.name} quantises them."
            " Multiply the transposed matrices, whose rows are cut"
        )
    if scattered and len(function.results) > 1:
        raise ArgumentError(
            f"scatter_d: scatters one result of groups; {function.name} gives {len(function.results)}. Leave"
            " it out, and scatter them in a further step"
        )


def follower_of_groups(
    second_pass: Pass, stored: tuple[Operand, ...], groups: Grouping
) -> tuple[Pass, tuple[Operand, ...]]:
    """A second pass and its arrays, so that it leaves rows of no group."""
    ragged = groups.ragged
    if ragged.extent == DEPTH:
        return second_pass, stored
    rows = RowsOfGroups(ragged.groups, ragged.total, ragged.most, groups.ends.dtype)
    return second_pass._replace(groups=rows), (*stored, groups.ends)


def require_one_matrix(results: Sequence[Operand], ragged: Ragged) -> None:
    """Results with counted rows must lie as those of one tall matrix do."""
    for operand in results:
        if (
            ragged.most
            and operand.shape[0] > 1
            and operand.strides[0] != operand.shape[1] * operand.strides[1]
        ):
            raise ShapeError(
                f"{operand.name}: with counts, matrices must lie one after another; got strides"
                f" {operand.strides} of shape {operand.shape}. Pass a contiguous array"
            )


def in_one_matrix(operand: Operand, ragged: Ragged) -> Operand:
    """A result with a matrix for each group, of counted rows, as a tall matrix: kernels number rows through
    all groups.
    """
    if not ragged.most or len(operand.shape) < 3:
        return operand
    return operand.viewed((math.prod(operand.shape[:2]), operand.shape[2]), operand.strides[1:])


def finished_by_group(
    ragged: Ragged,
    stretches: Sequence[tuple[int, int]],
    finish: Callable[[Sequence[Any], Sequence[Array], Array], Array],
    values: Sequence[Any],
    results: Sequence[Array],
    sums: Array,
) -> Array:
    """What NumPy stores in D in place of sums; further results are stored in `results`. Zeros where no
    group is.
    """
    flat, tall = in_two(sums), [in_two(result) for result in results]
    d = None
    for number, (begin, end) in enumerate(stretches):
        if begin == end:
            continue
        at = (slice(begin, end),) if ragged.extent == ROWS else (slice(None), slice(begin, end))
        of_group = [value_of(value, number, at) for value in values]
        found = finish(of_group, [result[at] for result in tall], flat[at])
        if d is None:
            shape = [flat.shape[0], found.shape[1]] if ragged.extent == ROWS else list(flat.shape)
            d = np.zeros(shape, found.dtype)
        d[at] = found
    if d is None:
        return sums
    return d.reshape(*sums.shape[:-1], d.shape[-1])


def in_two(matrices: Array) -> Array:
    return matrices.reshape(-1, matrices.shape[-1])


def value_of(value: Any, group: int, at: tuple[slice, ...]) -> Any:
    """The part of an operand that belongs to a group."""
    if not isinstance(value, np.ndarray) or value.shape == (1, 1):
        return value
    matrix: Array = value if value.ndim == 2 else value[group if len(value) > 1 else 0]
    return matrix[at]
