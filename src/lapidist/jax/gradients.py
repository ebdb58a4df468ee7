"""Tangents and gradients of a product, made of products: they can be differentiated again.

Let D = alpha op(A) op(B) + beta C, and G be the gradient of D. The gradient of op(A) is alpha G op(B)^T, that
of op(B) is alpha op(A)^T G, summed over broadcast dimensions. Transposes are not copied. Nothing is
conjugated, by JAX's convention, which is not torch's. A real operand of a complex product takes real parts.

So it is with groups. Where these cut rows of A, they cut rows of G, and k in the gradient of B."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
from jax.interpreters import ad

from lapidist.dtypes import IEEE, PART_OF, TF32, THREE_PRODUCTS, complex_product, outputs_of, size_of
from lapidist.errors import ArgumentError
from lapidist.jax.epilogue_functions import differentiated
from lapidist.jax.factors import gradient_of_factors
from lapidist.jax.operators import bind
from lapidist.jax.product import OFFSETS, Product

Shape = tuple[int, ...]


def forth(
    primals: tuple[Any, ...], tangents: tuple[Any, ...], *, product: Product
) -> tuple[list[Any], list[Any]]:
    """The product, and its tangent: the sum of those by each operand."""
    if product.epilogue is not None:
        return differentiated(primals, tangents, product)
    result = bind(*primals, product=product)
    moved = {
        name: tangent
        for name, tangent in zip(product.arrays, tangents, strict=True)
        if type(tangent) is not ad.Zero and name != OFFSETS
    }
    if product.is_scaled and moved.keys() & {"a", "b"}:
        raise ArgumentError(
            "a, b: 8-bit floats with factors have no gradient, which their own type would be too coarse for;"
            " got one that is differentiated. Multiply what they were rounded from by lapidist.jax.linear"
            " with dtype=, or pass them through jax.lax.stop_gradient"
        )
    parts = [tangent_by(name, tangent, primals, product, result) for name, tangent in moved.items()]
    if not parts:
        return [result], [ad.Zero(jax.typeof(result).to_tangent_aval())]
    return [result], [sum(parts[1:], parts[0])]


def tangent_by(name: str, tangent: Any, primals: tuple[Any, ...], product: Product, result: Any) -> Any:
    if name == "c":
        return jax.numpy.broadcast_to(tangent * product.beta, result.shape)
    operands = dict(zip(product.arrays, primals, strict=True)) | {name: tangent}
    how = product.without_c().whole._replace(out_dtype=result.dtype.name)  # one term is not symmetric
    return bind(*(operands[array] for array in how.arrays), product=how)


def back(gradients: list[Any], *operands: Any, product: Product) -> list[Any]:
    """The gradients of operands that the product is linear in; without an epilogue it has one result."""
    (g,) = gradients
    if type(g) is ad.Zero:
        return [None] * len(operands)
    a, b = operands[:2]
    named = dict(zip(product.arrays, operands, strict=True))
    groups = {OFFSETS: named[OFFSETS]} if product.is_grouped else {}
    rules: dict[str, Callable[[], Any]] = {
        "a": lambda: gradient_of_a(g, b, a.aval, product, groups),
        "b": lambda: gradient_of_b(g, a, b.aval, product, groups),
        "c": lambda: summed_to(g * product.beta, operands[2].aval.shape),
        "scale_a": lambda: gradient_of_factors("scale_a", g, named, product),
        "scale_b": lambda: gradient_of_factors("scale_b", g, named, product),
    }
    return [rules[name]() if ad.is_undefined_primal(operand) else None for name, operand in named.items()]


def gradient_of_a(g: Any, b: Any, like: Any, product: Product, groups: Mapping[str, Any]) -> Any:
    trans_b = product.trans_b
    if product.trans_a:
        gradient = multiplied(b, g, like, product, trans_b, True, groups)
    else:
        gradient = multiplied(g, b, like, product, False, not trans_b, groups)
    return summed_to(gradient, like.shape)


def gradient_of_b(g: Any, a: Any, like: Any, product: Product, groups: Mapping[str, Any]) -> Any:
    trans_a = product.trans_a
    if len(like.shape) == 2 and g.ndim > 2 and not trans_a and not groups:
        a, g = in_one(a), in_one(g)  # one product sums over the batch
    product = product._replace(invariant=False)  # it sums over rows
    if product.trans_b:
        gradient = multiplied(g, a, like, product, True, trans_a, groups)
    else:
        gradient = multiplied(a, g, like, product, not trans_a, False, groups)
    return summed_to(gradient, like.shape)


def multiplied(
    first: Any,
    second: Any,
    like: Any,
    product: Product,
    trans_a: bool,
    trans_b: bool,
    groups: Mapping[str, Any],
) -> Any:
    """alpha op(first) op(second) in the type of `like`, multiplied in the wider type of the two. If `like` is
    narrower than float32, float32 is rounded to 10 bits, which loses none of the narrower operand's.
    """
    first, second = in_types_that_meet(first, second)
    types, precision = (first.dtype.name, second.dtype.name), IEEE
    if product.precision == THREE_PRODUCTS:
        precision = THREE_PRODUCTS
    elif "float32" in [PART_OF.get(dtype, dtype) for dtype in types]:
        precision = product.precision if PART_OF.get(like.dtype.name, like.dtype.name) == "float32" else TF32
    out_dtype = like.dtype.name if like.dtype.name in outputs_of(*types) else None
    how = Product(
        ("a", "b", *groups),
        trans_a,
        trans_b,
        product.alpha,
        0.0,
        out_dtype,
        precision=precision,
        device=product.device,
        invariant=product.invariant,
    )
    gradient = bind(first, second, *groups.values(), product=how)
    of_real = complex_product(*types) and like.dtype.name not in PART_OF
    return (gradient.real if of_real else gradient).astype(like.dtype)


def in_types_that_meet(first: Any, second: Any) -> tuple[Any, Any]:
    """The arrays as a product takes them: a real one may meet a complex one."""
    names = first.dtype.name, second.dtype.name
    if complex_product(*names):
        return first, second
    common = common_type(*names)
    return first.astype(common), second.astype(common)


def common_type(first: str, second: str) -> str:
    """The wider one; of two of a size, float32."""
    if first == second:
        return first
    sizes = size_of(first), size_of(second)
    return "float32" if sizes[0] == sizes[1] else first if sizes[0] > sizes[1] else second


def in_one(array: Any) -> Any:
    """A batch of matrices as a tall one."""
    return array.reshape(math.prod(array.shape[:-1]), array.shape[-1])


def summed_to(array: Any, shape: Shape) -> Any:
    """The sum over the dimensions that were broadcast from `shape`."""
    missing = array.ndim - len(shape)
    single = tuple(
        missing + place
        for place, extent in enumerate(shape)
        if extent == 1 and array.shape[missing + place] != 1
    )
    axes = tuple(range(missing)) + single
    return array.sum(axes).reshape(shape) if axes else array
