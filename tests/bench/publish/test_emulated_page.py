"""The page of emulated float32: speeds of both precisions, and errors by k and by the range of numbers."""

from __future__ import annotations

from dataclasses import replace

from lapidist_lab.bench.protocol.cases import RAGGED
from lapidist_lab.bench.protocol.record import Record
from lapidist_lab.bench.publish.emulated_tables import (
    AT_K,
    AT_PHI,
    by_range,
    error_charts,
    every_product,
    of_emulated,
    of_ragged,
    speed_chart,
)
from lapidist_lab.bench.publish.report import PUBLISHED
from lapidist_lab.bench.publish.section import Data
from lapidist_lab.bench.studies.emulated_errors import DEPTHS, MODES, WIDE
from lapidist_lab.bench.studies.emulated_products import SHAPES

ROW = Record("", "production", "NVIDIA H200", "float32", "rrr", 4096, 4096, 4096, *[None] * 5, ok=True)


def timed(kernel: str, seconds: float, ratio: float | None) -> Record:
    return replace(ROW, kernel=kernel, seconds=seconds, ratio=ratio, mode="emulated", tflops=1.0)


def test_each_precision_has_its_speed() -> None:
    rows = [
        timed("cublas", 3e-3, None),
        timed("lapidist", 2.4e-3, 1.25),
        timed("lapidist, emulated, any range", 1.5e-3, 2.0),
        timed("lapidist, emulated", 1e-3, 3.0),
    ]
    said, products = of_emulated(Data(rows)), every_product(Data(rows))
    assert said.startswith(
        '`"emulated"` 3.00x cuBLAS\' float32 on an H200 in the geometric mean of 1 products'
    )
    assert '; `"emulated_any_range"` 2.00x' in said
    lines = products.splitlines()[2:]
    assert [line.split(" | ")[0] for line in lines] == ['| `"emulated"`', '| `"emulated_any_range"`']
    assert "3.00x" in lines[0]
    assert "2.40x" in lines[0]  # our own float32's time over it


def test_ragged_products_have_a_mean_of_their_own() -> None:
    rows = [timed("lapidist, emulated", 1e-3, 5.0)]
    assert of_ragged(Data(rows)) == ""
    for (m, n, k), ratio in zip(RAGGED, (1.0, 4.0), strict=False):
        rows.append(replace(timed("lapidist, emulated", 1e-3, ratio), m=m, n=n, k=k))
    assert 'alone, in the geometric mean: `"emulated"` 2.00x (2 products).' in of_ragged(Data(rows))
    assert set(RAGGED) < set(SHAPES)


def test_errors_stand_by_range_and_length() -> None:
    errors = {"cublas": 2.0**-20, "lapidist, tf32": 2.0**-11.5, "lapidist, emulated": 2.0**-24}
    rows = [
        replace(ROW, kernel=name, k=k, mode=WIDE.format(phi), largest_error=error)
        for phi in (0.0, 0.5)
        for k in (256, 1024)
        for name, error in errors.items()
    ]
    text = by_range(Data(rows))
    assert "| phi | k | cuBLAS | tf32 | emulated |" in text
    assert "| 0.5 | 1024 | 2^-20.0 | 2^-11.5 | 2^-24.0 |" in text
    assert text.count("2^-24.0") == 4
    assert by_range(Data([])) == ""


def test_errors_are_drawn_against_k_and_phi() -> None:
    errors = {"cublas": 20.0, "lapidist, tf32": 11.0, "lapidist, emulated": 24.0}
    rows = [
        replace(ROW, kernel=name, k=k, mode=mode, largest_error=2.0 ** -(power + phi / 4))
        for mode, phi in MODES.items()
        for k in DEPTHS
        for name, power in errors.items()
    ]
    by_k, by_phi = error_charts(Data(rows))
    assert (by_k.name, by_phi.name) == ("emulated-errors-k", "emulated-errors-phi")
    for k in DEPTHS:
        assert f"emulated: {k}, -24.25" in by_k.drawn
    assert f"phi = {AT_PHI:g}" in by_k.words
    for phi in MODES.values():
        assert f"tf32: {phi:g}, {-11 - phi / 4:.4g}" in by_phi.drawn
    assert f"k = {AT_K}" in by_phi.words
    assert error_charts(Data([])) == []
    assert set(MODES) <= set(PUBLISHED)  # else the report drops these Records


def test_squares_are_drawn_against_their_size() -> None:
    rows = [
        replace(timed(name, 1e-3, 1.0), m=size, n=size, k=size, tflops=size / 100)
        for name in ("cublas", "lapidist, emulated")
        for size in (1024, 2048, 8192)
    ]
    chart = speed_chart(Data([*rows, timed("cublas", 1e-3, None)]))
    assert chart is not None
    assert "emulated: 8192, 81.92" in chart.drawn
    assert speed_chart(Data([])) is None
