"""Even batches that stand for a grouped product, whose lengths the planner does not know."""

from __future__ import annotations

import math
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


# Few rows may all be of one group, where wide tiles leave most of the chip idle: 64 rows of one expert in 128
# (1536 x 2048, H200) took 2.6 times as long with tiles of 256 columns as torch.mm.
ALONE = 64
SHARE_OF_ALONE = 0.005  # of groups that come so: it decides between tiles that are as fast otherwise


def samples(problem: Problem) -> list[tuple[Problem, float]]:
    """The problem with groups of each length, and a group by itself, with weights of their times."""
    lengths = [with_length(problem, length) for length in LENGTHS]
    share = SHARE_OF_ALONE if 0 < expected_lines(problem) <= ALONE else 0.0
    weighted = [(sample, (1 - share) / len(lengths)) for sample in lengths]
    return [*weighted, (alone(problem), share * math.prod(problem.batch))] if share else weighted


def expected_lines(problem: Problem) -> int:
    """Rows or columns that a group is expected to have. 0 where k is cut: D has as many tiles for any k."""
    modes = problem.modes
    return problem.m if modes.cuts(ROWS) else problem.n if modes.cuts(COLS) else 0


def alone(problem: Problem) -> Problem:
    """One group with all lines, up to ALONE of them."""
    lines = expected_lines(problem)
    together = min(ALONE, lines * math.prod(problem.batch))
    return replace(with_length(problem, together / lines), batch=problem.batch and (1,))


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
