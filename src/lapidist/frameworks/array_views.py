"""Arrays of the frameworks with their dimensions in another order, and groups of them as one: views, where
strides allow.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from lapidist.errors import DTypeError
from lapidist.frameworks.arrays import contiguous_strides, framework_of, operand_of
from lapidist.frameworks.new_arrays import empty

Sizes = tuple[int, ...]


def require_views(array: Any, name: str) -> None:
    """Only a framework makes views of its arrays."""
    if framework_of(array) == "other" and not isinstance(array, np.ndarray):
        raise DTypeError(
            f"{name}: must be an array of NumPy, torch, CuPy or JAX, which make views of theirs; got"
            f" {type(array).__name__}. Hand it over with from_dlpack or asarray of one of them"
        )


def strides_of(array: Any) -> Sizes:
    """In bytes or elements: one unit for all of an array. JAX does not tell: its arrays lie in order."""
    framework = framework_of(array)
    if framework == "torch":
        return tuple(array.stride())
    return contiguous_strides(array.shape) if framework == "jax" else tuple(array.strides)


def is_one(sizes: Sizes, strides: Sizes) -> bool:
    """Whether dimensions, in this order, are one without a copy."""
    steps = [(size, stride) for size, stride in zip(sizes, strides, strict=True) if size != 1]
    return 0 in sizes or all(outer == inner * size for (_, outer), (size, inner) in pairwise(steps))


def permuted(array: Any, order: Sizes) -> Any:
    if order == tuple(range(len(order))):
        return array
    return array.permute(order) if framework_of(array) == "torch" else array.transpose(order)


def reshaped(array: Any, shape: Sizes) -> Any:
    """A view where strides allow it, else a copy."""
    return array if tuple(array.shape) == shape else array.reshape(shape)


def empty_like(out: Any, shape: Sizes) -> Any:
    """A new array of the type and place of `out`."""
    if isinstance(out, np.ndarray):
        return np.empty(shape, out.dtype.newbyteorder("="))
    operand = operand_of(out, "out")
    return empty(shape, operand, operand.dtype)
