"""The page of emulated float32: speeds of both precisions, and errors by k and by the range of numbers."""

from __future__ import annotations

from dataclasses import replace

from lapidist_lab.bench.protocol.record import Record
from lapidist_lab.bench.publish.emulated_tables import by_range, every_product, of_emulated
from lapidist_lab.bench.publish.section import Data
from lapidist_lab.bench.studies.emulated_errors import WIDE

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
