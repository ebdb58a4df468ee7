"""Linear layers split over the ranks of a mesh, whose exchanges run under their products: styles for torch's
parallelize_module, and what `swap(model, mesh=...)` makes of a model.

Weights are DTensors, so checkpoints, optimizers and FSDP see them as torch's styles leave them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ParallelStyle

from lapidist.distributed.compiled_products import Kind
from lapidist.distributed.parallel_linear import column_parallel_linear, row_parallel_linear
from lapidist.errors import ArgumentError
from lapidist.frameworks.torch_autocast import in_autocast
from lapidist.torch.layers import STOCK, Linear
from lapidist.torch.mesh_sharing import COLUMNS, ROWS, Sharing, local
from lapidist.torch.packed_experts import is_distributed
from lapidist.torch.packed_layer import PackedLinear
from lapidist.torch.parallel_eight_bits import linear_over_ranks, quantised_part
from lapidist.torch.parallel_few_bits import require_split, split_packed

SPLIT = STOCK, Linear, PackedLinear  # layers that may be
KINDS = {"columns": "columns", "colwise": "columns", "rows": "rows", "rowwise": "rows"}


class ParallelLinear(Linear):
    """Linear with this rank's part of a weight."""

    sharing: Sharing
    dim: int  # of the weight, along which it is split
    eight_bits: Any = None  # a type, and the kind of its factors

    def in_eight_bits(self, kind: Kind, input: Any, with_bias: bool) -> Any:
        """The result by 8-bit products; the weight is rounded once."""
        input, weight, bias = self.parts(input)
        quantised = quantised_part(self, local(self.weight))
        dim = self.sharing.sequence_dim
        return linear_over_ranks(kind, input, weight, bias if with_bias else None, quantised, self, dim)

    def parts(self, input: Any) -> tuple[Any, Any, Any]:
        input = self.sharing.received(input, self.dim)
        return in_autocast(input, local(self.weight), local(self.bias))


class ColumnParallelLinear(ParallelLinear):
    """This rank's columns of the result; the input is the same on all ranks, or gathered."""

    dim = COLUMNS

    def forward(self, input: Any) -> Any:
        mesh, sequence_dim, _ = self.sharing
        if self.eight_bits is not None:
            result = self.in_eight_bits("enter" if sequence_dim is None else "gather", input, True)
        else:
            result = column_parallel_linear(
                *self.parts(input), mesh, sequence_dim=sequence_dim, invariant=self.invariant
            )
        return self.sharing.delivered(result, Shard(result.ndim - 1))


class RowParallelLinear(ParallelLinear):
    """The sum over ranks, on all of them or a part on each; the input is this rank's columns."""

    dim = ROWS

    def forward(self, input: Any) -> Any:
        mesh, sequence_dim, _ = self.sharing
        if self.eight_bits is not None:
            kind: Kind = "reduce" if sequence_dim is None else "scatter"
            result = self.sharing.with_bias(self.in_eight_bits(kind, input, False), self.parts(input)[2])
        else:
            result = row_parallel_linear(
                *self.parts(input), mesh, sequence_dim=sequence_dim, invariant=self.invariant
            )
        return self.sharing.delivered(result, Replicate() if sequence_dim is None else Shard(sequence_dim))


class Parallel(ParallelStyle):  # type: ignore[misc]
    """What the two styles share."""

    layer: type[ParallelLinear]
    dim: int  # of the weight, along which it is split

    def __init__(self, *, sequence_dim: int | None = None, use_local_output: bool = True) -> None:
        super().__init__()
        self.sequence_dim, self.use_local_output = sequence_dim, use_local_output

    def _apply(self, module: Any, device_mesh: Any) -> Any:
        if type(module) not in SPLIT:
            raise ArgumentError(
                f"{type(self).__name__}: must be applied to a torch.nn.Linear; got {type(module).__name__}."
                " Name its linear layers in the plan"
            )
        is_packed, ranks = type(module) is PackedLinear, device_mesh.size()
        if is_packed:
            require_split(self.dim, module.packed_weight, ranks)
        elif (extent := module.weight.shape[self.dim]) % ranks:
            raise ArgumentError(
                f"{type(self).__name__}: the weight's dimension {self.dim} must divide by the number of"
                f" ranks, {ranks}; got {extent}. Pad it, or leave the layer out"
            )
        for name, parameter in list(module.named_parameters(recurse=False)):
            # a sum over ranks has its bias once
            place = Replicate() if name == "bias" and self.dim == ROWS else Shard(self.dim)
            split = distribute_tensor(parameter, device_mesh, [place], src_data_rank=self.src_data_rank)
            module.register_parameter(name, torch.nn.Parameter(split, requires_grad=parameter.requires_grad))
        module.sharing = Sharing(device_mesh, self.sequence_dim, self.use_local_output)
        if is_packed:
            split_packed(module, self.dim, self.src_data_rank)
        else:
            module.__class__ = self.layer
        return module


class ColumnParallel(Parallel):
    """A style for parallelize_module: each rank has some columns of a linear layer's result.

    `sequence_dim`: the input is split along it, and gathered under the product. The result is this rank's
    tensor, or a DTensor with use_local_output=False."""

    layer, dim = ColumnParallelLinear, COLUMNS


class RowParallel(Parallel):
    """A style for parallelize_module: each rank has some columns of a linear layer's input.

    `sequence_dim`: the sum over ranks is split along it; by default all ranks have all of it."""

    layer, dim = RowParallelLinear, ROWS


STYLES = {"columns": ColumnParallel, "rows": RowParallel}


def plan_of_model(model: Any, plan: Mapping[str, str] | None) -> Mapping[str, str]:
    """A plan as the caller wrote it, or the one that models of transformers have."""
    if plan is None:
        plan = getattr(model, "_tp_plan", None) or getattr(model, "tp_plan", None)
    elif not isinstance(plan, Mapping):
        raise ArgumentError(
            f'plan: must give names "columns" or "rows"; got {type(plan).__name__}. Write {{"*.up":'
            ' "columns", "*.down": "rows"}, say'
        )
    else:
        names = [name for name, _ in model.named_modules()]
        for pattern in plan:
            if not any(fnmatchcase(name, pattern) for name in names):
                raise ArgumentError(
                    f"plan: must name layers of the model; got {pattern!r}, which none has. Correct it, or"
                    " leave it out"
                )
    if not plan:
        raise ArgumentError(
            'plan: must name the layers to split; got none, and the model has no tp_plan. Write {"*.up":'
            ' "columns", "*.down": "rows"}, say'
        )
    return plan


def styled(model: Any, plan: Mapping[str, str], where: Any) -> Iterator[tuple[Any, str]]:
    """The linear layers that a plan names, each with its kind."""
    for name, layer in model.named_modules():
        kinds = [kind for pattern, kind in plan.items() if fnmatchcase(name, pattern)]
        if kinds and type(layer) in SPLIT and (where is None or where(name, layer)):
            if kinds[0] not in KINDS:
                raise ArgumentError(
                    f'plan: must say "columns" or "rows"; got {kinds[0]!r} for {name}. Write one of them'
                )
            yield layer, KINDS[kinds[0]]


def split_layers(
    model: Any, mesh: Any, plan: Mapping[str, str] | None, sequence_dim: int | None, where: Any
) -> list[Any]:
    """Split a model's layers over a mesh; the layers."""
    require_mesh_of_ranks(mesh)
    return split_pairs(list(styled(model, plan_of_model(model, plan), where)), mesh, sequence_dim)


def require_mesh_of_ranks(mesh: Any) -> None:
    if not isinstance(mesh, DeviceMesh) or mesh.ndim != 1:
        found = f"{mesh.ndim} dimensions" if isinstance(mesh, DeviceMesh) else type(mesh).__name__
        raise ArgumentError(
            f"mesh: must be a torch.distributed DeviceMesh of one dimension; got {found}. Write"
            ' init_device_mesh("cuda", (ranks,)), or mesh["model"], say'
        )


def split_pairs(pairs: list[tuple[Any, str]], mesh: Any, sequence_dim: int | None) -> list[Any]:
    for layer, kind in pairs:
        STYLES[kind](sequence_dim=sequence_dim)._apply(layer, mesh)
    return [layer for layer, _ in pairs]


def planned(
    model: Any, mesh: Any, plan: Mapping[str, str] | None, where: Any, packed: Mapping[Any, Any]
) -> list[tuple[Any, str]]:
    """The layers that are to be split, whose packed weights are not theirs yet."""
    require_mesh_of_ranks(mesh)
    pairs = [pair for pair in styled(model, plan_of_model(model, plan), where) if pair[0] in packed]
    for layer, kind in pairs:
        if is_distributed(layer.weight):
            raise ArgumentError(
                "mesh: must be None where a style has split a layer; got a mesh, and a weight of"
                f" {layer.weight.placements}. Leave it out"
            )
        require_split(STYLES[kind].dim, packed[layer][0], mesh.size())
    return pairs
