"""New tensors of torch, again and again of one geometry."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

Shape = tuple[int, ...]
Make = Callable[[], Any]


def tensor_maker(dtype: Any, device: Any) -> Callable[[Shape, Shape], Make]:
    """A function of shape and strides. It returns what makes new tensors that have them.

    Where torch sees one GPU, that is the function that torch's own compiled code calls. It does not go
    through torch's dispatcher, and takes 2 us in place of 4."""
    import torch

    def usual(shape: Shape, strides: Shape) -> Make:
        return partial(torch.empty_strided, shape, strides, dtype=dtype, device=device)

    if device.type != "cuda" or torch.cuda.device_count() != 1:
        return usual
    try:
        from torch._C._dynamo.guards import _empty_strided_cuda as shorter

        trial = shorter((2, 1), (1, 2), dtype)
    except Exception:  # no public part of torch
        return usual
    if (trial.dtype, trial.shape, trial.stride()) != (dtype, (2, 1), (1, 2)):
        return usual
    return lambda shape, strides: partial(shorter, shape, strides, dtype)
