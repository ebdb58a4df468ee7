"""lab/examples/llama_over_cards.py: a model on several ranks gives what it gives on one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SMALL = {
    "width": 32,
    "hidden": 48,
    "heads": 4,
    "shared": 2,
    "layers": 2,
    "words": 50,
    "tokens": 8,
    "decode": 3,
}


def run(*options: str) -> str:
    """What both ranks print; their lines may run into each other."""
    program = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*program, str(ROOT / "lab/examples/llama_over_cards.py"), *options]
    process = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert process.returncode == 0, process.stderr[-2000:]
    return process.stdout


@pytest.mark.frameworks
def test_two_processes() -> None:
    sizes = [word for name, value in SMALL.items() for word in (f"--{name}", str(value))]
    text = run("--cpu", *sizes)
    assert "rank 0 of 2: off by" in text
    assert "rank 1 of 2: off by" in text


@pytest.mark.gpu
@pytest.mark.two_gpus
def test_two_cards() -> None:
    assert run().count(" of 2: off by") == 2
