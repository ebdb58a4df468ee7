"""What the planner lost by its choices, of each type on each chip, as the newest run of `tune` has it."""

from __future__ import annotations

from lapidist_lab.bench.protocol.cases import Case
from lapidist_lab.bench.protocol.record import Conditions, Record, Run
from lapidist_lab.bench.publish.corpora import corpus_sections
from lapidist_lab.bench.publish.planner_tables import PLANNER
from lapidist_lab.bench.publish.section import Data

CONDITIONS = Conditions("2026-11-21T12:00:00+00:00", "lapidist tune", "NVIDIA H200", mode="tune")
TIMES = {(100, 100, 100): (3e-6, 2e-6, 9e-6), (200, 100, 100): (4e-6, 5e-6)}


def a_run(name: str = "h200-tune.jsonl", chip: str = "NVIDIA H200", kind: str = "bfloat16") -> Run:
    """Of each product cuBLAS first, then the planner's own choice."""
    rows = []
    for shape, times in TIMES.items():
        case = Case(*shape, kind)
        ways = [("cublas", "peer", 1e-6)]
        ways += [(f"way {place}", "production", time) for place, time in enumerate(times)]
        rows += [
            Record(name, role, chip, kind, "rrr", *case.extents, time, 1.0, None, 0.5, 0.1, True, "tune")
            for name, role, time in ways
        ]
    return Run(name, CONDITIONS, tuple(rows))


def test_each_products_first_row_is_the_planners_own() -> None:
    summary, section = PLANNER.written(Data([], [a_run()]))
    words = "On 2 products on an H200 the planner's own choice took 22.5 % longer than the fastest"
    assert f"{words} in the geometric mean, 50.0 % at most." in section
    assert "| 100^3 | way 0 | 3 us | way 1 | 2 us | 50.0 |" in section
    assert "| 200x100x100 | way 0 | 4 us | way 0 | 4 us | 0.0 |" in section
    assert section.startswith("## The planner's choices, bf16\n")
    assert "| bf16 | H200 | 2 | 5 | 22.5 | 50.0 | 100^3 |" in summary
    assert corpus_sections([a_run()]) == []
    assert PLANNER.written(Data([], [])) == []


def test_each_type_and_chip_has_a_line() -> None:
    other = a_run("h100.jsonl", "NVIDIA H100 80GB HBM3")
    summary, *sections = PLANNER.written(Data([], [a_run(), a_run("two.jsonl", kind="float64"), other]))
    lines = [line for line in summary.splitlines() if line.startswith("| ")][1:]
    assert [line.split(" | ")[:2] for line in lines] == [
        ["| bf16", "H200"],
        ["| bf16", "H100"],
        ["| fp64", "H200"],
    ]
    titles = [section.splitlines()[0].partition(", ")[2] for section in sections]
    assert titles == ["bf16", "bf16, H100", "fp64"]


def test_an_earlier_planners_choices_are_not_mixed_in() -> None:
    newer = a_run("newer.jsonl")
    newer = Run(newer.name, newer.conditions, newer.records[4:])
    summary, section = PLANNER.written(Data([], [a_run(), newer]))
    assert "| bf16 | H200 | 1 | 2 | 0.0 | 0.0 | 200x100x100 |" in summary
    assert "100^3" not in section
    assert "newer.jsonl" in section
