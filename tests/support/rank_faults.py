"""lapidist.distributed where ranks disagree, are killed or stay away: one process each, and how it ended."""

from __future__ import annotations

import importlib
import os
import re
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import lapidist
from lapidist.errors import ArgumentError, LaunchError, ShapeError
from parallel_ranks import LIMIT, equal

ours = importlib.import_module("lapidist.distributed")
HANGS = 240  # seconds after which a process is taken to hang


def joined(rank: int, path: str, count: int, backend: str = "gloo") -> None:
    torch.set_num_threads(1)
    if backend == "nccl":
        torch.cuda.set_device(rank)
        torch.set_default_device("cuda")
    store = torch.distributed.FileStore(path, count)
    # a process of a busy machine takes longer to start than ranks wait for each other
    torch.distributed.init_process_group(backend, rank=rank, world_size=count, store=store)
    torch.distributed.distributed_c10d._set_pg_timeout(LIMIT)


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


def with_other_gradients_and_places(rank: int, path: str, count: int) -> None:
    """What ranks would find out going back, or when bytes travel: before that."""
    joined(rank, path, count)
    a, b = torch.ones(count, count, 4), torch.ones(4, 4)
    for call in (ours.all_gather_matmul, ours.matmul_reduce_scatter):
        of_a, of_b = a.clone().requires_grad_(rank == 0), b.clone().requires_grad_()
        with pytest.raises(ShapeError, match=r"gradients=a and b on rank 0; .*gradients=b on rank 1"):
            call(of_a, of_b)
        with pytest.raises(
            ShapeError, match=r"float32 on cpu, .* on rank 0; .*float32 on meta, .* on rank 1"
        ):
            call(a.to("meta") if rank else a, b.to("meta") if rank else b, dim=1)
        compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
        with pytest.raises(ShapeError, match=r"split=\(0, \(2, 2\)\) on rank 0; .*split=\(1, \(2, 2\)\) on"):
            compiled(a, b, dim=rank)
        equal(compiled(a, b), call(a, b))
    shared = a.clone().requires_grad_()
    with pytest.raises(ArgumentError, match="way: must be one that the plan offers; got 'slots'"):
        ours.column_parallel_linear(shared, b, way="slots")
    equal(ours.column_parallel_linear(a, b, way="slots"), a @ b)  # nothing travels
    os._exit(0)


def with_a_rank_that_is_killed(rank: int, path: str, count: int) -> None:
    """In calls of a shape that was there before, and in one of a new shape: an error of all others."""
    joined(rank, path, count)
    size = 2 * count
    a, b = torch.ones(size, size), torch.ones(size, size)
    calls = ours.all_gather_matmul, ours.matmul_reduce_scatter, ours.matmul_all_reduce
    for call in calls:
        call(a, b)
    torch.distributed.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    words = rf"rank {rank} of {count} got no answer within the group's time limit"
    for call, rows in (*((call, a) for call in calls), (ours.matmul_all_reduce, a[:2])):
        with pytest.raises(LaunchError, match=words):
            call(rows, b)
    os._exit(0)


PEER_CALLS = {
    "push": ours.all_gather_matmul,
    "waiting": ours.all_gather_matmul,
    "slots": ours.matmul_reduce_scatter,
    "tiles": ours.matmul_reduce_scatter,
    "one_shot": ours.matmul_all_reduce,
}


def with_a_card_that_is_killed(rank: int, path: str, count: int) -> None:
    """Each way over peers' memory: what waits on the card goes on after the time limit, and the next call
    names the rank, as does a call of a new shape. The card multiplies as before.
    """
    joined(rank, path, count, "nccl")
    a, b = (torch.randint(-3, 4, (64, 64)).bfloat16() for _ in range(2))
    groups = {way: torch.distributed.new_group(timeout=LIMIT) for way in PEER_CALLS}
    for way, call in PEER_CALLS.items():
        for _ in range(2):
            call(a, b, groups[way], way=way)
    torch.cuda.synchronize()
    torch.distributed.barrier()
    torch.cuda.synchronize()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    for way, call in PEER_CALLS.items():
        call(a, b, groups[way], way=way)
        for more in (ours.synchronize, partial(call, a, b, way=way)):
            with pytest.raises(LaunchError, match=f"{way}: rank 1 did not come within"):
                more(group=groups[way])
    with pytest.raises(LaunchError, match=r"rank 0 of 2 got no answer within the group's time limit"):
        ours.matmul_all_reduce(a[:32], b)
    equal(lapidist.matmul(a, b), a @ b)
    os._exit(0)


def with_a_card_killed_before_a_collective(rank: int, path: str, count: int) -> None:
    """Where torch waits for NCCL on the host, the call raises."""
    os.environ["TORCH_NCCL_BLOCKING_WAIT"] = "1"
    after_collectives_of_a_killed_card(rank, path, count)
    os._exit(0)


def with_a_card_that_torch_ends(rank: int, path: str, count: int) -> None:
    """Otherwise torch's watchdog ends a process whose collective reached the time limit."""
    after_collectives_of_a_killed_card(rank, path, count)
    torch.cuda.synchronize()
    os._exit(0)


def after_collectives_of_a_killed_card(rank: int, path: str, count: int) -> None:
    joined(rank, path, count, "nccl")
    a, b = torch.ones(64, 64).bfloat16(), torch.ones(64, 64).bfloat16()
    for _ in range(2):
        ours.matmul_all_reduce(a, b, way="collective")
    torch.cuda.synchronize()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if "TORCH_NCCL_BLOCKING_WAIT" not in os.environ:
        ours.matmul_all_reduce(a, b, way="collective")
        return
    with pytest.raises(LaunchError, match=r"rank 0 of 2 got no answer within the group's time limit"):
        ours.matmul_all_reduce(a, b, way="collective")


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
        process.join(HANGS)
        if process.exitcode is None:
            process.kill()
            process.join()
            pytest.fail(f"a process did not end within {HANGS} s, of which its group waits {LIMIT}")
    return [process.exitcode for process in processes]
