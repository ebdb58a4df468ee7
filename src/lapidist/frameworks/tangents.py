"""Tangents of torch's forward mode, which a product by addresses would lose."""

from __future__ import annotations

from typing import Any


def has_tangent(tensor: Any) -> bool:
    """Whether a tangent of the tensor can be read. Below autograd, which has taken them, torch lets nobody."""
    import torch

    if torch.autograd.forward_ad._current_level < 0:
        return False
    autograd = torch._C.DispatchKey.AutogradFunctionality
    if torch._C._dispatch_tls_is_dispatch_key_excluded(autograd):
        return False
    return torch.autograd.forward_ad.unpack_dual(tensor).tangent is not None
