"""lapidist.distributed where ranks disagree, are killed or stay away: one process each, and how it ended."""

from __future__ import annotations

import importlib
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from lapidist.errors import LaunchError, ShapeError
from parallel_ranks import LIMIT, equal

ours = importlib.import_module("lapidist.distributed")


def joined(rank: int, path: str, count: int) -> None:
    torch.set_num_threads(1)
    store = torch.distributed.FileStore(path, count)
    torch.distributed.init_process_group("gloo", rank=rank, world_size=count, store=store, timeout=LIMIT)


def with_other_shapes(rank: int, path: str, count: int) -> None:
    """Also where only the type differs, and after a shape on which all agreed."""
    joined(rank, path, count)
    b = torch.ones(4, 4)
    for _ in range(2):
        ours.all_gather_matmul(torch.ones(2, 4), b)
    with pytest.raises(
        ShapeError, match=r"got all_gather_matmul: a \(5, 4\) float32.* on rank 0; .* \(6, 4\)"
    ):
        ours.all_gather_matmul(torch.ones(5 + rank, 4), b)
    dtype = torch.bfloat16 if rank else torch.float32
    with pytest.raises(ShapeError, match=r"on rank 0; matmul_reduce_scatter: a \(4, 4\) bfloat16"):
        ours.matmul_reduce_scatter(torch.ones(4, 4, dtype=dtype), b.to(dtype))
    equal(ours.all_gather_matmul(torch.ones(2, 4), b), torch.full((2 * count, 4), 4.0))
    os._exit(0)


def with_a_rank_that_is_killed(rank: int, path: str, count: int) -> None:
    """In a call of a shape that was there before, and in one of a new shape."""
    joined(rank, path, count)
    a, b = torch.ones(4, 4), torch.ones(4, 4)
    ours.matmul_all_reduce(a, b)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    for rows in (a, a[:2]):
        with pytest.raises(LaunchError, match=r"rank 0 of 2 got no answer within the group's time limit"):
            ours.matmul_all_reduce(rows, b)
    os._exit(0)


def with_a_rank_that_stays_away(rank: int, path: str, count: int) -> None:
    """It waits in a call of another shape meanwhile: both end by the time limit."""
    joined(rank, path, count)
    a, b = torch.ones(4, 4), torch.ones(4, 4)
    ours.matmul_all_reduce(a, b)
    words = "; rank 0 called matmul_all_reduce: a (2, 4) float32" if rank else "rank 0 of 2 got no answer"
    with pytest.raises(LaunchError, match=re.escape(words)):
        ours.matmul_all_reduce(a if rank else a[:2], b)
    os._exit(0)


def ended(work: Any, folder: Path, count: int = 2) -> list[int]:
    """The exit codes of processes that run `work`."""
    context = torch.multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=work, args=(rank, str(folder / "store"), count)) for rank in range(count)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return [process.exitcode for process in processes]
