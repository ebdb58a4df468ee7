"""The public calls of lapidist.jax: rules are checked while JAX traces, then the operation is bound."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any, Literal, NoReturn, TypeVar, cast

import jax
import numpy as np

from lapidist.calls import number_rules
from lapidist.calls.bound import Bound
from lapidist.calls.factor_operands import require_number
from lapidist.calls.linear_shapes import require_features
from lapidist.calls.operation import epilogue_checked, is_array, is_invariant, types_named
from lapidist.calls.symmetric_epilogues import require_names
from lapidist.calls.symmetric_rules import (
    require_half,
    require_hermitian,
    require_known_symmetric,
    require_square,
)
from lapidist.dtypes import Precision
from lapidist.epilogues.layer_activations import require_activation, require_epilogue_alone
from lapidist.epilogues.passes import COLUMN, REDUCTIONS, ROW
from lapidist.epilogues.ready_made import READY
from lapidist.epilogues.steps import Result
from lapidist.errors import ArgumentError, DTypeError, shown
from lapidist.jax import layers
from lapidist.jax.complex_numbers import in_triangle, is_complex
from lapidist.jax.eight_bits import Factors, small_linear, small_of
from lapidist.jax.epilogue_functions import arrays_of, in_order, separate
from lapidist.jax.operators import bind_all
from lapidist.jax.product import Product, operands_of, outline_of
from lapidist.problems.problem import COPIED

Function = TypeVar("Function", bound=Callable[..., Any])


def naming_types(function: Function) -> Function:
    """Errors call the type of the result as the caller did, who may write preferred_element_type."""
    accepted = signature(function)

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        try:
            return function(*args, **options)
        except DTypeError as error:
            arguments = accepted.bind(*args, **options).arguments
            subject, _, rest = str(error).partition(":")
            by_synonym = arguments.get("out_dtype") is None and "preferred_element_type" in arguments
            if subject != "out_dtype" or not by_synonym:
                raise
            raise DTypeError(f"preferred_element_type:{rest}") from None

    return cast(Function, call)


@naming_types
def matmul(
    a: Any,
    b: Any,
    *,
    out_dtype: Any = None,
    preferred_element_type: Any = None,
    acc_dtype: Any = None,
    precision: Precision = "ieee",
    invariant: bool | None = None,
    scale_a: Any = None,
    scale_b: Any = None,
    promote: bool | None = None,
    epilogue: Any = None,
    symmetric: Any = False,
    triangle: Any = None,
    device: str | None = None,
    **unknown: NoReturn,
) -> Any:
    """jax.numpy.matmul(a, b) of two arrays of one type: vectors, broadcast batches.

    `out_dtype` (JAX calls it `preferred_element_type`), `acc_dtype`, `precision`, `scale_a`, `scale_b`,
    `promote`, `epilogue`, `symmetric`, `triangle` and `invariant` are those of lapidist.matmul; a block of
    lapidist.invariant counts while JAX traces. device="machine" runs arrays on the CPU in the machine."""
    require_known(matmul, unknown)
    types = types_of(out_dtype, preferred_element_type, acc_dtype, precision, promote, invariant)
    arrays, numbers = arrays_and_numbers(a=a, b=b, scale_a=scale_a, scale_b=scale_b)
    product = Product(tuple(arrays), **types, **numbers, device=place(device))
    product, arrays = followed(product, arrays, epilogue, vectors=True)
    half = half_named(triangle)
    require_known_symmetric(symmetric, triangle)
    product = product if symmetric is False else halved(product, arrays, symmetric, half)
    row, column = arrays["a"].ndim == 1, arrays["b"].ndim == 1
    arrays["a"] = arrays["a"][None] if row else arrays["a"]
    arrays["b"] = arrays["b"][:, None] if column else arrays["b"]
    return in_triangle(delivered(arrays, product, row, column), half)


@naming_types
def gemm(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    alpha: Any = 1.0,
    beta: Any = 0.0,
    trans_a: bool | Literal["C"] = False,
    trans_b: bool | Literal["C"] = False,
    out_dtype: Any = None,
    preferred_element_type: Any = None,
    acc_dtype: Any = None,
    precision: Precision = "ieee",
    invariant: bool | None = None,
    scale_a: Any = None,
    scale_b: Any = None,
    promote: bool | None = None,
    epilogue: Any = None,
    device: str | None = None,
    **unknown: NoReturn,
) -> Any:
    """alpha op(a) op(b) + beta c, where c broadcasts to the product. beta = 0 never reads c.

    trans_a and trans_b transpose without a copy, which jax.numpy.swapaxes would make; "C" conjugates complex
    arrays, too. alpha and beta are numbers that are known while JAX traces; those of complex arrays may be
    complex. Other arguments are matmul's."""
    require_known(gemm, unknown)
    types = types_of(out_dtype, preferred_element_type, acc_dtype, precision, promote, invariant)
    alpha, beta, c = scaled(alpha, beta, c)
    arrays, numbers = arrays_and_numbers(a=a, b=b, c=c, scale_a=scale_a, scale_b=scale_b)
    transposed: dict[str, Any] = {"alpha": alpha, "beta": beta}
    for name, op, operand in (("trans_a", trans_a, "a"), ("trans_b", trans_b, "b")):
        transposed[name], arrays[operand] = applied(name, op, arrays[operand])
    product = Product(tuple(arrays), **transposed, **types, **numbers, device=place(device))
    product, arrays = followed(product, arrays, epilogue)
    return delivered(arrays, product)


@naming_types
def linear(
    input: Any,
    weight: Any,
    bias: Any = None,
    *,
    activation: str | None = None,
    residual: Any = None,
    epilogue: Any = None,
    dtype: Any = None,
    factors: Factors = "rows",
    trans_weight: bool = True,
    out_dtype: Any = None,
    preferred_element_type: Any = None,
    acc_dtype: Any = None,
    precision: Precision = "ieee",
    invariant: bool | None = None,
    device: str | None = None,
    **unknown: NoReturn,
) -> Any:
    """input @ weight.T + bias, in one launch. trans_weight=False: of a weight of shape (inputs, outputs).

    `activation`: "relu", "gelu", "gelu_tanh" or "silu" of the sum. `residual`: an array of the result's shape
    that is added after it. `epilogue`: a function of `lapidist.epilogue` with its operands, in place of both.
    All are in the same launch unless there are gradients.

    `dtype`: "float8_e4m3fn" or "float8_e5m2", to which input and weight are rounded, with factors for "rows"
    or "blocks" of 128. Gradients are those of unrounded operands, and XLA adds the residual."""
    if activation is not None:
        require_activation(activation)
    if epilogue is not None:
        require_epilogue_alone(activation=activation, residual=residual)
    require_known(linear, unknown)
    types = types_of(out_dtype, preferred_element_type, acc_dtype, precision, None, invariant)
    input, weight = array_of("input", input), array_of("weight", weight)
    bias = None if bias is None else array_of("bias", bias)
    transposed = flag("trans_weight", trans_weight)
    require_features(input.shape, weight.shape, transposed)
    row, column = input.ndim == 1, weight.ndim == 1
    residual = None if residual is None else array_of("residual", residual)
    features = weight.shape[:-1] if transposed else weight.shape[1:]
    layers.require_shape(residual, (*input.shape[:-1], *features))
    input = input[None] if row else input
    weight = weight[None] if column and transposed else weight[:, None] if column else weight
    arrays, names = {"a": input, "b": weight}, ("input", "weight", "bias")
    arrays |= {} if bias is None else {"c": bias}
    beta = float("c" in arrays)
    product = Product(tuple(arrays), trans_b=transposed, beta=beta, **types, device=place(device))
    bound = checked(product, arrays, names[: len(arrays)], False)
    if dtype is not None:
        layers.require_8_bits_alone(epilogue)
        activate = None if activation is None else READY[activation].function
        hidden = without(small_linear(product, small_of(dtype, factors), activate, arrays), row, column)
        return hidden if residual is None else (hidden + residual).astype(hidden.dtype)
    if epilogue is not None:
        after = layers.bound_with_lines(epilogue, row, column)
    else:
        residual = None if residual is None else layers.with_lines(residual, row, column)
        product, arrays, after = layers.ended(product, arrays, activation, residual, bound.out_dtype)
    product, arrays = followed(product, arrays, after)
    return delivered(arrays, product, row, column)


def delivered(arrays: dict[str, Any], product: Product, row: bool = False, column: bool = False) -> Any:
    """The result, or a tuple of several, without the dimensions that vectors were given."""
    by_xla = product.is_emulated or is_complex(arrays["a"], arrays["b"])  # what follows the sums
    if by_xla and product.epilogue is not None:
        d, *further = separate(list(arrays.values()), product)
    else:
        d, *further = bind_all(*arrays.values(), product=product)
    kinds = () if product.epilogue is None else product.epilogue.results[1:]
    d = without(d, row, column)
    results = [result_without(values, kind, row, column) for values, kind in zip(further, kinds, strict=True)]
    return (d, *results) if results else d


def result_without(values: Any, kind: Result, row: bool, column: bool) -> Any:
    """A further result, which may have no rows or no columns, without the dimensions of vectors."""
    if kind.then not in REDUCTIONS:
        return without(values, row, column)
    drops = {ROW: row, COLUMN: column}.get(REDUCTIONS[kind.then].over)
    return values[..., 0] if drops else values


def without(product: Any, row: bool, column: bool) -> Any:
    """The product without the dimensions that vectors were given."""
    product = product[..., 0] if column else product
    return (product[..., 0] if column else product[..., 0, :]) if row else product


# ---- arguments ----


def arrays_and_numbers(**values: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arrays in order, and factors that are numbers. All but a and b may be None."""
    present = {name: value for name, value in values.items() if value is not None or name in ("a", "b")}
    numbers = {name for name, value in present.items() if name.startswith("scale") and not is_array(value)}
    arrays = {name: array_of(name, value) for name, value in present.items() if name not in numbers}
    return arrays, {name: require_number(name, present[name]) for name in sorted(numbers)}


def scaled(alpha: Any, beta: Any, c: Any) -> tuple[complex, complex, Any]:
    """alpha and beta as numbers, and c if it is read."""
    alpha = number_rules.require_scalar("alpha", static("alpha", alpha))
    beta = number_rules.require_scalar("beta", static("beta", beta))
    number_rules.require_c_for_beta(beta, c)
    return alpha, beta, c if beta else None


def array_of(name: str, value: Any) -> Any:
    if not isinstance(value, (jax.Array, np.ndarray)):
        way_out = getattr(value, "WAY_OUT", "Pass it through jax.numpy.asarray first")  # of few bits
        raise DTypeError(f"{name}: must be an array of JAX or NumPy; got {type(value).__name__}. {way_out}")
    return jax.numpy.asarray(value)


def static(name: str, value: Any) -> Any:
    """A value that is compiled into the kernel."""
    if isinstance(value, jax.core.Tracer):
        raise ArgumentError(
            f"{name}: must be known while JAX traces; got a {type(value).__name__}, which has a value only"
            " when the program runs. Name it in static_argnames of jax.jit, or multiply by it outside"
        )
    return value[()].item() if isinstance(value, jax.Array) and not value.ndim else value


def flag(name: str, value: Any) -> bool:
    number_rules.require_flag(name, static(name, value), number_rules.BLAS_FLAGS)
    return bool(value)


def applied(name: str, op: Any, operand: Any) -> tuple[bool, Any]:
    """Whether to transpose, and the operand, which "C" conjugates: its gradients are JAX's."""
    number_rules.require_op(name, static(name, op))
    conjugates = isinstance(op, str) and jax.numpy.iscomplexobj(operand)
    return bool(op), operand.conj() if conjugates else operand


def place(device: Any) -> str | None:
    if device not in (None, "machine"):
        raise ArgumentError(
            f'device: must be "machine", or left out; got {shown(device)}. Place arrays with jax.device_put'
        )
    return device


def require_known(function: Callable[..., Any], unknown: dict[str, Any]) -> None:
    if unknown:
        from lapidist.calls.keywords import unexpected

        raise unexpected(function, unknown)


def types_of(
    out: Any, preferred: Any, acc: Any, precision: Any, promote: Any, invariant: Any
) -> dict[str, Any]:
    promote, rows_alike = static("promote", promote), is_invariant(static("invariant", invariant))
    types = types_named(out, acc, precision, promote, rows_alike)
    synonym = types_named(preferred, None, precision)
    names = [name for name in (types.out_dtype, synonym.out_dtype) if name is not None]
    if len(set(names)) > 1:
        raise ArgumentError(
            "out_dtype, preferred_element_type: are two names of one thing; got"
            f" {' and '.join(names)}. Leave one out"
        )
    return {
        "out_dtype": names[0] if names else None,
        "acc_dtype": types.accumulator,
        "precision": types.precision,
        "bits": types.bits,
        "promote": types.promote,
        "invariant": types.invariant,
    }


def followed(
    product: Product, arrays: dict[str, Any], epilogue: Any, *, vectors: bool = False
) -> tuple[Product, dict[str, Any]]:
    """The product with an epilogue, and all its arrays, checked by every rule."""
    bound = checked(product, arrays, product.arrays, vectors)
    followed_by = epilogue_checked(epilogue)
    if followed_by is None:
        return product, arrays
    operands = arrays_of(followed_by, bound.accumulator)
    further = {
        Product.name_of(parameter): operands[parameter.name] for parameter in followed_by.function.parameters
    }
    product = product._replace(arrays=(*product.arrays, *further), epilogue=followed_by.function)
    arrays = {**arrays, **further}
    return product, in_order(arrays, product, checked(product, arrays, product.arrays, vectors))


def half_named(triangle: Any) -> str:
    """The half that a caller takes alone, if any."""
    require_half(static("triangle", triangle))
    return triangle or ""


def halved(product: Product, arrays: dict[str, Any], symmetric: Any, half: str) -> Product:
    """A product whose caller knows that it is symmetric, checked by every rule: half of it is computed."""
    declared = require_names(static("symmetric", symmetric))
    bound = checked(product, arrays, product.arrays, True)
    require_square(bound, declared)
    if bound.is_complex:
        require_hermitian(bound, False)
    return product.halved(COPIED, half)


def checked(product: Product, arrays: dict[str, Any], names: tuple[str, ...], vectors: bool) -> Bound:
    outlines = [outline_of(array) for array in arrays.values()]
    return product.bound(operands_of(outlines, names), vectors)
