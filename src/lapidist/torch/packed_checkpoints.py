"""Checkpoints as transformers writes them: GPTQ's and AWQ's linear layers, and experts in MXFP4."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from lapidist.errors import ArgumentError, ShapeError
from lapidist.quantised.packed_weight import PackedWeight
from lapidist.quantised.packing import from_awq, from_gptq, from_mxfp4
from lapidist.torch.experts import are_experts
from lapidist.torch.packed_experts import WEIGHTS, in_order, take
from lapidist.torch.packed_layer import PackedLinear, take_weight

CODES, KEYS = "qweight", ("qweight", "qzeros", "scales", "g_idx")
BLOCKS, SCALES = "{}_blocks", "{}_scales"  # of experts, by the names of their weights


def load_packed(model: Any, state: Mapping[str, Any], zero_offset: int | None = None) -> dict[str, Any]:
    """Give linear layers, and experts of MXFP4, the packed weights that a state has by their names. Returns
    the other entries, for `model.load_state_dict(..., strict=False)`: biases of experts, say.

    Packings are told apart by shapes. `zero_offset`: of GPTQ, as in `lapidist.quantised.from_gptq`. All
    weights are packed before a layer changes.
    """
    if not isinstance(state, Mapping):
        raise ArgumentError(
            f"state: must be a mapping of names to tensors; got {type(state).__name__}. Read the file first,"
            " with safetensors.torch.load_file or torch.load"
        )
    entries, layers = dict(state), dict(model.named_modules())
    names = [key.removesuffix(f".{CODES}") for key in state if key.endswith(f".{CODES}")]
    stacks = dict.fromkeys(
        key.rpartition(".")[0] for key in state if key.rpartition(".")[2] in map(BLOCKS.format, WEIGHTS)
    )
    if not names and not stacks:
        raise ArgumentError(
            f"state: must have packed weights, by keys that end in .{CODES} or _proj_blocks; got none. Load"
            " it with model.load_state_dict"
        )
    made = [linear_of(name, layers.get(name), entries, zero_offset) for name in names]
    mixtures = [experts_of(name, layers.get(name), entries) for name in stacks]
    for layer, weight, bias in made:
        take_weight(layer, placed(weight, layer.weight))
        if bias is not None:
            take_bias(layer, bias)
    for layer, weights in mixtures:
        take(layer, [placed(weight, layer.gate_up_proj) for weight in weights])
    return entries


def take_bias(layer: Any, bias: Any) -> None:
    """Of a model on meta the bias is what the checkpoint has, as its weights are."""
    if layer.bias.is_meta:
        layer.bias = torch.nn.Parameter(bias.to(layer.bias.dtype), layer.bias.requires_grad)
    else:
        layer.bias.data.copy_(bias)


def placed(weight: PackedWeight, plain: Any) -> PackedWeight:
    return weight if plain.device.type == "meta" else weight.to(plain.device)


def linear_of(name: str, layer: Any, entries: dict[str, Any], zero_offset: int | None) -> tuple[Any, ...]:
    """A layer, its weight and its bias, which are taken out of the entries."""
    if isinstance(layer, PackedLinear):
        raise ArgumentError(
            f"state: {name} must be a layer that is not packed yet; got {type(layer).__name__}. Load the"
            " checkpoint into a model before lapidist.torch.swap, or undo the swap"
        )
    if not isinstance(layer, torch.nn.Linear):
        raise ArgumentError(
            f"state: {name} must be a torch.nn.Linear of the model; got {type(layer).__name__}. Pass the"
            " model that the checkpoint is of"
        )
    parts = {key: entries.pop(f"{name}.{key}") for key in KEYS if f"{name}.{key}" in entries}
    weight, bias = packed_of(name, parts, zero_offset), entries.pop(f"{name}.bias", None)
    require_fit(name, layer, weight, bias)
    return layer, weight, bias


def experts_of(name: str, layer: Any, entries: dict[str, Any]) -> tuple[Any, list[PackedWeight]]:
    """Experts and their weights, which are taken out of the entries."""
    if not are_experts(layer, biased=True):
        raise ArgumentError(
            f"state: {name} must be experts of the model that lapidist.torch.swap takes; got"
            f" {type(layer).__name__}. Pass the model that the checkpoint is of"
        )
    weights = []
    for weight in WEIGHTS:
        keys = [f"{name}.{key.format(weight)}" for key in (BLOCKS, SCALES)]
        missing = [key for key in keys if key not in entries]
        if missing:
            raise ArgumentError(f"state: {missing[0]} is missing beside {name}. Pass all of the file")
        packed = from_mxfp4(*map(entries.pop, keys))
        expected = tuple(in_order(getattr(layer, weight), layer.is_transposed).shape)
        if packed.shape != expected:
            raise ShapeError(
                f"state: {name}.{weight} must have shape {expected}, as the experts have; got {packed.shape}."
                " Pass the model that the checkpoint is of"
            )
        weights.append(packed)
    return layer, weights


def packed_of(name: str, parts: Mapping[str, Any], zero_offset: int | None) -> PackedWeight:
    """A layer's weight, from its entries."""
    codes, scales = parts[CODES], parts.get("scales")
    if scales is None:
        raise ArgumentError(f"state: {name}.scales is missing beside {name}.{CODES}. Pass all of the file")
    if codes.shape[-1] == scales.shape[-1]:
        more = parts.get("qzeros"), parts.get("g_idx")
        return from_gptq(codes, scales, *more, zero_offset=zero_offset)
    if 8 * codes.shape[-1] == scales.shape[-1] and "qzeros" in parts:
        return from_awq(codes, scales, parts["qzeros"])
    raise ShapeError(
        f"state: {name}.{CODES} must be that of GPTQ, (k / 8, n), or of AWQ, (k, n / 8), with scales (groups,"
        f" n); got {tuple(codes.shape)} and {tuple(scales.shape)}. Other packings have functions of their own"
    )


def require_fit(name: str, layer: torch.nn.Linear, weight: PackedWeight, bias: Any) -> None:
    if weight.shape != (layer.in_features, layer.out_features):
        raise ShapeError(
            f"state: {name} must have shape {(layer.in_features, layer.out_features)}, as the layer has; got"
            f" {weight.shape}. Pass the model that the checkpoint is of"
        )
    if bias is not None and (layer.bias is None or bias.shape != layer.bias.shape):
        has = "none" if layer.bias is None else str(tuple(layer.bias.shape))
        raise ShapeError(
            f"state: {name}.bias must be as the layer's, {has}; got {tuple(bias.shape)}. Pass the model that"
            " the checkpoint is of"
        )
