"""Calls in a process that ends, that has no file descriptor left, or that loads the package again."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import lapidist

AT_THE_END = """
import numpy as np
import lapidist

a = np.ones((4, 4), np.float32)
kept = {before}

class Late:
    def __del__(self, lapidist=lapidist, a=a, kept=kept, error=lapidist.LapidistError, print=print):
        try:
            print({call}[0, 0])
        except error as raised:
            print(type(raised).__name__, raised)

late = Late()
"""
PRODUCT, IN_THE_MACHINE = "lapidist.matmul(a, a)", 'lapidist.matmul(a, a, device="machine")'
SHUTS_DOWN = "DeviceError interpreter: must be running"


def said_by(program: str) -> str:
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert found.stderr == ""
    return found.stdout


@pytest.mark.parametrize(
    ("before", "call", "words"),
    [
        (PRODUCT, PRODUCT, "4.0"),
        (None, PRODUCT, SHUTS_DOWN),
        (IN_THE_MACHINE, IN_THE_MACHINE, SHUTS_DOWN),
        (None, "lapidist.matmul(a, a, epilogue=lapidist.epilogues.relu)", SHUTS_DOWN),
        ("lapidist.gemm([a], [a])", "lapidist.gemm([a], [a])[0]", SHUTS_DOWN),
        ("lapidist.plan", "lapidist.plan(a, a).execute(a, a)", SHUTS_DOWN),
        ("lapidist.plan(a, a)", "kept.execute(a, a)", SHUTS_DOWN),
    ],
)
def test_a_product_while_the_interpreter_ends_runs_or_says_why(
    before: str | None, call: str, words: str
) -> None:
    assert said_by(AT_THE_END.format(before=before, call=call)).startswith(words)


WITHOUT_DESCRIPTORS = """
import os, resource, sys
import numpy as np
import lapidist

LapidistError = lapidist.LapidistError
a = np.ones((40, 40), np.float32)
{before}
_, most = limits = resource.getrlimit(resource.RLIMIT_NOFILE)
lowest = os.dup(0)
os.close(lowest)
resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + {free}, most))
try:
    {call}
except LapidistError as raised:
    print(raised)
resource.setrlimit(resource.RLIMIT_NOFILE, limits)
print({call}[0, 0])
"""


@pytest.mark.parametrize(
    ("before", "call", "free"),
    [
        ("", PRODUCT, 0),
        ("lapidist.matmul", IN_THE_MACHINE, 0),
        # NVRTC opens headers that open headers.
        (IN_THE_MACHINE, 'lapidist.matmul(a, a.T, device="machine")', 3),
    ],
)
def test_a_process_without_file_descriptors_names_the_limit(
    before: str, call: str, free: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAPIDIST_CACHE_DIR", str(tmp_path))
    words, product = said_by(WITHOUT_DESCRIPTORS.format(before=before, call=call, free=free)).splitlines()
    assert words.startswith("file descriptors: ")
    assert "`ulimit -n` allows" in words
    assert product == "40.0"  # the failure left nothing behind


def test_a_package_that_is_loaded_again_goes_on() -> None:
    a = np.ones((4, 4), np.float32)
    before = lapidist.matmul, lapidist.LapidistError, lapidist.Output, lapidist.epilogues
    importlib.reload(lapidist)
    assert (lapidist.matmul, lapidist.LapidistError, lapidist.Output, lapidist.epilogues) == before
    for device in ("host", "machine"):
        assert lapidist.matmul(a, a, device=device)[0, 0] == 4
        assert lapidist.matmul(a, a, device=device, epilogue=lapidist.epilogues.relu)[0, 0] == 4
    with pytest.raises(lapidist.ShapeError):
        lapidist.matmul(a, a[:3])


@pytest.mark.frameworks
def test_a_package_that_is_loaded_again_multiplies_for_every_framework() -> None:
    torch, jax = map(importlib.import_module, ("torch", "jax"))
    ours = [importlib.import_module(f"lapidist.{name}").matmul for name in ("torch", "jax")]
    importlib.reload(lapidist)
    for ones, own in zip((torch.ones, jax.numpy.ones), ours, strict=True):
        for matmul in (lapidist.matmul, own, jax.jit(own) if own is ours[1] else own):
            assert matmul(ones((4, 4)), ones((4, 4)))[0, 0] == 4
    leaf = torch.ones(4, 4, requires_grad=True)
    lapidist.torch.matmul(leaf, torch.ones(4, 4)).sum().backward()
    assert leaf.grad[0, 0] == 4
