"""Operands of a product under torch.autocast: floats in its type; float64 and integers are unchanged."""

from __future__ import annotations

from typing import Any

import torch

WHERE = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU) | torch._C.DispatchKeySet(
    torch._C.DispatchKey.AutocastCUDA
)


def in_autocast(*tensors: Any) -> tuple[Any, ...]:
    """The tensors as autocast casts them, by the device of the first one."""
    first = tensors[0]
    kind = first.device.type if isinstance(first, torch.Tensor) else None
    if kind not in ("cpu", "cuda") or not torch.is_autocast_enabled(kind):
        return tensors
    dtype = torch.get_autocast_dtype(kind)
    return tuple(tensor.to(dtype) if is_cast(tensor, kind) else tensor for tensor in tensors)


def is_cast(tensor: Any, kind: str) -> bool:
    eligible = isinstance(tensor, torch.Tensor) and tensor.device.type == kind
    return bool(eligible and tensor.is_floating_point() and tensor.dtype is not torch.float64)
