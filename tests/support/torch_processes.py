"""lapidist.torch on several devices, one process each: what each runs, and what starts them."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import nn

ROWS, FEATURES, OUTPUTS = 4, 6, 8
CASES: list[tuple[str, tuple[tuple[int, ...], ...], dict[str, Any]]] = [  # operator, shapes, how
    ("linear", ((ROWS, FEATURES), (OUTPUTS, FEATURES), (OUTPUTS,)), {}),
    ("linear", ((2, ROWS, FEATURES), (OUTPUTS, FEATURES)), {}),
    ("linear", ((ROWS, FEATURES), (FEATURES,), ()), {}),
    ("linear", ((ROWS, 1), (1, 1), (1,)), {}),
    ("matmul", ((2, ROWS, FEATURES), (FEATURES, OUTPUTS)), {}),
    ("matmul", ((2, ROWS, FEATURES), (2, FEATURES, OUTPUTS)), {}),
    ("matmul", ((FEATURES,), (2, FEATURES, OUTPUTS)), {}),
    ("matmul", ((ROWS, FEATURES), (FEATURES,)), {}),
    ("gemm", ((ROWS, FEATURES), (FEATURES, OUTPUTS), (OUTPUTS,)), {"alpha": 0.5, "beta": 2.0}),
    ("gemm", ((FEATURES, FEATURES), (FEATURES, FEATURES)), {}),
    ("gemm", ((FEATURES, FEATURES), (FEATURES, FEATURES)), {"trans_a": True}),
    ("gemm", ((FEATURES, FEATURES), (FEATURES, FEATURES)), {"trans_b": True}),
]


def in_processes(work: Callable[[str], None], folder: Path, device: str, count: int = 2) -> None:
    """`work(device)` in each, who find each other by a file."""
    torch.multiprocessing.spawn(joined, (work, str(folder / "store"), device, count), nprocs=count)


def joined(rank: int, work: Callable[[str], None], path: str, device: str, count: int) -> None:
    distributed = torch.distributed
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if device == "cuda":
        torch.cuda.set_device(rank)
    backend = "nccl" if device == "cuda" else "gloo"
    distributed.init_process_group(
        backend, rank=rank, world_size=count, store=distributed.FileStore(path, count)
    )
    work(device)
    distributed.barrier()
    distributed.destroy_process_group()
    # Threads of gloo's groups may outlive them, and abort a process that ends as others do.
    os._exit(0)


def mesh_of(device: str, *shape: int) -> Any:
    count = torch.distributed.get_world_size()
    names = ("data", "model")[-max(len(shape), 1) :]
    return torch.distributed.device_mesh.init_device_mesh(device, shape or (count,), mesh_dim_names=names)


def split(tensor: Any, mesh: Any, place: Any) -> Any:
    """Each process has the whole, and takes its part."""
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor, mesh, [place], src_data_rank=None)


def close(found: Any, expected: Any, within: float = 1e-4) -> None:
    torch.testing.assert_close(found, expected, rtol=within, atol=within)


# ---- operators, whatever each process holds of their operands ----


def placements(shapes: tuple[tuple[int, ...], ...]) -> Iterator[tuple[Any, ...]]:
    from torch.distributed.tensor import Replicate, Shard

    return product(*([Replicate(), *map(Shard, range(len(shape)))] for shape in shapes))


def operators(device: str) -> None:
    from torch.distributed.tensor import Replicate

    lt, mesh = importlib.import_module("lapidist.torch"), mesh_of(device)
    for name, shapes, how in CASES:
        whole = [torch.randn(shape, device=device, requires_grad=True) for shape in shapes]
        expected = getattr(lt, name)(*whole, **how)
        direction = torch.randn_like(expected)
        gradients = torch.autograd.grad(expected, whole, direction)
        for where in placements(shapes):
            parts = [
                split(each.detach(), mesh, place).requires_grad_()
                for each, place in zip(whole, where, strict=True)
            ]
            result = getattr(lt, name)(*parts, **how)
            close(result.full_tensor(), expected)
            back = torch.autograd.grad(result, parts, split(direction, mesh, Replicate()))
            close([each.full_tensor() for each in back], list(gradients))


def products_stay_apart(device: str) -> None:
    """What each process can do alone is not exchanged first."""
    from torch.distributed.tensor import Partial, Replicate, Shard

    lt, mesh = importlib.import_module("lapidist.torch"), mesh_of(device)
    x, w = torch.randn(ROWS, FEATURES, device=device), torch.randn(OUTPUTS, FEATURES, device=device)
    for of_x, of_w, expected in (
        (Replicate(), Shard(0), Shard(1)),
        (Shard(1), Shard(1), Partial()),
        (Shard(0), Replicate(), Shard(0)),
    ):
        parts = split(x, mesh, of_x), split(w, mesh, of_w)
        assert lt.linear(*parts).placements == lt.gemm(*parts, trans_b=True).placements == (expected,)


def factors_and_updates(device: str) -> None:
    from torch.distributed.tensor import Replicate, Shard

    lt, mesh = importlib.import_module("lapidist.torch"), mesh_of(device)
    a, b = (torch.randn(32, 256, device=device).to(torch.float8_e4m3fn) for _ in range(2))
    one, rows = torch.tensor(0.5, device=device), torch.rand(32, 1, device=device) + 0.5
    blocks = torch.rand(32, 2, device=device) + 0.5, torch.rand(2, 1, device=device) + 0.5
    rows_of = [(Shard(0), Replicate()), (Replicate(), Shard(0))]
    for scale_a, scale_b in ((one, one), (rows, rows.T), blocks):
        expected = lt.scaled(a, b.T, scale_a, scale_b)
        # what is split along k has factors for all of it; gloo gathers no 8-bit floats
        for where in rows_of if scale_a is blocks[0] else [*rows_of, (Shard(1), Shard(1))]:
            scales = (split(each, mesh, Replicate()) for each in (scale_a, scale_b))
            parts = split(a, mesh, where[0]), split(b, mesh, where[1]).T
            # a tensor core keeps 13 bits after the point of its largest product; parts of k are added apart
            close(lt.scaled(*parts, *scales).full_tensor(), expected, within=2e-2)
    x, total = torch.randn(ROWS, FEATURES, device=device), torch.randn(FEATURES, FEATURES, device=device)
    for of_total, of_x in product([Replicate(), Shard(0), Shard(1)], [Replicate(), Shard(0), Shard(1)]):
        kept, part = split(total.clone(), mesh, of_total), split(x, mesh, of_x)
        torch.ops.lapidist.gemm_(kept, part, part, trans_a=True)
        close(kept.full_tensor(), total + x.T @ x)


def groups(device: str) -> None:
    """Experts whose columns, rows or parts of k are split."""
    from torch.distributed.tensor import Partial, Replicate, Shard

    lt, mesh = importlib.import_module("lapidist.torch"), mesh_of(device)
    ends = torch.tensor([2, 2, 8], device=device)
    shared = split(ends, mesh, Replicate())
    for shapes in (
        ((8, FEATURES), (3, OUTPUTS, FEATURES)),
        ((3, 4, FEATURES), (8, FEATURES)),
        ((4, 8), (6, 8)),
    ):
        operands = [torch.randn(shape, device=device, requires_grad=True) for shape in shapes]
        expected = lt.grouped(*operands, ends, trans_b=True)
        g = torch.randn_like(expected)
        gradients = torch.autograd.grad(expected, operands, g)
        for where in placements(shapes):
            pairs = zip(operands, where, strict=True)
            parts = [split(operand.detach(), mesh, place).requires_grad_() for operand, place in pairs]
            result = lt.grouped(*parts, shared, trans_b=True)
            close(result.full_tensor(), expected)
            back = torch.autograd.grad(result, parts, split(g, mesh, Replicate()))
            close([gradient.full_tensor() for gradient in back], list(gradients))
    x, w = torch.randn(8, FEATURES, device=device), torch.randn(3, FEATURES, OUTPUTS, device=device)
    for of_x, of_w, place in ((Replicate(), Shard(2), Shard(1)), (Shard(1), Shard(1), Partial())):
        result = lt.grouped(split(x, mesh, of_x), split(w, mesh, of_w), shared)
        assert result.placements == (place,)


# ---- models, by torch's own plans ----


class Block(nn.Module):  # type: ignore[misc]
    """A norm, and a network of two linear layers with a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(OUTPUTS)
        self.gate, self.up = nn.Linear(OUTPUTS, 16), nn.Linear(OUTPUTS, 16, bias=False)
        self.down = nn.Linear(16, OUTPUTS)

    def forward(self, x: Any) -> Any:
        x = self.norm(x)
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


def plan_of(kind: str) -> dict[str, Any]:
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor import parallel as tp

    if kind == "tensors":
        return {"gate": tp.ColwiseParallel(), "up": tp.ColwiseParallel(), "down": tp.RowwiseParallel()}
    gathered = tp.ColwiseParallel(input_layouts=Shard(1))
    return {
        "norm": tp.SequenceParallel(),
        "gate": gathered,
        "up": gathered,
        "down": tp.RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
    }


def whole(tensor: Any) -> Any:
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def learned(model: Any, x: Any) -> tuple[Any, list[Any]]:
    result = whole(model(x))
    result.square().sum().backward()
    return result.detach(), [whole(each.grad) for each in model.parameters()]


def plans(device: str) -> None:
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.parallel import parallelize_module

    lt, mesh = importlib.import_module("lapidist.torch"), mesh_of(device)
    model, x = Block().to(device), torch.randn(2, ROWS, OUTPUTS, device=device)
    weights = {name: each.clone() for name, each in model.state_dict().items()}
    expected = learned(model, x)
    for kind, compiled in (("tensors", False), ("sequence", False), ("sequence", True)):
        model = Block().to(device)
        model.load_state_dict(weights)
        assert len(lt.swap(model)) == 3
        model = parallelize_module(model, mesh, plan_of(kind))
        if compiled:
            torch._dynamo.reset()
        run = torch.compile(model, backend="aot_eager") if compiled else model
        close(learned(run, x if kind == "tensors" else split(x, mesh, Shard(1))), expected)


def fully_sharded(device: str) -> None:
    """FSDP around layers, and around torch's plan for tensors where there are processes for both."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import parallelize_module

    lt, count = importlib.import_module("lapidist.torch"), torch.distributed.get_world_size()
    model, x = Block().to(device), torch.randn(2, ROWS, OUTPUTS, device=device)
    weights = {name: each.clone() for name, each in model.state_dict().items()}
    expected = learned(model, x)
    for data in (count, 1):
        model = Block().to(device)
        model.load_state_dict(weights)
        lt.swap(model)
        mesh = mesh_of(device, data, count // data)
        model = parallelize_module(model, mesh["model"], plan_of("tensors"))
        for layer in (model.gate, model.up, model.down, model):
            fully_shard(layer, mesh=mesh["data"])
        close(learned(model, x), expected)


def everything(device: str) -> None:
    """In one go: starting a process takes longer than what it has to do."""
    for work in (operators, products_stay_apart, factors_and_updates, groups, plans, fully_sharded):
        work(device)
