"""Batches on the page of small products: each chip's, beside cuBLAS in the same run."""

from __future__ import annotations

from pathlib import Path

from lapidist_lab.bench.protocol.cases import Case
from lapidist_lab.bench.protocol.contenders import LIBRARY
from lapidist_lab.bench.protocol.record import Conditions, Record, Run
from lapidist_lab.bench.publish.call_costs import BATCHES, of_batches
from lapidist_lab.bench.publish.pages import documents
from lapidist_lab.bench.publish.section import Data
from lapidist_lab.bench.studies.batched_products import MODE

H200, H100 = "NVIDIA H200", "NVIDIA H100 80GB HBM3"
TINY, FLAT = Case(16, 16, 16, batch=10000), Case(1024, 1024, 64, "bfloat16", batch=96)


def a_run(chip: str, *rows: tuple[Case, float, float]) -> Run:
    """Of each batch our seconds and cuBLAS's over them."""
    records = []
    for case, seconds, ratio in rows:
        for kernel, time in (("cublas", seconds * ratio), (LIBRARY, seconds)):
            kind, speed = ("production" if kernel == LIBRARY else "peer"), case.flops / time / 1e12
            head = (kernel, kind, chip, case.math, "rrr", *case.extents, time, speed)
            own = seconds * ratio / time
            records.append(
                Record(*head, own, 0.5, 0.1, True, MODE, batch=case.batch, clock_mhz=1900.0, config="tiles")
            )
    conditions = Conditions("2026-11-21T12:00:00+00:00", "lapidist bench batches", chip, mode=MODE)
    return Run(f"{chip}.jsonl", conditions, tuple(records))


RUNS = [a_run(H200, (FLAT, 1e-4, 1.2), (TINY, 1e-5, 0.8)), a_run(H100, (TINY, 2e-5, 1.5))]


def test_every_chip_has_its_lines_in_the_order_of_the_list() -> None:
    words, table = BATCHES.written(Data([], RUNS))
    lines = [line for line in table.splitlines() if line.startswith("| ") and "| chip |" not in line]
    assert [line.split(" | ")[:3] for line in lines] == [
        ["| fp32, 10000 of 16^3", "H200", "10 us"],
        ["| bf16, 96 of 1024x1024x64", "H200", "100 us"],
        ["| fp32, 10000 of 16^3", "H100", "20 us"],
    ]
    assert "| 128.8 | 107.4 | 120.0 | 1900 |" in lines[1]
    assert "0.98 times cuBLAS on an H200 in the geometric mean of 2 batches, 0.80 at least" in words
    assert "1.50 times cuBLAS on an H100" in words


def test_a_page_says_so_where_no_batch_was_measured() -> None:
    assert (BATCHES.written(Data([])), of_batches([])) == ([], [])
    texts = {path.name: text for path, text in documents(Path(), Data([], RUNS)).items()}
    assert "## Batches" in texts["small.md"]
    assert "no Records" not in texts["small.md"]
    assert "times cuBLAS on an H100" in texts["index.md"]
