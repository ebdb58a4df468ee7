"""Whether torch records or redirects what is computed. A fast path then leaves the call to the full path,
which refuses in words what it cannot serve.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

Recorded = Callable[[], bool]


def recording_of(tensors: Iterable[Any]) -> Recorded:
    """A test whether torch records a call on tensors like these: for tangents, for a dispatch mode or, if one
    of the tensors requires it, for a gradient. Any of them may begin between two calls.
    """
    import torch

    modes, gradients = torch._C._len_torch_dispatch_stack, torch.is_grad_enabled
    forward = torch.autograd.forward_ad
    if any(each.requires_grad for each in tensors):
        return lambda: forward._current_level >= 0 or modes() > 0 or gradients()
    return lambda: forward._current_level >= 0 or modes() > 0


def is_traced() -> bool:
    """Whether torch.jit.trace records the call. torch's own guard tells that, too: one that was made outside
    of a trace refuses calls inside. So this is asked where that guard is made, or does not serve.
    """
    import torch

    return torch._C._is_tracing()
