"""Arguments that are whole numbers: NumPy's integers are taken as Python's, flags and floats are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lapidist
import lapidist.distributed
from lapidist.backends.selection import named
from lapidist.dtypes import integer, integer_from
from lapidist.errors import LapidistError
from lapidist.frameworks.streams import stream_handle
from lapidist.schedule.sharing_choice import Sharing

A, B = np.ones((16, 64), np.float32), np.ones((64, 16), np.float32)
WEIGHT = np.ones((64, 64), np.float32)
ADDRESSES = np.array([A.ctypes.data])

# each as a function of the number, and a number that it takes
ARGUMENTS: list[tuple[Callable[[Any], Any], int]] = [
    (lambda n: Sharing(split_k=n).split_k, 2),
    (lambda n: Sharing(schedule="stream_k", avail_sms=n).avail_sms, 2),
    (lambda n: lapidist.plan(A, B, kernel=n, device="machine").plan.kernel.name, 5),
    (lambda n: lapidist.Accuracy(n), 21),
    (lambda n: lapidist.Config(64, 64, n, 32, 32, 8, 4), 16),
    (lambda n: lapidist.Pointers(ADDRESSES, (n, n), "float32", (n, 1), n).shape, 16),
    (lambda n: lapidist.quantised.pack(WEIGHT, "int4", group=n).group, 32),
    (lambda n: lapidist.verify.invariant(lambda x: x, WEIGHT, sizes=[n]).calls, 2),
    (lambda n: lapidist.distributed.plan("all_gather_matmul", 64, 64, 64, ranks=n).way, 2),
    (named, 1),
    (stream_handle, 7),
]


@pytest.mark.parametrize(("argument", "number"), ARGUMENTS)
@pytest.mark.parametrize("kind", [np.int64, np.uint8, np.array])
def test_integers_of_numpy_are_those_of_python(
    argument: Callable[[Any], Any], number: int, kind: Callable[[int], Any]
) -> None:
    taken, expected = argument(kind(number)), argument(number)
    assert taken == expected
    assert repr(taken) == repr(expected)


@pytest.mark.parametrize(("argument", "number"), ARGUMENTS[:-2])
@pytest.mark.parametrize("kind", [float, np.float32, bool, np.bool_, lambda number: [number]])
def test_what_is_no_whole_number_is_refused(
    argument: Callable[[Any], Any], number: int, kind: Callable[[int], Any]
) -> None:
    with pytest.raises(LapidistError, match="got"):
        argument(kind(number))


def test_a_number_below_the_least_is_none() -> None:
    assert [integer_from(1, value) for value in (np.int8(1), 0, -1, True, None, "1")] == [1] + [None] * 5
    assert type(integer(np.int64(3))) is int


def test_seeds_of_numpy_are_captured() -> None:
    def steps(seed: Any) -> Any:
        return lapidist.epilogue(lambda acc: lapidist.dropout(acc, 0.5, seed=seed)).function.steps

    assert steps(np.int64(7)) == steps(7) != steps(8)
