"""Which of several measurements a table shows: the newest, of one chip, in the type's usual layout."""

from __future__ import annotations

from dataclasses import replace

from lapidist_lab.bench.protocol.contenders import LIBRARY
from lapidist_lab.bench.protocol.record import Conditions, Record, Run
from lapidist_lab.bench.publish.record_views import (
    chips_of,
    in_another_layout,
    latest,
    newest_by_chip,
    short_chip,
)
from lapidist_lab.bench.publish.squares import at_square

H200, H100 = "NVIDIA H200", "NVIDIA H100 80GB HBM3"


def row(size: int, tflops: float, chip: str = H200, layout: str = "rrr", kernel: str = LIBRARY) -> Record:
    numbers = (size, size, size, 1e-3, tflops, 1.0, 0.5, 0.1, True)
    return Record(kernel, "production", chip, "float64", layout, *numbers, "sustained")


def a_run(name: str, *records: Record) -> Run:
    return Run(name, Conditions("2026-11-21T12:00:00+00:00", "lapidist", "", mode="sustained"), records)


def test_a_table_is_of_the_chip_that_measured_most() -> None:
    first = a_run("first", row(512, 1.0), row(1024, 2.0))
    other = a_run("other", row(512, 3.0, H100), row(2048, 4.0, H100))
    again = a_run("again", row(512, 5.0), row(4096, 6.0))
    assert chips_of(newest_by_chip([first, other, again])) == [H200, H100]
    assert {(each.m, each.tflops) for each, _ in latest([first, again, other])} == {
        (512, 5.0),
        (1024, 2.0),
        (2048, 4.0),
        (4096, 6.0),
    }
    assert len(newest_by_chip([first, other, again])) == 5
    limits = [replace(row(0, 60.0, chip), kind="limit") for chip in (H200, H100)]
    assert len(latest([a_run("limits", *limits)])) == 2


def test_a_square_is_quoted_in_its_types_usual_layout() -> None:
    rows = [row(8192, 50.0, layout="ccr"), row(8192, 60.0)]
    found = at_square(rows, 8192, "sustained")
    assert found is rows[1]
    assert [in_another_layout(each) for each in rows] == [True, False]
    assert not in_another_layout(row(8192, 50.0, layout="rcr", kernel="b_transposed"))
    narrow = [replace(each, dtype="float8_e4m3fn") for each in (row(512, 1.0), row(512, 1.0, layout="rcr"))]
    assert [in_another_layout(each) for each in narrow] == [True, False]


def test_chips_in_short() -> None:
    assert [short_chip(each) for each in (H200, H100, "machine")] == ["H200", "H100", "machine"]
