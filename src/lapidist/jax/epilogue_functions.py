"""Epilogues in JAX: their operands, and their functions in jax.numpy, which have gradients.

A program without gradients has one operation. One with gradients has a product of sums, and XLA computes the
function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp
from jax.interpreters import ad

from lapidist.calls.bound import Bound
from lapidist.calls.epilogue_values import checked_number
from lapidist.calls.operation import is_array
from lapidist.dtypes import PART_OF, number_type, numpy_dtype
from lapidist.epilogues import passes
from lapidist.epilogues.interpreter import Namespace, evaluate, stored
from lapidist.epilogues.steps import COLUMN, DROPOUT_MASK_BY_OPERAND, ROW, SCALAR, TILE, Function, Result
from lapidist.epilogues.tracing import BoundEpilogue
from lapidist.errors import ArgumentError, DTypeError
from lapidist.jax.complex_numbers import mirrored, reflected
from lapidist.jax.dropout import Piece, Words, dropout_mask, first_word, numbered, seed_words, words_of
from lapidist.jax.operators import bind, bind_all
from lapidist.jax.partitioning import COLUMNS, ROWS, SUMMED, Axes, labels_of_d
from lapidist.jax.product import Product, operands_of, outline_of, results_of

AXES = {SCALAR: (), ROW: (-1,), COLUMN: (-2,), TILE: (-2, -1)}  # of D that an operand has


# ---- operands ----


def arrays_of(epilogue: BoundEpilogue, accumulator: str) -> dict[str, Any]:
    """Operands by name; numbers become arrays of the type that the function computes in."""
    numbers = type_of_sums(accumulator)
    return {
        name: array_of(epilogue.function, name, value, numbers) for name, value in epilogue.values.items()
    }


def type_of_sums(accumulator: str) -> np.dtype[Any]:
    """The type in which a function computes."""
    return np.dtype(accumulator if accumulator in (*PART_OF, "float64") else "float32")


def array_of(function: Function, name: str, value: Any, numbers: np.dtype[Any]) -> Any:
    is_ours = isinstance(value, (jax.Array, np.ndarray))
    if not is_ours and (is_array(value) or not np.isscalar(value)):
        raise DTypeError(
            f"{name}: must be a number or an array of JAX or NumPy; got {type(value).__name__}. Pass it"
            " through jax.numpy.asarray first"
        )
    if name in function.seeds:
        return seed_words(name, value)
    if is_ours:
        return jnp.asarray(value)
    return jnp.asarray(checked_number(function, name, value, numbers.name), numbers)


def in_order(arrays: dict[str, Any], product: Product, bound: Bound) -> dict[str, Any]:
    """The arrays, with those of the epilogue in the shape of their axes of D, after a batch's."""
    if product.epilogue is None or bound.epilogue is None:
        return arrays
    shaped = dict(arrays)
    for parameter, operand in zip(product.epilogue.parameters, bound.epilogue.arrays, strict=False):
        name, shape = Product.name_of(parameter), operand.shape
        if name in product.seeds:
            continue
        extents = tuple(shape[axis] for axis in AXES[parameter.kind])
        batch = () if parameter.kind == SCALAR else shape[:-2]
        shaped[name] = arrays[name].reshape(*batch, *extents)
    return shaped


# ---- the function in jax.numpy ----


def gelu(x: Any) -> Any:
    """gelu with its limit 0 at minus infinity."""
    bounded = jnp.isneginf(x)
    return jnp.where(bounded, 0, jax.nn.gelu(jnp.where(bounded, 0, x), approximate=False))


def gelu_slope(x: Any) -> Any:
    bounded = jnp.clip(x, -40, 40)
    return jax.scipy.stats.norm.cdf(bounded) + bounded * jax.scipy.stats.norm.pdf(bounded)


class Jax(Namespace):
    """jax.numpy. `pieces`: the part of each dimension of D that the sums are."""

    def __init__(self, pieces: Sequence[Piece] = ()) -> None:
        super().__init__(
            jnp,
            erf=jax.scipy.special.erf,
            sigmoid=jax.nn.sigmoid,
            rsqrt=jax.lax.rsqrt,
            gelu=gelu,
            gelu_slope=gelu_slope,
            **{DROPOUT_MASK_BY_OPERAND: dropout_mask},
        )
        self.pieces = pieces

    def seed(self, value: Any) -> Any:
        return words_of(value) if isinstance(value, int) else Words(*value)

    def positions(self, shape: tuple[int, ...], like: Any) -> Any:
        return numbered(shape, self.pieces)

    def first_word(self, seed: Any, position: Any) -> Any:
        return first_word(seed, position)


def has_gradient(result: Result, dtype: Any) -> bool:
    """Whether a result has a gradient: 8 bits are too coarse for one, and their factors have none."""
    grouped = result.then and result.then not in passes.REDUCTIONS
    return bool(jnp.issubdtype(dtype, jnp.floating)) and dtype.itemsize > 1 and not grouped


def counts_on_a_batch(function: Function) -> bool:
    """Whether a result of one matrix of a batch depends on others, or on its place among them."""
    if function.is_positioned:
        return True
    reductions = [passes.REDUCTIONS.get(result.then) for result in function.results]
    return any(reduction is not None and reduction.over == passes.ALL for reduction in reductions)


# ---- the product of sums, then the function ----


def separate(operands: Sequence[Any], product: Product, multiply: Any = bind) -> list[Any]:
    """The results by a product of sums, which `multiply` makes, and by XLA."""
    outlines = [outline_of(operand) for operand in operands]
    bound = product.bound(operands_of(outlines, product.arrays))
    named, wide = dict(zip(product.arrays, operands, strict=True)), type_of_sums(bound.accumulator)
    dtype = numpy_dtype(bound.out_dtype)
    # Gradients have the type of their values: those of float32 would be multiplied at a quarter of the speed.
    if dtype.itemsize != 2 or any(named[x].dtype != dtype for x in product.operands):
        dtype = wide
    sums = multiply(*sums_of(named, product, dtype), product=product.of_sums(dtype.name))
    sums = reflected(sums, product.half) if product.half else sums
    return finished(sums.astype(wide), named, product, bound)


def met(product: Product, axes: Mapping[str, Axes], *operands: Any) -> tuple[Any, ...]:
    """The results on one of several devices. `axes` of the mesh, by the labels that they split: sums are
    added over those of k."""
    function, summed = product.epilogue, axes.get(SUMMED, ())
    if axes.get(ROWS) or axes.get(COLUMNS):
        product = product.whole  # a part is not symmetric
    counts = function is not None and function.is_positioned and axes  # a kernel numbers elements from 0
    if not summed and not counts:
        return tuple(bind_all(*operands, product=product))
    outlines = [outline_of(operand) for operand in operands]
    bound = product.bound(operands_of(outlines, product.arrays))
    dtype, named = number_type(bound.accumulator), dict(zip(product.arrays, operands, strict=True))
    part = product.of_sums(dtype.name).without_c()
    sums = bind(*(named[name] for name in part.arrays), product=part)
    sums = jax.lax.psum(sums, summed) if summed else sums
    if product.beta:
        sums = sums + jnp.asarray(product.beta, dtype) * named["c"].astype(dtype)
    pieces = [piece_of(axes.get(label, ())) for label in labels_of_d(sums.ndim)]
    return tuple(finished(sums, named, product, bound, pieces))


def piece_of(axes: Axes) -> Piece:
    """The device's part of a dimension that these axes split."""
    return (jax.lax.axis_index(axes), jax.lax.axis_size(axes)) if axes else (0, 1)


def sums_of(named: dict[str, Any], product: Product, dtype: Any) -> list[Any]:
    """The operands of the product, with c in the type of the sums."""
    return [named[name].astype(dtype) if name == "c" else named[name] for name in product.operands]


def finished(
    sums: Any, named: dict[str, Any], product: Product, bound: Bound, pieces: Sequence[Piece] = ()
) -> list[Any]:
    """The results: the epilogue of the sums, if any, rounded to their types. XLA may compute the two of a
    pair otherwise, so those of symmetric products are mirrored.
    """
    function, xp = product.epilogue, Jax(pieces)
    operands = {
        parameter.name: aligned(parameter.kind, named[Product.name_of(parameter)])
        for parameter in (() if function is None else function.parameters)
    }
    values_of_results = [sums] if function is None else evaluate(function, sums, operands, xp)
    pairs = zip(values_of_results, results_of(bound), strict=True)
    results = [stored(values, dtype, xp) for values, (_, dtype) in pairs]
    return [mirrored(d) for d in results] if product.triangle and not product.half else results


def aligned(kind: str, operand: Any) -> Any:
    """An operand with the dimensions in which it broadcasts to the sums."""
    return operand[..., None, :] if kind == ROW else operand[..., None] if kind == COLUMN else operand


def differentiated(
    primals: tuple[Any, ...], tangents: tuple[Any, ...], product: Product
) -> tuple[list[Any], list[Any]]:
    """The results and their tangents."""
    moved = [place for place, tangent in enumerate(tangents) if type(tangent) is not ad.Zero]
    if not moved:
        results = bind_all(*primals, product=product)
        return results, [no_tangent(result) for result in results]

    def call(*values: Any) -> list[Any]:
        operands = dict(enumerate(primals)) | dict(zip(moved, values, strict=True))
        return separate(list(operands.values()), product)

    results, moves = jax.jvp(call, [primals[place] for place in moved], [tangents[place] for place in moved])
    function = product.epilogue
    assert function is not None
    kinds = zip(function.results, results, strict=True)
    differentiable = [has_gradient(kind, result.dtype) for kind, result in kinds]
    if not any(differentiable):
        raise ArgumentError(
            f"epilogue: {function.name} stores nothing that has a gradient, as 8 bits and whole numbers have"
            " none; got operands that are differentiated. Pass them through jax.lax.stop_gradient"
        )
    triples = zip(differentiable, results, moves, strict=True)
    return results, [move if has_one else no_tangent(result) for has_one, result, move in triples]


def no_tangent(result: Any) -> Any:
    return ad.Zero(jax.typeof(result).to_tangent_aval())
