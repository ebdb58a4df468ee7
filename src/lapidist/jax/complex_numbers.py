"""Complex products where kernels are planned: XLA brings operands into the form of real numbers, in one pass
each, and takes the result out of it. On the CPU NumPy multiplies complex numbers as they are.
"""

from __future__ import annotations

from typing import Any

import jax
from jax import numpy as jnp

from lapidist.calls.complex_product import in_two_steps
from lapidist.dtypes import IEEE, PART_OF, THREE_PRODUCTS
from lapidist.jax.operators import bind
from lapidist.jax.product import Product, operands_of, outline_of
from lapidist.verify.real_parts import parts_in_turn, widened


def is_complex(*arrays: Any) -> bool:
    return any(array.dtype.name in PART_OF for array in arrays)


def by_real_numbers(*operands: Any, product: Product) -> list[Any]:
    """D, by one product of real numbers: parts in turn of op(A), times op(B), each number of 2 x 2 real ones.
    A real A takes the parts of op(B) in turn. Complex alpha and beta multiply B and C before it.
    """
    bound = product.bound(operands_of([outline_of(operand) for operand in operands], product.arrays))
    a, b, *c = operands
    (alpha, of_b), (beta, of_c) = map(in_two_steps, bound.alpha_beta)
    b = times(of_b, transposed(b, product.trans_b))
    addend = [] if bound.c is None else [times(of_c, of_columns(c[0], bound.shape[-1]))]
    how = product._replace(trans_b=False, alpha=alpha, beta=beta, out_dtype=None, acc_dtype=None)
    if product.precision == THREE_PRODUCTS:
        how = how._replace(precision=IEEE)
        if is_complex(a) and is_complex(b) and alpha != 0 and 0 not in a.shape:
            return [in_three_products(transposed(a, product.trans_a), b, addend, how)]
    trans_a = product.trans_a and not is_complex(a)
    if is_complex(a):
        first, second = parts_in_turn(transposed(a, product.trans_a)), widened(b)
    else:
        first, second = a, parts_in_turn(b)
    how = how._replace(arrays=("a", "b", *("c" for _ in addend)), trans_a=trans_a)
    d = bind(first, second, *map(parts_in_turn, addend), product=how)
    parts = d.reshape(*bound.shape, 2)
    return [jax.lax.complex(parts[..., 0], parts[..., 1])]


def in_three_products(a: Any, b: Any, addend: list[Any], how: Product) -> Any:
    """One batch: real parts, imaginary parts, their sums. XLA adds them up, with alpha and beta C."""
    batch = max(a.ndim, b.ndim) - 2
    first, second = (planes(operand, batch) for operand in (a, b))
    plain = how._replace(arrays=("a", "b"), trans_a=False, alpha=1.0, beta=0.0)
    of_re, of_im, of_sums = bind(first, second, product=plain)
    re, im = (of_re - of_im) * how.alpha, (of_sums - of_re - of_im) * how.alpha
    for c in addend:
        re, im = re + c.real * how.beta, im + c.imag * how.beta
    return jax.lax.complex(re, im)


def planes(operand: Any, batch: int) -> Any:
    """Real parts, imaginary parts and their sums, before so many dimensions of a batch."""
    re, im = operand.real, operand.imag
    shape = *(1,) * (batch + 2 - operand.ndim), *operand.shape
    return jnp.stack([re, im, re + im]).reshape(3, *shape)


def times(factor: complex, array: Any) -> Any:
    """A factor of one multiplies nothing: infinity times its imaginary part would be NaN."""
    return array if factor == 1 else array * factor


def transposed(array: Any, op: bool) -> Any:
    return jnp.swapaxes(array, -2, -1) if op else array


def of_columns(c: Any, columns: int) -> Any:
    """C with all columns: one that repeats does not repeat by its parts."""
    return jnp.broadcast_to(c, (*c.shape[:-1], columns))


@jax.custom_jvp  # type: ignore[untyped-decorator]
def mirrored(d: Any) -> Any:
    """D's lower triangle and its mirror image; of complex numbers conjugated, with a real diagonal. Both of a
    pair were computed: each keeps its own tangent.
    """
    rows, columns = (jax.lax.broadcasted_iota(int, d.shape, d.ndim - axis) for axis in (2, 1))
    image = jnp.where(rows > columns, d, jnp.swapaxes(d, -2, -1).conj())
    return jnp.where(rows == columns, d.real.astype(d.dtype), image)


@mirrored.defjvp  # type: ignore[untyped-decorator]
def tangent_of_mirrored(primals: Any, tangents: Any) -> tuple[Any, Any]:
    return mirrored(*primals), tangents[0]


def in_triangle(d: Any, half: str) -> Any:
    """A half of D, whose other half nobody wrote. So it is of tangents and gradients."""
    return d if not half else jnp.tril(d) if half == "lower" else jnp.triu(d)


def reflected(sums: Any, half: str) -> Any:
    """Sums of which one half was written, and its mirror image: functions, and slopes times zero, shall meet
    numbers there.
    """
    return jnp.where(in_triangle(jnp.ones(sums.shape, bool), half), sums, jnp.swapaxes(sums, -2, -1))
