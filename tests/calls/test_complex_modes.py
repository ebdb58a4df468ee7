"""Complex products whose rows are gathered and scattered, of Pointers, and of lists that are planned."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lapidist
from complex_numbers import PLACES, Numbers, same, whole
from in_turns import in_turns
from lapidist.backends.machine_backend import sanitized

TYPES = [np.complex64, np.complex128]
OPS: dict[Any, Any] = {False: lambda x: x, True: lambda x: x.T, "C": lambda x: x.T.conj()}
ROWS = np.array([3, 0, 3, 4, 1, 2])  # of A; one of them twice
PLACED = np.array([8, 0, 6, 2, 5, 3])  # where they go in D, which has other rows, too
COLUMNS = np.array([6, 2, 0, 2])

# ---- rows and columns ----


@pytest.mark.parametrize("device", PLACES)
@pytest.mark.parametrize(
    ("named", "alpha", "beta", "index", "real"),
    in_turns(
        (("gather_a",), ("gather_b",), ("scatter_d",), ("gather_a", "gather_b", "scatter_d")),
        (1.0, 2 - 1j),
        (0.0, 1j, -1.0),
        (np.int32, np.int64),
        ("", "a", "b"),
    ),
)
def test_rows_that_are_gathered_and_scattered(
    device: str, named: tuple[str, ...], alpha: Any, beta: Any, index: Any, real: str
) -> None:
    a, b = whole(5, 9), whole(9, 7, seed=1)
    a, b = a.real.copy() if real == "a" else a, b.real.copy() if real == "b" else b
    given = {
        "gather_a": ROWS,
        "gather_b": COLUMNS,
        "scatter_d": PLACED if "gather_a" in named else PLACED[:5],
    }
    indices: dict[str, Any] = {name: given[name].astype(index) for name in named}
    left = a[ROWS] if "gather_a" in named else a
    right = b[:, COLUMNS] if "gather_b" in named else b
    into = indices.get("scatter_d", np.arange(len(left)))
    rows = 9 if "scatter_d" in named else len(left)
    c, out = whole(rows, right.shape[1], seed=2), whole(rows, right.shape[1], seed=3)
    expected = out.copy()
    expected[into] = alpha * (left @ right) + beta * c[into]
    with sanitized(1):
        result = lapidist.gemm(
            a, b, c if beta else None, alpha=alpha, beta=beta, out=out, device=device, **indices
        )
    assert result is out
    same(out, expected)


@pytest.mark.parametrize("device", PLACES)
def test_each_matrix_has_rows_of_its_own(device: str) -> None:
    """Of a batch that shares one operand, and whose columns of D touch."""
    a, b = whole(4, 9, dtype=np.complex128), whole(2, 3, 9, 5, dtype=np.complex128, seed=1)
    rows = np.arange(30, dtype=np.int64).reshape(2, 3, 5) * 7 % 4
    columns = np.arange(24, dtype=np.int64).reshape(2, 3, 4) * 3 % 5
    right = np.take_along_axis(np.broadcast_to(a, (2, 3, 4, 9)), rows[..., None], -2) @ np.take_along_axis(
        b, columns[..., None, :], -1
    )
    for out in (np.empty((2, 3, 5, 4), complex), np.empty((2, 3, 4, 5), complex).mT):
        given: dict[str, Any] = {"gather_a": rows, "gather_b": columns, "device": device}
        same(lapidist.gemm(a, b, out=out, **given), right, np.complex128)
    thrice = lapidist.gemm(a, b, precision="3m", **given)
    same(thrice, right, np.complex128)


@pytest.mark.parametrize("device", PLACES)
def test_what_reads_no_operand_keeps_its_rows(device: str) -> None:
    """alpha = 0, or no k: C alone, with the rows that are gathered."""
    a, b, c = np.full((5, 9), np.nan, np.complex64), whole(9, 7), whole(9, 4, seed=2)
    for left, right, alpha in ((a, b, 0), (a[:, :0], b[:0], 1j)):
        out = np.full((9, 4), 5, np.complex64)
        expected = out.copy()
        expected[PLACED] = 2j * c[PLACED]
        how: Any = {"gather_a": ROWS, "gather_b": COLUMNS, "scatter_d": PLACED, "device": device}
        same(lapidist.gemm(left, right, c, alpha=alpha, beta=2j, out=out, **how), expected)


@pytest.mark.parametrize("device", PLACES)
@pytest.mark.parametrize("order", [(2, 0, 1, 3), (2, 3, 0, 1), (0, 3, 1, 2)])
def test_permuted(device: str, order: tuple[int, ...]) -> None:
    """Groups of rows and of columns, where neighbours of a row or of a column touch."""
    a, b, c = whole(6, 9), whole(9, 8, seed=1), whole(6, 8, seed=2)
    shape = 3, 2, 4, 2
    lies = np.empty([shape[order.index(place)] for place in range(4)], np.complex64)
    out = lies.transpose(order)
    assert out.shape == shape
    how: Any = {"alpha": 1j, "beta": -1.0, "permuted": True, "device": device}
    lapidist.gemm(a, b, c, out=out, **how)
    same(out.reshape(6, 8), 1j * (a @ b) - c)


def test_permuted_where_neighbours_do_not_touch() -> None:
    out = np.zeros((3, 2, 4, 2, 2), np.complex64)[..., 0]
    with pytest.raises(
        lapidist.ArgumentError, match="touch, where complex products are permuted; got strides"
    ):
        lapidist.gemm(whole(6, 9), whole(9, 8), out=out, permuted=True, device="machine")


def test_epilogue_of_rows_that_are_gathered() -> None:
    @lapidist.epilogue
    def biased(acc: Any, bias: lapidist.Row) -> Any:
        return acc + bias

    a, b, bias, out = whole(5, 9), whole(9, 7), whole(7, seed=3), np.zeros((9, 7), np.complex64)
    given: Any = {"gather_a": ROWS, "scatter_d": PLACED, "out": out, "device": "machine"}
    lapidist.gemm(a, b, epilogue=biased(bias=bias), **given)
    same(out[PLACED], a[ROWS] @ b + bias)
    assert not out[[1, 4, 7]].any()


def test_rows_that_are_not_scattered() -> None:
    """In words, and nothing is written."""
    a, b = whole(6, 9), whole(9, 7)
    out = np.zeros((7, 9), np.complex64).T
    given: Any = {"scatter_d": PLACED, "device": "machine"}
    message = "out: must have rows whose elements touch, where complex products are scattered; got"
    with pytest.raises(lapidist.ArgumentError, match=message):
        lapidist.gemm(a, b, out=out, **given)
    rows = np.zeros((9, 7), np.complex64)
    with pytest.raises(lapidist.ArgumentError, match="precision: '3m' leaves products whose sums are not"):
        lapidist.gemm(a, b, out=rows, precision="3m", **given)
    with pytest.raises(lapidist.ArgumentError, match="gather_a: indices must lie between 0 and 5; got 6"):
        lapidist.gemm(a, b, gather_a=np.array([6]), device="machine")
    assert not out.any()
    assert not rows.any()


# ---- addresses ----


def pointers(arrays: list[Numbers], **more: Any) -> lapidist.Pointers:
    rows, columns = arrays[0].shape
    row, col = (step // arrays[0].itemsize for step in arrays[0].strides)
    addresses = np.array([array.ctypes.data for array in arrays])
    return lapidist.Pointers(addresses, (rows, columns), arrays[0].dtype.name, (row, col), **more)


@pytest.mark.often(2)
@pytest.mark.parametrize("device", PLACES)
@pytest.mark.parametrize(
    ("ops", "alpha", "beta", "layouts", "real", "dtype"),
    in_turns(
        ((False, False), (True, "C"), ("C", True), ("C", "C")),
        (1.0, 2 - 1j, 0.0),
        (0.0, 1j, -1.0),
        ("CCCC", "FCFF", "CFFC", "FFCF"),
        ("", "", "a", "b"),
        TYPES,
    ),
)
def test_addresses(
    device: str, ops: tuple[Any, Any], alpha: Any, beta: Any, layouts: str, real: str, dtype: Any
) -> None:
    shapes = [(5, 9), (9, 33), (5, 33), (5, 33)]
    for place, op in enumerate(ops):
        shapes[place] = shapes[place][::-1] if op else shapes[place]
    a, b, c, out = (
        [np.array(whole(*shape, dtype=dtype, seed=3 * place + i), order=order) for i in range(3)]  # type: ignore[call-overload]
        for place, (shape, order) in enumerate(zip(shapes, layouts, strict=True))
    )
    a = [np.asarray(x.real, order="C") if real == "a" else x for x in a]
    b = [np.asarray(x.real, order="C") if real == "b" else x for x in b]
    right = [alpha * (OPS[ops[0]](x) @ OPS[ops[1]](y)) + beta * z for x, y, z in zip(a, b, c, strict=True)]
    given, to = (pointers(a), pointers(b), pointers(c) if beta else None), pointers(out)
    how: Any = dict(zip(("trans_a", "trans_b"), ops, strict=True))
    with sanitized(2):
        assert lapidist.gemm(*given, alpha=alpha, beta=beta, out=to, device=device, **how) is to
    for found, expected in zip(out, right, strict=True):
        same(found, expected, dtype)


@pytest.mark.parametrize("device", PLACES)
def test_a_plan_of_addresses_takes_others(device: str) -> None:
    a, b, c = ([whole(*shape, seed=i) for i in range(4)] for shape in ((5, 9), (9, 7), (5, 7)))
    right = [1j * (x @ y.conj()) - z for x, y, z in zip(a, b, c, strict=True)]
    to = pointers(c)
    b = [np.array(y.T) for y in b]
    how: Any = {"alpha": 1j, "beta": -1.0, "trans_b": "C", "device": device}
    first = pointers(c[:2])
    plan = lapidist.plan(pointers(a[:2]), pointers(b[:2]), first, out=first, **how)
    assert plan.execute(pointers(a), pointers(b), to, to) is to  # in place
    for found, expected in zip(c, right, strict=True):
        same(found, expected)
    with pytest.raises(lapidist.ArgumentError, match="a, b, c, out: must have the geometry that was planned"):
        plan.execute(pointers(a), pointers(b), pointers(c), pointers(c))


def test_addresses_by_three_products() -> None:
    a = [whole(4, 4)]
    with pytest.raises(
        lapidist.ArgumentError, match="precision: '3m' is for arrays and lists of them; got Poi"
    ):
        lapidist.gemm(pointers(a), pointers(a), out=pointers([a[0].copy()]), precision="3m", device="machine")


# ---- plans of lists ----


@pytest.mark.parametrize("device", PLACES)
def test_a_plan_of_lists_takes_others(device: str) -> None:
    a, b = ([whole(*shape, seed=7) for shape in shapes] for shapes in (((5, 9), (3, 4)), ((9, 7), (4, 8))))
    plan = lapidist.plan(a, b, alpha=2j, device=device)
    for factor in (1, -3):
        others = [factor * x for x in a]
        for result, x, y in zip(plan.execute(others, b), others, b, strict=True):
            same(result, 2j * (x @ y))
    with pytest.raises(lapidist.ArgumentError, match=r"a\[1\], b\[1\], c\[1\], out\[1\]: must have the geom"):
        plan.execute(a, [b[0], b[1][:, :5]])
    out = [np.zeros((5, 7), np.complex64), np.zeros((3, 8), np.complex64)]
    assert plan.execute(a, b, out=out)[1] is out[1]
    same(out[1], 2j * (a[1] @ b[1]))
