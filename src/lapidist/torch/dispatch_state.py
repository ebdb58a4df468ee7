"""Whether torch must see a call: its compilers, transforms and modes, or its autograd."""

from __future__ import annotations

from typing import Any

import torch

PLAIN = (torch.Tensor, torch.nn.Parameter)
forward_ad = torch.autograd.forward_ad


def is_unobserved() -> bool:
    """Whether no compiler, transform, mode, autocast or profiler of torch must see a call. A condition takes
    50 nanoseconds.
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
    """Whether torch need not see a call on these tensors. The fast path of a repeated call, which follows,
    checks everything else.
    """
    return is_unobserved() and not (
        torch.is_grad_enabled() and any(getattr(tensor, "requires_grad", False) for tensor in tensors)
    )


def is_direct(*values: Any) -> bool:
    """Whether a call of these values needs nothing of torch but autograd."""
    return is_unobserved() and all(map(is_plain, values))


def is_plain(value: Any) -> bool:
    """Whether a value is one tensor with data, or no tensor, which later checks refuse."""
    if type(value) in PLAIN:
        return not (value.is_meta or value.is_nested)
    return not isinstance(value, torch.Tensor)


def is_recorded(values: tuple[Any, ...]) -> bool:
    """Whether autograd records a call of these values."""
    if torch.is_grad_enabled():
        for value in values:  # any() of a generator takes twice the time
            if type(value) in PLAIN and value.requires_grad:
                return True
    return False
