"""float64 by remainders in the machine: the bits of its arithmetic in NumPy, special numbers, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lapidist.errors import ArgumentError, DTypeError, ShapeError
from lapidist_lab import residue_products as study
from lapidist_lab.emulated_float64 import multiplied


def drawn(rng: np.random.Generator, phi: float, *shape: int) -> Any:
    return (rng.random(shape) - 0.5) * np.exp(phi * rng.standard_normal(shape))


@pytest.mark.often(2)
@pytest.mark.parametrize(("phi", "count"), [(0.0, 15), (1.0, 15), (1.0, 16)])
def test_as_near_as_float64_sums(rng: np.random.Generator, phi: float, count: int) -> None:
    """A with lines along its columns, B with steps between elements, k of no whole vector."""
    a, b = drawn(rng, phi, 301, 5).T, drawn(rng, phi, 301, 14)[:, ::2]
    exact, magnitudes = a.astype(np.longdouble) @ b.astype(np.longdouble), np.abs(a) @ np.abs(b)
    result = multiplied(a, b, count, device="machine")
    plain = np.abs(a @ b - exact) / magnitudes
    assert (np.abs(result - exact) / magnitudes).max() <= plain.max()
    assert np.abs(result - study.multiplied(a, b, count)).max() <= 2.0**-53 * magnitudes.max()


def test_whole_numbers_are_exact_and_results_go_where_they_are_told(rng: np.random.Generator) -> None:
    a, b = (rng.integers(-(2**20), 2**20, shape).astype(float) for shape in ((4, 40), (40, 300)))
    a[0], b[:, 1] = 0, 0
    b[:, 2], b[0, 2] = 0, 1  # small sums of either sign
    out = np.full((300, 4), np.nan).T
    assert multiplied(a, b, device="machine", out=out) is out
    assert np.array_equal(out, a @ b)


def test_every_size_of_number(rng: np.random.Generator) -> None:
    """Lines of subnormal and of the largest numbers have exponents of their own."""
    a, b = drawn(rng, 0.0, 4, 64), drawn(rng, 0.0, 64, 3)
    powers = np.array([-1030, -600, 0, 1000])
    expected = multiplied(a, b, device="machine")
    for line, power in enumerate(powers):
        scaled = np.ldexp(a, power)
        few = scaled if power > -1022 else np.ldexp(np.rint(np.ldexp(scaled, 1074)), -1074)
        result = multiplied(few[line : line + 1], np.ldexp(b, -power // 2), device="machine")
        again = np.ldexp(result, -power - -power // 2)
        tolerance = 2.0**-50 if power > -1022 else 2.0**-40
        assert np.allclose(again, expected[line], rtol=0, atol=tolerance)


def test_infinities_and_nan_stay_in_their_lines(rng: np.random.Generator) -> None:
    a, b = drawn(rng, 0.0, 3, 32), drawn(rng, 0.0, 32, 4)
    right = multiplied(a, b, device="machine")
    a[1, 7], b[3, 2] = np.inf, np.nan
    result = multiplied(a, b, device="machine")
    wrong = np.zeros((3, 4), bool)
    wrong[1], wrong[:, 2] = True, True
    assert np.array_equal(np.isnan(result), wrong)
    assert np.array_equal(result[~wrong], right[~wrong])


def test_refusals() -> None:
    a = np.ones((2, 20))
    for count in (11, 17):
        with pytest.raises(ArgumentError, match=f"count: must be from 12 to 16; got {count}"):
            multiplied(a, a.T, count, device="machine")
    with pytest.raises(DTypeError, match="remainders stand for float64; got float32"):
        multiplied(a.astype("f4"), a.T.astype("f4"), device="machine")
    with pytest.raises(ShapeError, match="must be two matrices"):
        multiplied(a[None], a.T[None], device="machine")
