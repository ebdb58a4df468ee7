"""Facts are asked once for each problem, and never mistaken for another's."""

from __future__ import annotations

from dataclasses import replace

from lapidist.problems.facts import KEPT, fact
from lapidist.problems.problem import Problem, dense_problem


def test_each_problem_is_asked_once() -> None:
    asked: list[int] = []

    @fact
    def rows(problem: Problem) -> int:
        asked.append(problem.m)
        return problem.m

    problems = [dense_problem(m, 8, 8, "float32") for m in (3, 4)]
    assert [rows(problem) for problem in problems * 3] == [3, 4] * 3
    assert asked == [3, 4]
    assert rows(replace(problems[0], m=5)) == 5


def test_forgotten_problems_are_asked_again() -> None:
    """An identity may be given to another problem once the first one is gone."""

    @fact
    def rows(problem: Problem) -> int:
        return problem.m

    for m in range(3 * KEPT):
        assert rows(dense_problem(m, 8, 8, "float32")) == m
