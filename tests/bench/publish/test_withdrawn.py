"""What results/withdrawn.json names is kept in its file and published nowhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lapidist.errors import ArgumentError
from lapidist_lab.bench.protocol.record import Conditions, Record, Run
from lapidist_lab.bench.publish.runs import withdrawn_section
from lapidist_lab.bench.publish.withdrawn import Withdrawal, read_withdrawals, require_runs, without


def record(kernel: str, config: str = "") -> Record:
    return Record(
        kernel, "rung", "H200", "float32", "rrr", 8, 8, 8, 1.0, 1.0, 1.0, 0.5, 0.1, True, config=config
    )


RUN = Run(
    "a.jsonl",
    Conditions("2026-01-01", "climb", "H200"),
    (record("wrong"), record("lapidist", "wrong: 8x8"), record("right")),
)


def test_rows_of_the_kernel_go_by_name_and_as_the_planners_choice() -> None:
    assert [r.kernel for r in without([RUN], [Withdrawal("a.jsonl", "wrong", "why")])[0].records] == ["right"]


def test_other_runs_stand() -> None:
    assert without([RUN], [Withdrawal("b.jsonl", "wrong", "why")]) == [RUN]


def test_the_reason_is_published() -> None:
    assert "- wrong: why (`results/a.jsonl`, `results/b.jsonl`)" in withdrawn_section(
        [Withdrawal("a.jsonl", "wrong", "why"), Withdrawal("b.jsonl", "wrong", "why")]
    )


def test_the_file_is_read_and_a_wrong_one_is_named(tmp_path: Path) -> None:
    assert read_withdrawals(tmp_path) == []
    path = tmp_path / "withdrawn.json"
    path.write_text(json.dumps([{"run": "a.jsonl", "kernel": "wrong", "reason": "why"}]))
    assert read_withdrawals(tmp_path) == [Withdrawal("a.jsonl", "wrong", "why")]
    path.write_text('[{"run": "a.jsonl"}]')
    with pytest.raises(
        ArgumentError, match=r"withdrawn\.json: must be a list of objects with run, kernel and reason"
    ):
        read_withdrawals(tmp_path)


def test_a_withdrawal_names_a_run() -> None:
    require_runs([Withdrawal("a.jsonl", "wrong", "why")], [RUN])
    with pytest.raises(ArgumentError, match=r"run must be a file under results; got 'a'"):
        require_runs([Withdrawal("a", "wrong", "why")], [RUN])
