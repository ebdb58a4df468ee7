"""The file of kernels that calls load, and what `lapidist warm` makes of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lapidist.build import kernel_log
from lapidist.build.compiler import Order
from lapidist.build.folder import warn_once
from lapidist.build.kernel_log import VARIABLE, log_kernel, read_orders
from lapidist.errors import ArgumentError

ORDER = Order("gemm/simt.cu", "simt", {"BM": 64, "T": "float"}, "sm_90a", ())
OTHER = ORDER._replace(defines={"BM": 128, "EPILOGUE": "gelu(acc, x0)"}, more=("--maxrregcount=128",))


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    kernel_log.append.cache_clear()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "kernels.jsonl"))
    return tmp_path / "kernels.jsonl"


def test_each_kernel_is_a_line_and_comes_back(log: Path) -> None:
    for order in (ORDER, OTHER, ORDER):
        log_kernel(order)
    assert len(log.read_text().splitlines()) == 2
    assert read_orders(log) == [ORDER, OTHER]


def test_lines_of_several_processes_count_once(log: Path) -> None:
    log_kernel(ORDER)
    log.write_text(log.read_text() * 3 + "\n")
    assert read_orders(log) == [ORDER]


def test_nothing_is_logged_unless_it_is_asked_for(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE)
    log_kernel(ORDER)
    assert not log.exists()


def test_a_log_that_cannot_be_written_stops_no_call(
    log: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    warn_once.cache_clear()
    monkeypatch.setenv(VARIABLE, str(log / "in" / "no" / "folder"))
    for order in (ORDER, OTHER):
        log_kernel(order)
    assert VARIABLE in caplog.text


def line_with(**changed: object) -> str:
    return json.dumps(ORDER._asdict() | changed)


@pytest.mark.parametrize(
    "line",
    [
        "no JSON",
        "[]",
        '{"source": "gemm/simt.cu"}',
        line_with(source="../../etc/passwd"),
        line_with(source=["a"]),
        line_with(entry=1),
        line_with(defines={"BM": []}),
        line_with(defines={"NO_KNOB": 1}),
        line_with(defines={"BM": "1\n2"}),
        line_with(more=[1]),
        line_with(further=1),
    ],
)
def test_other_lines_are_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "log").write_text(f"\n{line}\n")
    with pytest.raises(ArgumentError, match=r"--log: line 2 must"):
        read_orders(tmp_path / "log")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=f"--log: must be a file that {VARIABLE} named"):
        read_orders(tmp_path / "none")
