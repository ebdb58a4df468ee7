"""A fact is found once for each problem."""

from __future__ import annotations

from dataclasses import replace

from lapidist.problems.cached_fact import fact
from lapidist.problems.problem import Problem, dense_problem


def test_a_fact_is_found_once_and_for_each_problem_alone() -> None:
    asked: list[Problem] = []

    @fact
    def extent(problem: Problem) -> int:
        asked.append(problem)
        return problem.m

    first, second = dense_problem(16, 16, 16, "float32"), dense_problem(32, 16, 16, "float32")
    assert [extent(first), extent(second), extent(first), extent(second)] == [16, 32, 16, 32]
    assert len(asked) == 2


def test_facts_of_one_problem_are_not_those_of_another_made_from_it() -> None:
    @fact
    def extent(problem: Problem) -> int:
        return problem.m

    first = dense_problem(16, 16, 16, "float32")
    assert extent(first) == 16
    assert extent(replace(first, m=32)) == 32


def test_what_is_known_of_a_problem_does_not_tell_it_from_its_like() -> None:
    @fact
    def extent(problem: Problem) -> int:
        return problem.m

    first, second = (dense_problem(16, 16, 16, "float32") for _ in range(2))
    extent(first)
    assert first == second
    assert hash(first) == hash(second)
    assert repr(first) == repr(second)
