"""What schedules with all checks take, beside plain runs in the machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lapidist.commands.cli import app
from lapidist.errors import ArgumentError
from lapidist_lab.bench.protocol.record import read_runs
from lapidist_lab.bench.publish.machine_tables import schedules_block


def test_schedules_are_timed_judged_and_published(tmp_path: Path) -> None:
    asked = ["climb", "--schedules", "--size", "32", "--kernel", "4,8,sgemm", "--rounds", "2"]
    ran = CliRunner().invoke(app, [*asked, "--json", "--record", str(tmp_path)])
    assert ran.exit_code == 0
    rows = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    assert [(row["kernel"], row["mode"], row["ok"]) for row in rows] == [
        (name, "schedule", True) for name in ("shared_tile", "thread_tile", "sgemm")
    ]
    assert all(row["seconds"] > 0 < row["over_plain"] for row in rows)
    lines = schedules_block(read_runs(tmp_path)).splitlines()
    assert lines[0] == "| kernel | 32^3 fp32 |"
    assert lines[2].startswith(f"| 04 shared_tile | {rows[0]['over_plain']:.0f} (")
    assert lines[-1].startswith("The aim is 20 times or less: ")


def test_a_table_shows_both_times() -> None:
    shown = CliRunner().invoke(app, ["climb", "--schedules", "--size", "16", "--kernel", "8"]).stdout
    assert all(word in shown for word in ("CPU time", "plain", "times", "08 thread_tile"))


@pytest.mark.parametrize("place", ["0", "gpu"])
def test_schedules_are_the_machines(place: str) -> None:
    refused = CliRunner().invoke(app, ["climb", "--schedules", "--device", place])
    assert isinstance(refused.exception, ArgumentError)
    assert f"--schedules: are the machine's; got --device {place}" in str(refused.exception)
