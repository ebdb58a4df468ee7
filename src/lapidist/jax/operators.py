"""The one operation that JAX knows, lapidist_product: its result's type, and how it is compiled."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
from jax.extend.core import Primitive
from jax.interpreters import mlir
from jax.sharding import NamedSharding, PartitionSpec

from lapidist.backends.selection import choose_place
from lapidist.calls.checks import WORKSPACE_ALIGNMENT
from lapidist.dtypes import numpy_dtype
from lapidist.jax import handlers
from lapidist.jax.products import Product, operands_of, outline_of, read, written

product_p = Primitive(handlers.NAME)


def bind(*operands: Any, product: Product) -> Any:
    return product_p.bind(*in_the_same_axes(operands), product=product)


def in_the_same_axes(operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """Inside of shard_map an array that is the same on all devices is told apart from those that are not."""
    varying = [jax.typeof(operand).manual_axis_type.varying for operand in operands]
    every = frozenset[Any]().union(*varying)
    return tuple(
        jax.lax.pcast(operand, tuple(sorted(every - own)), to="varying") if every - own else operand
        for operand, own in zip(operands, varying, strict=True)
    )


def result_of(*operands: Any, product: Product) -> Any:
    """Shape, type, and the rest as a has it; no mesh axis of explicit sharding is kept."""
    outlines = [outline_of(operand) for operand in operands]
    arguments = product.arguments(operands_of(outlines, product.arrays))
    first, shape = operands[0], arguments.result_shape
    everywhere = NamedSharding(first.sharding.mesh, PartitionSpec(*(None,) * len(shape)))
    dtype = numpy_dtype(arguments.out_dtype)
    return first.update(shape=shape, dtype=dtype, weak_type=False, sharding=everywhere)


def call(*operands: Any, product: Product, result: Any, rooms: Any) -> Any:
    """By XLA's foreign functions; `rooms`: results beside ours."""
    text = written(product, [outline_of(operand) for operand in operands])
    ours = jax.ShapeDtypeStruct(result.shape, result.dtype)
    return jax.ffi.ffi_call(handlers.NAME, (ours, *rooms(text.encode())))(*operands, product=text)[0]


def lower(context: Any, *operands: Any, product: Product, rooms: Any) -> Any:
    (result,) = context.avals_out
    lowered = partial(call, product=product, result=result, rooms=rooms)
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


product_p.def_abstract_eval(result_of)
product_p.def_impl(jax.jit(product_p.bind, static_argnames=("product",)))
mlir.register_lowering(product_p, partial(lower, rooms=no_room), platform="cpu")
mlir.register_lowering(product_p, partial(lower, rooms=room_on_gpus), platform="cuda")
