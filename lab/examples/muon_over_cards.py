"""Muon over several cards: each card takes the Newton-Schulz steps of its share of the matrices.

    torchrun --nproc-per-node 2 lab/examples/muon_over_cards.py
    torchrun --nproc-per-node 2 lab/examples/muon_over_cards.py --sharded

Matrices of one shape are a batch, which is split over the cards: one product of a batch takes the place of
many small ones, and no step is computed twice. Parameters are whole on each card, as DDP has them, or split
by rows, as `fully_shard` does. On a GPU the steps of each shape are one CUDA graph.
"""

from __future__ import annotations

import argparse
import os
from collections import defaultdict
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.nn.parallel import DistributedDataParallel

import lapidist.torch as lt


class Muon(torch.optim.Optimizer):
    """Of matrices alone: others take another optimizer."""

    def __init__(self, parameters: Any, mesh: DeviceMesh, lr: float = 0.02, momentum: float = 0.95) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum})
        self.mesh = mesh
        self.graphs = dict[Any, tuple[torch.cuda.CUDAGraph, torch.Tensor, torch.Tensor]]()

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for group in self.param_groups:
            by_shape = defaultdict(list)
            for parameter in group["params"]:
                by_shape[parameter.shape, parameter.dtype].append(parameter)
            for parameters in by_shape.values():
                self.step_of_one_shape(parameters, group["lr"], group["momentum"])

    def step_of_one_shape(self, parameters: list[torch.Tensor], lr: float, momentum: float) -> None:
        """Sums of gradients stay where the parameters are; whole matrices travel to the card of their step,
        and what it gives travels back.
        """
        sums = torch.stack([local(self.moved(parameter, momentum)) for parameter in parameters])
        rows, columns = parameters[0].shape
        shape = torch.Size((len(parameters), rows, columns))
        split = Shard(1) if isinstance(parameters[0], DTensor) else Replicate()
        batch = DTensor.from_local(
            sums, self.mesh, [split], run_check=False, shape=shape, stride=(rows * columns, columns, 1)
        )
        mine = batch.redistribute(placements=[Shard(0)])
        steps = self.orthogonalised(mine.to_local().contiguous()).to(sums.dtype)
        back = DTensor.from_local(
            steps, self.mesh, [Shard(0)], run_check=False, shape=shape, stride=batch.stride()
        )
        size = max(1.0, rows / columns) ** 0.5
        for parameter, update in zip(
            parameters, back.redistribute(placements=[split]).to_local(), strict=True
        ):
            local(parameter).add_(update, alpha=-lr * size)

    def moved(self, parameter: torch.Tensor, momentum: float) -> torch.Tensor:
        """The parameter's sum of gradients, by Nesterov's rule."""
        gradient, state = parameter.grad, self.state[parameter]
        assert gradient is not None
        total = state.setdefault("sum", torch.zeros_like(gradient)).lerp_(gradient, 1 - momentum)
        return gradient.lerp(total, momentum)

    def orthogonalised(self, batch: torch.Tensor) -> torch.Tensor:
        """By a CUDA graph of the shape, whose first use captures it."""
        if batch.device.type == "cpu" or not len(batch):
            return lt.orthogonalised(batch) if len(batch) else batch
        key = batch.shape, batch.dtype
        if key not in self.graphs:
            read, graph = batch.clone(), torch.cuda.CUDAGraph()
            lt.orthogonalised(read)  # plans, and loads what torch needs
            with torch.cuda.graph(graph):
                written = lt.orthogonalised(read)
            self.graphs[key] = graph, read, written
        graph, read, written = self.graphs[key]
        read.copy_(batch)
        graph.replay()
        return written


def local(tensor: torch.Tensor) -> torch.Tensor:
    """The part that is here."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole(tensor: torch.Tensor) -> torch.Tensor:
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().clone()


def model_of(width: int, layers: int) -> torch.nn.Sequential:
    torch.manual_seed(1)
    shapes = [(width, 2 * width), (2 * width, width)] * layers
    return torch.nn.Sequential(*(torch.nn.Linear(*shape, bias=False) for shape in shapes))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    for name, default in (("width", 1024), ("layers", 8), ("steps", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--sharded", action="store_true", help="parameters split by rows, by fully_shard")
    parser.add_argument("--cpu", action="store_true", help="processes on the host")
    options = parser.parse_args()
    kind = "cpu" if options.cpu else "cuda"
    if not options.cpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    mesh = init_device_mesh(kind, (int(os.environ["WORLD_SIZE"]),))
    model: Any = model_of(options.width, options.layers).to(kind)
    alone = model_of(options.width, options.layers).to(kind)
    model = fully_shard(model, mesh=mesh) if options.sharded else DistributedDataParallel(model)
    muon = Muon(model.parameters(), mesh)
    sums = [torch.zeros_like(parameter) for parameter in alone.parameters()]
    torch.manual_seed(2 + dist.get_rank())
    for _ in range(options.steps):
        x = torch.randn(64, options.width, device=kind)
        (model(x) - x).square().mean().backward()
        gradients = [whole(parameter.grad) for parameter in model.parameters()]
        muon.step()
        muon.zero_grad()
        # the same on one card, matrix by matrix
        for parameter, total, gradient in zip(alone.parameters(), sums, gradients, strict=True):
            total.lerp_(gradient, 0.05)
            update = lt.orthogonalised(gradient.lerp(total, 0.95)).to(parameter.dtype)
            rows, columns = parameter.shape
            parameter.data.add_(update, alpha=-0.02 * max(1.0, rows / columns) ** 0.5)
    pairs = zip(model.parameters(), alone.parameters(), strict=True)
    off = max((whole(one) - other).abs().max().item() for one, other in pairs)
    if off > 1e-3:  # steps are 0.02 of numbers near 1, in bfloat16
        raise SystemExit(f"rank {dist.get_rank()}: off by {off:.2g}")
    print(f"rank {dist.get_rank()}: {options.steps} steps, off by {off:.2g}\n", end="")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
