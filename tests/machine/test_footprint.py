"""What a launch may take from its host: memory in bounds, no object of Python's, no lock over a fork."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lapidist.errors import ArgumentError
from lapidist.launch import Memory
from lapidist.machine import run, run_ptx
from lapidist.machine.faults import BudgetExceeded
from lapidist.machine.foreign import make_launch
from snippets import HEADER, kernel, run_body

EMPTY = f"{HEADER}.visible .entry k() {{ ret; }}"
LARGEST_GRID = (2**31 - 1, 65535, 65535)


@pytest.mark.parametrize("grid", [(2**31 - 1, 1, 1), LARGEST_GRID])
def test_blocks_of_the_largest_grids_are_made_as_they_run(grid: tuple[int, int, int]) -> None:
    started = []
    with pytest.raises(BudgetExceeded, match="ran 20 blocks of code"):
        run_ptx(EMPTY, "k", grid, (32, 1, 1), {}, budget=20, on_progress=lambda *told: started.append(told))
    assert [blocks for blocks, _ in started[:2]] == [512, 1024]
    assert started[0][1] == grid[0] * grid[1] * grid[2]
    with pytest.raises(ArgumentError, match=r"must hold what .*the sanitizer's memory"):
        run_ptx(EMPTY, "k", grid, (32, 1, 1), {}, sanitize=True)


def test_memory_has_a_budget() -> None:
    text = kernel(".local .b8 large[524288]; st.local.u8 [large], 1;")
    arguments = {"in": 0, "out": 0}
    with pytest.raises(
        ArgumentError,
        match=r"memory_budget: must hold what 16 resident .* \(local memory 8,589,934,592.*residency=",
    ):
        run_ptx(text, "k", (16, 1, 1), (1024, 1, 1), arguments)
    run_ptx(text, "k", (16, 1, 1), (8, 1, 1), arguments, residency=1)
    small = kernel("st.global.u32 [%out], 1;")
    out = np.zeros(1, "u4")
    with pytest.raises(ArgumentError, match="memory_budget: must hold"):
        run_ptx(small, "k", (1, 1, 1), (32, 1, 1), {"in": 0, "out": out}, memory_budget=1000)
    assert out == 0
    declared = " ".join(f".global .b8 v{n}[4294967296];" for n in range(4))
    large = kernel(" ".join(f"mov.u64 %rd{n}, v{n};" for n in range(4)), declared)
    with pytest.raises(ArgumentError, match="variables of the module 17,179,869,184"):
        run_ptx(large, "k", (1, 1, 1), (32, 1, 1), arguments)
    large_array, checked = np.zeros(1 << 20, "u1"), {"sanitize": True, "memory_budget": 1 << 23}
    with pytest.raises(ArgumentError, match="the sanitizer's memory"):
        run_ptx(small, "k", (1, 1, 1), (32, 1, 1), {"in": 0, "out": large_array}, **checked)
    # What is only read takes a fourteenth of it.
    run_ptx(small, "k", (1, 1, 1), (1, 1, 1), {"in": large_array, "out": out}, **checked)


OBJECTS = [
    np.array([{}, []], object),
    np.array(["text"]),
    np.zeros(2, [("number", "f4"), ("any", object)]),
    np.zeros(2, "M8[s]"),
]


@pytest.mark.parametrize("array", OBJECTS, ids=["objects", "text", "a field of objects", "dates"])
def test_only_plain_numbers_are_memory(array: np.ndarray) -> None:
    out = np.zeros(1, "u4")
    with pytest.raises(ArgumentError, match=r"in: must be an array of plain numbers; got dtype"):
        run_body("st.global.u64 [%in], 0;", array, out)
    with pytest.raises(ArgumentError, match=r"memory\[0\]: must be an array of plain numbers"):
        run_body("ret;", out, out, memory=[array])
    launch = make_launch(EMPTY, "k", (1, 1, 1), (32, 1, 1), {})
    with pytest.raises(ArgumentError, match="memory x: must be an array of plain numbers"):
        run(replace(launch, memory=(Memory("x", array.ctypes.data, array.nbytes, array),)))


@pytest.mark.parametrize("view", [np.s_[::-1], np.s_[::2], np.s_[1::3], np.s_[-1::-4]])
def test_memory_is_without_gaps_and_forwards(view: slice) -> None:
    x, out = np.zeros(64, "u1"), np.zeros(1, "u4")
    with pytest.raises(
        ArgumentError, match=r"memory\[0\]: must be an array without gaps, forwards; got strides"
    ):
        run_body("ret;", out, out, memory=[x[view]])
    with pytest.raises(ArgumentError, match="in: must be an array without gaps, forwards"):
        run_body("ret;", x[view], out)
    with pytest.raises(ArgumentError, match=r"memory\[1\]: must be a NumPy array; got list"):
        run_body("ret;", out, out, memory=[x, [1]])
    run_body("ret;", x[3:4][::-1], out)  # of one element there is no other order


def test_a_child_runs_the_machine_though_threads_of_its_parent_did() -> None:
    script = Path(__file__).parent / "forked.py"
    paths = os.pathsep.join(["src", str(script.parent), *sys.path])
    started = subprocess.Popen(
        [sys.executable, script], env={**os.environ, "PYTHONPATH": paths}, start_new_session=True
    )
    try:
        assert started.wait(timeout=120) == 0
    finally:
        if started.poll() is None:  # children that hang are in its group
            os.killpg(started.pid, signal.SIGKILL)
            started.wait()


@pytest.mark.parametrize(
    "grid", [(1, 1), (1, 1, 1, 1), 3, (1.0, 1, 1), (True, 1, 1), ("1", 1, 1), None, (0, 1, 1), (2**31, 1, 1)]
)
def test_extents_are_three_whole_numbers(grid: object) -> None:
    for name in ("grid", "block", "cluster"):
        extents = {"grid": (1, 1, 1), "block": (32, 1, 1), "cluster": (1, 1, 1), name: grid}
        with pytest.raises(
            ArgumentError,
            match=f"{name}: must be a tuple of three whole numbers, along x, y and z, from 1 to",
        ):
            run(replace(make_launch(EMPTY, "k", (1, 1, 1), (1, 1, 1), {}), **extents))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["budget", "memory_budget", "residency", "seed"])
@pytest.mark.parametrize("value", [-1, 1.5, "3", True])
def test_numbers_of_a_run_are_whole(name: str, value: object) -> None:
    with pytest.raises(ArgumentError, match=f"{name}: must be a whole number from"):
        run_ptx(EMPTY, "k", (1, 1, 1), (32, 1, 1), {}, **{name: value})  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="launch: must be a Launch"):
        run(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["ptx_text", "entry", "args", "memory", "shared_bytes"])
def test_what_run_ptx_is_given_has_a_type(name: str) -> None:
    given = {"ptx_text": EMPTY, "entry": "k", "grid": (1, 1, 1), "block": (32, 1, 1), "args": {}, name: 3.5}
    with pytest.raises(ArgumentError, match=f"{name}: must be .*; got"):
        run_ptx(**given)  # type: ignore[arg-type]
