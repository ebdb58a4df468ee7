"""Halves of complex products with their conjugated transposes on a GPU: random numbers stay in the bound."""

from __future__ import annotations

from typing import Any

import pytest

import lapidist

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

TYPES = [torch.complex64, torch.complex128]
# Whole tiles and ragged ones: of few rows the whole product is computed, of many one triangle's tiles.
SIZES = [(130, 70), (1024, 256), (1111, 333)]


def within_the_bound(a: Any, result: Any) -> None:
    report = lapidist.verify.report(a, a.mH, result)
    assert report.ok, str(report)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("n", "k"), SIZES)
def test_each_half_alone(dtype: Any, n: int, k: int) -> None:
    a = torch.randn(n, k, dtype=dtype, device="cuda")
    for triangle, half, other, side in (
        ("lower", torch.tril, torch.triu, 1),
        ("upper", torch.triu, torch.tril, -1),
    ):
        for x in (a, a.conj()):
            out = torch.full((n, n), 7, dtype=dtype, device="cuda")
            assert lapidist.gram(x, triangle=triangle, out=out) is out
            assert (other(out, side) == other(torch.full_like(out, 7), side)).all()
            assert (out.diagonal().imag == 0).all()
            within_the_bound(x, half(out) + half(out, -side).mH)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("n", "k"), SIZES)
def test_both_halves_with_c(dtype: Any, n: int, k: int) -> None:
    a, c = (torch.randn(n, columns, dtype=dtype, device="cuda") for columns in (k, n))
    c = c + c.mH
    result = lapidist.gram(a, c, alpha=0.5, beta=2.0)
    assert torch.equal(result, result.mH)
    report = lapidist.verify.report(a, a.mH, result, c, alpha=0.5, beta=2.0)
    assert report.ok, str(report)
