"""Grouped products on their page: beside the fastest peer, and beside one dense product."""

from __future__ import annotations

from dataclasses import replace

from lapidist_lab.bench.protocol.record import Record
from lapidist_lab.bench.publish.group_tables import of_groups
from lapidist_lab.bench.publish.pages import index
from lapidist_lab.bench.publish.section import Data
from lapidist_lab.bench.studies.group_cases import FORWARD, LAYERS, TO_WEIGHTS, ZIPF, GroupCase, case_of
from lapidist_lab.bench.studies.grouped_products import MODE
from published import charts_of, page_of

UP, DOWN = LAYERS[:2]
DECODE = case_of(UP, FORWARD, 64, "even", "bfloat16")
LONG = case_of(DOWN, FORWARD, 32768, ZIPF, "bfloat16")
GRADIENT = case_of(UP, TO_WEIGHTS, 8192, ZIPF, "bfloat16")


def row(who: str, case: GroupCase, seconds: float, ratio: float | None, **more: str) -> Record:
    kind = "production" if who == "lapidist" else "peer"
    head = (f"{who}, {case.name}", kind, "NVIDIA H200", case.math, case.layouts(False), *case.extents)
    speed = case.flops / seconds / 1e12
    return Record(*head, seconds, speed, ratio, 0.5, 0.1, True, MODE, batch=case.batch, **more)  # type: ignore[arg-type]


ROWS = [
    row("lapidist", GRADIENT, 2e-3, 0.9, peer="loop of torch.mm"),
    row("lapidist", LONG, 5e-3, 1.1, peer="torch._grouped_mm"),
    row("lapidist", DECODE, 250e-6, 1.6, peer="torch._grouped_mm", note="3.76 TB/s"),
    row("torch._grouped_mm", LONG, 5.5e-3, 1.0),
    row("one dense product", LONG, 4.9e-3, None),
]


def test_cases_stand_in_order_beside_the_fastest_peer() -> None:
    page = page_of("grouped", ROWS)
    lines = [line for line in page.splitlines() if line.startswith("| Mixtral")]
    assert [line.split(" | ")[:8] for line in lines] == [
        ["| Mixtral up", "forward", "64", "even", "bf16", "250 us", "30.1", "torch._grouped_mm"],
        ["| Mixtral up", "to weights", "8192", "zipf", "bf16", "2 ms", "481.0", "loop of torch.mm"],
        ["| Mixtral down", "forward", "32768", "zipf", "bf16", "5 ms", "769.7", "torch._grouped_mm"],
    ]
    assert "| 1.60x | - | 3.76 TB/s | H200 |" in lines[0]
    assert "| 1.10x | 0.98 |  | H200 |" in lines[2]


def test_words_name_the_worst_and_the_dense_product() -> None:
    page = page_of("grouped", ROWS)
    assert (
        "- bf16, forward, H200: 1.33x the fastest peer in the geometric mean of 2 cases. The least is 1.10x:"
        " Mixtral down, forward, zipf, 32768 rows."
    ) in page
    assert "- bf16, to weights, H200: 0.90x the fastest peer" in page
    assert "With 64 rows the weights of groups that have rows are read at 3.76 TB/s." in page
    assert "the speed is 0.98x that of one dense product. The least is 0.98x." in page
    assert "1.10 %" not in page
    (chart,) = charts_of("grouped", ROWS)
    assert "769.7 TFLOP/s, 110.0 %" in chart.drawn
    said = "geometric mean of 3 cases. The least is 0.90x: Mixtral up, to weights, zipf, 8192 rows"
    assert said in of_groups(Data(ROWS))


def test_the_page_says_so_where_nothing_was_measured() -> None:
    others = [replace(ROWS[1], mode="model")]
    assert "have no Records yet" in page_of("grouped", others)
    assert "no Records" not in page_of("grouped", ROWS)
    assert "| not measured yet |" in str(index(["grouped"], Data(others)))


def test_triton_stands_beside_ours_where_it_was_measured() -> None:
    assert "A kernel in Triton was not among the peers." in page_of("grouped", ROWS)
    others = [row("Triton grouped", LONG, 7.5e-3, 1.0), row("cuBLASLt grouped", LONG, 6e-3, 1.0)]
    page = page_of("grouped", ROWS + others)
    assert "measured. It takes 1.50x our time" in page
    lines = [line for line in page.splitlines() if line.startswith("| Mixtral")]
    assert ["| - | - | - |" in lines[0], "| 1.20 | 1.50 | 0.98 |" in lines[2]] == [True] * 2


def test_cublaslt_stands_beside_ours_where_it_was_measured() -> None:
    assert "grouped layouts, which CUDA has from 13.3 on, were not among the peers." in page_of(
        "grouped", ROWS
    )
    others = [
        row("cuBLASLt grouped", LONG, 6e-3, 1.0),
        row("cuBLASLt grouped", DECODE, 200e-6, 1.0),
        replace(row("cuBLASLt grouped", GRADIENT, 1e-3, None), seconds=None, error="wrong result"),
    ]
    page = page_of("grouped", ROWS + others)
    words = (
        "It takes 0.98x our time in the geometric mean of 2 cases. The least is 0.80x: Mixtral up, forward,"
    )
    assert f"{words} even, 64 rows." in page
    lines = [line for line in page.splitlines() if line.startswith("| Mixtral")]
    assert ["| 0.80 | - |" in lines[0], "| 0.90x | - | - |" in lines[1], "| 1.20 | 0.98 |" in lines[2]] == [
        True
    ] * 3
