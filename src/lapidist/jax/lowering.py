"""The operation's lowering: to a call of XLA's foreign functions on each device."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
from jax import numpy as jnp
from jax.interpreters import mlir

from lapidist.backends.selection import choose_place
from lapidist.calls.argument_rules import WORKSPACE_ALIGNMENT
from lapidist.dtypes import numpy_dtype
from lapidist.jax import handlers
from lapidist.jax.complex_numbers import by_real_numbers, is_complex
from lapidist.jax.epilogue_functions import met
from lapidist.jax.operators import product_p
from lapidist.jax.partitioning import is_spread, spread
from lapidist.jax.product import NAME, OFFSETS, Product, operands_of, outline_of, read, results_of, written
from lapidist.problems.ragged import DEPTH, ROWS


def call(*operands: Any, product: Product, rooms: Any) -> tuple[Any, ...]:
    """The results by XLA's foreign functions; `rooms` are workspaces, as further results."""
    outlines = [outline_of(operand) for operand in operands]
    text = written(product, outlines)
    bound = product.bound(operands_of(outlines, product.arrays))
    shapes = [jax.ShapeDtypeStruct(shape, numpy_dtype(dtype)) for shape, dtype in results_of(bound)]
    results = jax.ffi.ffi_call(NAME, (*shapes, *rooms(text.encode())))(*operands, product=text)
    if bound.groups is None:
        return tuple(results[: len(shapes)])
    ends, extent = operands[product.arrays.index(OFFSETS)], bound.groups.ragged.extent
    return tuple(zeroed_behind(result, ends, extent) for result in results[: len(shapes)])


def zeroed_behind(d: Any, ends: Any, extent: str) -> Any:
    """D with zeros behind the last group, where kernels write nothing: that memory may hold NaN."""
    if extent == DEPTH:
        return d
    numbers = jax.lax.broadcasted_iota(ends.dtype, d.shape, d.ndim - (2 if extent == ROWS else 1))
    return jnp.where(numbers < (ends[-1] if ends.size else 0), d, jnp.zeros((), d.dtype))


def lower(context: Any, *operands: Any, product: Product, rooms: Any) -> Any:
    lowered: Any = partial(call, product=product, rooms=rooms)
    if rooms is room_on_gpus and is_complex(*context.avals_in[:2]):
        # kernels multiply real numbers; the product of those is lowered as any
        lowered = partial(by_real_numbers, product=product)
    elif is_spread(context.module_context.axis_context):
        outlines = [outline_of(operand) for operand in context.avals_in]
        lowered = spread(lowered, partial(met, product), product, outlines)
    return mlir.lower_fun(lowered, multiple_results=True)(context, *operands)


def no_room(text: bytes) -> tuple[Any, ...]:
    return ()


def room_on_gpus(text: bytes) -> tuple[Any, ...]:
    """The workspace. Kernels are compiled and loaded here, not while a program runs or is captured. Without a
    GPU, as for an exported program, the first run does it.
    """
    product, outlines = read(text)
    choose_place(0, product.device)  # the machine takes arrays of the host
    aligned = (0,) * len(outlines)
    nbytes = max((handlers.ready(text, ordinal, aligned).room for ordinal in local_gpus()), default=0)
    return (jax.ShapeDtypeStruct((nbytes and nbytes + WORKSPACE_ALIGNMENT,), "uint8"),)


def local_gpus() -> list[int]:
    try:
        devices = jax.local_devices(backend="cuda")
    except RuntimeError:
        return []
    return [device.local_hardware_id for device in devices]


def register() -> None:
    mlir.register_lowering(product_p, partial(lower, rooms=no_room), platform="cpu")
    mlir.register_lowering(product_p, partial(lower, rooms=room_on_gpus), platform="cuda")
    try:  # JAX passes devices to these primitives alone; the name is not public
        from jax._src.dispatch import prim_requires_devices_during_lowering as with_devices
    except ImportError:
        return  # split arrays are gathered
    with_devices.add(product_p)
