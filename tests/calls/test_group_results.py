"""Several results of groups, and quantised ones: on the host and in the machine, by the kernel itself or by a
pass that reads where groups end.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lapidist
from group_products import stretches
from lapidist import Row, Tile
from lapidist.epilogues import quantise_e4m3_groups
from lapidist.errors import ArgumentError, ShapeError

LENGTHS = [0, 33, 1, 0, 90]
TOTAL, LAST, BEHIND = sum(LENGTHS) + 16, sum(LENGTHS), slice(sum(LENGTHS), None)
ENDS = np.cumsum(LENGTHS).astype(np.int32)
E4M3 = ml_dtypes.float8_e4m3fn
PLACES: list[dict[str, Any]] = [
    {"device": "host"},
    {"device": "machine", "kernel": "wgmma"},
    {"device": "machine", "kernel": "mma"},
    {"device": "machine", "kernel": "simt"},
]
IDS = ["host", "wgmma", "mma", "simt"]
UNTOUCHED = 7


@lapidist.epilogue
def value_and_slope(acc, bias: Row, residual: Tile):  # type: ignore[no-untyped-def]
    value = acc + bias
    return lapidist.relu(value) + residual, lapidist.where(value > 0, 1.0, 0.0)


@lapidist.epilogue
def twice(acc):  # type: ignore[no-untyped-def]
    return acc, acc * 2


@lapidist.epilogue
def columns_summed(acc):  # type: ignore[no-untyped-def]
    return acc, lapidist.column_sum(acc)


def whole(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Any:
    return rng.integers(-3, 4, shape).astype(dtype)


def dtype_at(place: dict[str, Any]) -> Any:
    return np.float32 if place.get("kernel") == "simt" else np.float16


def quantised(values: Any) -> tuple[Any, Any]:
    """Values in 8 bits, as numbers, with a factor for each 128 of a row."""
    columns = values.shape[1]
    parts = np.pad(values, ((0, 0), (0, -columns % 128))).reshape(len(values), -(-columns // 128), 128)
    largest = np.float32(np.abs(parts).max(axis=2) / 448)
    factors = np.where(largest == 0, np.float32(1), largest)
    small = (parts / factors[:, :, None]).astype(np.float32).astype(E4M3).astype("f8")
    return small.reshape(len(values), columns + -columns % 128)[:, :columns], factors


@pytest.mark.often(2)
@pytest.mark.parametrize("columns", [256, 200], ids=["whole groups", "cut groups"])
@pytest.mark.parametrize("place", PLACES, ids=IDS)
def test_rows_are_quantised(rng: np.random.Generator, place: dict[str, Any], columns: int) -> None:
    dtype = dtype_at(place)
    a, b = whole(rng, (TOTAL, 64), dtype), whole(rng, (5, columns, 64), dtype).swapaxes(1, 2)
    a[BEHIND] = np.nan
    out = np.full((TOTAL, columns), UNTOUCHED, E4M3), np.full((TOTAL, 2), UNTOUCHED, np.float32)
    found = lapidist.grouped(a, b, ENDS, epilogue=quantise_e4m3_groups, out=out, **place)
    assert found[0] is out[0]
    for group, part in enumerate(stretches(LENGTHS)):
        small, factors = quantised(a[part].astype("f8") @ b[group].astype("f8"))
        assert np.array_equal(found[0][part].astype("f8"), small)
        assert np.allclose(found[1][part], factors, rtol=1e-6)
    for array in found:
        assert (array[BEHIND].astype("f8") == UNTOUCHED).all()


@pytest.mark.often(2)
@pytest.mark.parametrize("place", PLACES, ids=IDS)
def test_counted_rows_are_quantised(rng: np.random.Generator, place: dict[str, Any]) -> None:
    counts, dtype = np.array([0, 5, 40, 17], np.int64), dtype_at(place)
    a, b = whole(rng, (4, 40, 64), dtype), whole(rng, (4, 144, 64), dtype).swapaxes(1, 2)
    out = np.full((4, 40, 144), UNTOUCHED, E4M3), np.full((4, 40, 2), UNTOUCHED, np.float32)
    small, factors = lapidist.grouped(a, b, counts=counts, epilogue=quantise_e4m3_groups, out=out, **place)
    for group, count in enumerate(counts):
        right, right_factors = quantised(a[group].astype("f8") @ b[group].astype("f8"))
        assert np.array_equal(small[group, :count].astype("f8"), right[:count])
        assert np.allclose(factors[group, :count], right_factors[:count], rtol=1e-6)
        assert (small[group, count:].astype("f8") == UNTOUCHED).all()
        assert (factors[group, count:] == UNTOUCHED).all()


@pytest.mark.often(2)
@pytest.mark.parametrize("place", PLACES, ids=IDS)
@pytest.mark.parametrize("extent", ["m", "n"])
def test_further_results(rng: np.random.Generator, place: dict[str, Any], extent: str) -> None:
    if extent == "n" and place.get("kernel") == "wgmma":
        place = {"device": "machine"}
    dtype, rows = dtype_at(place), extent == "m"
    a, b = whole(rng, (TOTAL, 40), dtype), whole(rng, (5, 72, 40), dtype).swapaxes(1, 2)
    if not rows:
        a, b = b.swapaxes(1, 2), a.T
    shape = (TOTAL, 72) if rows else (72, TOTAL)
    bias = whole(rng, (5, 72) if rows else (TOTAL,), np.float32)
    residual = whole(rng, shape, np.float32)
    out = np.full(shape, UNTOUCHED, dtype), np.full(shape, UNTOUCHED, dtype)
    how = {"epilogue": value_and_slope(bias=bias, residual=residual), "out": out}
    value, slope = lapidist.grouped(a, b, ENDS, **how, **place)
    for group, part in enumerate(stretches(LENGTHS)):
        at = (part,) if rows else (slice(None), part)
        left, right = (a[part], b[group]) if rows else (a[group], b[:, part])
        sums = left.astype("f8") @ right.astype("f8") + (bias[group] if rows else bias[part])
        assert np.array_equal(value[at], (np.maximum(sums, 0) + residual[at]).astype(dtype))
        assert np.array_equal(slope[at], sums > 0)
    behind = (BEHIND,) if rows else (slice(None), BEHIND)
    assert (value[behind] == UNTOUCHED).all()
    assert (slope[behind] == UNTOUCHED).all()


@pytest.mark.often(2)
@pytest.mark.parametrize("place", PLACES, ids=IDS)
def test_gradients_of_weights_are_reduced(rng: np.random.Generator, place: dict[str, Any]) -> None:
    """Where k is cut, all of D is there."""
    dtype = dtype_at(place)
    a, b = whole(rng, (TOTAL, 40), dtype).T, whole(rng, (TOTAL, 72), dtype)
    d, sums = lapidist.grouped(a, b, ENDS, epilogue=columns_summed, **place)
    for group, part in enumerate(stretches(LENGTHS)):
        expected = a[:, part].astype("f8") @ b[part].astype("f8")
        assert np.array_equal(d[group].astype("f8"), expected)
        assert np.array_equal(sums[group], expected.sum(axis=0))


def test_what_is_refused(rng: np.random.Generator) -> None:
    a, b = np.zeros((TOTAL, 24), np.float32), np.zeros((5, 24, 16), np.float32)
    with pytest.raises(ArgumentError, match="groups of columns cut those that share a factor"):
        lapidist.grouped(b.swapaxes(1, 2), a.T, ENDS, epilogue=quantise_e4m3_groups)
    scattered: dict[str, Any] = {"scatter_d": np.arange(TOTAL, dtype=np.int32)}
    out = np.zeros((TOTAL, 16), np.float32), np.zeros((TOTAL, 16), np.float32)
    both = value_and_slope(bias=np.zeros(16, np.float32), residual=np.zeros((TOTAL, 16), np.float32))
    with pytest.raises(ArgumentError, match="scatter_d: scatters one result of groups"):
        lapidist.grouped(a, b, ENDS, **scattered, epilogue=both, out=out)
    apart, counts = np.zeros((8, 40, 16), np.float32)[::2], np.int32([1, 2, 3, 4])
    for place in PLACES[0], {"device": "machine"}:
        with pytest.raises(ShapeError, match=r"out\[1\]: with counts, matrices must lie one after another"):
            lapidist.grouped(
                np.zeros((4, 40, 24), np.float32),
                b[:4],
                counts=counts,
                epilogue=twice,
                out=(np.zeros((4, 40, 16), np.float32), apart),
                **place,
            )
    assert not out[0].any()
