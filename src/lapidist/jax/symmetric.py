"""gram: a matrix times its own transpose, at half the work."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax

from lapidist.calls.symmetric_rules import require_hermitian
from lapidist.dtypes import EMULATIONS, Precision
from lapidist.jax.complex_numbers import hermitian, is_complex
from lapidist.jax.operators import bind
from lapidist.jax.product import Product
from lapidist.jax.public_calls import arrays_and_numbers, checked, flag, place, scaled, types_of
from lapidist.problems.problem import BOTH


def gram(
    a: Any,
    c: Any = None,
    *,
    trans: bool = False,
    alpha: Any = 1.0,
    beta: Any = 0.0,
    out_dtype: Any = None,
    preferred_element_type: Any = None,
    precision: Precision = "ieee",
    invariant: bool | None = None,
    device: str | None = None,
) -> Any:
    """alpha a a^T + beta c at half the work, or with trans alpha a^T a + beta c, exactly symmetric; c is
    symmetric. On several devices each computes all of its part.

    Of complex numbers, one of each two rows is conjugated: alpha a a^H + beta c, at all of the work.

    Other arguments are gemm's."""
    types = types_of(out_dtype, preferred_element_type, None, precision, None, invariant)
    alpha, beta, c = scaled(alpha, beta, c)
    arrays, _ = arrays_and_numbers(a=a, b=a, c=c)
    trans_a = flag("trans", trans)
    if is_complex(arrays["a"]):
        how: dict[str, Any] = {"alpha": alpha, "beta": beta, "device": place(device)}
        product = Product(tuple(arrays), trans_a, not trans_a, **how, **types)
        require_hermitian(checked(product, arrays, ("a", "a", "c")[: len(arrays)], False), True)
        return of_conjugate(product, arrays["a"], arrays.get("c"))
    triangle = "lower" if c is not None or types["precision"] in EMULATIONS else BOTH
    how = {"alpha": alpha, "beta": beta, "device": place(device), "triangle": triangle}
    product = Product(tuple(arrays), trans_a, not trans_a, **how, **types)
    checked(product, arrays, ("a", "a", "c")[: len(arrays)], False)
    return of_itself(product, arrays["a"], arrays.get("c"))


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def of_itself(product: Product, a: Any, c: Any) -> Any:
    return bind(a, a, product=product) if c is None else bind(a, a, c, product=product)


@of_itself.defjvp  # type: ignore[untyped-decorator]
def tangent_of(product: Product, primals: tuple[Any, Any], tangents: tuple[Any, Any]) -> tuple[Any, Any]:
    """One product for the tangent, and one for the gradient: both halves of D have it."""
    (a, c), (of_a, of_c) = primals, tangents
    result = of_itself(product, a, c)
    whole = product.without_c()._replace(out_dtype=result.dtype.name, triangle="")
    half = bind(of_a, a, product=whole)
    tangent = half + jax.numpy.swapaxes(half, -2, -1)
    if c is not None:
        tangent = tangent + jax.numpy.broadcast_to(of_c * product.beta, result.shape)
    return result, tangent


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def of_conjugate(product: Product, a: Any, c: Any) -> Any:
    """Of complex numbers: exactly equal to its conjugated transpose."""
    first, second = conjugated(product, a, a)
    return hermitian(bind(first, second, *(() if c is None else (c,)), product=product))


@of_conjugate.defjvp  # type: ignore[untyped-decorator]
def tangent_of_conjugate(
    product: Product, primals: tuple[Any, Any], tangents: tuple[Any, Any]
) -> tuple[Any, Any]:
    (a, c), (of_a, of_c) = primals, tangents
    result = of_conjugate(product, a, c)
    first, second = (of_a, a.conj()) if not product.trans_a else (a.conj(), of_a)
    half = bind(first, second, product=product.without_c())
    tangent = half + jax.numpy.swapaxes(half, -2, -1).conj()
    if c is not None:
        tangent = tangent + jax.numpy.broadcast_to(of_c * product.beta, result.shape)
    return result, tangent


def conjugated(product: Product, first: Any, second: Any) -> tuple[Any, Any]:
    """The operands of which the transposed one is conjugated."""
    return (first.conj(), second) if product.trans_a else (first, second.conj())
