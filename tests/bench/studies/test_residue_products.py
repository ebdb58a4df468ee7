"""float64 by remainders: the arithmetic, and the page's counts."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from lapidist.device import chip
from lapidist_lab import residue_products as study

PAGE = Path(__file__).parents[3] / "docs" / "attempts.md"


def test_moduli_share_no_factor_and_fit_into_int8() -> None:
    numbers = study.moduli(16)
    assert numbers[:4] == [256, 255, 253, 251]
    assert all(math.gcd(p, q) == 1 for p in numbers for q in numbers if p != q)
    for modulus in numbers:
        remainders = study.centred(np.arange(-1000, 1000), modulus).astype(int)
        assert np.all((remainders - np.arange(-1000, 1000)) % modulus == 0)


@pytest.mark.parametrize("phi", [0.0, 0.5, 1.0])
def test_fifteen_moduli_are_as_near_as_float64(rng: np.random.Generator, phi: float) -> None:
    a, b = (
        (rng.random(shape) - 0.5) * np.exp(phi * rng.standard_normal(shape))
        for shape in ((16, 512), (512, 12))
    )
    exact = a.astype(np.longdouble) @ b.astype(np.longdouble)
    magnitudes = np.abs(a) @ np.abs(b)
    few, enough, plain = (
        float((np.abs(d - exact) / magnitudes).max())
        for d in (study.multiplied(a, b, 12), study.multiplied(a, b, 15), a @ b)
    )
    assert enough <= plain
    assert few > 2.0**-48


def test_whole_numbers_are_exact(rng: np.random.Generator) -> None:
    a, b = (rng.integers(-(2**20), 2**20, shape).astype(float) for shape in ((5, 300), (300, 7)))
    a[0] = 0
    assert np.array_equal(study.multiplied(a, b, 14), a @ b)


def test_the_page_has_these_counts() -> None:
    device, text = chip("h200"), PAGE.read_text()
    for count in (14, 15, 16):
        seconds = study.counted(8192, count, device, fused=True)
        cells = [
            str(count),
            f"{study.bits(count, 8192):.1f}",
            *(f"{1e3 * part:.2f} ms" for part in seconds),
            *(f"{study.promised(8192, count, device, fused):.2f}x" for fused in (True, False)),
        ]
        assert f"| {' | '.join(cells)} |" in text
        assert study.promised(8192, count, device, False) >= 1.3
