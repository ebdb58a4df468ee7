"""Checkpoints of GPTQ and AWQ as transformers writes them, into a model's linear layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from lapidist.errors import ArgumentError, ShapeError
from lapidist.quantised.packed_weight import PackedWeight
from lapidist.quantised.packing import from_awq, from_gptq
from lapidist.torch.packed_layer import PackedLinear, take_weight

CODES, KEYS = "qweight", ("qweight", "qzeros", "scales", "g_idx")


def load_packed(model: Any, state: Mapping[str, Any], zero_offset: int | None = None) -> dict[str, Any]:
    """Give linear layers the packed weights and biases that a state has by their names. Returns the other
    entries, for `model.load_state_dict(..., strict=False)`.

    Packings are told apart by shapes. `zero_offset`: of GPTQ, as in `lapidist.quantised.from_gptq`. All
    weights are packed before a layer changes.
    """
    if not isinstance(state, Mapping):
        raise ArgumentError(
            f"state: must be a mapping of names to tensors; got {type(state).__name__}. Read the file first,"
            " with safetensors.torch.load_file or torch.load"
        )
    rest, layers = dict(state), dict(model.named_modules())
    names = [key.removesuffix(f".{CODES}") for key in state if key.endswith(f".{CODES}")]
    if not names:
        raise ArgumentError(
            f"state: must have packed weights, by keys that end in .{CODES}; got none. Load it with"
            " model.load_state_dict"
        )
    made = []
    for name in names:
        layer = layers.get(name)
        if not isinstance(layer, torch.nn.Linear) or isinstance(layer, PackedLinear):
            raise ArgumentError(
                f"state: {name} must be a torch.nn.Linear of the model; got {type(layer).__name__}. Pass the"
                " model that the checkpoint is of"
            )
        parts = {key: rest.pop(f"{name}.{key}") for key in KEYS if f"{name}.{key}" in rest}
        weight, bias = packed_of(name, parts, zero_offset), rest.pop(f"{name}.bias", None)
        require_fit(name, layer, weight, bias)
        made.append((layer, weight, bias))
    for layer, weight, bias in made:
        device = layer.weight.device
        take_weight(layer, weight.to(device) if device.type != "meta" else weight)
        if bias is not None:
            layer.bias.data.copy_(bias)
    return rest


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
