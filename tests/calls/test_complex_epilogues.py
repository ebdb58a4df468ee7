"""Epilogues of complex products: plain arithmetic of NumPy, and what kernels take part by part."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lapidist
from complex_numbers import PLACES, mixed, same, scaled, whole
from lapidist import Column, Row, Scalar, Tile
from lapidist.backends.machine_backend import sanitized

C64, F32 = np.complex64, np.float32


@lapidist.epilogue
def of_both(acc: Any, row: Row, column: Column, tile: Tile, real: Row, by: Scalar, column_re: Row) -> Any:
    """Products and quotients of complex values, and a name that a part's would hide."""
    return acc * row - 3 * column * by / (tile * acc + 40) + (2 - real * 2) * (1 - tile) - column_re


@lapidist.epilogue
def no_sums(acc: Any, row: Row) -> Any:
    return 2 / row + row * row


@lapidist.epilogue
def shifted_twice(acc: Any, constant_1: Row) -> Any:
    """A constant that multiplies, too, and one that an operand's name would hide."""
    return 2 - (2 * acc - 3) * constant_1


@pytest.mark.parametrize("device", PLACES)
@pytest.mark.parametrize("order", "CF")
def test_operands_of_every_kind(device: str, order: Any) -> None:
    m, n = 9, 7
    a, b, c = whole(m, 5), whole(5, n), whole(m, n, seed=2)
    by_row = np.array([1, 2, 4, 8, 1, 2, 3], F32)
    by_column = np.array([1, 2, 4, 8, 1, 2, 4, 8, 16], F32)
    row, column, tile = whole(n, seed=3), whole(m, seed=4), whole(n, m, seed=5)
    for number, (of_row, of_tile) in enumerate(((row, tile.T.conj()), (row.real.copy(), tile.T.imag.copy()))):
        followed = mixed(row=of_row, column=column, tile=of_tile, by_row=by_row, by_column=by_column)
        out = np.full((m, n), np.nan, C64, order=order)
        with sanitized(number):
            lapidist.gemm(a, b, c, beta=1j, epilogue=followed, out=out, device=device)
        sums = 2 * (a @ b + 1j * c) + of_row - column[:, None]
        same(out, sums * by_row / by_column[:, None] - of_tile)


@pytest.mark.parametrize("device", PLACES)
def test_scalars(device: str) -> None:
    a, b = whole(4, 5), whole(5, 3)
    half, third = np.array([0.5], F32), np.array([3 - 1j], C64)
    for scale, shift in ((0.5, 3 - 1j), (half, third), (2.0, half)):
        of = [np.asarray(value).item() for value in (scale, shift)]
        followed = scaled(scale=scale, shift=shift)
        same(lapidist.matmul(a, b, epilogue=followed, device=device), of[0] * -(a @ b) + of[1])
        same(
            lapidist.matmul(a.real, b[:, 0], epilogue=followed, device=device),
            of[0] * -(a.real @ b[:, 0]) + of[1],
        )


@pytest.mark.parametrize("device", PLACES)
def test_batches_lists_and_plans(device: str) -> None:
    a, b, bias = whole(2, 4, 5), whole(5, 3), whole(2, 1, 3, seed=3)
    followed = lapidist.epilogues.bias(bias=bias)
    same(lapidist.matmul(a, b, epilogue=followed, device=device), a @ b + bias)
    followed = lapidist.epilogues.bias(bias=bias[0, 0])
    results = lapidist.gemm_lists([*a], [b, b], epilogue=followed, device=device)
    for result, x in zip(results, a, strict=True):
        same(result, x @ b + bias[0, 0])
    plan = lapidist.plan(a[0], b, epilogue=followed, alpha=np.array([1j], C64), device=device)
    for x in a:
        bias += 1
        same(plan.execute(x, b), 1j * (x @ b) + bias[0, 0])


@pytest.mark.parametrize("device", PLACES)
def test_constants_are_added_to_real_parts(device: str) -> None:
    a, b, factor = whole(9, 5), whole(5, 7), np.array([1, 2, 4, 8, 1, 2, 3], F32)
    right = 2 - (2 * (a @ b) - 3) * factor
    followed = shifted_twice(constant_1=factor)
    orders: Any = "CF"
    for order in orders:
        out = np.full((9, 7), np.nan, C64, order=order)
        same(lapidist.matmul(a, b, out, epilogue=followed, device=device), right)
    plan = lapidist.plan(a, b, epilogue=followed, device=device)
    same(plan.execute(a, b), right)


@pytest.mark.parametrize("device", PLACES)
def test_a_plan_conjugates_each_time(device: str) -> None:
    a, b, tile = whole(5, 4), whole(3, 5), whole(4, 3)
    how: dict[str, Any] = {"trans_a": "C", "trans_b": "C", "device": device}
    plan = lapidist.plan(a, b, epilogue=lapidist.epilogues.residual(residual=tile), **how)
    for seed in range(3):
        a[...], tile[...] = whole(5, 4, seed=seed), whole(4, 3, seed=seed)
        same(plan.execute(a, b), a.conj().T @ b.conj().T + tile)


@pytest.mark.parametrize("device", PLACES)
def test_functions_of_both_parts(device: str) -> None:
    m, n = 9, 7
    a, b, c = whole(m, 5) / 4, whole(5, n) / 4, whole(m, n, seed=2)
    row, column, tile, real = whole(n, seed=3), whole(m, seed=4), whole(n, m, seed=5).T, whole(n).real
    turns: Any = ((1 - 2j, "C"), (np.array([2j], C64), "F"))
    for turn, (number, order) in enumerate(turns):
        how: dict[str, Any] = {"row": row, "column": column, "tile": tile, "real": real, "column_re": real}
        out = np.full((m, n), np.nan, C64, order=order)
        followed = of_both(by=number, **how)
        way: dict[str, Any] = {"precision": ("ieee", "3m")[turn]}
        with sanitized(turn):
            lapidist.gemm(a, b, c, beta=1j, epilogue=followed, out=out, device=device, **way)
        z, w = (a @ b + 1j * c).astype("c16"), column[:, None] * np.asarray(number)
        right = z * row - 3 * w / (tile * z + 40) + (2 - real * 2) * (1 - tile) - real
        np.testing.assert_allclose(out, right, rtol=1e-5, atol=1e-4)
    large = lapidist.matmul(a, b, epilogue=no_sums(row=np.full(n, 1e-18j, C64)), device=device)
    np.testing.assert_allclose(large, np.full((m, n), -2e18j, C64), rtol=1e-5)  # squares would underflow


@pytest.mark.parametrize("device", PLACES)
def test_refusals(device: str) -> None:
    a, b, out = whole(4, 5), whole(5, 3), np.full((4, 3), 7, C64)
    for name, epilogue in (("maximum", lapidist.epilogues.relu), ("sigmoid", lapidist.epilogues.silu)):
        with pytest.raises(
            lapidist.ArgumentError, match=f"of complex numbers must add.* has {name}. Compute"
        ):
            lapidist.matmul(a, b, out, epilogue=epilogue, device=device)
    double = lapidist.epilogues.bias(bias=np.ones(3))
    with pytest.raises(lapidist.DTypeError, match="bias: must be of complex64, float32; got float64"):
        lapidist.matmul(a, b, out, epilogue=double, device=device)
    assert (out == 7).all()
