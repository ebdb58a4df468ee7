"""Squares sustained beside bursts on each chip: shares of cuBLAS with both clocks, and where chips differ."""

from __future__ import annotations

from pathlib import Path

from lapidist_lab.bench.protocol.contenders import LIBRARY
from lapidist_lab.bench.protocol.record import Conditions, Record, Run
from lapidist_lab.bench.publish.chips import chip_sections, chip_words, turns_of
from lapidist_lab.bench.publish.pages import documents
from lapidist_lab.bench.publish.section import Data
from words import long_ones, split

H200, H100 = "NVIDIA H200", "NVIDIA H100 80GB HBM3"


def rows(
    size: int,
    ratio: float,
    mode: str = "sustained",
    layout: str = "rrr",
    chip: str = H200,
    vendor: float = 50.0,
) -> list[Record]:
    """cuBLAS at 1600 MHz and ours at 1700."""
    found = []
    for kernel, kind, own, clock in (("cublas", "peer", 1.0, 1600.0), (LIBRARY, "production", ratio, 1700.0)):
        tflops = vendor * own
        numbers = (size, size, size, 2.0 * size**3 / tflops / 1e12, tflops, own, 0.8, 0.1, True)
        found.append(Record(kernel, kind, chip, "float64", layout, *numbers, mode, clock_mhz=clock))
    return found


def a_run(name: str, *records: list[Record]) -> Run:
    conditions = Conditions("2026-11-21T12:00:00+00:00", "lapidist bench squares", "", mode="sustained")
    return Run(name, conditions, tuple(record for each in records for record in each))


def test_bursts_stand_beside_sustained_with_both_clocks() -> None:
    slow = a_run("slow", rows(4096, 1.1, vendor=45.0))
    run = a_run(
        "run", rows(4096, 1.06), rows(4096, 0.99, "burst"), rows(512, 1.2), rows(512, 0.9, "burst", "ccr")
    )
    words, table = chip_sections([slow, run], "float64")
    assert words == (
        "- On an H200, sustained: 106.0 to 120.0 % of cuBLAS on 512^3 to 4096^3. Ours ran at 1700 MHz, cuBLAS"
        " at 1600. In bursts: 99.0 % of cuBLAS on 4096^3. Ours ran at 1700 MHz, cuBLAS at 1600. On an H200 in"
        " other layouts, sustained: not measured. In bursts: 90.0 % of cuBLAS on 512^3. Ours ran at 1700 MHz,"
        " cuBLAS at 1600. Measured 2026-11-21."
    )
    burst = "49.5 | 50.0 | 99.0 | 1700 | 1600 | 50.0 |"
    assert (
        f"| H200 | A and B by rows | 4096 | 53.0 | 50.0 | 106.0 | 1700 | 1600 | 45.0 to 50.0 | {burst}"
        in table
    )
    assert "| H200 | A and B by columns | 512 | - | - | - | - | - | - | 45.0 | 50.0 | 90.0 |" in table
    assert chip_sections([run], "float32") == []


def test_where_chips_differ_is_said() -> None:
    here = a_run("h200", rows(1024, 1.0), rows(2048, 1.0), rows(4096, 1.06), rows(8192, 1.0, "burst"))
    there = a_run("h100", *(rows(size, 0.99, chip=H100) for size in (2048, 4096)))
    again = a_run("h100 burst", rows(8192, 1.01, "burst", chip=H100))
    assert chip_words(turns_of([here, there, again], "float64"))[2:] == [
        "- H200 and H100 differ sustained, most at 4096^3 with A and B by rows: 106.0 and 99.0 % of cuBLAS.",
        "- H200 and H100 agree in bursts within 1.0 % of cuBLAS.",
    ]
    assert len(chip_words(turns_of([here], "float64"))) == 1
    assert long_ones(split("\n".join(chip_words(turns_of([here, there, again], "float64"))))) == []


def test_the_page_of_a_type_has_both_chips() -> None:
    here, there = a_run("h200", rows(8192, 1.0), rows(4096, 1.0)), a_run("h100", rows(8192, 0.9, chip=H100))
    shown = list(here.records)
    text = documents(Path(), Data(shown, [here, there]))[Path("docs/performance/fp64.md")]
    assert "- On an H100, sustained: 90.0 % of cuBLAS on 8192^3." in text
    assert "| H100 | A and B by rows | 8192 | 45.0 | 50.0 | 90.0 |" in text
