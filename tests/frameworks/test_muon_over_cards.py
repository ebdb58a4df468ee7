"""lab/examples/muon_over_cards.py: Muon on several ranks takes the steps of one rank."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SMALL = ["--cpu", "--width", "24", "--layers", "3", "--steps", "2"]  # three matrices of a shape, two ranks


def run(*options: str) -> list[str]:
    program = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*program, str(ROOT / "lab/examples/muon_over_cards.py"), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return sorted(line for line in done.stdout.splitlines() if line.startswith("rank"))


@pytest.mark.frameworks
@pytest.mark.parametrize("options", [[], ["--sharded"]])
def test_two_processes(options: list[str]) -> None:
    """Parameters whole in each, as DDP has them, and split by rows."""
    first, second = run(*options, *SMALL)
    assert first.startswith("rank 0: 2 steps")
    assert second.startswith("rank 1: 2 steps")


@pytest.mark.gpu
@pytest.mark.two_gpus
@pytest.mark.parametrize("options", [[], ["--sharded"]])
def test_two_cards(options: list[str]) -> None:
    assert len(run(*options)) == 2
