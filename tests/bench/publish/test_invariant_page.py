"""The page of kept bits: losses by rows beside others', and a served model's tokens."""

from __future__ import annotations

from dataclasses import replace

from lapidist_lab.bench.protocol.contenders import LIBRARY
from lapidist_lab.bench.protocol.record import Record
from lapidist_lab.bench.publish.invariant_tables import PUBLISHED, loss_chart, other_types, served_words
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


def test_other_types_have_tables_beside_their_own_free_choice() -> None:
    rows = [
        replace(ROW, kernel=name, n=8192, k=8192, mode=mode, seconds=seconds * (1 + at))
        for at, mode in enumerate(invariant_products.SERVED_TYPES)
        for name, seconds in ((invariant_products.NAME, 1.0 + at / 4), (LIBRARY, 1.0))
    ]
    words = other_types(Data(rows))
    for served, share in zip(
        invariant_products.SERVED_TYPES.values(), ("", "0.80", "0.67", "0.57"), strict=True
    ):
        _, _, section = words.partition(f"## In {served.words}\n")
        assert bool(section) == bool(share)
        assert f"up to 64 rows {share}, {share} at least" in section.partition("##")[0] or not share
    assert other_types(Data(rows[:2])) == ""


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
