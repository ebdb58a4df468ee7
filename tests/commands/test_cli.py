"""The command line: what goes to stdout, what wrong arguments answer, what happens without a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from command_line import run
from in_turns import surveyed
from lapidist.errors import DeviceError


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["climb", "--size", "0"], ["--size", "m must be", "got 0"]),
        (["climb", "--size", "-5"], ["--size", "got -5", "at least 1"]),
        (["climb", "--size", "many"], ["--size", "whole number", "'many'"]),
        (["climb", "--size", "4", "--mnk", "1,2,3"], ["--size", "--mnk"]),
        (["climb", "--mnk", "1,2"], ["--mnk", "three", "'1,2'"]),
        (["climb", "--mnk", "1,0,2"], ["--mnk", "n must be", "got 0"]),
        (["climb", "--dtype", "int7"], ["--dtype", "tf32", "'int7'"]),
        (["climb", "--kernel", "2,cublas"], ["--kernel", "'cublas'", "every run on a GPU"]),
        (["climb", "--record", "/nowhere"], ["--record", "folder that exists", "/nowhere"]),
        (["bench", "limits", "--device", "machine"], ["--device", "bench limits", "machine"]),
        (["bench", "scaled", "--device", "machine"], ["--device", "bench scaled", "machine"]),
        (["climb", "--kernel", "best"], ["--kernel", "lapidist kernels", "'best'"]),
        (["climb", "--device", "tpu"], ["--device", "machine", "'tpu'"]),
        (["climb", "--rounds", "0"], ["--rounds", "at least 1", "got 0"]),
        (["climb", "--csv", "/nowhere/rows.csv"], ["--csv", "folder that exists", "/nowhere"]),
        (["climb", "--html", "/"], ["--html", "is a folder"]),
        (["climb", "--plot", "ladder.txt"], ["--plot", ".svg", "ladder.txt"]),
        (
            ["schedule", "--mnk", "64,64,64", "--kernel", "wgmma"],
            ["--kernel", "wgmma", "float32", "Name another type"],
        ),
        (["bench", "cases"], ["--mnk", "must name a product", "--file"]),
        (["bench", "cases", "--file", "/nowhere.json"], ["--file", "/nowhere.json"]),
        (["bench", "launch", "--device", "machine"], ["--device", "machine"]),
        (["plan", "--mnk", "1,2"], ["--mnk", "three", "'1,2'"]),
        (["plan", "--mnk", "1,2,3", "--layout", "nt"], ["--layout", "rr, rc, cr, cc", "'nt'"]),
        (["report", "--root", "/nowhere"], ["--root", "results", "/nowhere"]),
        (["static", "nothing"], ["kernel", "lapidist kernels", "'nothing'"]),
        (["cover", "--chip", "a100"], ["--chip", "h100, h200", "'a100'"]),
    ],
)
def test_a_wrong_argument_is_one_line_and_exit_code_2(
    arguments: list[str],
    words: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(arguments, monkeypatch) == 2
    answer = capsys.readouterr()
    assert answer.out == ""
    assert answer.err.startswith("lapidist: ")
    assert answer.err.count("\n") == 1
    for word in words:
        assert word in answer.err


@pytest.mark.parametrize("more", [["--json"], []])
def test_commands_run_where_there_are_no_streams(more: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Under pythonw and in daemons."""
    for stream in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, stream, None)
    assert run(["climb", "--device", "machine", "--size", "16", "--kernel", "2", *more], monkeypatch) == 0
    assert run(["climb", "--size", "0"], monkeypatch) == 2
    assert (sys.stdout, sys.stderr) == (None, None)


def test_a_plot_is_an_svg_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["climb", "--plot", str(tmp_path / "ladder.png")], monkeypatch) == 2
    assert "--plot: must end in .svg" in capsys.readouterr().err


def test_missing_torch_and_cupy_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from lapidist_lab.bench.protocol.array_library import find_framework

    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "cupy", None)
    find_framework.cache_clear()
    with pytest.raises(DeviceError, match=r"framework: .*pip install .torch>=2\.11., or: pip install .cupy"):
        find_framework()


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu_rungs_are_compiled_and_the_answer_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["climb", "--size", "4096", "--kernel", "2,8", "--json"], monkeypatch) == 0
    answer = capsys.readouterr()
    assert "no GPU was found, so nothing was timed" in answer.err
    rows = [json.loads(line) for line in answer.out.splitlines()]
    assert [row["kernel"] for row in rows] == ["coalesced", "thread_tile"]
    for row in rows:
        assert row["seconds"] is None
        assert not row["ok"]
        assert row["registers"] > 0
    assert rows[1]["shared_bytes"] > 0


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu_small_products_run_in_the_machine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["climb", "--kernel", "2"], monkeypatch) == 0
    answer = capsys.readouterr()
    assert "no GPU was found, so nothing was timed" in answer.err
    assert "256^3 float32 on machine" in answer.out


@pytest.mark.usefixtures("no_gpu")
def test_asking_for_a_gpu_that_is_not_there_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for device in ("0", "gpu"):
        assert run(["climb", "--device", device], monkeypatch) == 3
    assert "no usable NVIDIA driver" in capsys.readouterr().err


def test_the_machine_judges_and_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    html, csv, folder = tmp_path / "page.html", tmp_path / "rows.csv", tmp_path / "kept"
    folder.mkdir()
    outputs = ["--html", str(html), "--csv", str(csv), "--record", str(folder), "--json"]
    assert (
        run(
            ["climb", "--device", "machine", "--mnk", "40,36,20", "--kernel", "2,8,b_transposed", *outputs],
            monkeypatch,
        )
        == 0
    )
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["layout"] for row in rows] == ["rrr", "rrr", "rcr"]
    for row in rows:
        assert row["ok"], row["error"]
        assert 0 < row["worst"] <= 1
        assert row["seconds"] > 0
        assert row["ratio"] is None
    assert "PTX machine" in html.read_text()
    assert len(csv.read_text().splitlines()) == 4
    assert len(list(folder.glob("machine-*.jsonl"))) == 1


@pytest.mark.parametrize(
    ("short", "math", "out"),
    [("tf32", "tf32", "float32"), *surveyed([("bf16", "bfloat16", "bfloat16"), ("int8", "int8", "int32")])],
)
def test_the_machine_climbs_in_other_types(
    short: str, math: str, out: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        run(
            [
                "climb",
                "--device",
                "machine",
                "--size",
                "40",
                "--dtype",
                short,
                "--kernel",
                "21,22,24,mma",
                "--json",
            ],
            monkeypatch,
        )
        == 0
    )
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["kernel"] for row in rows] == ["wmma_simple", "wmma_shared", "mma_multistage", "mma"]
    for row in rows:
        assert row["ok"], row["error"]
        assert (row["dtype"], row["out_dtype"], row["unit"]) == (math, out, "mma")
        assert 0 < row["ffma_share"] < 1


def test_a_kernel_that_lacks_the_type_is_a_row_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        run(
            ["climb", "--device", "machine", "--size", "16", "--dtype", "e4m3", "--kernel", "21", "--json"],
            monkeypatch,
        )
        == 1
    )
    row = json.loads(capsys.readouterr().out)
    assert not row["ok"]
    assert "the type is float8_e4m3fn" in row["error"]


def test_a_plot_is_drawn_without_a_display(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "ladder.svg"
    assert (
        run(
            ["climb", "--device", "machine", "--size", "32", "--kernel", "2", "--plot", str(file), "--json"],
            monkeypatch,
        )
        == 0
    )
    root = ElementTree.fromstring(file.read_text())
    assert root.tag.endswith("svg")
    assert "32^3" in "".join(root.itertext())


def test_the_module_runs_and_imports_lazily() -> None:
    heavy = "'numpy', 'cuda.bindings', 'torch'"
    code = f"import sys, lapidist.commands.cli; print(any(name in sys.modules for name in ({heavy})))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"
    help_ = subprocess.run(
        [sys.executable, "-m", "lapidist", "--help"], capture_output=True, text=True, check=True
    )
    for command in ("climb", "bench", "report", "static", "doctor"):
        assert command in help_.stdout
