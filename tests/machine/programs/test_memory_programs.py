"""Memory in the order of streams in `lapidist run`: graphs that allocate and free, pools, attributes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cuda_memory_programs import MEMORY
from cuda_programs import fat_ptx, program, ptx
from lapidist.machine.programs.device_memory import PINNED, DeviceMemory
from lapidist.machine.programs.run_program import run_program

FAULT = "cudaDeviceSynchronize(): an illegal memory access was encountered"
pytestmark = pytest.mark.c_compiler


def run(executable: Path, capfd: pytest.CaptureFixture[str], word: str) -> tuple[list[str], dict[str, Any]]:
    """What it printed, and its report."""
    report = run_program(executable, [word])
    return capfd.readouterr().out.splitlines(), report.data()


def rules(report: dict[str, Any]) -> list[str]:
    return [finding["rule"] for finding in report["findings"]]


def test_graphs_allocate_and_free(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    executable = program(tmp_path, fat_ptx(ptx()), main=MEMORY)
    for word, printed, broken in (
        ("", ["64, 0 of 256 bytes"], []),
        ("kept", ["launch 1: 1", "64, 256 of 256 bytes"], []),  # nobody freed what the first launch took
        ("again", ["64, 0 of 256 bytes"], []),
        ("unordered", ["64, 0 of 256 bytes"], ["stream-race"]),
        ("late", ["launch 1: 700", FAULT], ["out-of-bounds"]),
        ("early", ["cudaMemset(x, 0, 256): invalid argument"], []),
        ("captured", ["captured: 0"], []),
    ):
        lines, report = run(executable, capfd, word)
        assert (lines, sorted(set(rules(report))), report["notes"]) == (printed, broken, []), word


def test_nobody_wrote_a_graphs_memory_when_it_is_allocated() -> None:
    memory = DeviceMemory()
    piece = memory.reserve(64)
    assert piece is not None
    for _ in range(2):
        assert (memory.at(piece.start), memory.used) == (None, 0)
        assert memory.revive(piece.start)
        assert not memory.revive(piece.start)
        assert piece.undefined is not None
        assert piece.undefined.all()
        memory.write(piece.start, 64)
        assert memory.free(piece.start)
    assert memory.reserve(1 << 50) is None
    memory.close()


def test_what_a_schedule_writes_is_undone() -> None:
    memory = DeviceMemory()
    pieces = [memory.allocate(nbytes, PINNED) for nbytes in (5000, 16)]
    arrays = [piece.array for piece in pieces if piece is not None]
    for array in arrays:
        array[:] = 1
    with memory.undone():
        for array in arrays:
            array[::2] = 2
            assert (array[::2] == 2).all()
            assert (array[1::2] == 1).all()
    assert all((array == 1).all() for array in arrays)
    later = memory.allocate(8, PINNED)
    assert later is not None
    later.array[:] = 3
    memory.close()


def test_pools_and_attributes_answer(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    executable = program(tmp_path, fat_ptx(ptx()), main=MEMORY)
    lines, report = run(executable, capfd, "questions")
    assert lines == [
        "pool 4096, access 3, chosen 1 1; 3 4; held 801",
        "priority -2, limit 2097152, 215; partial: 4 at 16, 1; 115456 bytes, device 0",
    ]
    assert (report["exit_code"], report["findings"]) == (0, [])
    assert report["notes"][0].startswith("an attribute of a pool's bytes was called")
