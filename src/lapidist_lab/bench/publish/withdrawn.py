"""Records that are not published: the file keeps them, results/withdrawn.json says which and why."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lapidist.errors import ArgumentError
from lapidist_lab.bench.protocol.record import Record, Run, by_present_names


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """All rows of a run by a kernel, under its name or as the planner's choice."""

    run: str
    kernel: str
    reason: str

    def covers(self, record: Record, run: Run) -> bool:
        chosen = record.config is not None and record.config.startswith(f"{self.kernel}:")
        return run.name == self.run and (record.kernel == self.kernel or chosen)


def read_withdrawals(directory: Path) -> list[Withdrawal]:
    path = directory / "withdrawn.json"
    if not path.exists():
        return []
    try:
        return [Withdrawal(**entry) for entry in json.loads(by_present_names(path.read_text()))]
    except (ValueError, TypeError) as error:
        raise ArgumentError(
            f"{path}: must be a list of objects with run, kernel and reason; {error}"
        ) from error


def without(runs: Sequence[Run], withdrawals: Sequence[Withdrawal]) -> list[Run]:
    """The runs without withdrawn records."""

    def stands(record: Record, run: Run) -> bool:
        return not any(withdrawal.covers(record, run) for withdrawal in withdrawals)

    touched = {withdrawal.run for withdrawal in withdrawals}
    return [
        replace(run, records=tuple(record for record in run.records if stands(record, run)))
        if run.name in touched
        else run
        for run in runs
    ]


def require_runs(withdrawals: Sequence[Withdrawal], runs: Sequence[Run]) -> None:
    """A withdrawal of no run would leave what it names published."""
    names = {run.name for run in runs}
    for withdrawal in withdrawals:
        if withdrawal.run not in names:
            raise ArgumentError(
                f"results/withdrawn.json: run must be a file under results; got {withdrawal.run!r}. Correct"
                " its name, as in 'a.jsonl'"
            )
