"""The page of several cards: the plan's ways beside the fastest other one, and the product alone."""

from __future__ import annotations

from dataclasses import replace

from lapidist.distributed import plan
from lapidist_lab.bench.protocol.record import Record
from lapidist_lab.bench.publish.cells import time_words
from lapidist_lab.bench.publish.charts import Chart
from lapidist_lab.bench.publish.parallel_tables import NOT_YET, PARALLEL, case_of, of_model, of_parallel
from lapidist_lab.bench.publish.section import Data
from lapidist_lab.bench.studies.several_cards import ALONE, MODE, PEER, cards_of

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
    _, chart, table, _, every_way = PARALLEL.written(data)
    assert isinstance(chart, Chart)
    assert "all_gather, bf16, more rows" in chart.drawn
    lines = [line for line in str(table).splitlines() if line.startswith(f"| `{CALL}`")]
    assert len(lines) == 1
    for cell in ("bf16", "2", "H200", PEER, "1.25x", "0.95x"):
        assert cell in lines[0]
    assert f"{CALL}, push" in str(every_way)
    assert of_parallel(data) == f"On H200 cards, of the fastest other way: `{CALL}` 1.25 times, 1.25 at least"
    assert not NOT_YET.written(data)


def test_the_model_tells_of_more_cards_beside_what_was_measured() -> None:
    """Of one case on two and on four: a line, whose predictions are those of plans."""
    two, four = (replace(rows()[0], n=n, seconds=seconds) for n, seconds in ((4096, 400e-6), (2048, 210e-6)))
    assert [cards_of(case_of(record)) for record in (two, four)] == [2, 4]
    text = of_model(Data([two, four]))
    plans = [plan(CALL, 4096, 8192 // cards, 8192, ranks=cards) for cards in (2, 4, 8)]
    cells = [f"`{CALL}`", "bf16", "4096x8192x8192", "H200"]
    for measured, made in zip(("400 us", "210 us", "-"), plans, strict=True):
        cells += [measured, f"{time_words(made.seconds[0][1])}, `{made.way}`"]
    assert f"| {' | '.join(cells)} |" in text
    off = sorted(made.seconds[0][1] / time for made, time in zip(plans, (400e-6, 210e-6), strict=False))
    assert f"{off[0]:.2f} to {off[1]:.2f}" in text


def test_the_page_says_how_records_are_made_where_there_are_none() -> None:
    assert of_parallel(Data([ROW])) == ""
    assert "torchrun" in str(NOT_YET.written(Data([ROW]))[0])
