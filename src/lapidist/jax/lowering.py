"""How the operation is compiled: to a call of XLA's foreign functions on each device."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
from jax.interpreters import mlir

from lapidist.backends.selection import choose_place
from lapidist.calls.checks import WORKSPACE_ALIGNMENT
from lapidist.jax import handlers
from lapidist.jax.epilogues import met
from lapidist.jax.operators import product_p
from lapidist.jax.partitioning import is_spread, spread
from lapidist.jax.products import NAME, Product, outline_of, read, written


def call(*operands: Any, product: Product, result: Any, rooms: Any) -> Any:
    """By XLA's foreign functions; `rooms`: results beside ours."""
    text = written(product, [outline_of(operand) for operand in operands])
    ours = jax.ShapeDtypeStruct(result.shape, result.dtype)
    return jax.ffi.ffi_call(NAME, (ours, *rooms(text.encode())))(*operands, product=text)[0]


def lower(context: Any, *operands: Any, product: Product, rooms: Any) -> Any:
    (result,) = context.avals_out
    lowered: Any = partial(call, product=product, result=result, rooms=rooms)
    if is_spread(context.module_context.axis_context):
        outlines = [outline_of(operand) for operand in context.avals_in]
        lowered = spread(lowered, partial(met, product), product, outlines)
    return mlir.lower_fun(lowered, multiple_results=False)(context, *operands)


def no_room(text: bytes) -> tuple[Any, ...]:
    return ()


def room_on_gpus(text: bytes) -> tuple[Any, ...]:
    """Kernels are compiled and loaded here, not while a program runs or is captured. Where there is no GPU,
    as when a program is exported, that is left to its first run.
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
    try:  # JAX tells of devices only those that ask for them, by a name that is not public
        from jax._src.dispatch import prim_requires_devices_during_lowering as asking
    except ImportError:
        return  # arrays that are spread are gathered
    asking.add(product_p)
