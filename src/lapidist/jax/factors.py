"""Gradients of arrays of factors: each is a sum over what it multiplies.

Let D = alpha A B, where A is sa times what lies in memory. G B^T is the gradient of A. Times what lies in
memory, summed over the elements of a factor, it is that of the factor."""

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
    numbers = [each for each in (product.scale_a, product.scale_b) if each is not None]
    alpha = product.alpha * math.prod(numbers)
    multiply = Product(alpha=alpha, device=product.device)
    g = g.astype(jnp.float32)
    a, b = rows_of(named["a"], product.trans_a), rows_of(named["b"], not product.trans_b)
    if name == "scale_a":
        met = spread(named.get("scale_b"), b, of_b=True)
        found = a * bind(g, met, product=multiply)
        return summed(found, shape)
    met = spread(named.get("scale_a"), a)
    found = b * bind(g, met, product=multiply._replace(trans_a=True))
    return summed(found, shape[::-1]).T


def rows_of(array: Any, transposed: bool) -> Any:
    """Lines that are summed over, one below the other: rows of op(A), columns of op(B)."""
    array = array.astype(jnp.float32)
    return jnp.swapaxes(array, -1, -2) if transposed else array


def spread(scale: Any, lines: Any, of_b: bool = False) -> Any:
    """Lines times their factors."""
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


def summed(found: Any, shape: tuple[int, ...]) -> Any:
    """Over the elements of each factor."""
    if all(extent == 1 for extent in shape):
        return found.sum().reshape(shape)
    count, k = found.shape
    down, along = shape[0], shape[1] if len(shape) > 1 else 1
    of_line, of_k = 1 if down == count else K_BLOCK, k if along == 1 else K_BLOCK
    padded = jnp.pad(found, ((0, down * of_line - count), (0, along * of_k - k)))
    return padded.reshape(down, of_line, along, of_k).sum((1, 3)).reshape(shape)
