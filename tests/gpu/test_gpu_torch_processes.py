"""lapidist.torch on two cards: torch's DTensor and its plans for models, by NCCL."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.gpu
@pytest.mark.two_gpus
def test_two_cards_share_products_layers_and_models(torch: Any, tmp_path: Path) -> None:
    assert torch.cuda.device_count() > 1, "there is one GPU: run the others with -m 'gpu and not two_gpus'"
    processes = importlib.import_module("torch_processes")
    processes.in_processes(processes.everything, tmp_path, "cuda")
