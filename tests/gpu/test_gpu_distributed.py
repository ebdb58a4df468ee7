"""lapidist.distributed on two cards: collectives by NCCL, and ways over peers' memory."""

from __future__ import annotations

import importlib
import signal
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.two_gpus]
KILLED = -signal.SIGKILL


@pytest.fixture
def faults(torch: Any) -> Any:
    assert torch.cuda.device_count() > 1, "there is one GPU: run the others with -m 'gpu and not two_gpus'"
    return importlib.import_module("rank_faults")


def test_two_cards_share_products_gradients_and_graphs(torch: Any, tmp_path: Path) -> None:
    assert torch.cuda.device_count() > 1, "there is one GPU: run the others with -m 'gpu and not two_gpus'"
    ranks = importlib.import_module("ranks_on_cards")
    ranks.in_processes(ranks.on_cards, tmp_path, "cuda")


def test_a_killed_card_is_an_error_of_the_next_call_by_every_way(faults: Any, tmp_path: Path) -> None:
    assert faults.ended(faults.with_a_card_that_is_killed, tmp_path) == [0, KILLED]


def test_a_killed_card_is_an_error_of_a_collective_that_is_waited_for(faults: Any, tmp_path: Path) -> None:
    assert faults.ended(faults.with_a_card_killed_before_a_collective, tmp_path) == [0, KILLED]


def test_torch_ends_a_process_whose_collective_reached_the_limit(faults: Any, tmp_path: Path) -> None:
    mine, other = faults.ended(faults.with_a_card_that_torch_ends, tmp_path)
    assert other == KILLED
    assert mine != 0
