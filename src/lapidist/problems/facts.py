"""What follows from a Problem alone is found once for it, not once for each of a hundred configs that are
weighed.

Facts are kept by the identity of the problem: its hash takes longer than most facts do.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from lapidist.problems.problem import Problem

KEPT = 64  # problems at once; a plan weighs the same one as it is, exchanged and shifted
Value = TypeVar("Value")


def fact(function: Callable[[Problem], Value]) -> Callable[[Problem], Value]:
    """The same function, asked once for each problem."""
    known: dict[int, tuple[Problem, Value]] = {}

    @wraps(function)
    def remembered(problem: Problem) -> Value:
        found = known.get(id(problem))
        if found is not None and found[0] is problem:  # while it is kept, no other one has its identity
            return found[1]
        value = function(problem)
        if len(known) >= KEPT:
            known.clear()
        known[id(problem)] = problem, value
        return value

    return remembered
