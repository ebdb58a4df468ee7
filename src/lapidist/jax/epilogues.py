"""Epilogues in JAX: their operands, and the same functions by jax.numpy, which have gradients.

A program without gradients has one operation. In one with gradients the sums are a product of their own, and
XLA has the function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp
from jax.interpreters import ad

from lapidist.calls import checks
from lapidist.calls.arguments import Arguments
from lapidist.calls.operation import is_array
from lapidist.dtypes import TYPES, number_type, numpy_dtype
from lapidist.epilogues.steps import CAST, COLUMN, CONSTANT, OPERAND, ROW, SCALAR, SUM, TILE, Function
from lapidist.epilogues.tracing import Given
from lapidist.errors import DTypeError
from lapidist.jax.operators import bind
from lapidist.jax.products import Product, operands_of, outline_of

EXTENTS = {SCALAR: (), ROW: (-1,), COLUMN: (-2,), TILE: (-2, -1)}  # of D, which an operand has


# ---- what a caller gave ----


def arrays_of(epilogue: Given, accumulator: str) -> dict[str, Any]:
    """Operands by name; numbers become arrays of the type that a function reckons in."""
    numbers = np.dtype("float64" if accumulator == "float64" else "float32")
    return {name: array_of(name, value, numbers) for name, value in epilogue.values.items()}


def array_of(name: str, value: Any, numbers: np.dtype[Any]) -> Any:
    if isinstance(value, (jax.Array, np.ndarray)):
        return jnp.asarray(value)
    if is_array(value) or not np.isscalar(value):
        raise DTypeError(
            f"{name}: must be a number or an array of JAX or NumPy; got {type(value).__name__}. Pass it"
            " through jax.numpy.asarray first"
        )
    number = checks.require_scalar(name, value)
    return jnp.asarray(checks.require_in_range(name, number, numbers.name), numbers)


def in_order(arrays: dict[str, Any], product: Product, arguments: Arguments) -> dict[str, Any]:
    """Operands of an epilogue with those dimensions of D that they have, and of a batch before them."""
    if product.epilogue is None or arguments.fused is None:
        return arrays
    seen = dict(arrays)
    for parameter, operand in zip(product.epilogue.parameters, arguments.fused.arrays, strict=True):
        name, shape = Product.name_of(parameter), operand.shape
        own = tuple(shape[place] for place in EXTENTS[parameter.kind])
        batch = () if parameter.kind == SCALAR else shape[:-2]
        seen[name] = arrays[name].reshape(*batch, *own)
    return seen


# ---- the function by jax.numpy ----


def larger(x: Any, y: Any) -> Any:
    """NaN where either is. Where they are equal, the second has the gradient: relu's is 0 at 0."""
    return jnp.where((x > y) | jnp.isnan(x), x, y)


def smaller(x: Any, y: Any) -> Any:
    return jnp.where((x < y) | jnp.isnan(x), x, y)


def gelu(x: Any) -> Any:
    """0 at minus infinity, its limit."""
    bounded = jnp.isneginf(x)
    return jnp.where(bounded, 0, jax.nn.gelu(jnp.where(bounded, 0, x), approximate=False))


def gelu_slope(x: Any) -> Any:
    bounded = jnp.clip(x, -40, 40)
    return jax.scipy.stats.norm.cdf(bounded) + bounded * jax.scipy.stats.norm.pdf(bounded)


def cast(x: Any, dtype: str) -> Any:
    return x.astype(numpy_dtype(dtype)).astype(x.dtype)


# what jax.numpy has under another name, or with another gradient
BY_JAX = {
    "maximum": larger,
    "minimum": smaller,
    "both": jnp.logical_and,
    "any_of": jnp.logical_or,
    "no": jnp.logical_not,
    "erf": jax.scipy.special.erf,
    "sigmoid": jax.nn.sigmoid,
    "rsqrt": jax.lax.rsqrt,
    "gelu": gelu,
    "gelu_slope": gelu_slope,
    CAST: cast,
}


def operation(name: str) -> Any:
    return BY_JAX[name] if name in BY_JAX else getattr(jnp, name)


def evaluated(function: Function, sums: Any, operands: dict[str, Any]) -> Any:
    """In the type of the sums."""
    values: list[Any] = []
    for step in function.steps:
        if step.operation == SUM:
            values.append(sums)
        elif step.operation == OPERAND:
            values.append(operands[step.value].astype(sums.dtype))
        elif step.operation == CONSTANT:
            values.append(jnp.asarray(float.fromhex(step.value), sums.dtype))
        else:
            more = (step.value,) if step.operation == CAST else ()
            values.append(operation(step.operation)(*(values[arg] for arg in step.args), *more))
    return jnp.broadcast_to(values[function.results[0].step], sums.shape)


# ---- the product without it, and what follows ----


def apart(operands: Sequence[Any], product: Product) -> Any:
    """What the operation gives: by a product of sums, then by XLA."""
    outlines = [outline_of(operand) for operand in operands]
    arguments = product.arguments(operands_of(outlines, product.arrays))
    named, wide = dict(zip(product.arrays, operands, strict=True)), number_type(arguments.accumulator)
    dtype = numpy_dtype(arguments.out_dtype)
    # Gradients have the type of what they are of: those of float32 would be multiplied at a quarter's speed.
    if dtype.itemsize != 2 or any(named[x].dtype != dtype for x in product.operands):
        dtype = wide
    sums = bind(*sums_of(named, product, dtype), product=product.of_sums(dtype.name))
    return finished(sums.astype(wide), named, product, arguments.out_dtype)


def met(product: Product, axes: tuple[str, ...], *operands: Any) -> Any:
    """What the operation gives on devices of which each has a part of k, along these axes of a mesh."""
    if not axes:
        return bind(*operands, product=product)
    outlines = [outline_of(operand) for operand in operands]
    arguments = product.arguments(operands_of(outlines, product.arrays))
    dtype, named = number_type(arguments.accumulator), dict(zip(product.arrays, operands, strict=True))
    part = product.of_sums(dtype.name).without_c()
    sums = jax.lax.psum(bind(*(named[name] for name in part.arrays), product=part), axes)
    if product.beta:
        sums = sums + jnp.asarray(product.beta, dtype) * named["c"].astype(dtype)
    return finished(sums, named, product, arguments.out_dtype)


def sums_of(named: dict[str, Any], product: Product, dtype: Any) -> list[Any]:
    """Operands of the product alone. C is read in the type of the sums."""
    return [named[name].astype(dtype) if name == "c" else named[name] for name in product.operands]


def finished(sums: Any, named: dict[str, Any], product: Product, dtype: str) -> Any:
    """By the epilogue, if there is one, then rounded to the type of the result."""
    result = sums
    if product.epilogue is not None:
        operands = {
            each.name: beside(each.kind, named[Product.name_of(each)]) for each in product.epilogue.parameters
        }
        result = evaluated(product.epilogue, sums, operands)
    bounds = TYPES[dtype].bounds
    result = result if bounds is None else jnp.clip(result, *bounds)
    return result.astype(numpy_dtype(dtype))


def beside(kind: str, operand: Any) -> Any:
    """With rows and columns, as sums have them."""
    return operand[..., None, :] if kind == ROW else operand[..., None] if kind == COLUMN else operand


def differentiated(primals: tuple[Any, ...], tangents: tuple[Any, ...], product: Product) -> tuple[Any, Any]:
    """The result and its tangent, in the operands that have one."""
    moved = [place for place, tangent in enumerate(tangents) if type(tangent) is not ad.Zero]
    if not moved:
        result = bind(*primals, product=product)
        return result, ad.Zero(jax.typeof(result).to_tangent_aval())

    def call(*values: Any) -> Any:
        given = dict(enumerate(primals)) | dict(zip(moved, values, strict=True))
        return apart(list(given.values()), product)

    return jax.jvp(call, [primals[place] for place in moved], [tangents[place] for place in moved])
