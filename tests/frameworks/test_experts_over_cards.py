"""lab/examples/experts_over_cards.py: experts on several ranks give what one rank gives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SMALL = ["--tokens", "64", "--width", "32", "--hidden", "16", "--experts", "8", "--top", "2"]


def run(*options: str) -> list[str]:
    program = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*program, str(ROOT / "lab/examples/experts_over_cards.py"), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return sorted(line for line in done.stdout.splitlines() if line.startswith("rank"))


@pytest.mark.frameworks
def test_two_processes() -> None:
    first, second = run("--cpu", *SMALL)
    assert first.startswith("rank 0: 64 tokens, 4 of 8 experts here")
    assert second.startswith("rank 1: 64 tokens, 4 of 8 experts here")


@pytest.mark.gpu
@pytest.mark.two_gpus
def test_two_cards() -> None:
    assert len(run()) == 2
