"""verify.invariant sees a function whose rows depend on others, and says where."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lapidist
from lapidist.errors import ArgumentError, DTypeError, ShapeError

Array = np.ndarray[Any, Any]


@pytest.fixture
def rows(rng: np.random.Generator) -> Array:
    return rng.standard_normal((40, 64)).astype(np.float16)


def test_products_of_one_order_pass_and_of_several_do_not(rows: Array, rng: np.random.Generator) -> None:
    b = np.asfortranarray(rng.standard_normal((64, 16)).astype(np.float16))

    def product(x: Array) -> Array:
        return lapidist.matmul(x, b, device="machine", invariant=True)

    def turned(x: Array) -> Array:
        """Its order depends on the number of rows."""
        k = 32 if len(x) < 9 else 64
        return x[:, :k].astype(np.float32) @ b[:k].astype(np.float32) + x[:, k:] @ b[k:]

    assert lapidist.verify.invariant(product, rows, sizes=(1, 3, 33))
    assert not lapidist.verify.invariant(turned, rows, sizes=(1, 3, 33))


def test_the_first_difference_is_told(rows: Array) -> None:
    def function(x: Array) -> tuple[Array, Array]:
        second = x.astype(np.float32)
        if len(x) == 5:
            second[3, 7] += 1
        return x, second

    found = lapidist.verify.invariant(function, rows, sizes=(1, 2, 5, 8), starts=1)
    assert not found
    assert (found.calls, found.m, found.row, found.place, found.element) == (4, 5, 3, 3, (7,))
    assert found.got == pytest.approx(found.expected + 1)
    assert "m = 5 differs first" in str(found)
    assert "row 3" in str(found)


def test_a_row_that_depends_on_its_place_is_seen(rows: Array) -> None:
    """All rows, in another order: of no other number of them."""
    found = lapidist.verify.invariant(lambda x: x + np.arange(len(x), dtype=x.dtype)[:, None], rows, sizes=())
    assert not found
    assert found.m == len(rows)


def test_bits_are_compared_not_values(rows: Array) -> None:
    def signed(x: Array) -> Array:
        return np.full_like(x, -0.0 if len(x) == 2 else 0.0)

    def never(x: Array) -> Array:
        return np.full_like(x, np.nan)

    assert not lapidist.verify.invariant(signed, rows, sizes=(2,))
    assert lapidist.verify.invariant(never, rows, sizes=(2,))


def test_several_arrays_and_results(rows: Array) -> None:
    found = lapidist.verify.invariant(lambda x, y: (x + y, [x][0]), rows, rows[::-1], sizes=(1, 7))
    assert found
    assert found.calls == 1 + 2 * 3 + 1
    assert str(found) == "every row has the same bits in 8 calls"


def test_a_function_may_return_the_same_memory_each_time(rows: Array) -> None:
    """As graphs with buffers of their own do."""
    memory = np.empty_like(rows)
    assert lapidist.verify.invariant(lambda x: np.tanh(x, out=memory[: len(x)]), rows, sizes=(1, 7))
    found = lapidist.verify.invariant(
        lambda x: np.subtract(x, x.mean(axis=0), out=memory[: len(x)]), rows, sizes=(7,)
    )
    assert (found.m, found.row) == (7, 0)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128, np.bool_, np.int8, np.float64])
def test_results_of_every_type(rows: Array, dtype: Any) -> None:
    """A difference in the imaginary part alone is one, too."""
    assert lapidist.verify.invariant(lambda x: x.astype(dtype), rows, sizes=(1, 9))

    def other(x: Array) -> Array:
        result = np.zeros(x.shape, dtype)
        if len(x) == 9:
            result[4, 5] = 2j if result.dtype.kind == "c" else 1
        return result

    found = lapidist.verify.invariant(other, rows, sizes=(1, 9))
    assert (found.m, found.place, found.element) == (9, 4, (5,))
    assert found.expected == 0
    assert found.got == (2j if np.dtype(dtype).kind == "c" else 1)


def test_results_of_some_rows_are_like_those_of_all(rows: Array) -> None:
    for function in (
        lambda x: x.astype(np.float64) if len(x) == 3 else x,
        lambda x: (x, x) if len(x) == 3 else (x,),
        lambda x: x[:, :5] if len(x) == 3 else x,
    ):
        with pytest.raises(ShapeError, match="function: must return rows of one shape and type"):
            lapidist.verify.invariant(function, rows, sizes=(3,))
    for dtype in (object, np.longdouble):
        with pytest.raises(DTypeError, match="function: must return numbers of up to 64 bits a part"):
            lapidist.verify.invariant(lambda x, to=dtype: x.astype(to), rows)


@pytest.mark.parametrize("sizes", [(0,), (True,), (2.0,), 3, None])
def test_sizes_are_numbers_of_rows(rows: Array, sizes: Any) -> None:
    with pytest.raises(ArgumentError, match=r"sizes: must be numbers of rows, .* or pass \(1, 16\)"):
        lapidist.verify.invariant(np.tanh, rows, sizes=sizes)
    with pytest.raises(ArgumentError, match="starts: must be a whole number from 1 on; got 0"):
        lapidist.verify.invariant(np.tanh, rows, starts=0)
    assert lapidist.verify.invariant(np.tanh, rows, sizes=np.array([2, 3]))


def test_rows_and_results_are_arrays_of_rows(rows: Array) -> None:
    for arguments in ((), (rows[:1],), (rows, rows[:3]), (3.0,)):
        with pytest.raises(ShapeError, match="rows: must be"):
            lapidist.verify.invariant(np.tanh, *arguments)
    with pytest.raises(ShapeError, match="function: must return as many rows as it is given, 40"):
        lapidist.verify.invariant(lambda x: x[1:], rows)
    with pytest.raises(ShapeError, match="function: must return as many rows"):
        lapidist.verify.invariant(lambda x: 1.0, rows)
    with pytest.raises(ArgumentError, match="function: must be called with rows; got ndarray"):
        lapidist.verify.invariant(rows)
