"""Areas: every area's mean stands beside its worst case, in the README, on the index and as a picture."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lapidist_lab.bench.protocol.record import Record
from lapidist_lab.bench.publish.areas import areas, areas_chart, areas_table
from lapidist_lab.bench.publish.charts import LIGHT
from lapidist_lab.bench.publish.pages import BY_NAME, index
from lapidist_lab.bench.publish.section import Data


def row(kernel: str, math: str, size: int, ratio: float, mode: str) -> Record:
    head = (kernel, "production", "NVIDIA H200", math, "rrr", size, size, size)
    return Record(*head, 1e-3, 2e-9 * size**3, ratio, None, 0.5, True, mode)


MODELS = [
    row(f"llama, {name}", "bfloat16", 1024, ratio, "model") for name, ratio in (("a", 0.8), ("b", 1.25))
]
SQUARES = [
    row("lapidist", "float16", size, ratio, mode)
    for mode, ratio in (("sustained", 1.5), ("burst", 1.2))
    for size in (1024, 2048)
]


def test_an_area_has_its_mean_and_its_worst_case_in_both_modes() -> None:
    by_name = {area.name: area for area in areas(Data([*MODELS, *SQUARES]))}
    assert list(by_name) == ["squares, fp16", "whole models"]
    assert by_name["whole models"].mean == pytest.approx(1.0)
    assert by_name["whole models"].worst == 0.8
    assert sorted(by_name["squares, fp16"].ratios) == [1.2, 1.2, 1.5, 1.5]


def test_results_that_differ_do_not_count() -> None:
    wrong = [replace(record, ok=False) for record in MODELS]
    assert areas(Data(wrong)) == []
    assert areas_chart(Data(wrong)) is None
    assert areas_table(Data(wrong)) == "Not measured yet.\n"


def test_the_table_leads_to_the_pages() -> None:
    text = areas_table(Data([*MODELS, *SQUARES]), "docs/performance/")
    assert (
        "| [whole models](docs/performance/models.md) | the stock model | 1.00x | 0.80x | 1.25x | 2 |" in text
    )
    assert all(area.page in BY_NAME for area in areas(Data([*MODELS, *SQUARES])))


def test_a_loss_is_red() -> None:
    chart = areas_chart(Data([*MODELS, *SQUARES]))
    assert chart is not None
    (loss,) = (line for line in chart.drawn.splitlines() if "worst 0.80x" in line)
    (gain,) = (line for line in chart.drawn.splitlines() if "worst 1.20x" in line)
    assert LIGHT["chosen"] in loss
    assert LIGHT["chosen"] not in gain


def test_the_index_begins_with_the_picture_and_folds_sentences() -> None:
    words, chart, table, *_, folded, _ = index(["models"], Data(MODELS))
    assert str(words).startswith("Each bar is the geometric mean")
    assert "whole models" in chart.drawn
    assert "| [whole models](models.md)" in str(table)
    assert str(folded).startswith("<details")
