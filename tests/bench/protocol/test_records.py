"""Records: their fields, their files, and the tables that show them."""

from __future__ import annotations

import csv
import math
from dataclasses import fields, replace
from pathlib import Path

import pytest
from rich.console import Console

from ladder_records import CONDITIONS, ladder, row
from lapidist.errors import ArgumentError
from lapidist.kernels.registry import BY_NAME
from lapidist_lab.bench.protocol.record import (
    EARLIER_NAMES,
    Record,
    read_run,
    read_runs,
    run_name,
    write_csv,
    write_run,
)
from lapidist_lab.bench.publish.cells import time_words
from lapidist_lab.bench.publish.output_files import Outputs
from lapidist_lab.bench.publish.record_views import latest
from lapidist_lab.bench.publish.terminal import show

REQUIRED = ["kernel", "kind", "device", "dtype", "layout", "m", "n", "k", "seconds", "tflops"]
REQUIRED += ["ratio", "limit_share", "worst", "ok"]


def test_a_row_has_every_field_that_readers_rely_on() -> None:
    assert [each.name for each in fields(Record)][: len(REQUIRED)] == REQUIRED


def test_records_survive_the_file(tmp_path: Path) -> None:
    records = ladder(speed=48.0)
    path = tmp_path / run_name(CONDITIONS, "climb-4096")
    write_run(path, CONDITIONS, records)
    run = read_run(path)
    assert path.name == "h200-20260102T030405-climb-4096.jsonl"
    assert run.conditions == CONDITIONS
    assert [record.kernel for record in run.records] == [record.kernel for record in records]
    for read, written in zip(run.records, records, strict=True):
        assert read.tflops is None or math.isclose(read.tflops, written.tflops or 0.0, rel_tol=1e-5)


def test_a_damaged_file_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    write_run(path, CONDITIONS, ladder())
    path.write_text(path.read_text() + '{"kernel": "x"}\n')
    with pytest.raises(ArgumentError, match=rf"run.jsonl: line {len(ladder()) + 2} "):
        read_run(path)


def test_rows_of_renamed_rungs_are_read_by_the_present_names(tmp_path: Path) -> None:
    """The row and its file keep what was said at the time; a command is shown as it was given."""
    given = replace(CONDITIONS, command="lapidist bench squares --kernel tma_producer")
    error = "RefusalError: kernel: tma_producer does not take it:\n  tma_producer: TMA needs A"
    earlier = replace(row("tma_producer", 50.0), config="wgmma_persistent: 128x256x64", error=error)
    write_run(tmp_path / "run.jsonl", given, [earlier])
    run = read_run(tmp_path / "run.jsonl")
    (read,) = run.records
    assert (read.kernel, read.config) == ("tma_streamk", "wgmma_clusters: 128x256x64")
    assert read.error == error.replace("tma_producer", "tma_streamk")
    assert run.conditions.command == given.command
    assert set(EARLIER_NAMES.values()) <= set(BY_NAME)
    assert not set(EARLIER_NAMES) & set(BY_NAME)


def test_csv_has_a_line_a_record(tmp_path: Path) -> None:
    write_csv(tmp_path / "rows.csv", ladder())
    with (tmp_path / "rows.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [read["kernel"] for read in rows] == [record.kernel for record in ladder()]
    assert rows[0]["tflops"] == "50.0"


def test_a_run_of_many_measurements_is_written_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, kept = iter((100.0, 100.0, 104.9, 105.1, 105.1)), []
    monkeypatch.setattr("lapidist_lab.bench.publish.output_files.time.monotonic", lambda: next(now))
    outputs = Outputs(True, None, None, None, tmp_path, "many")
    for count in (1, 2, 3):
        outputs.keep(CONDITIONS, [row("simt", 40.0)] * count)
        (run,) = read_runs(tmp_path)
        kept.append(len(run.records))
    assert kept == [1, 1, 3]
    assert len(outputs.finished) == 3


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("mode", ["sustained", "machine"])
def test_tables_fit_a_terminal_and_part_no_number_from_its_unit(
    mode: str, width: int, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = {"registers": 168, "shared_bytes": 197_696, "blocks_per_sm": 1, "warps_per_sm": 12}
    counts = {"warp_instructions": 57_600, "sectors": 16.5, "wavefronts": 2.25, "bytes_per_flop": 0.0273}
    seen = {"ffma_share": 0.923, "unit_share": 0.841, "worst": 0.01, "seconds": 0.0002479}
    rows = [
        replace(row(name, 55.4), mode=mode, **facts, **counts, **seen) for name in ("tma_streamk", "simt")
    ]
    show(Console(width=width), rows)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    for name in ("tma_streamk", "simt"):
        (line,) = [line for line in lines if name in line]
        assert "247.9 us" in line
    assert any("left out" in line for line in lines) == (width == 80)


def test_a_later_run_replaces_what_it_measured_again(tmp_path: Path) -> None:
    later = replace(CONDITIONS, date="2026-02-01T00:00:00+00:00")
    write_run(tmp_path / "a.jsonl", later, [row("coalesced", 6.0)])
    write_run(tmp_path / "b.jsonl", CONDITIONS, [row("coalesced", 5.0), row("cublas", 50.0, "peer")])
    found = {record.kernel: record.tflops for record, _ in latest(read_runs(tmp_path))}
    assert found == {"coalesced": 6.0, "cublas": 50.0}


def test_times_are_written_in_the_unit_that_fits() -> None:
    assert [time_words(x) for x in (2.0, 0.0275, 7.1e-6, 4e-9, None)] == [
        "2 s",
        "27.5 ms",
        "7.1 us",
        "4 ns",
        "-",
    ]


def test_the_command_of_a_run_names_no_place_on_a_computer() -> None:
    from lapidist_lab.bench.protocol.conditions import command_line

    assert (
        command_line(["climb", "--size", "64", "--record", "/home/someone/out"])
        == "lapidist climb --size 64 --record out"
    )
