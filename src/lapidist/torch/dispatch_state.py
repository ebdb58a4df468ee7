"""Who must see a call of ours: torch's compilers, transforms and modes, its autograd, or nobody."""

from __future__ import annotations

from typing import Any

import torch

PLAIN = (torch.Tensor, torch.nn.Parameter)
forward_ad = torch.autograd.forward_ad


def is_unobserved() -> bool:
    """Whether nothing of torch must see the call: no compiler, transform, mode, autocast or profiler. Each
    answer takes 50 nanoseconds.
    """
    return not (
        torch.compiler.is_compiling()
        or torch._C._is_any_autocast_enabled()
        or torch._C._len_torch_dispatch_stack()
        or torch._C._len_torch_function_stack()
        or torch._C._are_functorch_transforms_active()
        or torch._C._is_tracing()
        or forward_ad._current_level >= 0
        or torch._C._autograd._profiler_enabled()
    )


def is_of_numbers(*tensors: Any) -> bool:
    """Whether torch need not see a call on these tensors. Asked before the fast path of a repeated call,
    which checks everything else.
    """
    return is_unobserved() and not (
        torch.is_grad_enabled() and any(getattr(each, "requires_grad", False) for each in tensors)
    )


def is_plain(given: Any) -> bool:
    """Whether it is a tensor with data, or no tensor at all: checks further on refuse that."""
    return not given.is_meta if type(given) in PLAIN else not isinstance(given, torch.Tensor)


def is_recorded(given: tuple[Any, ...]) -> bool:
    return torch.is_grad_enabled() and any(type(each) in PLAIN and each.requires_grad for each in given)
