"""lapidist.distributed on several cards: what each rank runs, whose memory the others write to."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch

import lapidist
from lapidist.errors import LaunchError
from parallel_ranks import (
    LIMIT,
    ROWS,
    K,
    N,
    chunks_of_k,
    compiled_graphs,
    equal,
    everything,
    part,
    whole_numbers,
)
from rank_functions import functions_in_graphs, functions_of_ranks
from torch_processes import in_processes

ours = importlib.import_module("lapidist.distributed")


def by_way(way: str, a: Any, b: Any) -> Any:
    calls = {
        "push": ours.all_gather_matmul,
        "waiting": ours.all_gather_matmul,
        "slots": ours.matmul_reduce_scatter,
        "one_shot": ours.matmul_all_reduce,
    }
    return calls[way](a, b, way=way)


def graphs() -> None:
    """Ways over peers' memory in a CUDA graph: each replay reads what its operands are then."""
    for way in ("push", "waiting", "slots", "one_shot"):
        a, b = (whole_numbers(*shape, dtype=torch.bfloat16) for shape in ((ROWS, K), (K, N)))
        for _ in range(2):
            by_way(way, a, b)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = by_way(way, a, b)
        for _ in range(5):
            a.copy_(whole_numbers(ROWS, K, dtype=torch.bfloat16))
            b.copy_(whole_numbers(K, N, dtype=torch.bfloat16))
            graph.replay()
            equal(result, by_way(way, a, b))


def a_graph_keeps_its_buffers() -> None:
    """Also when later calls need larger ones."""
    for way in ("push", "slots", "one_shot"):
        group = torch.distributed.new_group()
        calls = {"push": ours.all_gather_matmul, "slots": ours.matmul_all_reduce}
        call = calls.get(way, ours.matmul_all_reduce)
        operands = [
            [whole_numbers(*shape, dtype=torch.bfloat16) for shape in ((rows, K), (K, n))]
            for rows, n in ((ROWS, N), (64 * ROWS, 8 * N))
        ]
        for _ in range(2):
            call(*operands[0], group, way=way)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = call(*operands[0], group, way=way)
        right = call(*operands[0], group, way=way)
        for _ in range(2):
            call(*operands[1], group, way=way)
        torch.cuda.empty_cache()
        graph.replay()
        equal(result, right)


def tiles() -> None:
    """One product stores its tiles at the owners of their rows, in calls and in replays of a graph."""
    ranks, rank = torch.distributed.get_world_size(), torch.distributed.get_rank()
    for rows, k, n in ((64, 144, 72), (512, 256, 8192), (4096, 520, 1040), (96, 4096, 256)):
        a, b = (whole_numbers(*shape, dtype=torch.bfloat16) for shape in ((rows, ranks * k), (ranks * k, n)))
        mine, matrix, total = part(a, 1), part(b, 0), a.float() @ b.float()
        for _ in range(3):
            how = {"out_dtype": torch.float32, "way": "tiles"}
            equal(ours.matmul_reduce_scatter(mine, matrix, **how), part(total, 0))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = ours.matmul_reduce_scatter(mine, matrix, **how)
        for _ in range(5):
            mine.mul_(-1)
            total = -total
            graph.replay()
            equal(result, part(total, 0))
        a, b = torch.randn(rows, k).bfloat16(), torch.randn(k, n).bfloat16() * (rank + 1)
        by_slots = ours.matmul_reduce_scatter(a, b, way="slots")
        equal(
            ours.matmul_reduce_scatter(a, b, way="tiles", invariant=True),
            ours.matmul_reduce_scatter(a, b, way="slots", invariant=True),
        )
        torch.testing.assert_close(ours.matmul_reduce_scatter(a, b, way="tiles"), by_slots)


def a_late_rank() -> None:
    """The stream, or the kernel, goes on after the time limit, and the next call names the rank."""
    a, b = (whole_numbers(*shape, dtype=torch.bfloat16) for shape in ((ROWS, K), (K, N)))
    for way, call in (("one_shot", ours.matmul_all_reduce), ("waiting", ours.all_gather_matmul)):
        group = torch.distributed.new_group(timeout=LIMIT)
        for _ in range(2):
            call(a, b, group, way=way)
        torch.cuda.synchronize()
        if torch.distributed.get_rank() == 0:
            call(a, b, group, way=way)
            torch.cuda.synchronize()
            with pytest.raises(LaunchError, match=f"{way}: rank 1 did not come within"):
                call(a, b, group, way=way)
            equal(a @ b, lapidist.matmul(a, b))


def sent_by_kernels() -> None:
    """Few rows of all ranks and their sums by the kernel that sends them, of shapes in turn; the same buffers
    hold all of them. Sums of many rows are read in parts."""
    ranks, how = torch.distributed.get_world_size(), {"out_dtype": torch.float32}
    for rows, k, n in ((64, 256, 512), (16, 1024, 264), (4096, 512, 8192), (24, 72, 520), (64, 256, 512)):
        a, b = (whole_numbers(*shape, dtype=torch.bfloat16) for shape in ((rows, ranks * k), (ranks * k, n)))
        mine, matrix, total = part(a, 1), part(b, 0), a.float() @ b.float()
        way = "slots" if rows == 4096 else "one_shot"
        for _ in range(3):
            equal(ours.matmul_all_reduce(mine, matrix, way=way, **how), total)
            equal(ours.matmul_reduce_scatter(mine, matrix, way=way, **how), part(total, 0))
            if way == "one_shot":
                equal(ours.all_gather_matmul(part(a, 0), b, way=way, **how), total)


def shards_in_parts() -> None:
    """Long shards arrive in parts, of which tiles need one or two. Sums of whole numbers are exact."""
    rows, k = 5 * 1024, 8192
    a = whole_numbers(2 * rows, k, dtype=torch.bfloat16)
    for n in (64, 1040):
        b = whole_numbers(k, n, dtype=torch.bfloat16)
        for _ in range(3):
            result = ours.all_gather_matmul(part(a, 0), b, out_dtype=torch.float32, way="waiting")
            equal(result, a.float() @ b.float())


def on_cards(device: str) -> None:
    everything(device)
    functions_of_ranks(device)
    functions_in_graphs(device)
    chunks_of_k(device)
    compiled_graphs(device)
    graphs()
    a_graph_keeps_its_buffers()
    shards_in_parts()
    sent_by_kernels()
    tiles()
    a_late_rank()


__all__ = ["in_processes", "on_cards"]
