"""Problems of one kind differ in their numbers alone: what a kernel is compiled with, whether it takes them
and what it needs of shared memory is found once for all of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import wraps
from typing import Any, TypeVar

from lapidist.dtypes import size_of
from lapidist.problems.facts import fact
from lapidist.problems.modes import PLAIN
from lapidist.problems.problem import VECTOR_BYTES, Matrix, Problem
from lapidist.problems.scaling import AS_THEY_ARE

# Larger matrices may break rules of their size: these are asked of each of them.
MOST_ELEMENTS = 1 << 28
# Rows up to which kernels are compiled for so many, in 16s; up to which they are few.
COMPILED_ROWS, FEW_ROWS = 112, 128
KEPT, ANSWERS = 1024, 512  # kinds, and what is known of one

Answer = TypeVar("Answer")


class Nothing:
    """Not even None."""


NOTHING = Nothing()


class Kind:
    """Equal ones are the same object, so that it is found at once; with what was found of it."""

    __slots__ = ("known",)

    def __init__(self) -> None:
        self.known: dict[Any, Any] = {}


_kinds: dict[tuple[Hashable, ...], Kind] = {}


@fact
def kind_of(problem: Problem) -> Kind | None:
    """None: it is one of its own, as lists, batches and epilogues are, and what lies oddly."""
    said = said_of(problem)
    if said is None:
        return None
    found = _kinds.get(said)
    if found is None:
        if len(_kinds) >= KEPT:
            _kinds.clear()
        found = _kinds.setdefault(said, Kind())
    return found


def said_of(problem: Problem) -> tuple[Hashable, ...] | None:
    m, n, k = problem.m, problem.n, problem.k
    one_product = not problem.batch and problem.fused is None
    if not one_product or problem.modes != PLAIN:
        return None
    if min(m, n, k) < 2 or max(m * n, m * k, n * k) > MOST_ELEMENTS:
        return None
    a, b, d = lies(problem.a), lies(problem.b), lies(problem.d)
    c = "" if problem.c is None else lies(problem.c)
    if a is None or b is None or c is None or d is None:
        return None
    rows = -(-m // 16) if m <= COMPILED_ROWS else COMPILED_ROWS + (m >= FEW_ROWS)
    line = (n if d[0] == "row" else m) * size_of(problem.out_dtype)
    whole = line % VECTOR_BYTES == 0, n % 4 == 0, k % 4 == 0
    types = problem.dtype, problem.b_dtype, problem.out_dtype, problem.accumulator, problem.precision
    flags = problem.in_place, problem.one_alpha, problem.transposed, problem.skewed
    scaling = problem.scaling  # kernels are passed the steps of factors
    factors = () if scaling is AS_THEY_ARE else (scaling.a.kind, scaling.b.kind, scaling.promoted)
    return (*types, *flags, a, b, c, d, rows, *whole, factors)


def lies(matrix: Matrix) -> tuple[str, int] | None:
    """Its layout and alignment; None where lines overlap, or elements are apart. Of two rows and columns at
    least."""
    rows, cols = matrix.row_stride, matrix.col_stride
    if max(rows, cols) > MOST_ELEMENTS // 4:
        return None
    if cols == 1 and rows >= matrix.cols:
        return "row", matrix.alignment
    if rows == 1 and cols >= matrix.rows:
        return "col", matrix.alignment
    return None


def of_kind(function: Callable[..., Answer]) -> Callable[..., Answer]:
    """The same function of a problem and more, asked once for each kind."""

    @wraps(function)
    def remembered(problem: Problem, *more: Hashable) -> Answer:
        kind = kind_of(problem)
        if kind is None:
            return function(problem, *more)
        known, key = kind.known, (function, more)
        found: Answer | Nothing = known.get(key, NOTHING)  # another thread may clear it
        if isinstance(found, Nothing):
            if len(known) >= ANSWERS:
                known.clear()
            found = known[key] = function(problem, *more)
        return found

    return remembered
