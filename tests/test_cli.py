"""The command line: what goes to stdout, what wrong arguments answer, what happens without a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lapidist import cli, driver
from lapidist.bench import plots
from lapidist.errors import DeviceError


def run(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """main() in this process; its exit code."""
    monkeypatch.setattr(sys, "argv", ["lapidist", *arguments])
    with pytest.raises(SystemExit) as exit_:
        cli.main()
    return int(exit_.value.code or 0)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> None:
        raise DeviceError("device: no usable NVIDIA driver")

    monkeypatch.setattr(driver, "gpu_count", lambda: 0)
    monkeypatch.setattr(driver, "load_driver", absent)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["climb", "--size", "0"], ["--size", "m must be", "got 0"]),
        (["climb", "--size", "-5"], ["--size", "got -5", "at least 1"]),
        (["climb", "--size", "many"], ["--size", "whole number", "'many'"]),
        (["climb", "--size", "4", "--mnk", "1,2,3"], ["--size", "--mnk"]),
        (["climb", "--mnk", "1,2"], ["--mnk", "three", "'1,2'"]),
        (["climb", "--mnk", "1,0,2"], ["--mnk", "n must be", "got 0"]),
        (["climb", "--dtype", "int7"], ["--dtype", "float32", "'int7'"]),
        (["climb", "--kernels", "best"], ["--kernels", "coalesced", "'best'"]),
        (["climb", "--device", "tpu"], ["--device", "machine", "'tpu'"]),
        (["climb", "--rounds", "0"], ["--rounds", "at least 1", "got 0"]),
        (["climb", "--csv", "/nowhere/rows.csv"], ["--csv", "folder that exists", "/nowhere"]),
        (["climb", "--html", "/"], ["--html", "is a folder"]),
        (["climb", "--plot", "ladder.txt"], ["--plot", ".svg", "ladder.txt"]),
        (["bench", "squars"], ["LISTS", "squares", "'squars'"]),
        (["bench", "--file", "/nowhere.json"], ["--file", "/nowhere.json"]),
        (["bench", "--launch", "--device", "machine"], ["--device", "machine"]),
        (["report", "--root", "/nowhere"], ["--root", "results", "/nowhere"]),
        (["static", "nothing"], ["kernel", "coalesced", "'nothing'"]),
    ],
)
def test_a_wrong_argument_is_one_line_and_exit_code_2(
    arguments: list[str], words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments, monkeypatch) == 2
    answer = capsys.readouterr()
    assert answer.out == ""
    assert answer.err.startswith("lapidist: ")
    assert answer.err.count("\n") == 1
    for word in words:
        assert word in answer.err


def test_a_missing_matplotlib_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert run(["climb", "--plot", str(tmp_path / "ladder.svg")], monkeypatch) == 2
    assert 'pip install "lapidist[plots]"' in capsys.readouterr().err


def test_missing_torch_and_cupy_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from lapidist.bench.frameworks import find_framework

    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "cupy", None)
    find_framework.cache_clear()
    with pytest.raises(DeviceError, match=r"framework: .*lapidist\[torch\]"):
        find_framework()


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu_rungs_are_compiled_and_the_answer_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["climb", "--size", "4096", "--kernels", "2,8", "--json"], monkeypatch) == 0
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
    assert run(["climb", "--kernels", "2"], monkeypatch) == 0
    answer = capsys.readouterr()
    assert "no GPU was found, so nothing was timed" in answer.err
    assert "256^3 float32 on machine" in answer.out


@pytest.mark.usefixtures("no_gpu")
def test_asking_for_a_gpu_that_is_not_there_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["climb", "--device", "0"], monkeypatch) == 2
    assert "no usable NVIDIA driver" in capsys.readouterr().err


def test_the_machine_judges_and_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    html, csv, folder = tmp_path / "page.html", tmp_path / "rows.csv", tmp_path / "kept"
    outputs = ["--html", str(html), "--csv", str(csv), "--record", str(folder), "--json"]
    assert run(["climb", "--device", "machine", "--mnk", "40,36,20", "--kernels", "2,8,b_transposed", *outputs], monkeypatch) == 0
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


def test_a_plot_is_drawn_without_a_display(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / "ladder.svg"
    assert (
        run(["climb", "--device", "machine", "--size", "32", "--kernels", "2", "--plot", str(file), "--json"], monkeypatch) == 0
    )
    first = file.read_text()
    assert "<svg" in first
    assert file.suffix in plots.FORMATS


def test_the_module_runs_and_imports_lazily() -> None:
    code = (
        "import sys, lapidist.cli; print(any(name in sys.modules for name in ('numpy', 'cuda.bindings', 'matplotlib', 'torch')))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"
    help_ = subprocess.run([sys.executable, "-m", "lapidist", "--help"], capture_output=True, text=True, check=True)
    for command in ("climb", "bench", "report", "static", "doctor"):
        assert command in help_.stdout
