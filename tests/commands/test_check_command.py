"""`lapidist check`: a file in, findings and an exit code out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import run

SOURCE = """
#include "sizes.h"
extern "C" __global__ void shift(const float *x, float *y, int n) {
    __shared__ float tile[SIZE];
    if (threadIdx.x < n) tile[threadIdx.x] = FACTOR * x[threadIdx.x];
    BARRIER;
    y[threadIdx.x] = tile[(threadIdx.x + 32) % SIZE];
}
"""
VALUES = ["--block", "64", "--arg", "n=64", "--arg", "x=float32[64]:random", "--arg", "1=float32[64]"]


@pytest.fixture
def launch(tmp_path: Path) -> list[str]:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "sizes.h").write_text("#define SIZE 64\n")
    (tmp_path / "shift.cu").write_text(SOURCE)
    return [
        "check",
        str(tmp_path / "shift.cu"),
        "-I",
        str(tmp_path / "more"),
        "-D",
        "FACTOR=2",
        "--seeds",
        "2",
    ]


def test_check_finds_and_fails(
    launch: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*launch, *VALUES, "-D", "BARRIER="], monkeypatch) == 1
    out = capsys.readouterr().out
    assert "shift.cu:7: error: " in out
    assert out.rstrip().endswith("warnings in 3 runs")
    assert run([*launch, *VALUES, "-D", "BARRIER=", "--json"], monkeypatch) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["kernel"] == "shift"
    assert data["errors"] == len(data["findings"]) > 0
    quiet = ["--ignore", "shift.cu:7", "--level", "race=warning", "--level", "uninitialised=off"]
    assert run([*launch, *VALUES, "-D", "BARRIER=", *quiet], monkeypatch) == 0


def test_check_passes_a_sound_kernel(
    launch: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*launch, *VALUES, "-D", "BARRIER=__syncthreads()"], monkeypatch) == 0
    assert capsys.readouterr().out == "shift: 0 errors and 0 warnings in 3 runs\n"


def test_check_writes_coverage_and_a_trace(
    launch: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page, trace = tmp_path / "shift.html", tmp_path / "shift.json"
    sound = [*launch, *VALUES, "-D", "BARRIER=__syncthreads()", "--coverage"]
    assert run([*sound, "--html", str(page), "--trace", str(trace)], monkeypatch) == 0
    out = capsys.readouterr().out
    assert "\n+     6     BARRIER;" in out
    assert '<tr class="yes"><td>6</td>' in page.read_text()
    assert {"X", "M"} <= {event["ph"] for event in json.loads(trace.read_text())["traceEvents"]}
    assert run([*sound, "--json"], monkeypatch) == 0
    assert json.loads(capsys.readouterr().out)["coverage"]["shift.cu"]["6"]["ran"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--arg", "n=64"], "--arg: must give every parameter; x, y has none. Add --arg x=…"),
        (
            ["--arg", "m=64"],
            "--arg: must give each of x, y, n once, by name or by position from 0 on; got 'm'",
        ),
        (["--arg", "0=1", "--arg", "x=2"], "got 'x'"),
        (["--level", "speed=off"], "levels: must name a rule"),
        (["--entry", "other"], "entry: must name one kernel of"),
        (["--arch", "sm_100"], "arch: must be sm_90a or an older one"),
    ],
)
def test_check_names_what_is_wrong(
    launch: list[str],
    options: list[str],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run([*launch, "-D", "BARRIER=", *options], monkeypatch) == 2
    assert words in capsys.readouterr().err


def test_run_ptx_takes_no_other_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "shift.cu").write_text(SOURCE)
    assert run(["run-ptx", str(tmp_path / "shift.cu"), "--entry", "shift"], monkeypatch) == 2
    assert "FILE: must be PTX, which begins with .version" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["check", "run"])
def test_a_file_that_is_not_there_names_the_one_like_it(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "kernel.cu").touch()
    assert run([command, str(tmp_path / "kernl.cu")], monkeypatch) == 2
    assert f"Did you mean {tmp_path / 'kernel.cu'}?" in caplog.text
    assert run([command, str(tmp_path / "colour.txt")], monkeypatch) == 2
    assert f"No file of {tmp_path} has such a name" in caplog.text


def test_a_type_that_a_rung_does_not_multiply_names_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert run(["explain", "26"], monkeypatch) == 2
    assert "--dtype: wgmma_tma multiplies fp16, bf16, " in caplog.text
    assert caplog.text.rstrip().endswith("got fp32. Add --dtype fp16")


def test_check_writes_a_lesson_of_the_kernel(
    launch: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "shift.html"
    for barrier, code in (("__syncthreads()", 0), ("", 1)):
        options = ["-D", f"BARRIER={barrier}", "--page", str(page)]
        assert run([*launch, *VALUES, *options], monkeypatch) == code
        assert 'id="shift.cu:7"' in page.read_text(encoding="utf-8")
        assert ('class="found"' in page.read_text(encoding="utf-8")) == bool(code)


def test_check_ends_a_loop_without_end_by_its_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "spin.cu").write_text("__global__ void spin(int* x) { while (x[0] < 9) if (x[1]) x[0]++; }")
    command = ["check", str(tmp_path / "spin.cu"), "--arg", "x=int32[2]", "--budget", "99"]
    assert run(command, monkeypatch) == 1
    assert "ran 99 blocks of code and did not end" in capsys.readouterr().out
