"""The fixture `lapidist_machine`, in a run of pytest of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

KERNELS = """
import numpy as np

SOURCE = '''
extern "C" __global__ void shift(float* x) {{
    __shared__ float tile[64];
    tile[threadIdx.x] = x[threadIdx.x];
    {barrier}
    x[threadIdx.x] = tile[(threadIdx.x + 32) % 64];
}}'''

def test_shift(lapidist_machine, tmp_path):
    (tmp_path / "shift.cu").write_text(SOURCE)
    x = np.arange(64, dtype="f4")
    found = lapidist_machine.check(tmp_path / "shift.cu", (1, 1, 1), (64, 1, 1), x)
    assert x[0] == 32
    print("runs:", found.runs)
"""


def run_tests(folder: Path, barrier: str, *options: str) -> tuple[int, str]:
    (folder / "test_kernels.py").write_text(KERNELS.format(barrier=barrier))
    # Whether the package's entry point is installed or not, the plugin is loaded once.
    once = ["-p", "no:lapidist", "-p", "lapidist.pytest_plugin"]
    command = [sys.executable, "-m", "pytest", *once, "-p", "no:cacheprovider", "-s"]
    done = subprocess.run([*command, *options, str(folder)], capture_output=True, text=True, cwd=folder)
    return done.returncode, done.stdout


def test_the_fixture_fails_a_test_with_what_it_found(tmp_path: Path) -> None:
    code, text = run_tests(tmp_path, "", "--kernel-seeds", "2")
    assert code == 1
    assert "shift.cu:" in text
    assert "[race]" in text or "[uninitialised]" in text
    assert "Traceback" not in text


def test_a_sound_kernel_passes_on_as_many_schedules_as_asked(tmp_path: Path) -> None:
    code, text = run_tests(tmp_path, "__syncthreads();", "--kernel-seeds", "3")
    assert code == 0, text
    assert "runs: 4" in text
