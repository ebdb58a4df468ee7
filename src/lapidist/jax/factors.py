"""Gradients of arrays of factors.

Let D = alpha A B, where A is scale_a times the stored A. The gradient of A is alpha G B^T. Times the stored
A, summed over the elements of a factor, it is the gradient of the factor."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from jax import numpy as jnp

from lapidist.jax.operators import bind
from lapidist.jax.product import Product
from lapidist.problems.scaling import K_BLOCK


def gradient_of_factors(name: str, g: Any, named: Mapping[str, Any], product: Product) -> Any:
    shape = named[name].aval.shape
    numbers = [number for number in (product.scale_a, product.scale_b) if number is not None]
    alpha = product.alpha * math.prod(numbers)
    multiply = Product(alpha=alpha, device=product.device)
    g = g.astype(jnp.float32)
    a, b = rows_of(named["a"], product.trans_a), rows_of(named["b"], not product.trans_b)
    if name == "scale_a":
        scaled = spread(named.get("scale_b"), b, of_b=True)
        return summed(a * bind(g, scaled, product=multiply), shape)
    scaled = spread(named.get("scale_a"), a)
    return summed(b * bind(g, scaled, product=multiply._replace(trans_a=True)), shape[::-1]).T


def rows_of(array: Any, transposed: bool) -> Any:
    """The rows of op(A), or the columns of op(B) as rows, in float32."""
    array = array.astype(jnp.float32)
    return jnp.swapaxes(array, -1, -2) if transposed else array


def spread(scale: Any, lines: Any, of_b: bool = False) -> Any:
    """Rows of `rows_of` times their factors."""
    if scale is None:
        return lines
    if scale.size == 1:
        return lines * scale.reshape(())
    scale = as_rows(scale.T if of_b else scale)
    count, k = lines.shape
    scale = scale if scale.shape[0] == count else scale.repeat(K_BLOCK, 0)[:count]
    scale = scale if scale.shape[1] == 1 else scale.repeat(K_BLOCK, 1)[:, :k]
    return lines * scale


def as_rows(scale: Any) -> Any:
    return scale[:, None] if scale.ndim == 1 else scale


def summed(values: Any, shape: tuple[int, ...]) -> Any:
    """The sum over the elements of each factor."""
    if all(extent == 1 for extent in shape):
        return values.sum().reshape(shape)
    count, k = values.shape
    down, along = shape[0], shape[1] if len(shape) > 1 else 1
    of_line, of_k = 1 if down == count else K_BLOCK, k if along == 1 else K_BLOCK
    padded = jnp.pad(values, ((0, down * of_line - count), (0, along * of_k - k)))
    return padded.reshape(down, of_line, along, of_k).sum((1, 3)).reshape(shape)
