"""CUDA graphs in `lapidist run`: captured from streams, and made of nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cuda_graph_programs import CAPTURED, EXPLICIT
from cuda_programs import fat_ptx, program, ptx
from lapidist.machine.programs.run_program import run_program

pytestmark = pytest.mark.c_compiler


def run(executable: Path, capfd: pytest.CaptureFixture[str], word: str) -> tuple[list[str], dict[str, Any]]:
    """What it printed, and its report."""
    report = run_program(executable, [word])
    assert report.exit_code == 0, capfd.readouterr().out
    return capfd.readouterr().out.splitlines(), report.data()


def test_a_captured_graph_runs_when_it_is_launched(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """y = x + 2 y: sums of 128 numbers that are 1, 4, and then 28 by a factor of 10."""
    executable = program(tmp_path, fat_ptx(ptx()), main=CAPTURED)
    lines, report = run(executable, capfd, "")
    assert lines == [
        "capture 0, out -1",
        "round 1: 128",
        "round 2: 512",
        "updated: 3584, of 4 nodes and 3 edges",
    ]
    assert report["launches"] == {"saxpy": 3, "partial": 3, "total": 3}
    assert (report["findings"], report["notes"]) == ([], [])
    lines, report = run(executable, capfd, "race")
    assert lines[-1].endswith("of 5 nodes and 4 edges")
    (finding,) = report["findings"]
    assert (finding["rule"], finding["kernel"]) == ("stream-race", "cudaMemset")
    assert "in another branch of a graph; no dependency orders the two" in finding["message"]
    for word, error in (("unjoined", 904), ("waits", 901), ("allocates", 901)):
        lines, report = run(executable, capfd, word)
        assert (lines, report["launches"]) == ([f"capture {error}, out -1"], {}), word


def test_a_graph_of_nodes_runs_in_their_order(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    executable = program(tmp_path, fat_ptx(ptx()), main=EXPLICIT)
    lines, report = run(executable, capfd, "")
    assert lines == [
        "summed",
        "448 448",  # 3 * 1 + 2 * 2
        "summed",
        "7296 of type 1",  # 100 * 1 + 2 * 7, as y was not set again
        "5 6 9 10 17 18 21 22 ",
        "device 101, 101",
        "array 801",
    ]
    assert report["findings"] == []
    assert report["notes"][0].startswith("the program asked for device 1; the machine has one, device 0")
    assert report["notes"][1].startswith("cudaMemcpy3D of a cudaArray was called, which the stand-in")
    _, report = run(executable, capfd, "race")
    races = {(finding["rule"], finding["kernel"]) for finding in report["findings"]}
    assert races == {("stream-race", "saxpy"), ("stream-race", "partial")}
    lines, _ = run(executable, capfd, "circle")
    assert lines == ["circle 1"]
