"""Kinds of problems. Problems of one kind differ only in numbers that kernels are not compiled with. Macros,
refusals and shared bytes are found once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import wraps
from typing import Any, TypeVar

from lapidist.dtypes import size_of
from lapidist.problems.cached_fact import fact
from lapidist.problems.matrix import VECTOR_BYTES, Matrix
from lapidist.problems.modes import PLAIN
from lapidist.problems.problem import Problem
from lapidist.problems.scaling import AS_THEY_ARE

# Larger matrices may break rules about sizes, so each of them is a kind of its own.
MOST_ELEMENTS = 1 << 28
# Up to 112 rows, kernels are compiled for each 16 rows. Fewer than 128 rows are "few" to covering_sets.py.
COMPILED_ROWS, FEW_ROWS = 112, 128
MOST_KINDS, ANSWERS = 1024, 512  # most kinds that are kept, and most answers for one

Answer = TypeVar("Answer")


class Nothing:
    """The type of a marker for no answer, as None may be one."""


NOTHING = Nothing()


class Kind:
    """The answers known for one kind of problem. Equal kinds are the same object."""

    __slots__ = ("answers",)

    def __init__(self) -> None:
        self.answers: dict[Any, Any] = {}


_kinds: dict[tuple[Hashable, ...], Kind] = {}


@fact
def kind_of(problem: Problem) -> Kind | None:
    """The kind of a problem. None: no other shares its answers, as with lists, batches, epilogues and unusual
    layouts.
    """
    key = key_of(problem)
    if key is None:
        return None
    kind = _kinds.get(key)
    if kind is None:
        if len(_kinds) >= MOST_KINDS:
            _kinds.clear()
        kind = _kinds.setdefault(key, Kind())
    return kind


def key_of(problem: Problem) -> tuple[Hashable, ...] | None:
    m, n, k = problem.m, problem.n, problem.k
    one_product = not problem.batch and problem.fused is None
    if not one_product or problem.modes != PLAIN:
        return None
    if min(m, n, k) < 2 or max(m * n, m * k, n * k) > MOST_ELEMENTS:
        return None
    a, b, d = layout_of(problem.a), layout_of(problem.b), layout_of(problem.d)
    c = "" if problem.c is None else layout_of(problem.c)
    if a is None or b is None or c is None or d is None:
        return None
    rows = -(-m // 16) if m <= COMPILED_ROWS else COMPILED_ROWS + (m >= FEW_ROWS)
    line = (n if d[0] == "row" else m) * size_of(problem.out_dtype)
    in_vectors = line % VECTOR_BYTES == 0, n % 4 == 0, k % 4 == 0
    types = problem.dtype, problem.b_dtype, problem.out_dtype, problem.accumulator, problem.precision
    flags = problem.in_place, problem.one_alpha, problem.transposed, problem.skewed, problem.triangle
    over_ranks = problem.arrivals is not None, problem.owners is not None and len(problem.owners.addresses)
    scaling = problem.scaling  # without strides of factors, which are parameters of the kernel
    factors = () if scaling is AS_THEY_ARE else (scaling.a.kind, scaling.b.kind, scaling.promoted)
    return (*types, *flags, *over_ranks, a, b, c, d, rows, *in_vectors, factors)


def layout_of(matrix: Matrix) -> tuple[str, int] | None:
    """Layout and alignment of a matrix of at least two rows and columns. None: lines overlap, or elements are
    not adjacent.
    """
    rows, cols = matrix.row_stride, matrix.col_stride
    if max(rows, cols) > MOST_ELEMENTS // 4:
        return None
    if cols == 1 and rows >= matrix.cols:
        return "row", matrix.alignment
    if rows == 1 and cols >= matrix.rows:
        return "col", matrix.alignment
    return None


def of_kind(function: Callable[..., Answer]) -> Callable[..., Answer]:
    """A decorator: the function of a problem, and more, is called once for each kind."""

    @wraps(function)
    def remembered(problem: Problem, *more: Hashable) -> Answer:
        kind = kind_of(problem)
        if kind is None:
            return function(problem, *more)
        answers, key = kind.answers, (function, more)
        answer: Answer | Nothing = answers.get(key, NOTHING)  # one look-up: another thread may clear it
        if isinstance(answer, Nothing):
            if len(answers) >= ANSWERS:
                answers.clear()
            answer = answers[key] = function(problem, *more)
        return answer

    return remembered
