"""lapidist.distributed on two cards: collectives by NCCL, and ways over peers' memory."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.gpu
@pytest.mark.two_gpus
def test_two_cards_share_products_gradients_and_graphs(torch: Any, tmp_path: Path) -> None:
    assert torch.cuda.device_count() > 1, "there is one GPU: run the others with -m 'gpu and not two_gpus'"
    ranks = importlib.import_module("ranks_on_cards")
    ranks.in_processes(ranks.on_cards, tmp_path, "cuda")
