"""The page of kept bits: losses by rows beside others', and a served model's tokens."""

from __future__ import annotations

from dataclasses import replace

from lapidist_lab.bench.protocol.contenders import LIBRARY
from lapidist_lab.bench.protocol.record import Record
from lapidist_lab.bench.publish.invariant_tables import PUBLISHED, loss_chart, served_words
from lapidist_lab.bench.publish.section import Data
from lapidist_lab.bench.studies import invariant_products, served_model

ROW = Record("", "production", "NVIDIA H200", "bfloat16", "rcr", 1, 6144, 4096, *[None] * 5, ok=True)


def test_losses_stand_by_rows_beside_others() -> None:
    rows = [
        replace(ROW, kernel=name, m=m, n=n, k=k, mode=invariant_products.MODE, seconds=seconds)
        for n, k in ((6144, 4096), (8192, 8192))
        for m in invariant_products.ROWS
        for name, seconds in ((invariant_products.NAME, 1.25e-3), (LIBRARY, 1e-3))
    ]
    chart = loss_chart(Data(rows))
    assert chart is not None
    for title in PUBLISHED:
        assert title in chart.drawn
    for model in ("8B", "70B"):
        assert f"{model}: 16, 80" in chart.drawn
    assert loss_chart(Data([])) is None


def test_a_served_model_has_its_tokens() -> None:
    rows = [
        replace(ROW, kernel=name, mode=served_model.MODE, seconds=1.0, ratio=ratio, note=note)
        for name, ratio, note in (
            (served_model.SERVED, 0.95, "950 tokens/s"),
            (served_model.FREE, 1.0, "1000 tokens/s"),
        )
    ]
    words = served_words(Data(rows))
    assert (
        "It gives 950 tokens/s with one order of sums, and 1000 tokens/s with the free choice: 0.950" in words
    )
    assert served_words(Data(rows[1:])) == ""
