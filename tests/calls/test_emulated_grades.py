"""How emulated float32 is graded, in the machine: by the tests of BLAS's accuracy, and by inputs of many
sizes.

Grade A is a bound for each element by |A||B| (Demmel and others). Schemes that know nothing but the largest
number of a line do not get it for graded inputs: steps of k whose sizes cancel, say.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lapidist
from in_turns import in_turns
from lapidist.config import Config

K, M, N = 512, 24, 20
FAST, ANY = "emulated", "emulated_any_range"
BOTH = pytest.mark.parametrize("precision", [FAST, ANY])
UNIT = 2.0**-24


def multiplied(a: Any, b: Any, precision: Any) -> Any:
    with np.errstate(invalid="ignore", over="ignore"):
        return lapidist.matmul(a, b, precision=precision, device="machine")


def plain(a: Any, b: Any) -> Any:
    with np.errstate(invalid="ignore", over="ignore"):
        return lapidist.gemm(a, b, device="machine", kernel="simt")


def in_turn(a: Any, b: Any) -> Any:
    """The float32 sum of one element after the other. Slices of k have smaller errors."""
    config = Config(32, 64, 16, 16, 32, 4, 4, stages=4)
    return lapidist.gemm(a, b, device="machine", kernel="simt", config=config, schedule="data_parallel")


def error(d: Any, a: Any, b: Any) -> float:
    """The largest over |A||B|."""
    a, b = a.astype("f8"), b.astype("f8")
    return float((np.abs(d - a @ b) / (np.abs(a) @ np.abs(b))).max())


def powers(rng: np.random.Generator, count: int, most: int) -> Any:
    return 2.0 ** rng.integers(-most, most + 1, count)


def graded(rng: np.random.Generator, kind: str) -> tuple[Any, Any]:
    """Operands whose sizes lie in lines, in steps of k, in both, or anywhere."""
    a, b = rng.uniform(0.5, 1, (M, K)), rng.uniform(0.5, 1, (K, N))
    a, b = (x * rng.choice([-1, 1], x.shape) for x in (a, b))
    if kind in ("lines", "both"):
        a, b = a * powers(rng, M, 30)[:, None], b * powers(rng, N, 30)
    if kind in ("steps", "both"):
        steps = powers(rng, K, 20)
        a, b = a * steps, b / steps[:, None]
    if kind == "anywhere":
        a, b = (x * powers(rng, x.size, 20).reshape(x.shape) for x in (a, b))
    if kind == "cancelling":  # sums that are small beside their terms
        a[:, 1::2], b[1::2] = a[:, ::2], -b[::2] * (1 + 2.0**-12)
    return a.astype(np.float32), b.astype(np.float32)


@pytest.mark.often(2)
@BOTH
@pytest.mark.parametrize("kind", ["usual", "lines", "steps", "both", "anywhere", "cancelling"])
def test_grade_a(rng: np.random.Generator, kind: str, precision: str) -> None:
    """k 2^-24 |A||B|, which any order of float32 sums has, and which a norm of lines does not give."""
    a, b = graded(rng, kind)
    d = multiplied(a, b, precision)
    assert error(d, a, b) <= K * UNIT
    assert error(d, a, b) <= max(2 * error(in_turn(a, b), a, b), 2.0**-21)
    falls_back = np.array_equal(d, plain(a, b))
    assert falls_back == (precision == FAST and kind in ("steps", "both", "anywhere"))


@pytest.mark.often(2)
@pytest.mark.parametrize(("phi", "k"), in_turns([0.0, 0.5, 1.0, 2.0, 4.0], [256, 1000]))
@BOTH
def test_inputs_of_many_sizes(rng: np.random.Generator, precision: str, phi: float, k: int) -> None:
    """(U - 0.5) exp(phi N). Slices hold phi = 0 here, and pieces all."""
    a, b = (
        (rng.uniform(-0.5, 0.5, shape) * np.exp(phi * rng.standard_normal(shape))).astype(np.float32)
        for shape in ((M, k), (k, N))
    )
    d, of_simt = multiplied(a, b, precision), plain(a, b)
    assert error(d, a, b) <= max(error(in_turn(a, b), a, b), 2.0**-21 if precision == FAST else 2.0**-23)
    assert np.array_equal(d, of_simt) == (precision == FAST and phi > 0)


SPECIAL = [np.inf, -np.inf, np.nan, 3.4e38, 1e-38, 1e-42, 1.4e-45, 0.0, -0.0]


@pytest.mark.often(2)
@pytest.mark.parametrize(("value", "side"), in_turns(SPECIAL, ["a", "b", "both"]))
@BOTH
def test_special_numbers(rng: np.random.Generator, precision: str, value: float, side: str) -> None:
    """Infinity and NaN come out where float32 sums have them; subnormals are not lost."""
    a, b = (rng.uniform(0.5, 1, shape).astype(np.float32) for shape in ((M, 300), (300, N)))
    if side in ("a", "both"):
        a[5, 17] = value
        a[6] = value
    if side in ("b", "both"):
        b[17, 3] = value
        b[:, 4] = value
    d, expected = multiplied(a, b, precision), plain(a, b)
    finite = np.isfinite(expected)
    assert np.array_equal(d[~finite], expected[~finite], equal_nan=True)
    assert np.isfinite(d[finite]).all()
    with np.errstate(invalid="ignore"):
        exact, magnitudes = a.astype("f8") @ b.astype("f8"), np.abs(a).astype("f8") @ np.abs(b).astype("f8")
        off = np.abs(d - exact) <= 300 * (UNIT * magnitudes + 2.0**-149)
    assert off[finite].all()


@pytest.mark.often(1)
@pytest.mark.parametrize(
    ("layout", "start", "precision"), in_turns(["rr", "rc", "cr", "cc"], [0, 1, 3], [FAST, ANY])
)
def test_any_alignment_and_layout(rng: np.random.Generator, precision: str, layout: str, start: int) -> None:
    """Rows and columns that begin anywhere in memory, in a batch, too."""

    def lying(rows: int, columns: int, way: str) -> Any:
        shape = (2, rows, columns) if way == "r" else (2, columns, rows)
        memory = rng.uniform(-1, 1, (*shape[:-1], shape[-1] + 5)).astype(np.float32)
        matrices = memory[..., start : start + shape[-1]]
        return matrices if way == "r" else matrices.swapaxes(-1, -2)

    a, b = lying(9, 301, layout[0]), lying(301, 7, layout[1])
    d = multiplied(a, b, precision)
    for i in range(2):
        assert np.array_equal(
            d[i], multiplied(np.ascontiguousarray(a[i]), np.ascontiguousarray(b[i]), precision)
        )
        assert error(d[i], a[i], b[i]) <= 2.0**-21
