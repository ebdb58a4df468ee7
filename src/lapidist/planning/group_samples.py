"""Even batches that stand for a grouped product, whose lengths the planner does not know."""

from __future__ import annotations

from dataclasses import replace

from lapidist.problems.problem import Problem
from lapidist.problems.ragged import COLS, ROWS

# Lengths of groups over the expected one. Their mean is one. Even groups alone would favour tiles that divide
# the expected length: 256 x 208 of 1024 rows, which took 1.26 of the best tile's time where lengths fell as
# 1 / i (8 groups, 4096 x 14336, H200).
LENGTHS = (0.2, 0.55, 1.0, 2.25)
# Tiles with A and B exchanged take so much longer than the model says of even batches: their columns end with
# groups. Seen with 16 to 1024 rows a group on an H200.
EXCHANGED = 1.2


def samples(problem: Problem) -> list[Problem]:
    """The problem with groups of each length."""
    return [with_length(problem, share) for share in LENGTHS]


def with_length(problem: Problem, share: float) -> Problem:
    modes, a, b, d, c = problem.modes, problem.a, problem.b, problem.d, problem.c
    if modes.cuts(ROWS):
        m = scaled(problem.m, share)
        c = c and replace(c, rows=m)
        return replace(problem, m=m, a=replace(a, rows=m), d=replace(d, rows=m), c=c)
    if modes.cuts(COLS):
        n = scaled(problem.n, share)
        c = c and replace(c, cols=n)
        return replace(problem, n=n, b=replace(b, cols=n), d=replace(d, cols=n), c=c)
    k = scaled(problem.k, share)
    return replace(problem, k=k, a=replace(a, cols=k), b=replace(b, rows=k))


def scaled(extent: int, share: float) -> int:
    return max(2, round(extent * share)) if extent else 0
