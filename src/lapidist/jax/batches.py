"""jax.vmap: what is mapped over becomes a batch dimension in front of those that are there, and the products
stay one.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import jax
from jax import numpy as jnp

from lapidist.epilogues.passes import COLUMN as OF_COLUMNS
from lapidist.epilogues.passes import REDUCTIONS
from lapidist.epilogues.steps import ROW, SCALAR, TILE
from lapidist.errors import ShapeError
from lapidist.jax.epilogue_functions import apart, beside, counts_on_a_batch
from lapidist.jax.operators import bind_all
from lapidist.jax.product import Product
from lapidist.problems.scaling import K_BLOCK

Dim = int | None


def mapped(
    operands: tuple[Any, ...], dims: tuple[Dim, ...], *, product: Product
) -> tuple[list[Any], list[int]]:
    if product.epilogue is not None and counts_on_a_batch(product.epilogue):
        return by_xla(operands, dims, product)
    size = next(each.shape[dim] for each, dim in zip(operands, dims, strict=True) if dim is not None)
    front = [
        each if dim is None else jnp.moveaxis(each, dim, 0) for each, dim in zip(operands, dims, strict=True)
    ]
    named = dict(zip(product.arrays, front, strict=True))
    over = {name for name, dim in zip(product.arrays, dims, strict=True) if dim is not None}
    product = with_mapped_numbers(product, named, over)
    if any(name in over or named[name].size > 1 for name in ("scale_a", "scale_b") if name in named):
        if mixes_rows(product):
            return by_xla(operands, dims, product)
        return in_front(as_one(named, over, size, product))
    if not over & {"a", "b"}:  # c alone is mapped over, or what the epilogue has
        named["a"] = jnp.broadcast_to(named["a"], (size, *named["a"].shape))
        over.add("a")
    wanted = max(named[name].ndim - (name in over) for name in ("a", "b"))
    ranks = dict.fromkeys(product.operands, wanted) | ranks_of(product, wanted)
    filled = [fill(each, ranks[name]) if name in over else each for name, each in named.items()]
    return in_front(bind_all(*filled, product=product))


def in_front(results: list[Any]) -> tuple[list[Any], list[int]]:
    return results, [0] * len(results)


def by_xla(operands: tuple[Any, ...], dims: tuple[Dim, ...], product: Product) -> tuple[list[Any], list[int]]:
    """Sums are one product; what the function makes of each matrix alone is XLA's."""
    call = jax.vmap(lambda *each: apart(each, product), dims)
    return in_front(call(*operands))


def fill(array: Any, wanted: int) -> Any:
    """The mapped dimension stays in front, and single ones follow it, until what is mapped has `wanted`
    dimensions.
    """
    size, *own = array.shape
    return array.reshape(size, *(1,) * (wanted - len(own)), *own)


# ---- what an epilogue reads ----


def with_mapped_numbers(product: Product, named: dict[str, Any], over: set[str]) -> Product:
    """A number for each matrix of a batch is one for each of its columns."""
    if product.epilogue is None:
        return product
    n = named["b"].shape[-2 if product.trans_b else -1] // (2 if product.epilogue.paired else 1)
    parameters = []
    for each in product.epilogue.parameters:
        name = product.name_of(each)
        if each.kind == SCALAR and name in over:
            each = each._replace(kind=ROW)
            named[name] = jnp.broadcast_to(named[name].reshape(-1, 1), (named[name].size, n))
        parameters.append(each)
    return product._replace(epilogue=replace(product.epilogue, parameters=tuple(parameters)))


def ranks_of(product: Product, wanted: int) -> dict[str, int]:
    """Dimensions of its operands, where matrices have `wanted`."""
    parameters = () if product.epilogue is None else product.epilogue.parameters
    return {product.name_of(each): wanted if each.kind == TILE else wanted - 1 for each in parameters}


# ---- factors of lines: a batch has none, a tall matrix does ----


def mixes_rows(product: Product) -> bool:
    """Whether a result is of several rows."""
    found = (
        [] if product.epilogue is None else [REDUCTIONS.get(each.then) for each in product.epilogue.results]
    )
    return any(each is not None and each.over == OF_COLUMNS for each in found)


def as_one(named: dict[str, Any], over: set[str], size: int, product: Product) -> list[Any]:
    """Rows of all matrices in one tall product, which b and its factors are the same for."""
    tall = named["a"].ndim - ("a" in over) == named["b"].ndim == 2 and not product.trans_a
    if not tall or over & {"b", "scale_b"}:
        raise ShapeError(
            "scale_a, scale_b: jax.vmap maps over rows of a and their factors; got b, its factors, or an a"
            " that is transposed or batched. Multiply one pair at a time with jax.lax.map"
        )
    a = named["a"] if "a" in over else jnp.broadcast_to(named["a"], (size, *named["a"].shape))
    m, n = a.shape[1], named["b"].shape[0 if product.trans_b else 1]
    flat = {**named, "a": a.reshape(size * m, a.shape[2])}
    if "c" in named:
        c = fill(named["c"], 2) if "c" in over else named["c"]
        flat["c"] = jnp.broadcast_to(c, (size, m, n)).reshape(size * m, n)
    product = with_tiles(product, flat, over, (size, m, n))
    if "scale_a" in named:
        flat["scale_a"] = of_rows(named["scale_a"], "scale_a" in over, size, m)
    found = bind_all(*flat.values(), product=product)
    return [each.reshape(size, m, *each.shape[1:]) for each in found]


def with_tiles(
    product: Product, flat: dict[str, Any], over: set[str], shape: tuple[int, int, int]
) -> Product:
    """What an epilogue reads of other rows in other matrices has a value for each element of the tall one."""
    if product.epilogue is None:
        return product
    parameters, (size, m, n) = [], shape
    shape = size, m, n // 2 if product.epilogue.paired else n
    for each in product.epilogue.parameters:
        name = product.name_of(each)
        if each.kind not in (ROW, SCALAR) or name in over:
            spread = jnp.broadcast_to(beside(each.kind, flat[name]), shape)
            each, flat[name] = each._replace(kind=TILE), spread.reshape(size * m, shape[2])
        parameters.append(each)
    return product._replace(epilogue=replace(product.epilogue, parameters=tuple(parameters)))


def of_rows(scale: Any, mapped: bool, size: int, m: int) -> Any:
    """Factors of the rows of all matrices."""
    own = scale.shape[1:] if mapped else scale.shape
    if math.prod(own) == 1:
        own = (1, 1)
    scale = scale.reshape((size if mapped else 1, own[0], own[1] if len(own) > 1 else 1))
    if own[0] not in (1, m):
        scale = scale.repeat(K_BLOCK, axis=1)[:, :m]
    return jnp.broadcast_to(scale, (size, m, scale.shape[2])).reshape(size * m, scale.shape[2])
