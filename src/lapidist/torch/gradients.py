"""Gradients and tangents of the operators, made of the operators: they can be differentiated again.

Each product is a gemm. Let D = alpha op(A) op(B) + beta C, and G be the gradient of D. The gradient of op(A)
is alpha G op(B)^T, that of op(B) is alpha op(A)^T G, summed over broadcast dimensions. Of complex numbers the
factor is conjugated, as torch has it, and a real operand gets the real part. `how`: alpha, trans_a, trans_b,
precision."""

from __future__ import annotations

import math
from typing import Any

import torch

from lapidist.calls.fake_tensors import as_rows
from lapidist.calls.operation import OPEN_BLOCKS
from lapidist.dtypes import IEEE
from lapidist.torch import operators
from lapidist.torch.dispatch_state import is_of_numbers
from lapidist.torch.invariant_precision import summed_freely

How = tuple[float, bool, bool, Any]


def of_one_type(g: Any, factor: Any) -> tuple[Any, Any]:
    """A gradient and the factor that it is multiplied by, in the factor's type, unless that has 8 bits or the
    gradient is complex.
    """
    if g.is_complex():
        return g, factor.conj()
    if g.dtype is factor.dtype:
        return g, factor
    return (g, factor.to(g.dtype)) if factor.dtype.itemsize == 1 else (g.to(factor.dtype), factor)


# is_grads_batched=True passes these down without any transform; only torch can read them.
stands_for_many = torch._C._functorch.is_legacy_batchedtensor


def multiplied(a: Any, b: Any, alpha: float, trans_a: bool, trans_b: bool, precision: Any) -> Any:
    how = alpha, 0.0, trans_a, trans_b, None, precision
    if not torch.compiler.is_compiling():
        if stands_for_many(a) or stands_for_many(b):
            return operators.gemm.op(a, b, None, *how)
        if alpha == 1 and precision == IEEE and not OPEN_BLOCKS and is_of_numbers(a, b):
            product = operators.repeated_product(a, b, trans_a, trans_b)
            if product is not None:
                return product
    return operators.gemm(a, b, None, *how)


def in_shape(product: Any, shape: Any) -> Any:
    """The product, summed over what was broadcast; torch takes 3 us for a sum over nothing."""
    if not torch.compiler.is_compiling() and product.shape == shape:
        return product
    return product.sum_to_size(shape)


def gradient_of_a(g: Any, b: Any, shape: Any, how: How) -> Any:
    alpha, trans_a, trans_b, precision = how
    g, b = of_one_type(g, b)
    if trans_a:
        product = multiplied(b, g, alpha, trans_b, True, precision)
    else:
        product = multiplied(g, b, alpha, False, not trans_b, precision)
    return in_shape(product, shape)


def gradient_of_input(g: Any, weight: Any, shape: Any, how: How) -> Any:
    """The gradient of a layer's input, which may be a vector."""
    if len(shape) > 1:
        return gradient_of_a(g, weight, shape, how)
    return gradient_of_a(as_rows(g), weight, (1, *shape), how).reshape(shape)


def rows_are_split(tensor: Any) -> bool:
    """Whether rows within a batch are split over processes; older torch cannot flatten such tensors."""
    inner = range(1, tensor.ndim - 1)
    return any(place.is_shard() and place.dim in inner for place in getattr(tensor, "placements", ()))


def as_matrix(batch: Any) -> Any:
    """All rows of a batch in one matrix. torch's is_grads_batched has no rule for flatten."""
    return batch.reshape(math.prod(batch.shape[:-1]), batch.shape[-1])


def gradient_of_b(g: Any, a: Any, shape: Any, how: How) -> Any:
    alpha, trans_a, trans_b, precision = how
    g, a, precision = *of_one_type(g, a), summed_freely(precision)
    if len(shape) == 2 and g.ndim > 2 and not trans_a and not (rows_are_split(a) or rows_are_split(g)):
        a, g = as_matrix(a), as_matrix(g)  # one product sums over the batch
    if trans_b:
        product = multiplied(g, a, alpha, True, trans_a, precision)
    else:
        product = multiplied(a, g, alpha, not trans_a, False, precision)
    return in_shape(product, shape)


def keep(ctx: Any, a: Any, b: Any, output: Any, types: Any) -> None:
    """Save for the backward pass the operands that the other one's gradient needs."""
    ctx.save_for_backward(a if ctx.needs_input_grad[1] else None, b if ctx.needs_input_grad[0] else None)
    ctx.save_for_forward(a, b)
    ctx.shapes, ctx.shape, ctx.types = (a.shape, b.shape), output.shape, types
    ctx.precision = types[1] if len(types) > 1 else IEEE
    ctx.complex = (a.is_complex(), b.is_complex()) if output.is_complex() else None


def real_parts(ctx: Any, of_a: Any, of_b: Any) -> tuple[Any, Any]:
    """Gradients of real operands of a complex product are real."""
    if ctx.complex is None or all(ctx.complex):
        return of_a, of_b
    pairs = zip((of_a, of_b), ctx.complex, strict=True)
    of_a, of_b = (g if g is None or is_complex else g.real for g, is_complex in pairs)
    return of_a, of_b


def summed(*terms: Any) -> Any:
    """The sum of those terms that are not None; None if all are."""
    present = [term for term in terms if term is not None]
    return sum(present[1:], present[0]) if present else None


def total(first: Any, second: Any, third: Any, shape: Any) -> Any:
    """The sum of the terms that are not None, expanded to the result's shape."""
    result = summed(first, second, third)
    return None if result is None else result.expand(shape)


# ---- gemm ----


def keep_gemm(ctx: Any, inputs: Any, output: Any) -> None:
    a, b, c, alpha, beta, trans_a, trans_b, *types = inputs
    keep(ctx, a, b, output, types)
    ctx.how = alpha, trans_a, trans_b
    ctx.beta, ctx.c_shape = beta, None if c is None else c.shape


def gemm_back(ctx: Any, g: Any) -> tuple[Any, ...]:
    (a, b), (a_shape, b_shape), how = ctx.saved_tensors, ctx.shapes, (*ctx.how, ctx.precision)
    of_a = gradient_of_a(g, b, a_shape, how) if ctx.needs_input_grad[0] else None
    of_b = gradient_of_b(g, a, b_shape, how) if ctx.needs_input_grad[1] else None
    of_a, of_b = real_parts(ctx, of_a, of_b)
    reads_c = any(ctx.needs_input_grad[2:3]) and ctx.beta != 0  # shorter without c
    of_c = (g * ctx.beta).sum_to_size(ctx.c_shape) if reads_c else None
    return of_a, of_b, of_c, None, None, None, None, None, None


def gemm_forth(ctx: Any, of_a: Any, of_b: Any, of_c: Any, *_: None) -> Any:
    (a, b), (alpha, *how), types = ctx.saved_tensors, ctx.how, ctx.types
    return total(
        None if of_a is None else operators.gemm(of_a, b, None, alpha, 0.0, *how, *types),
        None if of_b is None else operators.gemm(a, of_b, None, alpha, 0.0, *how, *types),
        None if of_c is None or ctx.beta == 0 else ctx.beta * of_c,
        ctx.shape,
    )


# ---- matmul ----


def keep_matmul(ctx: Any, inputs: Any, output: Any) -> None:
    a, b, *types = inputs
    keep(ctx, a, b, output, types)


def matmul_back(ctx: Any, g: Any) -> tuple[Any, ...]:
    (a, b), (a_shape, b_shape), how = ctx.saved_tensors, ctx.shapes, (1.0, False, False, ctx.precision)
    row, column = len(a_shape) == 1, len(b_shape) == 1
    g = g.unsqueeze(-1) if column else g
    g = g.unsqueeze(-2) if row else g
    of_a = of_b = None
    if ctx.needs_input_grad[0]:
        b = b.unsqueeze(-1) if column else b
        of_a = gradient_of_a(g, b, (1, *a_shape) if row else a_shape, how).reshape(a_shape)
    if ctx.needs_input_grad[1]:
        shape = (*b_shape, 1) if column else b_shape
        of_b = gradient_of_b(g, as_rows(a), shape, how).reshape(b_shape)
    return *real_parts(ctx, of_a, of_b), None, None


def matmul_forth(ctx: Any, of_a: Any, of_b: Any, *_: None) -> Any:
    (a, b), types = ctx.saved_tensors, ctx.types
    from_a = None if of_a is None else operators.matmul(of_a, b, *types)
    return total(from_a, None if of_b is None else operators.matmul(a, of_b, *types), None, ctx.shape)


# ---- linear ----


def keep_linear(ctx: Any, inputs: Any, output: Any) -> None:
    input, weight, bias, *types = inputs
    keep(ctx, input, weight, output, types)
    ctx.bias_shape = None if bias is None else bias.shape


def linear_back(ctx: Any, g: Any) -> tuple[Any, ...]:
    (input, weight), (input_shape, weight_shape) = ctx.saved_tensors, ctx.shapes
    how = 1.0, False, True, ctx.precision
    of_bias = g.sum_to_size(ctx.bias_shape) if any(ctx.needs_input_grad[2:3]) else None
    row, column = len(input_shape) == 1, len(weight_shape) == 1
    g = g.unsqueeze(-1) if column else g
    g = as_rows(g) if row else g
    of_input = of_weight = None
    if ctx.needs_input_grad[0]:
        of_input = gradient_of_input(g, as_rows(weight), input_shape, how)
    if ctx.needs_input_grad[1]:
        of_weight = gradient_of_b(g, as_rows(input), (1, *weight_shape) if column else weight_shape, how)
        of_weight = of_weight.reshape(weight_shape) if column else of_weight
    return *real_parts(ctx, of_input, of_weight), of_bias, None, None


def linear_forth(ctx: Any, of_input: Any, of_weight: Any, of_bias: Any, *_: None) -> Any:
    (input, weight), types = ctx.saved_tensors, ctx.types
    return total(
        None if of_input is None else operators.linear(of_input, weight, None, *types),
        None if of_weight is None else operators.linear(input, of_weight, None, *types),
        of_bias,
        ctx.shape,
    )


# ---- scaled: 8-bit operands and their factors were rounded and have no gradient; c has one ----


def keep_scaled(ctx: Any, inputs: Any, output: Any) -> None:
    c = inputs[4] if len(inputs) > 4 else None
    ctx.c_shape = None if c is None else c.shape


def scaled_back(ctx: Any, g: Any) -> tuple[Any, ...]:
    of_c = g.sum_to_size(ctx.c_shape) if any(ctx.needs_input_grad[4:5]) else None
    return None, None, None, None, of_c, None, None, None


# ---- grouped: the gradients of each form are products of the others; rows behind the groups are not set ----


def by_groups(a: Any, b: Any, offsets: Any, trans_a: bool, trans_b: bool, *how: Any) -> Any:
    if not torch.compiler.is_compiling() and (stands_for_many(a) or stands_for_many(b)):
        return operators.grouped.op(a, b, offsets, trans_a, trans_b, *how)
    return operators.grouped(a, b, offsets, trans_a, trans_b, *how)


def keep_grouped(ctx: Any, inputs: Any, output: Any) -> None:
    a, b, offsets, trans_a, trans_b, *types, expected_rows = inputs
    needs_a, needs_b = ctx.needs_input_grad[:2]
    ctx.save_for_backward(a if needs_b else None, b if needs_a else None, offsets)
    ctx.save_for_forward(a, b, offsets)
    ctx.transposed, ctx.types, ctx.expected_rows = (trans_a, trans_b), types, expected_rows


def grouped_back(ctx: Any, g: Any) -> tuple[Any, ...]:
    (a, b, offsets), how = ctx.saved_tensors, (None, ctx.types[1], ctx.expected_rows)
    of_a = of_b = None
    if ctx.needs_input_grad[0]:
        first, second, *flags = factors_of_a(g, b, *ctx.transposed)
        of_a = by_groups(first, second, offsets, *flags, *how)
    if ctx.needs_input_grad[1]:
        first, second, *flags = factors_of_b(g, a, *ctx.transposed)
        how = None, summed_freely(ctx.types[1]), ctx.expected_rows
        of_b = by_groups(first, second, offsets, *flags, *how)
    return of_a, of_b, None, None, None, None, None, None


def factors_of_a(g: Any, b: Any, trans_a: bool, trans_b: bool) -> tuple[Any, Any, bool, bool]:
    """The product that is the gradient of a: its factors, and whether they are transposed."""
    g, b = of_one_type(g, b)
    return (b, g, trans_b, True) if trans_a else (g, b, False, not trans_b)


def factors_of_b(g: Any, a: Any, trans_a: bool, trans_b: bool) -> tuple[Any, Any, bool, bool]:
    g, a = of_one_type(g, a)
    return (g, a, True, trans_a) if trans_b else (a, g, not trans_a, False)


def grouped_forth(ctx: Any, of_a: Any, of_b: Any, *_: None) -> Any:
    (a, b, offsets), how = ctx.saved_tensors, (*ctx.transposed, *ctx.types, ctx.expected_rows)
    return summed(
        None if of_a is None else by_groups(of_a, b, offsets, *how),
        None if of_b is None else by_groups(a, of_b, offsets, *how),
    )
