"""precision="emulated" in the machine: how near results are, where slices do not reach, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lapidist
from lapidist.errors import ArgumentError, DTypeError
from lapidist.planning.emulated_passes import MOST_SPAN

BOUND = 2.0**-21  # of |A||B|


def parts(a: Any, b: Any) -> tuple[Any, Any]:
    """The product, and that of magnitudes, in float64."""
    return a.astype("f8") @ b.astype("f8"), np.abs(a).astype("f8") @ np.abs(b).astype("f8")


def emulated(a: Any, b: Any, c: Any = None, **more: Any) -> Any:
    return lapidist.gemm(a, b, c, precision="emulated", device="machine", **more)


@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize(("m", "n", "k"), [(40, 48, 300), (33, 65, 257), (1, 1, 512), (128, 5, 256)])
def test_every_layout(rng: np.random.Generator, m: int, n: int, k: int, trans_a: bool, trans_b: bool) -> None:
    a = rng.standard_normal((k, m) if trans_a else (m, k)).astype(np.float32)
    b = rng.standard_normal((n, k) if trans_b else (k, n)).astype(np.float32)
    exact, magnitudes = parts(a.T if trans_a else a, b.T if trans_b else b)
    found = emulated(a, b, trans_a=trans_a, trans_b=trans_b)
    assert found.dtype == np.float32
    assert np.all(np.abs(found - exact) <= BOUND * magnitudes)


def test_alpha_beta_and_c(rng: np.random.Generator) -> None:
    a, b, c = (rng.uniform(-1, 1, shape).astype(np.float32) for shape in ((30, 300), (300, 50), (30, 50)))
    exact, magnitudes = parts(a, b)
    expected, bound = 2 * exact - 3 * c, BOUND * (2 * magnitudes + 3 * np.abs(c))
    assert np.all(np.abs(emulated(a, b, c, alpha=2.0, beta=-3.0) - expected) <= bound)
    out = c.copy()
    assert emulated(a, b, out, alpha=2.0, beta=-3.0, out=out) is out
    assert np.all(np.abs(out - expected) <= bound)
    columns = np.full((50, 30), 7, np.float32).T
    emulated(a, b, out=columns)
    assert np.all(np.abs(columns - exact) <= BOUND * magnitudes)


@pytest.mark.parametrize("with_c", [False, True])
def test_spans_that_slices_do_not_hold(rng: np.random.Generator, with_c: bool) -> None:
    """The product of float32 replaces the result: bit for bit that of the kernel itself."""
    a = (rng.uniform(-0.5, 0.5, (30, 300)) * np.exp(4 * rng.standard_normal((30, 300)))).astype(np.float32)
    b, c = rng.uniform(-1, 1, (300, 50)).astype(np.float32), rng.uniform(-1, 1, (30, 50)).astype(np.float32)
    spans = [(np.abs(x).max(axis) / np.abs(x).mean(axis)).max() for x, axis in ((a, 1), (b, 0))]
    assert spans[0] * spans[1] > MOST_SPAN * 300**0.5
    more: dict[str, Any] = {"c": c, "beta": -2.0, "alpha": 0.5} if with_c else {}
    plain = lapidist.gemm(a, b, device="machine", kernel="simt", **more)
    assert np.array_equal(emulated(a, b, **more), plain)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3e38, 1e-38, 1e-44])
def test_values_beyond_slices(rng: np.random.Generator, value: float) -> None:
    a, b = rng.uniform(-1, 1, (20, 300)).astype(np.float32), rng.uniform(-1, 1, (300, 24)).astype(np.float32)
    a[3] = value
    with np.errstate(invalid="ignore", over="ignore"):
        expected = lapidist.gemm(a, b, device="machine", kernel="simt")
        assert np.array_equal(emulated(a, b), expected, equal_nan=True)


def test_lines_of_zeros(rng: np.random.Generator) -> None:
    a, b = rng.uniform(-1, 1, (20, 300)).astype(np.float32), rng.uniform(-1, 1, (300, 24)).astype(np.float32)
    a[3], b[:, 5] = 0, 0
    found = emulated(a, b)
    exact, magnitudes = parts(a, b)
    assert not found[3].any()
    assert not found[:, 5].any()
    assert np.all(np.abs(found - exact) <= BOUND * magnitudes)


def test_whole_numbers_are_exact(rng: np.random.Generator) -> None:
    """Sums of slices have no rounding, whatever the order."""
    a, b = (rng.integers(-127, 128, shape).astype(np.float32) for shape in ((20, 600), (600, 24)))
    a[:, 0], b[0] = 127, 127
    assert np.array_equal(emulated(a, b), a.astype("f8") @ b.astype("f8"))


def test_short_sums_and_nothing_are_those_of_float32(rng: np.random.Generator) -> None:
    a, b = rng.uniform(-1, 1, (20, 100)).astype(np.float32), rng.uniform(-1, 1, (100, 24)).astype(np.float32)
    assert np.array_equal(emulated(a, b), lapidist.gemm(a, b, device="machine"))
    assert emulated(a[:0], b).shape == (0, 24)
    assert not emulated(np.full((3, 300), np.nan, np.float32), np.ones((300, 2), np.float32), alpha=0.0).any()


def test_vectors_and_the_host(rng: np.random.Generator) -> None:
    a, b = rng.uniform(-1, 1, 400).astype(np.float32), rng.uniform(-1, 1, (400, 24)).astype(np.float32)
    exact, magnitudes = parts(a, b)
    for device in ("machine", "host"):
        found = lapidist.matmul(a, b, precision="emulated", device=device)
        assert found.shape == (24,)
        assert np.all(np.abs(found - exact) <= BOUND * magnitudes)


@pytest.mark.parametrize("shared", [False, True])
def test_batches(rng: np.random.Generator, shared: bool) -> None:
    a = rng.uniform(-1, 1, (2, 3, 20, 300)).astype(np.float32)
    b = rng.uniform(-1, 1, (300, 24) if shared else (3, 300, 24)).astype(np.float32)
    c = rng.uniform(-1, 1, (24,)).astype(np.float32)
    exact, magnitudes = parts(a, b)
    found = emulated(a, b, c, beta=2.0)
    assert found.shape == (2, 3, 20, 24)
    assert np.all(np.abs(found - (exact + 2 * c)) <= BOUND * (magnitudes + 2 * np.abs(c)))


A, B = np.ones((4, 300), np.float32), np.ones((300, 4), np.float32)


def test_what_is_refused() -> None:
    halves = A.astype(np.float16), B.astype(np.float16)
    with pytest.raises(DTypeError, match='"emulated" is a way to multiply float32; a is float16'):
        lapidist.matmul(*halves, precision="emulated")
    with pytest.raises(ArgumentError, match="takes matrices and numbers alone"):
        emulated(A, B, gather_a=np.zeros(4, np.int32))
    with pytest.raises(ArgumentError, match="products run on the current stream"):
        emulated(A, B, stream=1)
    with pytest.raises(ArgumentError, match="got a plan, a list or groups"):
        lapidist.plan(A, B, precision="emulated")
    with pytest.raises(ArgumentError, match='precision: must be "ieee", "tf32" or "emulated"'):
        lapidist.matmul(A, B, precision="fp64")  # type: ignore[arg-type]
