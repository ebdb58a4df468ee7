"""Products of host arrays with an epilogue that repeat: few functions run, and every rule still holds."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lapidist
from lapidist.calls.repeat import ARRAY_PATHS

Array = np.ndarray[Any, Any]


@lapidist.epilogue
def shifted(acc: Any, row: lapidist.Row, by: lapidist.Scalar) -> Any:
    return lapidist.relu(acc + row) * by


@lapidist.epilogue
def several(acc: Any, tile: lapidist.Tile) -> Any:
    return acc + tile, lapidist.Output(acc > 0, "bool"), lapidist.row_sum(acc)


@pytest.fixture(autouse=True)
def nothing_remembered() -> None:
    ARRAY_PATHS.clear()


def drawn(rng: np.random.Generator, *shape: int) -> Array:
    return rng.integers(-4, 5, shape).astype(np.float32)


def entered(call: Callable[[], object]) -> int:
    """How many functions of Python a call takes."""
    frames = []
    sys.setprofile(lambda frame, event, _: frames.append(frame) if event == "call" else None)
    try:
        call()
    finally:
        sys.setprofile(None)
    return len(frames) - 1


def test_a_repeated_call_goes_through_few_functions(rng: np.random.Generator) -> None:
    a, b, row = drawn(rng, 8, 6), drawn(rng, 6, 5), drawn(rng, 5)
    call = lambda: lapidist.matmul(a, b, epilogue=shifted(row=row, by=2.0))  # noqa: E731
    first, _, third = entered(call), entered(call), entered(call)
    assert third < 60 < 200 < first


@pytest.mark.parametrize("given_out", [False, True])
def test_results_are_those_of_the_arrays_and_numbers_of_this_call(
    rng: np.random.Generator, given_out: bool
) -> None:
    for by in (2.0, 2.0, -1.0, 0.5):
        a, b, row = drawn(rng, 8, 6), drawn(rng, 6, 5), drawn(rng, 5)
        out = np.empty((8, 5), np.float32) if given_out else None
        result = lapidist.matmul(a, b, out=out, epilogue=shifted(row=row, by=by))
        assert (result is out) is given_out
        assert np.array_equal(result, np.maximum(a @ b + row, 0) * np.float32(by))
    assert len(ARRAY_PATHS) > 1  # the last call is remembered by a key of its own


def test_further_results_and_reversed_operands(rng: np.random.Generator) -> None:
    for _ in range(3):
        a, b, tile = drawn(rng, 8, 6), drawn(rng, 6, 5)[::-1], drawn(rng, 8, 5)[:, ::-1]
        d, positive, sums = lapidist.matmul(a, b, epilogue=several(tile=tile))
        assert np.array_equal(d, a @ b + tile)
        assert np.array_equal(positive, a @ b > 0)
        assert np.array_equal(sums, (a @ b).sum(1))
    assert ARRAY_PATHS


def test_results_go_to_the_outputs_that_are_given(rng: np.random.Generator) -> None:
    for given_d in (True, False, True, False):
        a, b, tile = drawn(rng, 8, 6), drawn(rng, 6, 5), drawn(rng, 8, 5)
        d, sums = np.empty((8, 5), np.float32), np.empty(8, np.float32)
        out = (d if given_d else None, None, sums)
        results = lapidist.matmul(a, b, out, epilogue=several(tile=tile))
        assert (results[0] is d) is given_d
        assert results[2] is sums
        assert np.array_equal(results[0], a @ b + tile)
        assert np.array_equal(sums, (a @ b).sum(1))


def test_addend_and_transposition(rng: np.random.Generator) -> None:
    for alpha, beta in ((2.0, 3.0), (2.0, 3.0), (0.5, -1.0)):
        a, b, row, c = drawn(rng, 6, 8), drawn(rng, 6, 5), drawn(rng, 5), drawn(rng, 8, 5)
        expected = np.maximum(alpha * (a.T @ b) + beta * c + row, 0)
        how: dict[str, Any] = {
            "alpha": alpha,
            "beta": beta,
            "trans_a": True,
            "epilogue": shifted(row=row, by=1.0),
        }
        assert np.array_equal(lapidist.gemm(a, b, c, **how), expected)
        in_place = c.copy()
        assert lapidist.gemm(a, b, in_place, out=in_place, **how) is in_place
        assert np.array_equal(in_place, expected)


def test_what_changes_is_checked(rng: np.random.Generator) -> None:
    a, b, row, out = drawn(rng, 8, 6), drawn(rng, 6, 5), drawn(rng, 5), np.zeros((8, 5), np.float32)
    for _ in range(2):
        lapidist.matmul(a, b, out=out, epilogue=shifted(row=row, by=2.0))
    before = out.copy()
    wrong: list[tuple[type[Exception], str, dict[str, Any], Array]] = [
        (lapidist.StrideError, "overlap row", {}, out[0]),
        (lapidist.ShapeError, "row: must have a value for each", {}, row[:4]),
        (lapidist.DTypeError, "row: must be of", {}, row.astype(complex)),
    ]
    for error, words, more, operand in wrong:
        with pytest.raises(error, match=words):
            lapidist.matmul(a, b, out=out, epilogue=shifted(row=operand, by=2.0), **more)
    locked = out.copy()
    locked.flags.writeable = False
    with pytest.raises(lapidist.ArgumentError, match="read-only"):
        lapidist.matmul(a, b, out=locked, epilogue=shifted(row=row, by=2.0))
    with pytest.raises(lapidist.ArgumentError, match="stream: must be"):
        lapidist.matmul(a, b, out=out, epilogue=shifted(row=row, by=2.0), stream="no stream")
    assert np.array_equal(out, before)
    wide = drawn(rng, 8, 12)[:, ::2]
    assert np.array_equal(
        lapidist.matmul(wide, b, epilogue=shifted(row=row, by=1.0)), np.maximum(wide @ b + row, 0)
    )


def test_plans_repeat_alike(rng: np.random.Generator) -> None:
    a, b, row = drawn(rng, 8, 6), drawn(rng, 6, 5), drawn(rng, 5)
    plain, followed = lapidist.plan(a, b), lapidist.plan(a, b, epilogue=shifted(row=row, by=2.0))
    for _ in range(3):
        a, b = drawn(rng, 8, 6), drawn(rng, 6, 5)
        assert np.array_equal(plain.execute(a, b), a @ b)
        assert np.array_equal(followed.execute(a, b), np.maximum(a @ b + row, 0) * 2)
    assert entered(lambda: plain.execute(a, b)) < 20
    assert entered(lambda: followed.execute(a, b)) < 60
    with pytest.raises(lapidist.ArgumentError, match="Make a new plan"):
        plain.execute(a[:7], b)


def test_nothing_of_a_callers_is_kept_alive(rng: np.random.Generator) -> None:
    watched = []
    for _ in range(3):
        arrays = drawn(rng, 8, 6), drawn(rng, 6, 5), drawn(rng, 5)
        lapidist.matmul(*arrays[:2], epilogue=shifted(row=arrays[2], by=2.0))
        watched += [weakref.ref(array) for array in arrays]
    assert ARRAY_PATHS
    del arrays
    gc.collect()
    assert [reference() for reference in watched] == [None] * len(watched)
