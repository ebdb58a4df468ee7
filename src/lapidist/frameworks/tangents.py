"""Tangents of torch's forward mode, which a product by addresses would lose."""

from __future__ import annotations

from typing import Any


def has_tangent(tensor: Any) -> bool:
    """Whether a tensor has a readable tangent. Below autograd torch lets nobody read them."""
    import torch

    if torch.autograd.forward_ad._current_level < 0:
        return False
    autograd = torch._C.DispatchKey.AutogradFunctionality
    if torch._C._dispatch_tls_is_dispatch_key_excluded(autograd):
        return False
    return torch.autograd.forward_ad.unpack_dual(tensor).tangent is not None
