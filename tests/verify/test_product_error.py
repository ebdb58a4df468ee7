"""verify.report: the worst element, beside the bound of the plan."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lapidist
from lapidist.errors import ArgumentError, DTypeError, ShapeError

Array = np.ndarray[Any, Any]


def operands(rng: np.random.Generator) -> tuple[Array, Array]:
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((33, 200), (200, 24)))
    return a, b


def test_a_right_product_is_within_the_bound(rng: np.random.Generator) -> None:
    a, b = operands(rng)
    plan = lapidist.plan(a, b, device="machine", out_dtype=np.float32)
    report = lapidist.verify.report(a, b, plan.execute(a, b), plan=plan)
    assert report.ok
    assert 0 < report.ratio == pytest.approx(report.error / report.bound)
    assert str(report).startswith("within the bound: the worst element")
    assert report.largest >= report.error
    assert 0 < report.typical < 1e-6


def test_the_worst_element_is_named(rng: np.random.Generator) -> None:
    a, b = operands(rng)
    d = (a.astype("f8") @ b.astype("f8")).astype(np.float32)
    d[20, 7] += 0.5
    report = lapidist.verify.report(a, b, d)
    assert not report.ok
    assert report.where == (20, 7)
    assert report.got == d[20, 7]
    assert report.error == pytest.approx(0.5, rel=1e-5) == report.largest
    assert "BEYOND" in str(report)


def test_the_bound_is_that_of_the_plan(rng: np.random.Generator) -> None:
    """Sums in half are allowed more than those in float."""
    a, b = operands(rng)
    off = (a.astype("f8") @ b.astype("f8")).astype(np.float16)
    off[3, 5] += 100
    bounds = []
    for accumulator in ("float16", "float32"):
        plan = lapidist.plan(a, b, acc_dtype=accumulator, device="machine")
        assert lapidist.verify.report(a, b, plan.execute(a, b), plan=plan).ok
        bounds.append(lapidist.verify.report(a, b, off, plan=plan).bound)
    assert bounds[0] > 2 * bounds[1]


def test_alpha_beta_and_c_count(rng: np.random.Generator) -> None:
    a, b = operands(rng)
    c = rng.standard_normal((33, 24)).astype(np.float16)
    d = lapidist.gemm(a, b, c, alpha=2.0, beta=-1.5)
    assert lapidist.verify.report(a, b, d, c, alpha=2.0, beta=-1.5).ok
    assert not lapidist.verify.report(a, b, d, c, alpha=2.0, beta=1.5).ok


def test_bits_that_were_asked_for_are_the_bound(rng: np.random.Generator) -> None:
    """Up to 8 are tf32's, which float32's bound would not let pass; 21 are fewer errors than it allows."""
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((20, 300), (300, 24)))
    magnitudes = np.abs(a).astype("f8") @ np.abs(b)
    for bits in (8, 21):
        accuracy = lapidist.Accuracy(bits)
        d = lapidist.matmul(a, b, precision=accuracy, device="machine")
        report = lapidist.verify.report(a, b, d, precision=accuracy)
        assert report.ok
        assert report.bound == pytest.approx(magnitudes[report.where] * 2.0**-bits, rel=0.3)
        d[3, 7] += magnitudes[3, 7] * 2.0 ** (1 - bits)
        assert lapidist.verify.report(a, b, d, precision=accuracy).where == (3, 7)
        assert not lapidist.verify.report(a, b, d, precision=accuracy).ok
    rounded = lapidist.matmul(a, b, precision="tf32", device="machine")
    assert not lapidist.verify.report(a, b, rounded, precision=lapidist.Accuracy(21)).ok


def test_integers_must_be_equal() -> None:
    a = np.arange(12, dtype=np.int8).reshape(3, 4)
    d = lapidist.matmul(a, a.T)
    report = lapidist.verify.report(a, a.T, d)
    assert report.ok
    assert report.bound == report.error == 0
    assert not lapidist.verify.report(a, a.T, d + 1).ok


def test_bad_arguments(rng: np.random.Generator) -> None:
    a, b = operands(rng)
    with pytest.raises(
        ShapeError, match=r"d: must have the shape of the product, \(33, 24\); got \(33, 23\)"
    ):
        lapidist.verify.report(a, b, np.zeros((33, 23), np.float16))
    d = lapidist.matmul(a, b)
    with pytest.raises(ArgumentError, match=r"plan: must .* returned for a kernel; got int"):
        lapidist.verify.report(a, b, d, plan=3)
    with pytest.raises(ArgumentError, match=r"plan: must .* returned for a kernel; got Gemm"):
        lapidist.verify.report(a, b, d, plan=lapidist.plan(a, b))
    with pytest.raises(ShapeError, match=r"b: must have as many rows as a has columns; .* \(200, 33\)"):
        lapidist.verify.report(a.T, b, d)
    for precision in ("high", None, 21, "22 bits"):
        with pytest.raises(ArgumentError, match=r"precision: must be .*Accuracy; got|bits: float32 products"):
            lapidist.verify.report(a, b, d, precision=precision)  # type: ignore[arg-type]
    packed = lapidist.quantised.pack(np.ones((64, 8)), "int8")
    with pytest.raises(DTypeError, match=r"b: must be .*; got PackedWeight.*unpack\(weight\)"):
        lapidist.verify.report(a[:, :64], packed, d)


@pytest.mark.filterwarnings("error")
def test_what_must_be_infinite_or_nan_is_right(rng: np.random.Generator) -> None:
    a, b = operands(rng)
    a[2, 3], a[4, 5] = np.inf, np.nan
    with np.errstate(invalid="ignore"):
        d = (a.astype("f8") @ b.astype("f8")).astype(np.float32)
    right = lapidist.verify.report(a, b, d)
    assert right.ok
    assert right.where[0] not in (2, 4)
    assert right.typical < 1e-6
    for row, value in ((2, 1.0), (2, np.nan), (4, np.inf), (6, np.nan)):
        wrong = d.copy()
        wrong[row, 7] = value
        report = lapidist.verify.report(a, b, wrong)
        assert not report.ok
        assert report.where == (row, 7)
