"""The page of weights of few bits: products, and a whole model's tokens."""

from __future__ import annotations

from dataclasses import replace

from lapidist_lab.bench.protocol.record import Conditions, Record, Run
from lapidist_lab.bench.publish.few_bits_tables import of_experts, of_model, ours, without_rest
from lapidist_lab.bench.publish.section import Data
from lapidist_lab.bench.studies import few_bits, few_bits_experts, few_bits_model

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


def test_experts_stand_by_layer_and_way() -> None:
    case, times = few_bits_experts.CASES[0], [[2e-3], [1e-3], [5e-4], [4e-4]]
    rows = few_bits_experts.records_of(times, [0.0] * 4, case, "NVIDIA H200")
    lines = of_experts(Data(rows[::-1])).splitlines()
    found = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if "8 experts" in line]
    assert [cells[2] for cells in found] == few_bits_experts.WAYS
    assert [cells[5] for cells in found][1:3] == ["100 us", "50 us"]
    assert "2.0" in found[2][6]
    assert of_experts(Data([])) == ""


def test_products_of_an_earlier_run_are_counted() -> None:
    rows = [
        replace(ROW, kernel=few_bits.OURS[0], mode=few_bits.MODE, n=n, seconds=1e-3, ratio=1.0)
        for n in (6144, 28672)
    ]
    runs = [
        Run(f"{rest}", Conditions("", "", "", protocol=f"1 turn each, after {rest} s of rest"), (row,))
        for rest, row in zip(("0", "0.1"), rows, strict=True)
    ]
    assert "1 of 2 products" in (without_rest(Data(rows, runs)) or "")
    assert without_rest(Data(rows, runs[1:])) is None
