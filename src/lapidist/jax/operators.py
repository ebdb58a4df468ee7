"""The one operation that JAX knows, lapidist_product, and its result's type."""

from __future__ import annotations

from typing import Any

import jax
from jax.extend.core import Primitive
from jax.sharding import NamedSharding, PartitionSpec

from lapidist.dtypes import numpy_dtype
from lapidist.jax.products import NAME, Product, operands_of, outline_of

product_p = Primitive(NAME)


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


product_p.def_abstract_eval(result_of)
product_p.def_impl(jax.jit(product_p.bind, static_argnames=("product",)))
