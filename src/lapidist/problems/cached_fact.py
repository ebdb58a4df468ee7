"""Facts: what follows from a Problem alone. Each is found once for a problem, not once for each of its
hundred configs.

They are kept in the problem itself: a look-up by its hash takes longer than most facts do.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from lapidist.problems.problem import Problem

Value = TypeVar("Value")


def fact(function: Callable[[Problem], Value]) -> Callable[[Problem], Value]:
    """A decorator: the function is called once for each problem."""

    @wraps(function)
    def remembered(problem: Problem) -> Value:
        facts = problem.facts
        if function not in facts:
            facts[function] = function(problem)
        value: Value = facts[function]
        return value

    return remembered
