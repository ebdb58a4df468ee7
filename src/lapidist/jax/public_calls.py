"""The public calls: rules are checked while JAX traces, then the operation is bound."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from lapidist.calls import argument_rules
from lapidist.calls.bound import Bound
from lapidist.calls.factor_operands import require_number
from lapidist.calls.linear_shapes import require_features
from lapidist.calls.operation import given_epilogue, is_array, types_named
from lapidist.dtypes import Precision
from lapidist.epilogues.passes import COLUMN, REDUCTIONS, ROW
from lapidist.epilogues.ready_made import READY
from lapidist.epilogues.steps import Result
from lapidist.errors import ArgumentError, DTypeError
from lapidist.jax import layers
from lapidist.jax.eight_bits import Factors, small_linear, small_of
from lapidist.jax.epilogue_functions import arrays_of, in_order
from lapidist.jax.operators import bind_all
from lapidist.jax.product import Product, operands_of, outline_of

ORDER = ("a", "b", "c", "scale_a", "scale_b")


def matmul(
    a: Any,
    b: Any,
    *,
    out_dtype: Any = None,
    preferred_element_type: Any = None,
    acc_dtype: Any = None,
    precision: Precision = "ieee",
    scale_a: Any = None,
    scale_b: Any = None,
    promote: bool | None = None,
    epilogue: Any = None,
    device: str | None = None,
) -> Any:
    """jax.numpy.matmul(a, b) of two arrays of one type: vectors, broadcast batches.

    `out_dtype` (JAX calls it `preferred_element_type`), `acc_dtype`, `precision`, `scale_a`, `scale_b`,
    `promote` and `epilogue` are those of lapidist.matmul. device="machine" runs arrays on the CPU in the
    machine."""
    wanted = wanted_types(out_dtype, preferred_element_type, acc_dtype, precision, promote)
    arrays, numbers = given(a=a, b=b, scale_a=scale_a, scale_b=scale_b)
    product = Product(tuple(arrays), **wanted, **numbers, device=place(device))
    product, arrays = followed(product, arrays, epilogue, vectors=True)
    row, column = arrays["a"].ndim == 1, arrays["b"].ndim == 1
    arrays["a"] = arrays["a"][None] if row else arrays["a"]
    arrays["b"] = arrays["b"][:, None] if column else arrays["b"]
    return delivered(arrays, product, row, column)


def gemm(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    alpha: Any = 1.0,
    beta: Any = 0.0,
    trans_a: bool = False,
    trans_b: bool = False,
    out_dtype: Any = None,
    preferred_element_type: Any = None,
    acc_dtype: Any = None,
    precision: Precision = "ieee",
    scale_a: Any = None,
    scale_b: Any = None,
    promote: bool | None = None,
    epilogue: Any = None,
    device: str | None = None,
) -> Any:
    """alpha op(a) op(b) + beta c, where c broadcasts to the product. beta = 0 never reads c.

    trans_a and trans_b read an array the other way, where jax.numpy.swapaxes would copy it. alpha and beta
    are numbers, known while JAX traces. The rest is matmul's."""
    wanted = wanted_types(out_dtype, preferred_element_type, acc_dtype, precision, promote)
    scalars: dict[str, Any] = {"alpha": argument_rules.require_scalar("alpha", known("alpha", alpha))}
    scalars["beta"] = argument_rules.require_scalar("beta", known("beta", beta))
    argument_rules.require_c_for_beta(scalars["beta"], c)
    c = c if scalars["beta"] else None
    arrays, numbers = given(a=a, b=b, c=c, scale_a=scale_a, scale_b=scale_b)
    transposed: dict[str, Any] = {"trans_a": flag("trans_a", trans_a), "trans_b": flag("trans_b", trans_b)}
    product = Product(tuple(arrays), **transposed, **scalars, **wanted, **numbers, device=place(device))
    product, arrays = followed(product, arrays, epilogue)
    return delivered(arrays, product)


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
    device: str | None = None,
) -> Any:
    """input @ weight.T + bias, in one launch. trans_weight=False is input @ weight + bias, for weights that
    lie as (inputs, outputs).

    `activation`: "relu", "gelu", "gelu_tanh" or "silu" of that. `residual`: what is added to that, of the
    result's shape. `epilogue`: a function of `lapidist.epilogue` with its operands, in place of both. They
    are in the same launch where no gradient is asked for.

    `dtype`: "float8_e4m3fn" or "float8_e5m2", which input and weight are rounded to, with factors for
    "rows" or "blocks" of 128. Gradients are those of what was not rounded, and XLA adds the residual.
    """
    layers.require_known(activation)
    layers.require_alone(epilogue, activation=activation, residual=residual)
    wanted = wanted_types(out_dtype, preferred_element_type, acc_dtype, precision, None)
    named = {"input": input, "weight": weight} | ({} if bias is None else {"bias": bias})
    called = {name: array_of(name, value) for name, value in named.items()}
    input, weight = called["input"], called["weight"]
    transposed = flag("trans_weight", trans_weight)
    require_features(input.shape, weight.shape, transposed)
    row, column = input.ndim == 1, weight.ndim == 1
    if residual is not None:
        residual = array_of("residual", residual)
        features = weight.shape[:-1] if transposed else weight.shape[1:]
        layers.require_shape(residual, (*input.shape[:-1], *features))
    input = input[None] if row else input
    weight = weight[None] if column and transposed else weight[:, None] if column else weight
    arrays = dict(zip(ORDER, (input, weight, *([called["bias"]] if "bias" in called else [])), strict=False))
    beta = float("bias" in called)
    product = Product(tuple(arrays), trans_b=transposed, beta=beta, **wanted, device=place(device))
    bound = checked(product, arrays, tuple(called), False)
    if dtype is not None:
        layers.require_of_8_bits_alone(epilogue)
        activate = None if activation is None else READY[activation].function
        made = without(small_linear(product, small_of(dtype, factors), activate, arrays), row, column)
        return made if residual is None else (made + residual).astype(made.dtype)
    if epilogue is not None:
        after = layers.given_with_lines(epilogue, row, column)
    else:
        residual = None if residual is None else layers.with_lines(residual, row, column)
        product, arrays, after = layers.ended(product, arrays, activation, residual, bound.out_dtype)
    product, arrays = followed(product, arrays, after)
    return delivered(arrays, product, row, column)


def delivered(arrays: dict[str, Any], product: Product, row: bool = False, column: bool = False) -> Any:
    """Results as the caller sees them: a tuple, where an epilogue has several."""
    d, *further = bind_all(*arrays.values(), product=product)
    kinds = () if product.epilogue is None else product.epilogue.results[1:]
    d = without(d, row, column)
    others = [without_lines(each, kind, row, column) for each, kind in zip(further, kinds, strict=True)]
    return (d, *others) if others else d


def without_lines(made: Any, kind: Result, row: bool, column: bool) -> Any:
    """As `without`, of a result that may have no rows or no columns itself."""
    if kind.then not in REDUCTIONS:
        return without(made, row, column)
    over = REDUCTIONS[kind.then].over
    drops = (over == ROW and row) or (over == COLUMN and column)
    return made[..., 0] if drops else made


def without(product: Any, row: bool, column: bool) -> Any:
    """The product without the dimensions that vectors brought."""
    product = product[..., 0] if column else product
    return (product[..., 0] if column else product[..., 0, :]) if row else product


# ---- what a caller gave ----


def given(**values: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arrays in order, and factors that are numbers. Other than a and b, what is None is not there."""
    there = {name: value for name, value in values.items() if value is not None or name in ("a", "b")}
    numbers = {name for name, value in there.items() if name.startswith("scale") and not is_array(value)}
    arrays = {name: array_of(name, value) for name, value in there.items() if name not in numbers}
    return arrays, {name: require_number(name, there[name]) for name in sorted(numbers)}


def array_of(name: str, value: Any) -> Any:
    if not isinstance(value, (jax.Array, np.ndarray)):
        raise DTypeError(
            f"{name}: must be an array of JAX or NumPy; got {type(value).__name__}. Pass it through"
            " jax.numpy.asarray first"
        )
    return jax.numpy.asarray(value)


def known(name: str, value: Any) -> Any:
    """A value that a kernel is made for."""
    if isinstance(value, jax.core.Tracer):
        raise ArgumentError(
            f"{name}: must be known while JAX traces; got a {type(value).__name__}, which has a value only"
            " when the program runs. Name it in static_argnames of jax.jit, or multiply by it outside"
        )
    return value[()].item() if isinstance(value, jax.Array) and not value.ndim else value


def flag(name: str, value: Any) -> bool:
    argument_rules.require_flag(name, known(name, value), argument_rules.BLAS_FLAGS)
    return bool(value)


def place(device: Any) -> str | None:
    if device not in (None, "machine"):
        raise ArgumentError(
            f'device: must be "machine", or left out; got {device!r}. Place arrays with jax.device_put'
        )
    return device


def wanted_types(out: Any, preferred: Any, acc: Any, precision: Any, promote: Any) -> dict[str, Any]:
    promote = known("promote", promote)
    wanted, other = types_named(out, acc, precision, promote), types_named(preferred, None, precision)
    names = [name for name in (wanted.out_dtype, other.out_dtype) if name is not None]
    if len(set(names)) > 1:
        raise ArgumentError(
            "out_dtype, preferred_element_type: are two names of one thing; got"
            f" {' and '.join(names)}. Leave one out"
        )
    return {
        "out_dtype": names[0] if names else None,
        "acc_dtype": wanted.accumulator,
        "precision": wanted.precision,
        "promote": wanted.promote,
    }


def followed(
    product: Product, arrays: dict[str, Any], epilogue: Any, *, vectors: bool = False
) -> tuple[Product, dict[str, Any]]:
    """By its epilogue, every rule checked."""
    bound = checked(product, arrays, product.arrays, vectors)
    followed_by = given_epilogue(epilogue)
    if followed_by is None:
        return product, arrays
    function = followed_by.function
    operands = arrays_of(followed_by, bound.accumulator)
    own = {Product.name_of(each): operands[each.name] for each in function.parameters}
    product = product._replace(arrays=(*product.arrays, *own), epilogue=function)
    arrays = {**arrays, **own}
    return product, in_order(arrays, product, checked(product, arrays, product.arrays, vectors))


def checked(product: Product, arrays: dict[str, Any], names: tuple[str, ...], vectors: bool) -> Bound:
    outlines = [outline_of(array) for array in arrays.values()]
    return product.bound(operands_of(outlines, names), vectors)
