"""Reductions as further results: a second pass computes them, in an order that depends on D's shape alone."""

from __future__ import annotations

from typing import Any

from lapidist.epilogues.functions import tape_of
from lapidist.epilogues.results import Pair, Reduced


def of(then: str, x: Any) -> Reduced:
    """A reduction of `x`, which is a value, or one for each of two neighbouring columns."""
    tape_of(then, *(x if isinstance(x, Pair) else (x,)))
    return Reduced(x, then)


def row_sum(x: Any) -> Reduced:
    """The sum of each row of D.

    >>> import lapidist
    >>> print(lapidist.epilogue(lambda acc: (acc, lapidist.row_sum(acc))))
    acc, row_sum(acc)
    """
    return of("row_sum", x)


def row_max(x: Any) -> Reduced:
    """The largest value of each row of D; NaN where any is.

    >>> import lapidist
    >>> print(lapidist.epilogue(lambda acc: (acc, lapidist.row_max(acc))))
    acc, row_max(acc)
    """
    return of("row_max", x)


def row_amax(x: Any) -> Reduced:
    """The largest absolute value of each row of D.

    >>> import lapidist
    >>> print(lapidist.epilogue(lambda acc: (acc, lapidist.row_amax(acc))))
    acc, row_amax(acc)
    """
    return of("row_amax", x)


def column_sum(x: Any) -> Reduced:
    """The sum of each column of D, as a bias' gradient is.

    >>> import lapidist
    >>> print(lapidist.epilogue(lambda acc: (acc, lapidist.column_sum(acc))))
    acc, column_sum(acc)
    """
    return of("column_sum", x)


def column_max(x: Any) -> Reduced:
    """The largest value of each column of D; NaN where any is.

    >>> import lapidist
    >>> print(lapidist.epilogue(lambda acc: (acc, lapidist.column_max(acc))))
    acc, column_max(acc)
    """
    return of("column_max", x)


def column_amax(x: Any) -> Reduced:
    """The largest absolute value of each column of D.

    >>> import lapidist
    >>> print(lapidist.epilogue(lambda acc: (acc, lapidist.column_amax(acc))))
    acc, column_amax(acc)
    """
    return of("column_amax", x)


def all_sum(x: Any) -> Reduced:
    """The sum of all of D, of a batch of all its matrices.

    >>> import lapidist
    >>> print(lapidist.epilogue(lambda acc: (acc, lapidist.all_sum(acc))))
    acc, all_sum(acc)
    """
    return of("all_sum", x)


def all_max(x: Any) -> Reduced:
    """The largest value of all of D; NaN where any is.

    >>> import lapidist
    >>> print(lapidist.epilogue(lambda acc: (acc, lapidist.all_max(acc))))
    acc, all_max(acc)
    """
    return of("all_max", x)


def amax(x: Any) -> Reduced:
    """The largest absolute value of all of D, of a batch of all its matrices.

    >>> import lapidist
    >>> print(lapidist.epilogue(lambda acc: (acc, lapidist.amax(acc))))
    acc, amax(acc)
    """
    return of("amax", x)
