"""Gradients and tangents of the operators, made of the operators: they can be differentiated again.

Each product is a gemm. Of D = alpha op(A) op(B) + beta C, and G the gradient of D, op(A) has alpha G op(B)^T
and op(B) has alpha op(A)^T G. What was broadcast is summed."""

from __future__ import annotations

from typing import Any

from lapidist.torch import operators
from lapidist.torch.outlines import as_rows


def gradient_of_a(g: Any, b: Any, shape: Any, alpha: float, trans_a: bool, trans_b: bool) -> Any:
    b = b.to(g.dtype)
    if trans_a:
        product = operators.gemm(b, g, None, alpha, 0.0, trans_b, True)
    else:
        product = operators.gemm(g, b, None, alpha, 0.0, False, not trans_b)
    return product.sum_to_size(shape)


def gradient_of_b(g: Any, a: Any, shape: Any, alpha: float, trans_a: bool, trans_b: bool) -> Any:
    a = a.to(g.dtype)
    if len(shape) == 2 and g.ndim > 2 and not trans_a:
        a, g = a.flatten(0, -2), g.flatten(0, -2)  # one product sums over the batch
    if trans_b:
        product = operators.gemm(g, a, None, alpha, 0.0, True, trans_a)
    else:
        product = operators.gemm(a, g, None, alpha, 0.0, not trans_a, False)
    return product.sum_to_size(shape)


def keep(ctx: Any, a: Any, b: Any, output: Any) -> None:
    """Each is what the other's gradient needs."""
    ctx.save_for_backward(a if ctx.needs_input_grad[1] else None, b if ctx.needs_input_grad[0] else None)
    ctx.save_for_forward(a, b)
    ctx.shapes, ctx.shape = (a.shape, b.shape), output.shape


def total(first: Any, second: Any, third: Any, shape: Any) -> Any:
    """The sum of those that there are, in the result's shape."""
    there = [each for each in (first, second, third) if each is not None]
    return None if not there else sum(there[1:], there[0]).expand(shape)


# ---- gemm ----


def keep_gemm(ctx: Any, inputs: Any, output: Any) -> None:
    a, b, c, alpha, beta, trans_a, trans_b = inputs
    keep(ctx, a, b, output)
    ctx.how = alpha, trans_a, trans_b
    ctx.beta, ctx.c_shape = beta, None if c is None else c.shape


def gemm_back(ctx: Any, g: Any) -> tuple[Any, ...]:
    (a, b), (a_shape, b_shape) = ctx.saved_tensors, ctx.shapes
    of_a = gradient_of_a(g, b, a_shape, *ctx.how) if ctx.needs_input_grad[0] else None
    of_b = gradient_of_b(g, a, b_shape, *ctx.how) if ctx.needs_input_grad[1] else None
    reads_c = any(ctx.needs_input_grad[2:3]) and ctx.beta != 0  # what was left away is not counted
    of_c = (g * ctx.beta).sum_to_size(ctx.c_shape) if reads_c else None
    return of_a, of_b, of_c, None, None, None, None


def gemm_forth(ctx: Any, of_a: Any, of_b: Any, of_c: Any, *_: None) -> Any:
    (a, b), (alpha, trans_a, trans_b) = ctx.saved_tensors, ctx.how
    return total(
        None if of_a is None else operators.gemm(of_a, b, None, alpha, 0.0, trans_a, trans_b),
        None if of_b is None else operators.gemm(a, of_b, None, alpha, 0.0, trans_a, trans_b),
        None if of_c is None or ctx.beta == 0 else ctx.beta * of_c,
        ctx.shape,
    )


# ---- matmul ----


def keep_matmul(ctx: Any, inputs: Any, output: Any) -> None:
    a, b = inputs
    keep(ctx, a, b, output)


def matmul_back(ctx: Any, g: Any) -> tuple[Any, ...]:
    (a, b), (a_shape, b_shape) = ctx.saved_tensors, ctx.shapes
    row, column = len(a_shape) == 1, len(b_shape) == 1
    g = g.unsqueeze(-1) if column else g
    g = g.unsqueeze(-2) if row else g
    of_a = of_b = None
    if ctx.needs_input_grad[0]:
        b = b.unsqueeze(-1) if column else b
        of_a = gradient_of_a(g, b, (1, *a_shape) if row else a_shape, 1.0, False, False).reshape(a_shape)
    if ctx.needs_input_grad[1]:
        of_b = gradient_of_b(g, as_rows(a), (*b_shape, 1) if column else b_shape, 1.0, False, False).reshape(
            b_shape
        )
    return of_a, of_b


def matmul_forth(ctx: Any, of_a: Any, of_b: Any) -> Any:
    a, b = ctx.saved_tensors
    from_a = None if of_a is None else operators.matmul(of_a, b)
    return total(from_a, None if of_b is None else operators.matmul(a, of_b), None, ctx.shape)


# ---- linear ----


def keep_linear(ctx: Any, inputs: Any, output: Any) -> None:
    input, weight, bias = inputs
    keep(ctx, input, weight, output)
    ctx.bias_shape = None if bias is None else bias.shape


def linear_back(ctx: Any, g: Any) -> tuple[Any, ...]:
    (input, weight), (input_shape, weight_shape) = ctx.saved_tensors, ctx.shapes
    of_bias = g.sum_to_size(ctx.bias_shape) if any(ctx.needs_input_grad[2:3]) else None
    g = g.unsqueeze(-1) if len(weight_shape) == 1 else g
    g = as_rows(g) if len(input_shape) == 1 else g
    of_input = of_weight = None
    if ctx.needs_input_grad[0]:
        shape = (1, *input_shape) if len(input_shape) == 1 else input_shape
        of_input = gradient_of_a(g, as_rows(weight), shape, 1.0, False, True).reshape(input_shape)
    if ctx.needs_input_grad[1]:
        shape = (1, *weight_shape) if len(weight_shape) == 1 else weight_shape
        of_weight = gradient_of_b(g, as_rows(input), shape, 1.0, False, True).reshape(weight_shape)
    return of_input, of_weight, of_bias


def linear_forth(ctx: Any, of_input: Any, of_weight: Any, of_bias: Any = None) -> Any:
    input, weight = ctx.saved_tensors
    return total(
        None if of_input is None else operators.linear(of_input, weight, None),
        None if of_weight is None else operators.linear(input, of_weight, None),
        of_bias,
        ctx.shape,
    )
