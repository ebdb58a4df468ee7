"""What a choice costs on the host, in calls of Python: they tell it on any computer, where seconds do not."""

from __future__ import annotations

import cProfile
import pstats
import random
from collections.abc import Callable
from statistics import median

import pytest

from lapidist.device import chip
from lapidist.planning.fallback_kernels import planned_at_once
from lapidist.planning.plans import make_plan
from lapidist.planning.tuned import SWITCH
from lapidist.problems.problem import Problem, dense_problem

H200 = chip("h200")
FREE_CALLS = 3000
CLASSES = [("bfloat16", "rc", 16), ("bfloat16", "rr", 1), ("float32", "rr", 16), ("float8_e4m3fn", "rc", 16)]


@pytest.fixture(autouse=True)
def nothing_was_tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever other tests left, no record is looked for."""
    monkeypatch.setenv(SWITCH, "0")


def new_shapes(math: str, layout: str, multiple: int, count: int = 40) -> list[Problem]:
    draw = random.Random(math + layout)
    shapes = [[int(2 ** draw.uniform(7, 13)) // 16 * 16 for _ in "mnk"] for _ in range(count)]
    return [dense_problem(*(each + multiple % 2 for each in shape), math, layout) for shape in shapes]


def calls_of(work: Callable[[Problem], object], problem: Problem) -> int:
    profile = cProfile.Profile()
    profile.enable()
    work(problem)
    profile.disable()
    found: int = pstats.Stats(profile).total_calls  # type: ignore[attr-defined]
    return found


@pytest.mark.often(2)
@pytest.mark.parametrize(("math", "layout", "multiple"), CLASSES)
def test_the_free_choice_takes_few_calls(math: str, layout: str, multiple: int) -> None:
    first, *rest = new_shapes(math, layout, multiple)
    make_plan(first, H200)  # what is found once for all
    assert median(calls_of(lambda problem: make_plan(problem, H200), each) for each in rest) <= FREE_CALLS


@pytest.mark.parametrize(
    ("math", "layout", "multiple", "most"),
    [
        ("bfloat16", "rc", 16, 300),
        ("float8_e4m3fn", "rc", 16, 300),
        ("bfloat16", "rr", 1, 300),
        # several binaries are weighed: in plain numbers that is twice as many calls as in columns, and two
        # thirds of the time
        ("float32", "rr", 16, 1000),
        ("float32", "rr", 1, 1200),
    ],
)
def test_the_choice_at_hand_takes_fewer(math: str, layout: str, multiple: int, most: int) -> None:
    """With the name of its binary, by which that is looked up, once a process has chosen for some shapes."""
    shapes = new_shapes(math, layout, multiple, 80)

    def named(problem: Problem) -> object:
        plan = planned_at_once(problem, H200)
        return plan and plan.build

    counts = [calls_of(named, each) for each in shapes]
    assert median(counts[40:]) <= most
