"""What is found once for all problems of a kind must follow from the kind."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from lapidist.config import Config
from lapidist.device import chip
from lapidist.dtypes import size_of
from lapidist.kernels.kernel_table import config_alone
from lapidist.kernels.registry import KERNELS
from lapidist.planning import covering_sets
from lapidist.planning.cost_table import as_computed
from lapidist.problems import compile_key as kinds_module
from lapidist.problems.compile_key import FEW_ROWS, MOST_ELEMENTS, kind_of, of_kind
from lapidist.problems.matrix import Matrix
from lapidist.problems.problem import Problem, dense_problem
from lapidist.problems.scaling import AS_THEY_ARE, LINES, ONE, PROMOTED, SQUARES, STRIPS, Scale, Scaling

H200 = chip("h200")
EXTENTS = (2, 3, 8, 16, 17, 63, 64, 100, 112, 113, 120, 127, 128, 129, 130, 132, 136, 144, 512, 1000, 1001)


def matrix_of(draw: random.Random, rows: int, cols: int, layout: str, size: int) -> Matrix:
    """As a slice of a wider matrix, often."""
    line = (cols if layout == "row" else rows) + draw.choice((0, 0, 0, 1, 2, 4, 8, 16))
    bits = 16 | draw.choice((0, 0, 0, 2, 4, 8)) | line * size
    steps = (line, 1) if layout == "row" else (1, line)
    return Matrix(rows, cols, *steps, (), bits & -bits)


def drawn(math: str, count: int) -> list[Problem]:
    draw, found = random.Random(math), []
    for _ in range(count):
        m, n, k = (draw.choice(EXTENTS) for _ in "mnk")
        problem = dense_problem(m, n, k, math)
        size = size_of(problem.dtype)
        layouts = [draw.choice(("row", "col")) for _ in "ab"]
        a, b = matrix_of(draw, m, k, layouts[0], size), matrix_of(draw, k, n, layouts[1], size)
        of_d = size_of(problem.out_dtype)
        d = matrix_of(draw, m, n, "row", of_d)
        c = draw.choice((None, d, matrix_of(draw, m, n, draw.choice(("row", "col")), of_d)))
        scaling = scaling_of(draw, k) if math == "float8_e4m3fn" else problem.scaling
        one_alpha = c is None and draw.random() < 0.5
        found.append(replace(problem, a=a, b=b, c=c, d=d, one_alpha=one_alpha, scaling=scaling))
    return found


def scaling_of(draw: random.Random, k: int) -> Scaling:
    """Steps of factors vary with the extents, and are passed to kernels."""
    step = draw.choice((1, 2, -(-k // 128)))
    one, line, strips = Scale(ONE), Scale(LINES, step), Scale(STRIPS, step, 1)
    squares = Scale(SQUARES, step, 1)
    every = AS_THEY_ARE, PROMOTED, Scaling(one, one), Scaling(line, one), Scaling(line, line, True)
    return draw.choice((*every, Scaling(strips, squares, True), Scaling(squares, strips, True)))


def by_kind(problems: list[Problem]) -> dict[object, list[Problem]]:
    found: dict[object, list[Problem]] = {}
    for problem in problems:
        found.setdefault(kind_of(problem), []).append(problem)
    found.pop(None, None)
    return found


def scalars_key(problem: Problem, config: Config, kernel_at: int) -> object:
    """All that is kept by kind, found anew."""
    kernel = KERNELS[kernel_at]
    rows = config_alone(kernel, config, problem.math)
    with np.errstate(all="ignore"):
        taken = bool(rows.accepted(problem, H200)[0])
    return kernel.family.macros(problem), int(kernel.family.shared_bytes(problem, config)), taken


AT_HAND = {member.kernel for members in covering_sets.all_sets().values() for member, *_ in members}


@pytest.mark.often(2)
@pytest.mark.parametrize(("math", "count"), [("bfloat16", 3000), ("float32", 3000), ("float8_e4m3fn", 9000)])
def test_problems_of_a_kind_differ_in_their_numbers_alone(
    math: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kinds_module, "MOST_KINDS", 1 << 20)
    draw = random.Random(1)
    kinds = [each for each in by_kind(drawn(math, count)).values() if len(each) > 1]
    assert len(kinds) > 200
    places = [
        (at, config)
        for at, kernel in enumerate(KERNELS)
        if kernel.name in AT_HAND and math in kernel.types.maths
        for config, _ in kernel.configs_for(math)
    ]
    for first, *others in kinds:
        for at, config in draw.sample(places, 6):
            own, *rest = (as_computed(each, config) for each in (first, *others[:3]))
            assert kind_of(own) is not None or own.skewed
            wanted = scalars_key(own, config, at)
            alike = [each for each in rest if kind_of(each) == kind_of(own)]
            assert [scalars_key(each, config, at) for each in alike] == [wanted] * len(alike)


def test_what_is_exchanged_or_shifted_stays_of_a_kind() -> None:
    problem, other = (dense_problem(m, 512, 512, "bfloat16") for m in (304, 4096))
    assert kind_of(problem.exchanged()) == kind_of(other.exchanged())
    assert kind_of(replace(problem, skewed=True)) != kind_of(problem)


def test_few_rows_and_those_of_their_own_are_kinds_of_their_own() -> None:
    kinds = {kind_of(dense_problem(m, 512, 512, "bfloat16")) for m in (16, 17, 32, 112, 113, FEW_ROWS, 4096)}
    assert len(kinds) == 5


def test_factors_are_a_part_of_the_kind() -> None:
    """Not their steps."""
    problem = dense_problem(512, 512, 512, "float8_e4m3fn")
    scalings = [
        *(Scaling(Scale(kind, 1), Scale(LINES, 1)) for kind in (ONE, LINES)),
        *(Scaling(Scale(STRIPS, 4, 1), Scale(kind, 4, 1), True) for kind in (STRIPS, SQUARES)),
        *(AS_THEY_ARE, PROMOTED),
    ]
    kinds = [kind_of(replace(problem, scaling=each)) for each in scalings]
    assert len({*kinds}) == len(scalings)
    wide = Scaling(Scale(LINES, 2), Scale(LINES, 3))
    assert kind_of(replace(dense_problem(256, 512, 512, "float8_e4m3fn"), scaling=wide)) is kinds[1]


def test_what_is_alone_has_no_kind() -> None:
    problem = dense_problem(512, 512, 512, "bfloat16")
    large = dense_problem(1 << 15, 512, MOST_ELEMENTS >> 14, "bfloat16")
    overlapping = replace(problem, a=replace(problem.a, row_stride=1))
    apart = replace(problem, d=replace(problem.d, col_stride=2))
    others = [replace(problem, batch=(3,)), large, overlapping, apart, dense_problem(1, 512, 512, "bfloat16")]
    assert [kind_of(each) for each in others] == [None] * len(others)


def test_a_function_is_asked_once_for_a_kind() -> None:
    asked: list[int] = []

    @of_kind
    def rows(problem: Problem, more: int) -> int:
        asked.append(problem.m)
        return more

    problems = [dense_problem(m, 512, 512, "bfloat16") for m in (128, 256, 1)]
    assert [rows(each, 1) for each in problems] == [1, 1, 1]
    assert [rows(each, 2) for each in problems] == [2, 2, 2]
    assert asked == [128, 1, 128, 1]
