"""Complex products by three real ones in place of four: precision="3m"."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lapidist
from complex_numbers import PLACES, same, whole
from lapidist.backends import host_product
from lapidist.backends.backend import Backend
from lapidist.backends.machine_backend import sanitized
from lapidist.calls import complex_operands, complex_product
from lapidist.verify.sum_bound import judge

C64, C128 = np.complex64, np.complex128
THREE: dict[str, Any] = {"precision": "3m"}


@lapidist.epilogue
def doubled(acc: Any, bias: lapidist.Row) -> Any:
    return acc * 2 - bias


def test_a_captured_graph_takes_no_numbers_from_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = whole(2, 6, 5), whole(5, 3)
    monkeypatch.setattr(Backend, "is_captured", lambda *of: True)
    monkeypatch.setattr(complex_operands, "constant", None)
    same(lapidist.matmul(a, b, device="machine", **THREE), a @ b)


def test_a_call_is_not_repeated_by_some_of_its_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, kept = whole(2, 6, 5), whole(5, 3), []
    monkeypatch.setattr(complex_product, "is_recorded", lambda *of: True)
    monkeypatch.setattr(complex_operands, "alone", lambda *of: "a launch")
    monkeypatch.setattr(complex_product, "fast_path", lambda bound, steps, nbytes: kept.extend(steps))
    lapidist.matmul(a.conj(), b, device="machine", **THREE)
    assert "a launch" in kept
    assert None in kept


@pytest.mark.often(2)
@pytest.mark.parametrize("device", PLACES)
@pytest.mark.parametrize("dtype", [C64, C128])
def test_small_whole_numbers(device: str, dtype: Any) -> None:
    a, b, c = whole(2, 6, 5, dtype=dtype), whole(5, 3, dtype=dtype), whole(6, 3, dtype=dtype, seed=2)
    with sanitized(1):
        same(lapidist.matmul(a, b, device=device, **THREE), a @ b, dtype)
    out, numbers = np.full((6, 3), np.nan, dtype, order="F"), {"alpha": 1j, "beta": 2 - 1j}
    lapidist.gemm(a[0], b.T.conj(), c, trans_b="C", **numbers, out=out, device=device, **THREE)
    same(out, 1j * (a[0] @ b) + (2 - 1j) * c, dtype)
    followed, alpha = doubled(bias=c[0]), np.array([1j], dtype)
    result = lapidist.gemm(a[1], b, c[:1], alpha=alpha, beta=2, epilogue=followed, device=device, **THREE)
    same(result, 2 * (1j * (a[1] @ b) + 2 * c[:1]) - c[0], dtype)
    same(lapidist.matmul(a[0].real, b, device=device, **THREE), a[0].real @ b, dtype)
    repeated = np.broadcast_to(a[:1], (3, *a[:1].shape)), np.broadcast_to(b, (3, 1, *b.shape))
    same(lapidist.matmul(*repeated, device=device, **THREE), repeated[0] @ repeated[1], dtype)
    nothing = np.full_like(a[0], np.nan)
    same(lapidist.gemm(nothing, b, c, alpha=0, beta=1, device=device, **THREE), c, dtype)


@pytest.mark.parametrize("device", PLACES)
def test_a_plan_and_lists(device: str) -> None:
    a, b = whole(2, 6, 5), whole(5, 3)
    plan = lapidist.plan(a[0], b, device=device, **THREE)
    results = lapidist.gemm_lists([*a], [b, b], device=device, **THREE)
    for x, result in zip(a, results, strict=True):
        same(plan.execute(x, b), x @ b)
        same(result, x @ b)
    if device == "machine":
        assert "x 3 batches" in str(plan)
        assert "before it: product (6, 3, 2)" in str(plan)


@pytest.mark.parametrize("device", PLACES)
def test_the_bound_is_that_of_three_products(device: str) -> None:
    """Imaginary parts that cancel are off by more than four products ever are, and within the bound."""
    rng = np.random.default_rng(3)
    large, small = (rng.standard_normal((2, 40, 40)).astype(np.float32) for _ in range(2))
    a, b = (x + np.complex64(1e-6j) * y for x, y in zip(large, small, strict=True))
    result = lapidist.matmul(a, b, device=device, **THREE)
    verdict = judge(result, a, b, precision="3m")
    assert 0.01 < verdict.worst <= 1
    assert not judge(result, a, b).ok
    assert judge(lapidist.matmul(a, b, device=device), a, b).ok
    result[3, 4] += 1e-3j
    assert not judge(result, a, b, precision="3m").ok


def test_the_host_multiplies_three_times(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, calls = whole(6, 5), whole(5, 3), list[str]()
    three = host_product.three_products
    monkeypatch.setattr(host_product, "three_products", lambda *of: calls.append("3m") or three(*of))
    lapidist.matmul(a, b)
    assert calls == []
    lapidist.matmul(a, b, **THREE)
    assert calls == ["3m"]


@pytest.mark.parametrize("device", PLACES)
def test_real_numbers_are_refused(device: str) -> None:
    a = np.ones((2, 2), np.float32)
    with pytest.raises(lapidist.ArgumentError, match=r'"3m" is a way to multiply complex .*; a is float32'):
        lapidist.matmul(a, a, device=device, **THREE)
