"""Tensor descriptors that a caller makes for Triton, as the maps and numbers that a kernel takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lapidist.dtypes import array_of_tensor
from lapidist.errors import ArgumentError
from lapidist.launch import TensorMap
from lapidist.machine.tensor_map_bytes import SWIZZLES


def is_descriptor(value: Any) -> bool:
    return type(value).__name__ == "TensorDescriptor" and type(value).__module__.startswith("triton")


def array_behind(name: str, descriptor: Any) -> np.ndarray:
    """What a descriptor describes, as an array of the same memory."""
    base = descriptor.base
    if not hasattr(base, "device") or base.device.type != "cpu":
        rule = "must describe a tensor of torch's in host memory, where the machine runs"
        raise ArgumentError(f"args: {name}: {rule}; got {type(base).__name__}. Make it from its .cpu()")
    if descriptor.padding != "zero" or descriptor.round_f32_to_tf32:
        rule = "must pad with zeros and not round, as the machine's tensor maps do"
        raise ArgumentError(f"args: {name}: {rule}; got {descriptor.padding!r} or rounding. Leave both out")
    return array_of_tensor(base)


def in_parameters(descriptor: Any, array: np.ndarray, meta: Mapping[str, Any] | None) -> list[Any]:
    """The parameters of one descriptor: its map, extents and strides. `meta` is what Triton chose for it."""
    if meta is None or meta["fp4_padded"] or meta.get("is_im2col", False):
        rule = "must be a tile of a matrix, which TMA copies"
        raise ArgumentError(f"args: a descriptor {rule}; got another kind. Pass the PTX and all parameters")
    shape, strides = tuple(descriptor.shape), tuple(descriptor.strides)
    tensor_map = TensorMap(
        array.ctypes.data,
        array.dtype.name,
        shape[::-1],
        tuple(stride * array.itemsize for stride in strides[-2::-1]),
        tuple(meta["block_size"])[::-1],
        SWIZZLES[meta["swizzle"]],
    )
    return [tensor_map, *map(np.int32, shape), *map(np.int64, strides)]
