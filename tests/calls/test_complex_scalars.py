"""alpha and beta of complex products in arrays of one element."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import lapidist
from complex_numbers import PLACES, same, whole
from lapidist.backends.machine_backend import sanitized
from lapidist.calls.scalar_operands import scalar_of
from lapidist.frameworks.arrays import operand_of

C64, C128, F32, F64 = np.complex64, np.complex128, np.float32, np.float64
CASES = [
    (np.array([1 - 2j], C64), np.array([[1j]], C64)),
    (np.array(2, F32), np.array(1 + 1j, C64)),
    (np.array([2 + 1j], C64), 1j),
    (1 - 1j, np.array([3], F32)),
]


@pytest.mark.often(2)
@pytest.mark.parametrize("device", PLACES)
@pytest.mark.parametrize("case", range(len(CASES)))
def test_numbers_in_arrays(device: str, case: int) -> None:
    a, b, c = whole(9, 5), whole(5, 7), whole(9, 7, seed=2)
    alpha, beta = CASES[case]
    of = [np.asarray(number).item() for number in (alpha, beta)]
    operands = [(a, b), (a.real.copy(), b), (a, b.real), (a.conj(), b[:, ::-1])]
    for number, (x, y) in enumerate(operands):
        out = np.full(c.shape, np.nan, C64, order="CF"[number % 2])
        with sanitized(number):
            result = lapidist.gemm(x, y, c, alpha=alpha, beta=beta, out=out, device=device)
        assert result is out
        same(result, of[0] * (x @ y) + of[1] * c)


@pytest.mark.parametrize("device", PLACES)
def test_batches_of_complex128(device: str) -> None:
    a, b, c = whole(2, 4, 5, dtype=C128), whole(5, 3, dtype=C128), whole(1, 3, dtype=C128, seed=2)
    result = lapidist.gemm(a, b, c, alpha=np.array(1j), beta=np.array([2.0]), trans_b=False, device=device)
    same(result, 1j * (a @ b) + 2 * c, C128)


@pytest.mark.parametrize("device", PLACES)
def test_what_a_zero_in_memory_multiplies_is_not_read(device: str) -> None:
    a, b, c = whole(5, 9), whole(9, 7), whole(5, 7, seed=2)
    zero, one = np.zeros(1, C64), np.array([1j], C64)
    nothing, no_c = np.full_like(a, np.nan), np.full_like(c, np.nan)
    same(lapidist.gemm(nothing, b, c, alpha=zero, beta=one, device=device), 1j * c)
    same(lapidist.gemm(a, nothing.T, alpha=zero, trans_b=False, device=device), np.zeros((5, 5)))
    same(lapidist.gemm(a, b, no_c, alpha=one, beta=zero, device=device), 1j * (a @ b))


@pytest.mark.parametrize("device", PLACES)
def test_a_plan_reads_them_when_it_runs(device: str) -> None:
    a, b, c = whole(5, 9), whole(9, 7), whole(5, 7, seed=2)
    alpha, beta = np.array([1j], C64), np.array([2.0], F32)
    plan = lapidist.plan(a, b, c, alpha=alpha, beta=beta, device=device)
    for alpha[0], beta[0] in ((1j, 2.0), (1 - 1j, 0.0), (0, 3.0)):
        same(plan.execute(a, b, c), alpha[0] * (a @ b) + beta[0] * c)
    if device == "machine":
        assert "before it: product (1, 1)" in str(plan)


@pytest.mark.parametrize("device", PLACES)
def test_refusals(device: str) -> None:
    a, b = whole(5, 9), whole(9, 7)
    with pytest.raises(lapidist.ShapeError, match="alpha: must be a number or an array of one element"):
        lapidist.gemm(a, b, alpha=np.ones(2, C64), device=device)
    with pytest.raises(lapidist.ArgumentError, match="alpha: must fit float32"):
        lapidist.gemm(a, b, alpha=np.array([1e300j]), device=device)
    with pytest.raises(
        lapidist.ArgumentError, match=r"alpha: must be a real number; got complex. Convert a and b"
    ):
        lapidist.gemm(a.real, b.real, alpha=np.array([1j]), device=device)


def test_arrays_on_a_gpu_have_the_type_of_sums() -> None:
    on_gpu: Any = replace(operand_of(np.ones(1, F64), "alpha"), device=0)
    with pytest.raises(lapidist.DTypeError, match=r"an array must be complex64 or float32.*; got float64"):
        scalar_of("alpha", on_gpu, "complex64")
