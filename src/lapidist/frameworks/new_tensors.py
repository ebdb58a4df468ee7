"""New tensors of torch, again and again of one geometry."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any


def tensors_made(
    shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any, device: Any
) -> Callable[[], Any]:
    """As torch.empty_strided makes them, by what torch's own compiled code calls, which passes the dispatcher
    by: it takes half the time. It makes them on the current GPU, so there must be but one."""
    import torch

    made: Callable[[], Any] = partial(torch.empty_strided, shape, strides, dtype=dtype, device=device)
    if device.type != "cuda" or torch.cuda.device_count() != 1:
        return made
    try:
        from torch._C._dynamo.guards import _empty_strided_cuda

        trial = _empty_strided_cuda((2, 1), (1, 2), dtype)
    except Exception:  # no public part of torch
        return made
    is_as_asked = trial.dtype is dtype and trial.shape == (2, 1) and trial.stride() == (1, 2)
    return partial(_empty_strided_cuda, shape, strides, dtype) if is_as_asked else made
