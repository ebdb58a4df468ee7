"""gram: a matrix times its own transpose, at half the work."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax

from lapidist.calls.bound import Bound
from lapidist.calls.operation import epilogue_checked
from lapidist.calls.symmetric_epilogues import has_tiles, require_declared, require_names, require_real
from lapidist.calls.symmetric_rules import require_hermitian, require_square
from lapidist.dtypes import PART_OF, Precision
from lapidist.epilogues.tracing import BoundEpilogue
from lapidist.jax.complex_numbers import in_triangle, mirrored
from lapidist.jax.epilogue_functions import arrays_of, in_order, separate
from lapidist.jax.operators import bind
from lapidist.jax.product import Product
from lapidist.jax.public_calls import (
    arrays_and_numbers,
    checked,
    flag,
    half_named,
    naming_types,
    place,
    scaled,
    types_of,
)
from lapidist.problems.problem import BOTH, COPIED


@naming_types
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
    epilogue: Any = None,
    symmetric: Any = (),
    triangle: Any = None,
    device: str | None = None,
) -> Any:
    """alpha a a^T + beta c at half the work, or with trans alpha a^T a + beta c, exactly symmetric; c is
    symmetric. On several devices each computes all of its part.

    Of complex numbers, one of each two rows is conjugated: alpha a a^H + beta c.

    `epilogue`, `symmetric` and `triangle` are those of lapidist.gram: the half beside a triangle is zero, and
    has no gradient. Other arguments are gemm's."""
    types = types_of(out_dtype, preferred_element_type, None, precision, None, invariant)
    alpha, beta, c = scaled(alpha, beta, c)
    arrays, _ = arrays_and_numbers(a=a, b=a, c=c)
    trans_a = flag("trans", trans)
    how: dict[str, Any] = {"alpha": alpha, "beta": beta, "device": place(device)}
    product = Product(tuple(arrays), trans_a, not trans_a, **how, **types)
    names = ("a", "a", "c")[: len(arrays)]
    bound = checked(product, arrays, names, False)
    declared, after = require_names(symmetric), epilogue_checked(epilogue)
    if after is None:
        require_declared(declared)
    else:
        product, arrays = followed_by(product, arrays, names, after, bound)
        bound = checked(product, arrays, (*names, *product.of_epilogue), False)
    require_square(bound, declared)
    half = half_named(triangle)
    if bound.is_complex:
        require_hermitian(bound, True)
        return in_triangle(of_conjugate(product, distinct_arrays(arrays)), half)
    lies_alike = after is not None and has_tiles(after)
    product = product.halved(COPIED if c is not None or lies_alike else BOTH, half)
    product = product._replace(of_itself=True)
    checked(product, arrays, (*names, *product.of_epilogue), False)
    return in_triangle(of_itself(product, distinct_arrays(arrays)), half)


def followed_by(
    product: Product, arrays: dict[str, Any], names: tuple[str, ...], epilogue: BoundEpilogue, bound: Bound
) -> tuple[Product, dict[str, Any]]:
    """The product with an epilogue, and all its arrays. Numbers are real, of complex products too."""
    for name, value in epilogue.values.items():
        if bound.is_complex and isinstance(value, complex):
            require_real(name, value)
    accumulator = PART_OF.get(bound.accumulator, bound.accumulator)
    operands = arrays_of(epilogue, accumulator)
    further = {
        Product.name_of(parameter): operands[parameter.name] for parameter in epilogue.function.parameters
    }
    product = product._replace(arrays=(*product.arrays, *further), epilogue=epilogue.function)
    arrays = {**arrays, **further}
    return product, in_order(arrays, product, checked(product, arrays, (*names, *product.of_epilogue), False))


def distinct_arrays(arrays: dict[str, Any]) -> tuple[Any, ...]:
    """The arrays, a once."""
    return tuple(array for name, array in arrays.items() if name != "b")


def named(product: Product, arrays: tuple[Any, ...]) -> dict[str, Any]:
    """The operands of the product by name: b is a."""
    a, *operands = arrays
    return dict(zip(product.arrays, (a, a, *operands), strict=True))


def parted(multiply: Any, product: Product, arrays: tuple[Any, ...]) -> Any:
    """The epilogue of the sums, by XLA, and the mirror image of its lower triangle."""

    def sums(*operands: Any, product: Product) -> Any:
        return multiply(product, (operands[0], *operands[2:]))

    (result,) = separate(list(named(product, arrays).values()), product, sums)
    return result if product.triangle else mirrored(result)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def of_itself(product: Product, arrays: tuple[Any, ...]) -> Any:
    if product.is_emulated and product.epilogue is not None:
        return parted(of_itself, product, arrays)
    return bind(*named(product, arrays).values(), product=product)


@of_itself.defjvp  # type: ignore[untyped-decorator]
def tangent_of(product: Product, primals: Any, tangents: Any) -> tuple[Any, Any]:
    """One product for the tangent, and one for the gradient: both halves of D have it."""
    if product.epilogue is not None:
        return after_sums(of_itself, product, primals, tangents)
    ((a, *c),), ((of_a, *of_c),) = primals, tangents
    result = of_itself(product, (a, *c))
    whole = product.without_c().whole._replace(out_dtype=result.dtype.name)
    half = bind(of_a, a, product=whole)
    return result, with_c(half + jax.numpy.swapaxes(half, -2, -1), of_c, product, result.shape)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def of_conjugate(product: Product, arrays: tuple[Any, ...]) -> Any:
    """Of complex numbers: exactly equal to its conjugated transpose."""
    if product.epilogue is not None:
        return parted(of_conjugate, product, arrays)
    a, *operands = arrays
    first, second = conjugated(product, a, a)
    return mirrored(bind(first, second, *operands, product=product))


@of_conjugate.defjvp  # type: ignore[untyped-decorator]
def tangent_of_conjugate(product: Product, primals: Any, tangents: Any) -> tuple[Any, Any]:
    if product.epilogue is not None:
        return after_sums(of_conjugate, product, primals, tangents)
    ((a, *c),), ((of_a, *of_c),) = primals, tangents
    result = of_conjugate(product, (a, *c))
    first, second = (of_a, a.conj()) if not product.trans_a else (a.conj(), of_a)
    half = bind(first, second, product=product.without_c())
    return result, with_c(half + jax.numpy.swapaxes(half, -2, -1).conj(), of_c, product, result.shape)


def with_c(tangent: Any, of_c: list[Any], product: Product, shape: tuple[int, ...]) -> Any:
    return tangent + jax.numpy.broadcast_to(of_c[0] * product.beta, shape) if of_c else tangent


def after_sums(multiply: Any, product: Product, primals: Any, tangents: Any) -> tuple[Any, Any]:
    """The epilogue's result and its tangent."""
    return jax.jvp(partial(parted, multiply, product), primals, tangents)


def conjugated(product: Product, first: Any, second: Any) -> tuple[Any, Any]:
    """The operands of which the transposed one is conjugated."""
    return (first.conj(), second) if product.trans_a else (first, second.conj())
