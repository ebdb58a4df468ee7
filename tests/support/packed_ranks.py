"""Layers of few bits that are split over ranks, one process each: what each runs."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch

from lapidist import quantised
from lapidist.errors import ArgumentError
from parallel_ranks import gathered, part

WIDTH, INNER, OUT, ROWS = 128, 256, 40, 6
PLAN = {"0": "columns", "2": "rows"}


def two_layers(width: int = WIDTH, inner: int = INNER, seed: int = 52) -> Any:
    torch.manual_seed(seed)
    up, down = torch.nn.Linear(width, inner), torch.nn.Linear(inner, OUT)
    return torch.nn.Sequential(up, torch.nn.ReLU(), down).to(torch.bfloat16)


def learned(model: Any, x: Any, direction: Any) -> list[Any]:
    x = x.detach().requires_grad_()
    result = model(x)
    biases = [parameter for name, parameter in model.named_parameters() if name.endswith("bias")]
    gradients = torch.autograd.grad(result, (x, *biases), direction)
    return [result.detach(), *map(gathered, gradients)]


def decoded(model: Any) -> Any:
    """Plain layers of the numbers that a packed model's codes mean, in float64."""
    layers = [
        torch.nn.Linear(layer.in_features, layer.out_features).double() for layer in (model[0], model[2])
    ]
    for plain, layer in zip(layers, (model[0], model[2]), strict=True):
        plain.weight.data = quantised.unpack(layer.packed_weight, "float64").T.contiguous()
        plain.bias.data = layer.bias.detach().double()
    return torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1])


def near(found: list[Any], expected: list[Any]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        assert (one.double() - other).abs().max() <= 0.02 * other.abs().max()


def splits_are_parts(mesh: Any, weights: str, group: int | None) -> None:
    """Results, gradients, numbers and states are those of one device, or this rank's part of them."""
    lt = importlib.import_module("lapidist.torch")
    one = two_layers()
    lt.swap(one, weights=weights, group=group)
    x, g = (torch.randn(2, ROWS, size, dtype=torch.bfloat16) for size in (WIDTH, OUT))
    expected = learned(decoded(one), x.double(), g.double())
    for sequence in (None, 1):
        model, other = two_layers(), two_layers(seed=53)
        how: dict[str, Any] = {"mesh": mesh, "plan": PLAN, "sequence_dim": sequence}
        swapped = lt.swap(model, weights=weights, group=group, **how)
        rows, of_rows = (x, g) if sequence is None else (part(x, 1), part(g, 1))
        found = learned(model, rows, of_rows)
        near(found, [part(each, 1) if sequence and each.ndim == 3 else each for each in expected])
        for number, dim in ((0, 1), (2, 0)):
            numbers = quantised.unpack(model[number].packed_weight)
            assert torch.equal(numbers, part(quantised.unpack(one[number].packed_weight), dim))
        for name, value in one.state_dict().items():
            assert torch.equal(gathered(model.state_dict()[name]), value)
        lt.swap(other, weights="int8", group=32, **how)
        for state in (model.state_dict(), one.state_dict()):
            other.load_state_dict(state)
            assert torch.equal(other(rows), found[0])
        swapped.undo()
        assert torch.equal(model(rows), found[0])


def refusals(mesh: Any) -> None:
    """Before a layer changes."""
    lt = importlib.import_module("lapidist.torch")
    for sizes, how, words in (
        ((128, 192), {"weights": "mxfp4"}, "ColumnParallel: packed columns are split by whole tiles of 64"),
        ((128, 256), {"weights": "int4"}, "RowParallel: a split of k must keep groups whole; got a factor"),
        ((128, 384), {"weights": "int4", "group": 128}, "by whole groups, 128 of k at least, .* got k = 384"),
    ):
        model = two_layers(*sizes)
        with pytest.raises(ArgumentError, match=words):
            lt.swap(model, mesh=mesh, plan=PLAN, **how)
        assert [type(layer) for layer in model] == [torch.nn.Linear, torch.nn.ReLU, torch.nn.Linear]
    lt.swap(model, mesh=mesh, plan={"2": "rows"}, weights="int4", group=64)
    with pytest.raises(ArgumentError, match="k must keep groups whole"):
        model[2].load_state_dict(lt.PackedLinear.packed(two_layers(*sizes)[2], "int4").state_dict())


def graphs(mesh: Any) -> None:
    """One graph of both layers, whose results and gradients are those of calls."""
    lt = importlib.import_module("lapidist.torch")
    x, g = (torch.randn(2, 3, size, dtype=torch.bfloat16) for size in (WIDTH, OUT))
    model = two_layers()
    lt.swap(model, mesh=mesh, plan=PLAN, sequence_dim=1, weights="int4", group=64)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    for one, other in zip(learned(compiled, x, g), learned(model, x, g), strict=True):
        assert torch.equal(one, other)


def styles(mesh: Any) -> None:
    """torch's parallelize_module, with layers that were packed before."""
    from torch.distributed.tensor.parallel import parallelize_module

    lt = importlib.import_module("lapidist.torch")
    model, x = two_layers(), torch.randn(ROWS, WIDTH, dtype=torch.bfloat16)
    lt.swap(model, weights="mxfp4")
    expected = model(x)
    plan = {"0": lt.ColumnParallel(), "2": lt.RowParallel(use_local_output=False)}
    result = parallelize_module(model, mesh, plan)(x)
    assert result.placements[0].is_replicate()
    near([result.full_tensor()], [expected.double()])


def orders(mesh: Any) -> None:
    """Columns of a weight whose groups are those of the largest activations, with a short last group. Each
    rank's x follows the same order.
    """
    parallel = importlib.import_module("torch.distributed.tensor.parallel")
    lt = importlib.import_module("lapidist.torch")
    torch.manual_seed(52)
    words = torch.randint(-(2**31), 2**31 - 1, (25, INNER), dtype=torch.int32)
    groups, scales = (torch.arange(200) // 64)[torch.randperm(200)], torch.rand(4, INNER).bfloat16() / 8
    packed, bias = quantised.from_gptq(words, scales, None, groups), torch.ones(INNER, dtype=torch.bfloat16)
    one, model = (lt.PackedLinear(packed, bias.clone().requires_grad_()) for _ in range(2))
    x, g = (torch.randn(ROWS, size, dtype=torch.bfloat16) for size in (200, INNER))
    with pytest.raises(ArgumentError, match="RowParallel: a split of k must keep groups whole; got a weight"):
        parallel.parallelize_module(one, mesh, lt.RowParallel())
    expected = learned(one, x, g)
    parallel.parallelize_module(model, mesh, lt.ColumnParallel())
    found = learned(model, x, part(g, 1))
    near(found, [part(expected[0], 1).double(), *(each.double() for each in expected[1:])])
    model.load_state_dict(one.state_dict())
    assert torch.equal(model(x), found[0])


def after_styles(mesh: Any) -> None:
    """torch's own styles first, whose hooks stay: each rank packs what it has of the whole weight."""
    tensor = importlib.import_module("torch.distributed.tensor")
    parallel = importlib.import_module("torch.distributed.tensor.parallel")
    lt = importlib.import_module("lapidist.torch")
    plan = {"0": parallel.ColwiseParallel(), "2": parallel.RowwiseParallel()}
    x, g = (torch.randn(2, 3, size, dtype=torch.bfloat16) for size in (WIDTH, OUT))
    one, model = two_layers(), parallel.parallelize_module(two_layers(), mesh, dict(plan))
    with pytest.raises(ArgumentError, match="mesh: must be None where a style has split a layer"):
        lt.swap(model, weights="nvfp4", mesh=mesh, plan=PLAN)
    lt.swap(one, weights="nvfp4")
    lt.swap(model, weights="nvfp4")
    near(learned(model, x, g), learned(decoded(one), x.double(), g.double()))
    for name, value in one.state_dict().items():
        assert torch.equal(gathered(model.state_dict()[name]), value)
    with torch.no_grad():
        expected = model(x)
        other = parallel.parallelize_module(two_layers(seed=53), mesh, dict(plan))
        lt.swap(other, weights="int8", group=32)
        other.load_state_dict(one.state_dict())
        assert torch.equal(other(x), expected)
    narrow = parallel.parallelize_module(two_layers(128, 192), mesh, dict(plan))
    with pytest.raises(ArgumentError, match="packed columns are split by whole tiles of 64"):
        lt.swap(narrow, weights="mxfp4")
    assert [type(layer) for layer in narrow] == [torch.nn.Linear, torch.nn.ReLU, torch.nn.Linear]
    by_hand = two_layers()
    whole = tensor.distribute_tensor(by_hand[0].weight.data, mesh, [tensor.Shard(0)])
    by_hand[0].weight = torch.nn.Parameter(whole)
    with pytest.raises(ArgumentError, match="weights: DTensors are packed where ColwiseParallel"):
        lt.swap(by_hand, weights="mxfp4")
    packed = lt.PackedLinear.packed(two_layers()[0], "mxfp4")
    before = packed(x)
    for style in (parallel.ColwiseParallel(), parallel.RowwiseParallel()):
        with pytest.raises(ArgumentError, match="Swap a model after parallelize_module, or name Col"):
            parallel.parallelize_module(packed, mesh, style)
    assert torch.equal(packed(x), before)


def everything(device: str) -> None:
    torch.set_default_device(device)
    mesh = torch.distributed.device_mesh.init_device_mesh(device, (torch.distributed.get_world_size(),))
    for weights, group in (("int4", 64), ("nvfp4", None)):
        splits_are_parts(mesh, weights, group)
    refusals(mesh)
    graphs(mesh)
    styles(mesh)
    orders(mesh)
    after_styles(mesh)
