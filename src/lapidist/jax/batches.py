"""jax.vmap: the mapped dimension becomes the first batch dimension of one product."""

from __future__ import annotations

import math
from typing import Any

import jax
from jax import numpy as jnp

from lapidist.epilogues.passes import COLUMN as OF_COLUMNS
from lapidist.epilogues.passes import REDUCTIONS
from lapidist.epilogues.steps import ROW, SCALAR, TILE
from lapidist.errors import ShapeError
from lapidist.jax.epilogue_functions import aligned, counts_on_a_batch, separate
from lapidist.jax.operators import bind_all
from lapidist.jax.product import Product
from lapidist.problems.scaling import K_BLOCK

Dim = int | None


def mapped(
    operands: tuple[Any, ...], dims: tuple[Dim, ...], *, product: Product
) -> tuple[list[Any], list[int]]:
    if product.is_grouped:
        return one_by_one(operands, dims, product)
    if product.epilogue is not None and (
        counts_on_a_batch(product.epilogue) or has_own_numbers(product, dims)
    ):
        return by_xla(operands, dims, product)
    pairs = list(zip(operands, dims, strict=True))
    size = next(operand.shape[dim] for operand, dim in pairs if dim is not None)
    front = [operand if dim is None else jnp.moveaxis(operand, dim, 0) for operand, dim in pairs]
    named = dict(zip(product.arrays, front, strict=True))
    over = {name for name, dim in zip(product.arrays, dims, strict=True) if dim is not None}
    product = with_mapped_numbers(product, named, over)
    if any(name in over or named[name].size > 1 for name in ("scale_a", "scale_b") if name in named):
        if mixes_rows(product):
            return by_xla(operands, dims, product)
        return in_front(as_one(named, over, size, product))
    if not over & {"a", "b"}:  # c alone is mapped over, or operands of the epilogue
        named["a"] = jnp.broadcast_to(named["a"], (size, *named["a"].shape))
        over.add("a")
    rank = max(named[name].ndim - (name in over) for name in ("a", "b"))
    ranks = dict.fromkeys(product.operands, rank) | ranks_of(product, rank)
    filled = [fill(array, ranks[name]) if name in over else array for name, array in named.items()]
    return in_front(bind_all(*filled, product=product))


def has_own_numbers(product: Product, dims: tuple[Dim, ...]) -> bool:
    """Whether matrices that are symmetric have numbers of their own, which would be Rows."""
    scalars = {name for name, kind in product.kinds.items() if kind == SCALAR}
    mapped_arrays = {name for name, dim in zip(product.arrays, dims, strict=True) if dim is not None}
    return bool(product.triangle and scalars & mapped_arrays)


def in_front(results: list[Any]) -> tuple[list[Any], list[int]]:
    return results, [0] * len(results)


def by_xla(operands: tuple[Any, ...], dims: tuple[Dim, ...], product: Product) -> tuple[list[Any], list[int]]:
    """The function of each matrix by XLA, after one product of sums."""
    call = jax.vmap(lambda *arrays: separate(arrays, product), dims)
    return in_front(call(*operands))


def one_by_one(
    operands: tuple[Any, ...], dims: tuple[Dim, ...], product: Product
) -> tuple[list[Any], list[int]]:
    """One product after another: a launch takes groups of one dimension."""
    mapped_operands = [
        jnp.moveaxis(operand, dim, 0) for operand, dim in zip(operands, dims, strict=True) if dim is not None
    ]

    def product_of(slices: list[Any]) -> list[Any]:
        following = iter(slices)
        arrays = [
            operand if dim is None else next(following) for operand, dim in zip(operands, dims, strict=True)
        ]
        return bind_all(*arrays, product=product)

    return in_front(jax.lax.map(product_of, mapped_operands))


def fill(array: Any, rank: int) -> Any:
    """An array with dimensions of one element behind the mapped one: each part has `rank` dimensions."""
    size, *shape = array.shape
    return array.reshape(size, *(1,) * (rank - len(shape)), *shape)


# ---- operands of an epilogue ----


def with_mapped_numbers(product: Product, named: dict[str, Any], over: set[str]) -> Product:
    """The product with mapped Scalars as Rows: a number for each matrix is one for each of its columns."""
    if product.epilogue is None:
        return product
    n = named["b"].shape[-2 if product.trans_b else -1] // (2 if product.epilogue.paired else 1)
    kinds = {}
    for name, kind in product.kinds.items():
        if kind == SCALAR and name in over:
            kinds[name] = ROW
            named[name] = jnp.broadcast_to(named[name].reshape(-1, 1), (named[name].size, n))
    return product.with_kinds(kinds)


def ranks_of(product: Product, rank: int) -> dict[str, int]:
    """The ranks of the epilogue's operands, where matrices have `rank` dimensions."""
    return {name: rank if kind == TILE else rank - 1 for name, kind in product.kinds.items()}


# ---- factors of rows and columns: not for a batch, but for a tall matrix ----


def mixes_rows(product: Product) -> bool:
    """Whether a value of a result depends on several rows."""
    results = () if product.epilogue is None else product.epilogue.results
    return any(result.then in REDUCTIONS and REDUCTIONS[result.then].over == OF_COLUMNS for result in results)


def as_one(named: dict[str, Any], over: set[str], size: int, product: Product) -> list[Any]:
    """The products of all matrices as one, of a tall matrix of their rows; all have one b and its factors."""
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
    results = bind_all(*flat.values(), product=product)
    return [result.reshape(size, m, *result.shape[1:]) for result in results]


def with_tiles(
    product: Product, flat: dict[str, Any], over: set[str], shape: tuple[int, int, int]
) -> Product:
    """The product with a Tile of the tall matrix for each operand that differs between matrices."""
    if product.epilogue is None:
        return product
    kinds, (size, m, n) = {}, shape
    shape = size, m, n // 2 if product.epilogue.paired else n
    for name, kind in product.kinds.items():
        if kind not in (ROW, SCALAR) or name in over:
            tiles = jnp.broadcast_to(aligned(kind, flat[name]), shape)
            kinds[name], flat[name] = TILE, tiles.reshape(size * m, shape[2])
    return product.with_kinds(kinds)


def of_rows(scale: Any, mapped: bool, size: int, m: int) -> Any:
    """The factors of the rows of all matrices."""
    shape = scale.shape[1:] if mapped else scale.shape
    if math.prod(shape) == 1:
        shape = (1, 1)
    scale = scale.reshape((size if mapped else 1, shape[0], shape[1] if len(shape) > 1 else 1))
    if shape[0] not in (1, m):
        scale = scale.repeat(K_BLOCK, axis=1)[:, :m]
    return jnp.broadcast_to(scale, (size, m, scale.shape[2])).reshape(size * m, scale.shape[2])
