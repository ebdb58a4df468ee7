"""What ranks pass to products and layers, however it lies: one process each, what each runs."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch

from lapidist.errors import ArgumentError, ShapeError
from parallel_ranks import equal, gathered, in_processes, part, whole_numbers

ours = importlib.import_module("lapidist.distributed")
K, INNER, TOKENS = 8, 12, 4  # they divide by two ranks
STYLES = {"0": "columns", "2": "rows"}


def conjugates() -> None:
    """torch marks conjugates and signs in place of writing them, also those of gradients."""
    ranks = torch.distributed.get_world_size()
    a, b = (torch.complex(whole_numbers(*shape), whole_numbers(*shape)) for shape in ((4, K), (K, 6)))
    for x, y in ((a.conj(), b.conj()), (a.imag.neg().conj(), b.real), (a.conj().imag, b.conj().imag)):
        term = x.clone() @ y.clone()
        equal(ours.all_gather_matmul(x, y), torch.cat([term] * ranks))
        equal(ours.matmul_all_reduce(x, y), term * ranks)
        equal(ours.matmul_reduce_scatter(x, y), part(term * ranks, 0))
    left, right = (tensor.clone().requires_grad_() for tensor in (a, b))
    of_rank = torch.complex(*(whole_numbers(4 // ranks, 6) for _ in range(2))).conj()
    ours.matmul_reduce_scatter(left, right).backward(of_rank)
    g = torch.cat([of_rank.clone()] * ranks)
    equal(left.grad, g @ b.conj().T)
    equal(right.grad, a.conj().T @ g)


def no_rows() -> None:
    """Results have the shape that one rank's have, also where an extent is 0."""
    ranks, b = torch.distributed.get_world_size(), torch.ones(K, 6)
    for first, further in ((0, 3), (2, 0), (0, 0)):
        x = torch.ones(first, further, K)
        assert ours.all_gather_matmul(x, b).shape == (first * ranks, further, 6)
        assert ours.all_gather_matmul(x, b, dim=1).shape == (first, further * ranks, 6)
        assert ours.matmul_all_reduce(x, b).shape == (first, further, 6)
        assert ours.matmul_reduce_scatter(x, b).shape == (first // ranks, further, 6)
        assert ours.column_parallel_linear(x, b.T).shape == (first, further, 6)
    for rows, k in ((0, K), (3, 0), (0, 0)):
        x, y = torch.ones(rows, k), torch.ones(k, 6)
        equal(ours.all_gather_matmul(x, y), torch.full((rows * ranks, 6), float(k)))
        equal(ours.matmul_all_reduce(x, y), torch.full((rows, 6), float(k * ranks)))


def two_layers(seed: int = 51) -> Any:
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(K, INNER), torch.nn.ReLU(), torch.nn.Linear(INNER, K))
    for parameter in model.parameters():
        parameter.data = whole_numbers(*parameter.shape)
    return model


def placements(device: str) -> None:
    """DTensors lie on ranks in any way: layers take what they need, as those of torch's styles do."""
    tensor = importlib.import_module("torch.distributed.tensor")
    parallel = importlib.import_module("torch.distributed.tensor.parallel")
    lt = importlib.import_module("lapidist.torch")
    ranks = torch.distributed.get_world_size()
    make = torch.distributed.device_mesh.init_device_mesh
    mesh, elsewhere = (make(device, shape) for shape in ((ranks,), (ranks, 1)))
    x, one = whole_numbers(2, TOKENS, K), two_layers()
    places = tensor.Replicate(), *(tensor.Shard(dim) for dim in range(3)), tensor.Partial()
    for sequence in (None, 1):
        split = two_layers()
        styles = {
            "0": lt.ColumnParallel(sequence_dim=sequence),
            "2": lt.RowParallel(sequence_dim=sequence, use_local_output=False),
        }
        parallel.parallelize_module(split, mesh, styles)
        for place in places:
            one.zero_grad(), split.zero_grad()
            if place.is_partial():
                value, rows = tensor.DTensor.from_local(x, mesh, [place]), x * ranks
            else:
                value, rows = tensor.distribute_tensor(x, mesh, [place], src_data_rank=None), x
            expected = one(rows)
            expected.square().sum().backward()
            result = split(value)
            equal(result.full_tensor(), expected)
            result.full_tensor().square().sum().backward()
            for parameter, right in zip(split.parameters(), one.parameters(), strict=True):
                equal(gathered(parameter.grad), right.grad)
        outside = tensor.distribute_tensor(x, elsewhere, [tensor.Replicate()] * 2, src_data_rank=None)
        with pytest.raises(ArgumentError, match="input: a DTensor must lie on the layer's mesh"):
            split(outside)


def unequal_tokens(device: str) -> None:
    """Refused in words, in layers of 8 and of fewer bits, too."""
    lt = importlib.import_module("lapidist.torch")
    ranks = torch.distributed.get_world_size()
    mesh = torch.distributed.device_mesh.init_device_mesh(device, (ranks,))
    for how in ({}, {"dtype": torch.float8_e4m3fn}, {"weights": "mxfp4"}):
        model = torch.nn.Sequential(torch.nn.Linear(64 * ranks, 64)).bfloat16()
        lt.swap(model, mesh=mesh, plan={"0": "rows"}, sequence_dim=0, **how)
        for shape in ((2 * ranks + 1, 64), (2 * ranks + 1, ranks, 64)):
            with pytest.raises(ShapeError, match="its extent along sequence_dim must divide"):
                model(torch.ones(shape, dtype=torch.bfloat16))


def everything(device: str) -> None:
    torch.set_default_device(device)
    conjugates()
    no_rows()
    placements(device)
    unequal_tokens(device)


__all__ = ["everything", "in_processes"]
