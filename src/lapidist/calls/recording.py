"""Whether torch records or redirects what is computed. A fast path then leaves the call to the full path,
which refuses in words what it cannot serve.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

Recorded = Callable[[], bool]


def recording_of(tensors: Iterable[Any]) -> Recorded:
    """A test whether torch records a call on tensors like these: for a trace, for tangents, for a dispatch
    mode or, if one of the tensors requires it, for a gradient. Any of them may begin between two calls.
    """
    import torch

    tracing, modes = torch._C._is_tracing, torch._C._len_torch_dispatch_stack
    gradients, forward = torch.is_grad_enabled, torch.autograd.forward_ad
    if any(each.requires_grad for each in tensors):
        return lambda: tracing() or forward._current_level >= 0 or modes() > 0 or gradients()
    return lambda: tracing() or forward._current_level >= 0 or modes() > 0
