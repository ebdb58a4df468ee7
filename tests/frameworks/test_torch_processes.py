"""lapidist.torch in two processes on the CPU: torch's DTensor and its plans for models."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


def test_two_processes_share_products_layers_and_models(tmp_path: Path) -> None:
    processes = importlib.import_module("torch_processes")
    processes.in_processes(processes.everything, tmp_path, "cpu")
