"""The public calls: straight to lapidist where torch has nothing to add, else through the operators."""

from __future__ import annotations

from typing import Any

import torch

from lapidist import api
from lapidist.torch import operators
from lapidist.torch.autocast import in_autocast

PLAIN = (torch.Tensor, torch.nn.Parameter)


def matmul(a: Any, b: Any) -> Any:
    """torch.matmul(a, b)."""
    a, b = in_autocast(a, b)
    return operators.matmul(a, b) if is_observed(a, b) else api.matmul(a, b)


def gemm(
    a: Any, b: Any, c: Any = None, *, alpha: float = 1.0, beta: float = 0.0, trans_a: bool = False, trans_b: bool = False
) -> Any:
    """alpha op(a) op(b) + beta c, where c broadcasts to the product. beta = 0 never reads c."""
    a, b, c = in_autocast(a, b, c)
    if is_observed(a, b, c):
        return operators.gemm(a, b, c, alpha, beta, trans_a, trans_b)
    return api.gemm(a, b, c, alpha=alpha, beta=beta, trans_a=trans_a, trans_b=trans_b)


def linear(input: Any, weight: Any, bias: Any = None) -> Any:
    """torch.nn.functional.linear(input, weight, bias): input @ weight.T + bias, in one launch."""
    input, weight, bias = in_autocast(input, weight, bias)
    return (operators.linear if is_observed(input, weight, bias) else operators.run_linear)(input, weight, bias)


def is_observed(*tensors: Any) -> bool:
    """Whether torch must see the call: it traces, transforms or records it, or a tensor has no memory of its own."""
    if torch.compiler.is_compiling():
        return True
    C = torch._C
    if C._len_torch_dispatch_stack() or C._len_torch_function_stack() or C._are_functorch_transforms_active():
        return True
    if C._is_tracing() or torch.autograd.forward_ad._current_level >= 0:
        return True
    gradients = torch.is_grad_enabled()
    return any(is_watched(tensor, gradients) for tensor in tensors)


def is_watched(tensor: Any, gradients: bool) -> bool:
    if type(tensor) not in PLAIN:
        return isinstance(tensor, torch.Tensor)
    return bool(gradients and tensor.requires_grad) or bool(tensor.is_meta)
