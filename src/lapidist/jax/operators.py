"""The one operation that JAX knows, lapidist_product, and its results' types."""

from __future__ import annotations

from typing import Any

import jax
from jax.extend.core import Primitive
from jax.sharding import NamedSharding, PartitionSpec

from lapidist.dtypes import numpy_dtype
from lapidist.jax.product import NAME, Product, operands_of, outline_of, results_of

product_p = Primitive(NAME)
product_p.multiple_results = True


def bind(*operands: Any, product: Product) -> Any:
    """D."""
    return bind_all(*operands, product=product)[0]


def bind_all(*operands: Any, product: Product) -> list[Any]:
    """D, and what an epilogue stores beside it."""
    found: list[Any] = product_p.bind(*in_the_same_axes(operands), product=product)
    return found


def in_the_same_axes(operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """Inside of shard_map an array that is the same on all devices is told apart from those that are not."""
    varying = [jax.typeof(operand).manual_axis_type.varying for operand in operands]
    every = frozenset[Any]().union(*varying)
    return tuple(
        jax.lax.pcast(operand, tuple(sorted(every - own)), to="varying") if every - own else operand
        for operand, own in zip(operands, varying, strict=True)
    )


def outlined(*operands: Any, product: Product) -> list[Any]:
    """Shapes, types, and the rest as a has it; no mesh axis of explicit sharding is kept."""
    outlines = [outline_of(operand) for operand in operands]
    found = results_of(product.bound(operands_of(outlines, product.arrays)))
    return [like(operands[0], shape, dtype) for shape, dtype in found]


def like(first: Any, shape: tuple[int, ...], dtype: str) -> Any:
    everywhere = NamedSharding(first.sharding.mesh, PartitionSpec(*(None,) * len(shape)))
    return first.update(shape=shape, dtype=numpy_dtype(dtype), weak_type=False, sharding=everywhere)


compiled = jax.jit(product_p.bind, static_argnames=("product",))


def run(*operands: Any, product: Product) -> list[Any]:
    """An eager call, compiled under jax.disable_jit too: else `compiled` would call this without end."""
    if not jax.config.jax_disable_jit:
        return compiled(*operands, product=product)  # type: ignore[no-any-return]
    with jax.disable_jit(False):
        return compiled(*operands, product=product)  # type: ignore[no-any-return]


product_p.def_abstract_eval(outlined)
product_p.def_impl(run)
