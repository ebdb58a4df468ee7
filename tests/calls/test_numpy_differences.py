"""The table of what differs from NumPy on purpose, in docs/numerics.md: each row holds, and names what
NumPy's tests say.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lapidist
from lapidist.errors import ArgumentError, DTypeError, LapidistError, ShapeError, StrideError
from numpy_differences import DIFFERENCES

DOCUMENT = Path(__file__).parents[2] / "docs" / "numerics.md"
ONES = np.ones((2, 2))


def small_integers() -> None:
    a = np.full((2, 2), 100, np.int8)
    assert (np.matmul(a, a) == np.int64(20000).astype(np.int8)).all()
    assert np.matmul(a, a).dtype == np.int8
    result = lapidist.matmul(a, a)
    assert result.dtype == np.int32
    assert (result == 20000).all()
    assert (lapidist.matmul(a, a, out_dtype="int8") == 127).all()
    assert (lapidist.matmul(a, a, np.zeros((2, 2), np.int8)) == 127).all()


def bfloat16() -> None:
    a = ONES.astype(ml_dtypes.bfloat16)
    assert (np.matmul(a, a).dtype, lapidist.matmul(a, a).dtype) == (np.float32, ml_dtypes.bfloat16)
    small = ONES.astype(ml_dtypes.float8_e4m3fn)
    assert np.matmul(small, small).dtype == lapidist.matmul(small, small).dtype == np.float32


def long_long() -> None:
    a = ONES.astype("q")
    assert np.matmul(a, a).dtype.char == "q"
    assert lapidist.matmul(a, a).dtype.char == np.dtype(np.int64).char


def half_overflows() -> None:
    a = np.full((2, 2), 60000, np.float16)
    with pytest.warns(RuntimeWarning, match="overflow"):
        np.matmul(a, a)
    assert np.isinf(lapidist.matmul(a, a)).all()


def our_words() -> None:
    for kind, python in (
        (ShapeError, ValueError),
        (StrideError, ValueError),
        (ArgumentError, ValueError),
        (DTypeError, TypeError),
    ):
        assert issubclass(kind, python)
        assert issubclass(kind, LapidistError)
    for multiply, error in ((np.matmul, ValueError), (lapidist.matmul, ShapeError)):
        with pytest.raises(error):
            multiply(ONES, np.ones((3, 2)))


def scalars() -> None:
    with pytest.raises(ValueError):
        np.matmul(np.float64(1), ONES)
    with pytest.raises(DTypeError, match="a: must be an array; got float64"):
        lapidist.matmul(np.float64(1), ONES)


class Asked:
    """It answers as an operand of @, and as one of a ufunc."""

    def __rmatmul__(self, other: Any) -> str:
        return "operator"

    def __array_ufunc__(self, *_: Any, **__: Any) -> str:
        return "ufunc"


def operators() -> None:
    assert ONES @ Asked() == "ufunc"  # ndarray's operator is the ufunc
    assert np.matmul(ONES, Asked()) == lapidist.matmul(ONES, Asked()) == "ufunc"

    class Prior:
        __array_priority__ = 1000

        def __rmatmul__(self, other: Any) -> str:
            return "operator"

    assert ONES @ Prior() == "operator"
    for multiply in (np.matmul, lapidist.matmul):
        with pytest.raises((TypeError, ValueError)):
            multiply(ONES, Prior())


def masks() -> None:
    masked = np.ma.masked_array(ONES, ONES > 0)
    assert (np.matmul(masked, masked).data == 2).all()
    with pytest.raises(DTypeError, match="a masked one would lose its mask"):
        lapidist.matmul(masked, masked)


def has_distinct_elements() -> None:
    out = np.lib.stride_tricks.as_strided(np.zeros(2), (2, 2), (0, 8))
    assert np.matmul(ONES, ONES, out=out) is out
    with pytest.raises(StrideError, match="out: each element must have its own memory"):
        lapidist.matmul(ONES, ONES, out)


# operands, and an output that NumPy takes
REPEATED = [
    ((2, 3), (3, 4), (5, 2, 4)),
    ((1, 2, 3), (3, 4), (5, 2, 4)),
    ((1, 2, 3), (1, 3, 4), (2, 4)),
    ((3,), (3, 4), (5, 4)),
    ((2, 3), (3,), (5, 2)),
    ((3,), (3,), (1,)),
]


def the_results_shape() -> None:
    for of_a, of_b, of_out in REPEATED:
        for dtype in ("float32", "float16"):
            a, b, out = np.ones(of_a, dtype), np.ones(of_b, dtype), np.zeros(of_out, dtype)
            with pytest.raises(ShapeError, match="out: must have shape"):
                lapidist.matmul(a, b, out)
            assert not out.any()
            assert (np.matmul(a, b, out=out) == 3).all()


def tuples() -> None:
    out = np.zeros((2, 2))
    assert np.matmul(ONES, ONES, out=(out,)) is out
    with pytest.raises(DTypeError, match="out: must be an array; got tuple"):
        lapidist.matmul(ONES, ONES, (out,))


def keywords() -> None:
    for more in (
        {"dtype": "float32"},
        {"casting": "unsafe"},
        {"order": "F"},
        {"axes": [(0, 1), (0, 1), (0, 1)]},
    ):
        np.matmul(ONES, ONES, **more)  # type: ignore[call-overload]
        with pytest.raises(TypeError, match="unexpected keyword"):
            lapidist.matmul(ONES, ONES, **more)


class Named(np.ndarray[Any, Any]):
    """A subclass."""


def asked_types() -> None:
    a = ONES.astype("f4").view(Named)
    assert type(np.matmul(a, a, dtype="f4")) is type(lapidist.matmul(a, a)) is Named
    assert type(lapidist.matmul(a, a, out_dtype="float16")) is type(lapidist.gemm(a, a)) is np.ndarray


ROWS: dict[str, Callable[[], None]] = {
    "8-bit integers give int32": small_integers,
    "bfloat16 stays bfloat16": bfloat16,
    "types are known by their size": long_long,
    "a half that overflows is silent": half_overflows,
    "errors are in our words": our_words,
    "scalars are no arrays": scalars,
    "the operands' own `__matmul__` is not called": operators,
    "masked arrays are refused": masks,
    "elements of `out` lie apart": has_distinct_elements,
    "`out` has the result's shape": the_results_shape,
    "`out` is an array": tuples,
    "its own keywords": keywords,
    "types asked for give plain arrays": asked_types,
}


def test_the_table_has_these_rows() -> None:
    table = DOCUMENT.read_text().partition("| difference |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| ([^|]+?) \|", table, re.M) == list(ROWS)


def test_what_numpys_tests_say_is_a_row() -> None:
    assert {difference.why for difference in DIFFERENCES.values()} <= set(ROWS)


@pytest.mark.parametrize("row", ROWS)
def test_a_row_holds(row: str) -> None:
    ROWS[row]()
