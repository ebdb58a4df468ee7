"""Layers of few bits split over two processes on the CPU."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


def test_ranks_have_parts_of_packed_weights(torch: object, tmp_path: Path) -> None:
    processes, ranks = map(importlib.import_module, ("torch_processes", "packed_ranks"))
    processes.in_processes(ranks.everything, tmp_path, "cpu")
