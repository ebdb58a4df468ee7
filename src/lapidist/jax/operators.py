"""lapidist_product, the one operation in JAX, and the types of its results."""

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
    """D and further results of an epilogue."""
    results: list[Any] = product_p.bind(*in_the_same_axes(operands), product=product)
    return results


def in_the_same_axes(operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """The operands as varying over the same axes of shard_map, which JAX requires."""
    varying = [jax.typeof(operand).manual_axis_type.varying for operand in operands]
    union = frozenset[Any]().union(*varying)
    return tuple(
        jax.lax.pcast(operand, tuple(sorted(union - axes)), to="varying") if union - axes else operand
        for operand, axes in zip(operands, varying, strict=True)
    )


def outlined(*operands: Any, product: Product) -> list[Any]:
    """The results without numbers: their shapes and types, else as a, without axes of explicit sharding."""
    outlines = [outline_of(operand) for operand in operands]
    results = results_of(product.bound(operands_of(outlines, product.arrays)))
    return [like(operands[0], shape, dtype) for shape, dtype in results]


def like(first: Any, shape: tuple[int, ...], dtype: str) -> Any:
    everywhere = NamedSharding(first.sharding.mesh, PartitionSpec(*(None,) * len(shape)))
    return first.update(shape=shape, dtype=numpy_dtype(dtype), weak_type=False, sharding=everywhere)


compiled = jax.jit(product_p.bind, static_argnames=("product",))


def run(*operands: Any, product: Product) -> list[Any]:
    """An eager call, compiled even under jax.disable_jit: otherwise `compiled` would call this endlessly."""
    if not jax.config.jax_disable_jit:
        return compiled(*operands, product=product)  # type: ignore[no-any-return]
    with jax.disable_jit(False):
        return compiled(*operands, product=product)  # type: ignore[no-any-return]


product_p.def_abstract_eval(outlined)
product_p.def_impl(run)
