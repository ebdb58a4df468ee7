"""Complex products where kernels are planned: XLA brings operands into the form of real numbers, in one pass
each, and takes the result out of it. On the CPU NumPy multiplies complex numbers as they are.
"""

from __future__ import annotations

from typing import Any

import jax
from jax import numpy as jnp

from lapidist.calls.complex_product import in_two_steps
from lapidist.dtypes import PART_OF
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
    trans_a = product.trans_a and not is_complex(a)
    if is_complex(a):
        first, second = parts_in_turn(transposed(a, product.trans_a)), widened(b)
    else:
        first, second = a, parts_in_turn(b)
    addend = [] if bound.c is None else [times(of_c, of_columns(c[0], bound.shape[-1]))]
    names = ("a", "b", *("c" for _ in addend))
    how = product._replace(arrays=names, trans_a=trans_a, trans_b=False, alpha=alpha, beta=beta)
    how = how._replace(out_dtype=None, acc_dtype=None)
    d = bind(first, second, *map(parts_in_turn, addend), product=how)
    parts = d.reshape(*bound.shape, 2)
    return [jax.lax.complex(parts[..., 0], parts[..., 1])]


def times(factor: complex, array: Any) -> Any:
    """A factor of one multiplies nothing: infinity times its imaginary part would be NaN."""
    return array if factor == 1 else array * factor


def transposed(array: Any, op: bool) -> Any:
    return jnp.swapaxes(array, -2, -1) if op else array


def of_columns(c: Any, columns: int) -> Any:
    """C with all columns: one that repeats does not repeat by its parts."""
    return jnp.broadcast_to(c, (*c.shape[:-1], columns))


def hermitian(d: Any) -> Any:
    """D's lower triangle and its conjugated mirror image, with a real diagonal."""
    rows, columns = (jax.lax.broadcasted_iota(int, d.shape, d.ndim - axis) for axis in (2, 1))
    mirrored = jnp.where(rows > columns, d, jnp.swapaxes(d, -2, -1).conj())
    return jnp.where(rows == columns, d.real.astype(d.dtype), mirrored)
