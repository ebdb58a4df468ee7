"""A mixture's experts whose weights are packed in few bits."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from lapidist.calls.operation import OPEN_BLOCKS
from lapidist.quantised.packed_weight import PackedWeight, unpack
from lapidist.quantised.packing import pack
from lapidist.torch.dispatch_state import is_direct, is_recorded
from lapidist.torch.experts import Experts, swapped_class
from lapidist.torch.few_bits import grouped, routed
from lapidist.torch.packed_layer import PackedStack, restore_weight, take_weight

WEIGHTS = "gate_up_proj", "down_proj"


class PackedExpertsModule(Experts):
    """Experts that have a PackedStack in place of each parameter."""

    stock_dtype: Any  # of the weights that give_back makes

    def may_be_fused(self, operands: tuple[Any, ...]) -> bool:
        """Also in a compiler's graph."""
        tokens, up, down, weights = operands
        tensors = tokens, up.codes, down.codes, weights
        if self.has_bias or self.invariant or OPEN_BLOCKS or is_recorded(tensors):
            return False
        return torch.compiler.is_compiling() or is_direct(*tensors)

    def by_groups(self, rows: Any, weights: Any, ends: Any) -> Any:
        return grouped(rows, weights.packed_weight, ends)

    def gathered(self, tokens: Any, weights: Any, ends: Any, index: Any) -> Any:
        return routed(tokens, weights.packed_weight, ends, index)

    def weighed(self, rows: Any, weights: Any, ends: Any, order: Any, factors: Any) -> Any:
        return routed(rows, weights.packed_weight, ends, None, order, factors)


def in_order(weights: Any, is_transposed: bool) -> Any:
    """Weights of experts as (k, n), from those of a module, or the other way round."""
    return weights if is_transposed else weights.mT


def packed_weights(layer: Any, format: str, group: int | None) -> list[PackedWeight]:
    """The weights of a linear layer or of experts, packed; those of all ranks."""
    if any(is_distributed(parameter) for parameter in layer.parameters(recurse=False)):
        return [over_ranks().packed_whole(layer, format, group)]
    if isinstance(layer, torch.nn.Linear):
        return [pack(layer.weight.detach().T, format, group=group)]
    parameters = (getattr(layer, name).detach() for name in WEIGHTS)
    return [pack(in_order(weights, layer.is_transposed), format, group=group) for weights in parameters]


def is_distributed(weight: Any) -> bool:
    """Whether a weight is a DTensor, of a type whose import takes half a second."""
    return hasattr(weight, "placements")


def over_ranks() -> Any:
    return importlib.import_module("lapidist.torch.parallel_few_bits")


def take(layer: Any, weights: list[PackedWeight]) -> None:
    """Let a layer multiply by packed weights, in place: its hooks stay, its own weights go."""
    if isinstance(layer, torch.nn.Linear):
        (over_ranks().take_part if is_distributed(layer.weight) else take_weight)(layer, weights[0])
        return
    stock: Any = type(layer)
    dtype = layer.gate_up_proj.dtype
    for name, packed in zip(WEIGHTS, weights, strict=True):
        delattr(layer, name)
        layer.add_module(name, PackedStack(packed))
    layer.__class__ = swapped_class(stock, PackedExpertsModule)
    layer.stock_dtype = dtype


def give_back(layer: Any) -> None:
    """Make a layer or experts the model's again, with the numbers of the packed weights: rounded ones."""
    if isinstance(layer, torch.nn.Linear):
        restore_weight(layer)
        return
    for name in WEIGHTS:
        numbers = unpack(getattr(layer, name).packed_weight).to(layer.stock_dtype)
        delattr(layer, name)
        values = in_order(numbers, layer.is_transposed).contiguous()
        layer.register_parameter(name, torch.nn.Parameter(values, requires_grad=False))
    del layer.stock_dtype
    layer.__class__ = layer.stock_class
