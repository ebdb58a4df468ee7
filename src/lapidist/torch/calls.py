"""The public calls: straight to lapidist where torch has nothing to add, else through the operators."""

from __future__ import annotations

from typing import Any

import torch

from lapidist import api
from lapidist.torch import operators
from lapidist.torch.autocast import in_autocast

PLAIN = (torch.Tensor, torch.nn.Parameter)
forward_ad = torch.autograd.forward_ad


def matmul(a: Any, b: Any) -> Any:
    """torch.matmul(a, b)."""
    if is_unobserved() and is_plain(a) and is_plain(b):
        return api.matmul(a, b)
    return operators.matmul(*in_autocast(a, b))


def gemm(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    trans_a: bool = False,
    trans_b: bool = False,
) -> Any:
    """alpha op(a) op(b) + beta c, where c broadcasts to the product. beta = 0 never reads c."""
    if is_unobserved() and is_plain(a) and is_plain(b) and is_plain(c):
        return api.gemm(a, b, c, alpha=alpha, beta=beta, trans_a=trans_a, trans_b=trans_b)
    return operators.gemm(*in_autocast(a, b, c), alpha, beta, trans_a, trans_b)


def linear(input: Any, weight: Any, bias: Any = None) -> Any:
    """torch.nn.functional.linear(input, weight, bias): input @ weight.T + bias, in one launch."""
    if is_unobserved() and is_plain(input) and is_plain(weight) and is_plain(bias):
        return operators.run_linear(input, weight, bias)
    return operators.linear(*in_autocast(input, weight, bias))


def is_unobserved() -> bool:
    """Whether no compiler, transform, mode or autocast of torch must see the call. Each answer takes 50
    nanoseconds.
    """
    return not (
        torch.compiler.is_compiling()
        or torch._C._is_any_autocast_enabled()
        or torch._C._len_torch_dispatch_stack()
        or torch._C._len_torch_function_stack()
        or torch._C._are_functorch_transforms_active()
        or torch._C._is_tracing()
        or forward_ad._current_level >= 0
    )


def is_plain(tensor: Any) -> bool:
    """A tensor with memory of its own, of which no gradient is recorded. What is no tensor is told in words
    further on.
    """
    if type(tensor) not in PLAIN:
        return not isinstance(tensor, torch.Tensor)
    return not (tensor.requires_grad and torch.is_grad_enabled()) and not tensor.is_meta
