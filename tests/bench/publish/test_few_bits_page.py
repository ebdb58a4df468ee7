"""The page of weights of few bits: products, and a whole model's tokens."""

from __future__ import annotations

from dataclasses import replace

from lapidist_lab.bench.protocol.record import Record
from lapidist_lab.bench.publish.few_bits_tables import of_model, ours
from lapidist_lab.bench.publish.section import Data
from lapidist_lab.bench.studies import few_bits, few_bits_model

ROW = Record("", "production", "NVIDIA H200", "bfloat16", "rcr", 16, 14336, 4096, *[None] * 5, ok=True)


def test_a_model_has_a_row_for_each_way() -> None:
    rows = [
        replace(ROW, kernel=name, mode=few_bits.MODE, seconds=1e-3, ratio=ratio, note="16000 tokens/s")
        for name, ratio in zip(few_bits_model.NAMES, (0.9, 1.0, 2.6, 2.4), strict=True)
    ]
    lines = of_model(Data(rows[::-1])).splitlines()
    found = [line for line in lines if "tokens/s" in line]
    assert [line.split("|")[2].strip() for line in found] == [
        "torch, bf16",
        "lapidist, bf16",
        "lapidist, int4",
        "lapidist, mxfp4",
    ]
    assert "2.6" in found[2]
    assert not ours(Data(rows))  # no product of the other table
    assert of_model(Data([])) == ""
