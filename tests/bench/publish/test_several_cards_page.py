"""The page of several cards: the plan's ways beside the fastest other one, and the product alone."""

from __future__ import annotations

from dataclasses import replace

from lapidist_lab.bench.protocol.record import Record
from lapidist_lab.bench.publish.charts import Chart
from lapidist_lab.bench.publish.parallel_tables import NOT_YET, PARALLEL, of_parallel
from lapidist_lab.bench.publish.section import Data
from lapidist_lab.bench.studies.several_cards import ALONE, MODE, PEER

ROW = Record("", "production", "NVIDIA H200", "bfloat16", "rcr", 4096, 4096, 8192, *[None] * 5, ok=True)
CALL = "all_gather_matmul"


def rows() -> list[Record]:
    timed = (
        (CALL, "production", 400e-6, 1.25),
        (f"{CALL}, push", "production", 420e-6, 1.19),
        (f"{ALONE}, {CALL}", "peer", 380e-6, None),
        (f"{PEER}, {CALL}", "peer", 500e-6, 1.0),
    )
    names = ("kernel", "kind", "seconds", "ratio")
    return [replace(ROW, mode=MODE, peer=PEER, **dict(zip(names, row, strict=True))) for row in timed]  # type: ignore[arg-type]


def test_a_case_stands_beside_the_fastest_other_way() -> None:
    data = Data(rows())
    _, chart, table, every_way = PARALLEL.written(data)
    assert isinstance(chart, Chart)
    assert "all_gather, bf16, more rows" in chart.drawn
    lines = [line for line in str(table).splitlines() if line.startswith(f"| `{CALL}`")]
    assert len(lines) == 1
    for cell in ("bf16", "H200", PEER, "1.25x", "0.95x"):
        assert cell in lines[0]
    assert f"{CALL}, push" in str(every_way)
    assert of_parallel(data) == f"On H200 cards, of the fastest other way: `{CALL}` 1.25 times, 1.25 at least"
    assert not NOT_YET.written(data)


def test_the_page_says_how_records_are_made_where_there_are_none() -> None:
    assert of_parallel(Data([ROW])) == ""
    assert "torchrun" in str(NOT_YET.written(Data([ROW]))[0])
