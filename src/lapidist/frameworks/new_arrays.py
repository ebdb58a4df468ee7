"""New arrays in the caller's framework: before they exist, as they are made, and as they are handed over."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from lapidist.dtypes import numpy_dtype, size_of
from lapidist.errors import DTypeError, ShapeError
from lapidist.frameworks.arrays import HOST, Operand, contiguous_strides, framework_of, operand_of

MOST_BYTES = 2**63 - 1  # of an array: frameworks count them in signed numbers of 64 bits


def empty(shape: tuple[int, ...], like: Operand, dtype: str) -> Any:
    """A new array of a type, of the framework and place of `like`."""
    if like.framework == "torch":
        return (
            like.owner.new_empty(shape)
            if dtype == like.dtype
            else like.owner.new_empty(shape, dtype=torch_dtype(dtype))
        )
    if like.framework == "cupy":
        import cupy

        with cupy.cuda.Device(like.device):
            return cupy.empty(shape, dtype=numpy_dtype(dtype))
    if like.framework == "jax" and like.device != HOST:
        import jax

        with jax.default_device(next(iter(like.owner.devices()))):
            return jax.numpy.empty(shape, dtype=numpy_dtype(dtype)).block_until_ready()
    if like.device == HOST:
        return np.empty(shape, dtype=numpy_dtype(dtype))
    raise DTypeError(
        f"out: cannot make a new {type(like.owner).__name__}; pass out= with the array to write to"
    )


@lru_cache
def constant(framework: str, device: int, rows: tuple[tuple[float, ...], ...], dtype: str) -> Any:
    """A matrix of these numbers, which is made once in each place."""
    array = np.array(rows, numpy_dtype(dtype))
    if framework == "torch":
        import torch

        return torch.from_numpy(array).to("cpu" if device == HOST else f"cuda:{device}")
    if framework == "cupy":
        import cupy

        with cupy.cuda.Device(device):
            return cupy.asarray(array)
    return array


def filled(array: Any, rows: tuple[tuple[float, ...], ...]) -> Any:
    """A matrix of these numbers in an array, by launches that a graph may capture: nothing comes from the
    host.
    """
    fill = "fill_" if framework_of(array) == "torch" else "fill"
    most = rows[-1][-1]
    getattr(array, fill)(most)
    for i, row in enumerate(rows):
        for j, number in enumerate(row):
            if number != most:
                getattr(array[i : i + 1, j : j + 1], fill)(number)
    return array


def require_addressable(shape: tuple[int, ...], dtype: str) -> None:
    if not all(isinstance(extent, int) for extent in shape):  # a tracer's symbol, which must stay free
        return
    if prod(shape) * size_of(dtype) > MOST_BYTES:
        raise ShapeError(
            f"out: must have at most 2^63 - 1 bytes; a result of shape {shape} and type {dtype} has more."
            " Multiply fewer rows or columns at a time"
        )


def fresh(name: str, shape: tuple[int, ...], like: Operand, dtype: str) -> Operand:
    """What a new array will look like, before it exists: frameworks align them to 64 bytes and more, NumPy to
    16."""
    return Operand(name, 0, shape, contiguous_strides(shape), dtype, like.device, like.framework, None)


def as_planned(array: Any, planned: Operand) -> Operand:
    """A new array, of which all but its address is known."""
    if planned.framework != "torch":
        return operand_of(array, planned.name)
    like = planned.shape, planned.strides, planned.dtype, planned.device, "torch"
    return Operand(planned.name, array.data_ptr(), *like, array)


def handed_over(result: Any, like: Operand) -> Any:
    """A new result as its framework has it: JAX' arrays are made of complete ones, NumPy's without dimensions
    are scalars.
    """
    if like.framework == "jax" and like.device == HOST:
        import jax

        return jax.device_put(result, next(iter(like.owner.devices())))
    return result[()] if isinstance(result, np.ndarray) and not result.shape else result


def tell_written(out: Any) -> None:
    """torch counts writes to a tensor: its autograd refuses to go back through numbers that have changed
    since.
    """
    if framework_of(out) == "torch":
        import torch

        torch.autograd.graph.increment_version(out)


def torch_dtype(name: str) -> Any:
    import torch

    return getattr(torch, name)
