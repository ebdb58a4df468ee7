"""How far off an epilogue's result may be: drawn expressions in float32 against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings

import lapidist
from drawn_epilogues import FUNCTIONS, TEXTS, Drawn
from lapidist.epilogues.error_bound import Near, near
from lapidist.epilogues.numeric import evaluate
from lapidist.epilogues.operations import added, divided, multiplied


@given(TEXTS)
@example("lapidist.silu((row / acc) + 0 * acc)")  # whose exp overflows
@settings(max_examples=150, deadline=None)
def test_float32_stays_within_the_bound(text: str) -> None:
    names: dict[str, Any] = {"lapidist": lapidist, "__name__": "drawn"}
    exec(f"def f(acc, row: lapidist.Row, one: lapidist.Scalar):\n    return {text} + 0 * acc", names)
    function = lapidist.epilogue(names["f"]).function
    rng = np.random.default_rng(len(text))
    sums, row = rng.standard_normal((40, 30)), rng.standard_normal(30)
    rounded, values = sums.astype(np.float32), {"row": row, "one": 1.7}
    (found,) = evaluate(function, rounded, values)
    ((value, off),) = near(function, Near(sums, np.abs(rounded - sums)), values, "float32")
    sure = np.isfinite(value) & np.isfinite(off) & (np.abs(value) < 1e30)
    assert np.all(np.abs(found[sure] - value[sure]) <= np.broadcast_to(off, sums.shape)[sure])


@given(FUNCTIONS)
@settings(max_examples=150, deadline=None)
def test_all_results_of_drawn_functions_stay_within_theirs(drawn: Drawn) -> None:
    function = drawn.traced().function
    rng = np.random.default_rng(len(drawn.text))
    sums, row = rng.standard_normal((40, 60)), rng.standard_normal(30 if drawn.pairs else 60)
    rounded, values = sums.astype(np.float32), {"row": row, "one": 1.7}
    found = evaluate(function, rounded, values)
    exact = near(function, Near(sums, np.abs(rounded - sums)), values, "float32")
    for result, (value, off) in zip(found, exact, strict=True):
        assert result.shape == value.shape
        sure = np.isfinite(value) & np.isfinite(off) & (np.abs(value) < 1e30)
        with np.errstate(invalid="ignore"):
            assert np.all(np.where(sure, np.abs(result - value) <= off, True)), drawn.text


@lapidist.epilogue
def exact(acc: Any) -> Any:
    steps = np.floor(acc), np.ceil(acc), np.trunc(acc), np.rint(acc)
    return (
        -acc,
        abs(acc),
        np.minimum(acc, 0.5),
        np.maximum(acc, 0.5),
        lapidist.where(acc > 0, acc, 0.5),
        *steps,
    )


def test_what_rounds_nothing_leaves_no_room_for_error() -> None:
    sums = np.array([[-2.75, -0.25, 0.0, 1.5]])
    for value, off in near(exact.function, Near(sums, np.zeros(sums.shape)), {}, "float32"):
        assert not np.any(off), value


@pytest.mark.parametrize(
    ("spread", "operation"), [(added, np.add), (multiplied, np.multiply), (divided, np.divide)]
)
def test_two_values_that_are_off_spread_to_their_results(spread: Any, operation: Any) -> None:
    """No pair of values within their bounds has a result outside of its own."""
    x, y = (1000.0, 0.5), (1.0, 0.1)
    result = operation(x[0], y[0])
    corners = [operation(x[0] + i * x[1], y[0] + j * y[1]) for i in (-1, 1) for j in (-1, 1)]
    assert spread(result, x, y) >= max(abs(corner - result) for corner in corners) * (1 - 1e-12)


@lapidist.epilogue
def summed(acc: Any) -> Any:
    return acc, lapidist.row_sum(acc)


def test_a_sum_of_more_values_may_be_further_off() -> None:
    few, many = (
        near(summed.function, Near(np.ones((3, count)), np.zeros((3, count))), {}, "float32")[1].off / count
        for count in (2, 4096)
    )
    assert np.all(many > few)
