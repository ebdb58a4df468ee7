"""What schedules with all checks take, beside plain runs in the machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lapidist.commands.cli import app
from lapidist.errors import ArgumentError
from lapidist.machine.sanitize.joint_runs import JointRuns
from lapidist.machine.sanitize.random_orders import FuzzedScheduler
from lapidist_lab.bench.protocol.record import read_runs
from lapidist_lab.bench.publish.machine_tables import parts_block, schedules_block
from lapidist_lab.machine_studies import schedule_parts
from lapidist_lab.machine_studies.schedule_parts import (
    ALONE,
    CHECKS,
    PARTED,
    PARTS,
    REMAINDER,
    TOGETHER,
    Stopwatch,
)


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


def test_a_schedules_time_is_shared_out_among_its_parts(tmp_path: Path) -> None:
    """What ran is as it was afterwards: a stopwatch is around it only meanwhile."""
    before = FuzzedScheduler.step, FuzzedScheduler.choose, JointRuns.compute, JointRuns.turn
    command = ["climb", "--parts", "--size", "32", "--kernel", "4", "--json", "--record", str(tmp_path)]
    (row,) = map(json.loads, CliRunner().invoke(app, command).stdout.splitlines())
    assert (row["mode"], row["ok"], list(row["parts"])) == ("schedule parts", True, list(PARTS))
    assert sum(row["parts"].values()) == pytest.approx(1, abs=1e-4)
    assert row["parts"][CHECKS] > 0.2  # warps of its one block stay in step
    assert row["parts"][TOGETHER] > 0.05
    assert row["parts"][PARTED] == 0
    lines = parts_block(read_runs(tmp_path)).splitlines()
    assert lines[0] == "| 32^3 fp32 | 04 shared_tile |"
    assert lines[2] == f"| {CHECKS} | {row['parts'][CHECKS]:.0%} |"
    assert before == (FuzzedScheduler.step, FuzzedScheduler.choose, JointRuns.compute, JointRuns.turn)


def test_seconds_inside_of_a_part_count_for_the_inner_one(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 1.0, 4.0, 6.0])  # the outer begins, the inner begins and ends, the outer ends
    monkeypatch.setattr(schedule_parts, "process_time", lambda: next(clock))
    watch = Stopwatch()
    inner = watch.around(lambda: None, lambda: TOGETHER)
    watch.around(inner, lambda: ALONE)()
    assert (watch.seconds[TOGETHER], watch.seconds[ALONE]) == (3, 3)
    assert watch.shares(12) == {
        part: {TOGETHER: 0.25, ALONE: 0.25, REMAINDER: 0.5}.get(part, 0) for part in PARTS
    }


@pytest.mark.parametrize("place", ["0", "gpu"])
@pytest.mark.parametrize("option", ["--schedules", "--parts"])
def test_schedules_are_the_machines(option: str, place: str) -> None:
    refused = CliRunner().invoke(app, ["climb", option, "--device", place])
    assert isinstance(refused.exception, ArgumentError)
    assert f"{option}: is of the machine; got --device {place}" in str(refused.exception)


def test_one_table_of_schedules_at_a_time() -> None:
    refused = CliRunner().invoke(app, ["climb", "--schedules", "--parts"])
    assert isinstance(refused.exception, ArgumentError)
    assert "--parts: must be without --schedules" in str(refused.exception)
