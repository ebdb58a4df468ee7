"""Epilogues of complex products: plain arithmetic of NumPy, and what kernels take part by part."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lapidist
from complex_numbers import PLACES, same, whole
from lapidist import Column, Row, Scalar, Tile
from lapidist.backends.machine_backend import sanitized

C64, F32 = np.complex64, np.float32


@lapidist.epilogue
def mixed(acc: Any, row: Row, column: Column, tile: Tile, by_row: Row, by_column: Column) -> Any:
    return (2 * acc + row - column) * by_row / by_column - tile


@lapidist.epilogue
def scaled(acc: Any, scale: Scalar, shift: Scalar) -> Any:
    return scale * -acc + shift


@lapidist.epilogue
def squared(acc: Any) -> Any:
    return acc * acc


@lapidist.epilogue
def divided(acc: Any, by: Row) -> Any:
    return acc / by


@lapidist.epilogue
def shifted(acc: Any) -> Any:
    return acc + 1


@lapidist.epilogue
def shifted_twice(acc: Any, constant_1: Row) -> Any:
    """A constant that multiplies, too, and one that an operand's name would hide."""
    return 2 - (2 * acc - 3) * constant_1


@lapidist.epilogue
def computed(acc: Any, row: Row) -> Any:
    return acc + row * 2


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
@pytest.mark.parametrize("order", "CF")
def test_constants_are_added_to_real_parts(device: str, order: Any) -> None:
    a, b, factor = whole(9, 5), whole(5, 7), np.array([1, 2, 4, 8, 1, 2, 3], F32)
    right = 2 - (2 * (a @ b) - 3) * factor
    followed = shifted_twice(constant_1=factor)
    for _ in range(2):
        out = np.full((9, 7), np.nan, C64, order=order)
        same(lapidist.matmul(a, b, out, epilogue=shifted, device=device), a @ b + 1)
        same(lapidist.matmul(a, b, out, epilogue=followed, device=device), right)
    plan = lapidist.plan(a, b, epilogue=followed, device=device)
    same(plan.execute(a, b), right)


def test_plans_of_lists_are_refused() -> None:
    with pytest.raises(lapidist.DTypeError, match="a: lists that are planned must hold real matrices"):
        lapidist.plan([whole(4, 5)], [whole(5, 3)], device="machine")


def test_what_the_host_alone_computes() -> None:
    a, b, by = whole(4, 5), whole(5, 3), whole(3) + 9
    same(lapidist.matmul(a, b, epilogue=squared), (a @ b) ** 2)
    np.testing.assert_allclose(lapidist.matmul(a, b, epilogue=divided(by=by)), (a @ b) / by, rtol=1e-6)
    same(lapidist.matmul(a, b, epilogue=shifted), a @ b + 1)


REFUSED = [
    (squared, "squared multiplies two complex values. Multiply the result"),
    (divided(by=np.ones(3, C64)), "divided divides by a complex value. Divide the result"),
    (computed(row=np.ones(3, F32)), "adds a real value that it computes. Pass it as a complex operand"),
]


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
    for epilogue, words in REFUSED if device == "machine" else ():
        with pytest.raises(lapidist.ArgumentError, match=words):
            lapidist.matmul(a, b, out, epilogue=epilogue, device=device)
    assert (out == 7).all()
