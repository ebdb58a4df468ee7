"""linear of 8-bit floats: operands are rounded with factors, gradients are those of unrounded operands.

A factor is the largest magnitude of its part over the largest number of the type. "rows": one for each row of
an activation and of a weight; "blocks": one for 1 x 128 of an activation and 128 x 128 of a weight."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, NamedTuple

import jax
from jax import numpy as jnp

from lapidist.dtypes import FP8, IEEE, TYPES, name_of, numpy_dtype
from lapidist.epilogues.interpreter import evaluate
from lapidist.epilogues.steps import Function
from lapidist.errors import ArgumentError, DTypeError, shown
from lapidist.jax.epilogue_functions import Jax
from lapidist.jax.gradients import in_one
from lapidist.jax.operators import bind
from lapidist.jax.product import Product
from lapidist.problems.scaling import K_BLOCK

Factors = Literal["rows", "blocks"]
LEAST = 2.0**-100  # of a factor: what is zero stays zero


class Small(NamedTuple):
    """The 8-bit type, and the parts that share a factor."""

    dtype: str
    factors: Factors

    @property
    def along(self) -> int | None:
        return K_BLOCK if self.factors == "blocks" else None

    @property
    def down(self) -> int:
        """Rows of a weight that share a factor."""
        return K_BLOCK if self.factors == "blocks" else 1


def small_of(dtype: Any, factors: Any) -> Small:
    name = name_of(dtype, "dtype")
    if name not in FP8:
        raise DTypeError(
            f"dtype: must be {' or '.join(FP8)}; got {name}. Leave it out to multiply in the operands' own"
            " type"
        )
    if factors not in ("rows", "blocks"):
        raise ArgumentError(
            f'factors: must be "rows" or "blocks"; got {shown(factors)}. Leave it out for "rows"'
        )
    return Small(name, factors)


def quantised(rows: Any, dtype: str, down: int, along: int | None) -> tuple[Any, Any]:
    """Values of 8 bits and a factor for each part of `down` rows and `along` columns (None: all)."""
    (m, k), most = rows.shape, TYPES[dtype].bounds[1]  # type: ignore[index]
    along = along or max(k, 1)
    padded = jnp.pad(rows.astype(jnp.float32), ((0, -m % down), (0, -k % along)))
    parts = padded.reshape(-(-m // down), down, -(-k // along), along)
    factors = jnp.maximum(abs(parts).max((1, 3), keepdims=True, initial=0) / most, LEAST)
    values = jnp.clip(parts / factors, -most, most).reshape(padded.shape)[:m, :k]
    return values.astype(numpy_dtype(dtype)), factors[:, 0, :, 0]


# ---- linear ----


@partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2))
def small_linear(product: Product, small: Small, activation: Function | None, arrays: dict[str, Any]) -> Any:
    """The activation of `product` of a and b, the input and the weight, which are rounded to 8 bits."""
    a, b = arrays["a"], arrays["b"]
    weight = b if product.trans_b else b.T
    rounded: dict[str, Any] = {}
    rounded["a"], scale_a = quantised(in_one(a), small.dtype, 1, small.along)
    rounded["b"], scale_b = quantised(weight, small.dtype, small.down, small.along)
    shape, dtype = (*a.shape[:-1], weight.shape[0]), product.out_dtype or a.dtype.name
    if "c" in arrays:
        rounded["c"] = in_rows(arrays["c"].astype(numpy_dtype(dtype)), shape)
    rounded |= {"scale_a": scale_a, "scale_b": scale_b.T}
    how = product._replace(
        arrays=tuple(rounded), trans_b=True, out_dtype=dtype, precision=IEEE, epilogue=activation
    )
    return bind(*rounded.values(), product=how).reshape(shape)


def in_rows(c: Any, shape: tuple[int, ...]) -> Any:
    """An addend as rows of a tall matrix of the batch."""
    return c if c.ndim < 2 else in_one(jnp.broadcast_to(c, shape))


def straight(
    product: Product,
    small: Small,
    activation: Function | None,
    primals: tuple[dict[str, Any]],
    tangents: tuple[dict[str, Any]],
) -> tuple[Any, Any]:
    """The tangent without the rounding."""
    (arrays,), (moves,) = primals, tangents
    sums = small_linear(product, small, None, arrays)
    tangent = tangent_of(arrays, moves, product, sums)
    if activation is None:
        return sums, tangent

    def finish(sums: Any) -> Any:
        return evaluate(activation, sums.astype(jnp.float32), {}, Jax())[0].astype(sums.dtype)

    return jax.jvp(finish, (sums,), (tangent,))


def tangent_of(arrays: dict[str, Any], moves: dict[str, Any], product: Product, sums: Any) -> Any:
    """The tangent of the product of unrounded operands."""
    plain = product._replace(arrays=("a", "b"), beta=0.0, out_dtype=sums.dtype.name)
    zero = jax.custom_derivatives.SymbolicZero
    nonzero = {name: tangent for name, tangent in moves.items() if not isinstance(tangent, zero)}
    parts = []
    if "a" in nonzero:
        parts.append(bind(nonzero["a"], arrays["b"], product=plain))
    if "b" in nonzero:
        parts.append(bind(arrays["a"], nonzero["b"], product=plain))
    if "c" in nonzero:
        parts.append(jnp.broadcast_to(nonzero["c"], sums.shape).astype(sums.dtype))
    return sum(parts[1:], parts[0]) if parts else jnp.zeros_like(sums)


small_linear.defjvp(straight, symbolic_zeros=True)
