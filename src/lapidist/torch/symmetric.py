"""torch.ops.lapidist.gram: alpha a a^T + beta c at half the work; .symmetric_matmul, whose caller knows that
a b is symmetric; and the Newton-Schulz steps of Muon.
"""

from __future__ import annotations

from typing import Any, NoReturn

import torch

from lapidist import api
from lapidist.calls import fake_tensors
from lapidist.calls import symmetric as symmetric_calls
from lapidist.calls.bound import Bound
from lapidist.calls.fake_tensors import bound_of, outlines
from lapidist.calls.keywords import unexpected
from lapidist.calls.operation import Operation, epilogue_checked, types_named
from lapidist.calls.symmetric_epilogues import require_declared, require_names
from lapidist.calls.symmetric_rules import (
    require_half,
    require_hermitian,
    require_known_symmetric,
    require_square,
)
from lapidist.calls.torch_epilogues import finished, type_of_sums
from lapidist.dtypes import IEEE, Precision, integer_from
from lapidist.errors import ArgumentError, DTypeError, shown
from lapidist.frameworks.new_arrays import torch_dtype
from lapidist.frameworks.tensor_rules import require_dense
from lapidist.frameworks.torch_autocast import in_autocast
from lapidist.torch import operators
from lapidist.torch.batches import map_gram, map_symmetric_matmul
from lapidist.torch.fused_epilogues import is_separate
from lapidist.torch.gradients import keep_matmul, matmul_back, matmul_forth, multiplied, total
from lapidist.torch.invariant_precision import with_invariance
from lapidist.torch.operators import TYPES, Operator

QUINTIC = 3.4445, -4.7750, 2.0315  # of X, X X^T X and X (X^T X)^2: singular values go near 1 in five steps
SMALLEST_NORM = 1e-7


def gram(
    a: Any,
    c: Any = None,
    *,
    trans: bool = False,
    alpha: float = 1.0,
    beta: float = 0.0,
    out_dtype: Any = None,
    precision: Precision = IEEE,
    invariant: bool | None = None,
    epilogue: Any = None,
    symmetric: Any = (),
    triangle: Any = None,
    **unknown: NoReturn,
) -> Any:
    """alpha a a^T + beta c, or with `trans` alpha a^T a + beta c, as `lapidist.gram` computes it; c is
    symmetric.

    `epilogue`, `symmetric` and `triangle` are those of lapidist.gram. Where gradients are recorded, torch
    computes the function of the product. The half beside a triangle is zero, and has no gradient."""
    if unknown:
        raise unexpected(gram, unknown)
    if not isinstance(a, torch.Tensor):
        raise DTypeError(
            f"a: must be a torch.Tensor; got {type(a).__name__}. Pass it through torch.as_tensor"
        )
    precision = with_invariance(precision, invariant)
    a, c = in_autocast(a, c)
    declared = require_names(symmetric)
    if epilogue is None:
        require_declared(declared)
        return gram_op(a, c, alpha, beta, trans, out_dtype, precision, triangle)
    how = {"alpha": alpha, "beta": beta, "trans": trans, "out_dtype": out_dtype, "precision": precision}
    return followed(a, c, epilogue, declared, triangle, how)


def followed(a: Any, c: Any, epilogue: Any, declared: tuple[str, ...], half: Any, how: dict[str, Any]) -> Any:
    """One launch if torch needs no sums, else the function in torch, as of other products."""
    bound = epilogue_checked(epilogue)
    assert bound is not None
    if not is_separate(bound, a, c):
        return symmetric_calls.gram(a, c, **how, epilogue=bound, symmetric=declared, triangle=half)
    dtype = outlined(a, c, how, half, bound, declared).dtype
    kind = type_of_sums(a, a)
    numbers = how["alpha"], how["beta"], how["trans"]
    sums = gram_op(a, None if c is None else c.to(kind), *numbers, kind, how["precision"], half)
    return ended(bound, sums, dtype, half)


def ended(epilogue: Any, sums: Any, dtype: Any, half: str | None) -> Any:
    """The function of the sums, by torch. Beside a half lies its mirror image meanwhile: slopes there are
    multiplied by zero, and that of a zero may be infinite.
    """
    if half is None:
        return mirrored(finished(epilogue, sums, dtype))
    strict = sums.tril(-1) if half == "lower" else sums.triu(1)
    return in_triangle(finished(epilogue, sums + strict.mH, dtype), half)


def in_triangle(d: Any, half: str | None) -> Any:
    """A result's half, a tangent's, or a gradient's: nothing else of them is read."""
    return d if half is None else d.tril() if half == "lower" else d.triu()


def mirrored(d: Any) -> Any:
    """The lower triangle and its mirror image: torch may compute a function otherwise at the end of a line.
    Elements that are equal keep their own gradients.
    """
    below, diagonal = d.tril(-1), d.diagonal(dim1=-2, dim2=-1)
    image = below + below.mH + torch.diag_embed(diagonal.real if d.is_complex() else diagonal)
    return torch.where(image == d, d, image)


def run(
    a: Any,
    c: Any = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    trans: bool = False,
    out_dtype: Any = None,
    precision: Any = IEEE,
    triangle: Any = None,
) -> Any:
    c = None if c is None else c.detach()
    how: dict[str, Any] = {"alpha": alpha, "beta": beta, "out_dtype": out_dtype, "precision": precision}
    return symmetric_calls.gram(a.detach(), c, trans=trans, triangle=triangle, **how)


def fake(
    a: Any,
    c: Any = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    trans: bool = False,
    out_dtype: Any = None,
    precision: Any = IEEE,
    triangle: Any = None,
) -> Any:
    how = {"alpha": alpha, "beta": beta, "trans": trans, "out_dtype": out_dtype, "precision": precision}
    return outlined(a, c, how, triangle)


def outlined(
    a: Any, c: Any, how: dict[str, Any], half: Any, epilogue: Any = None, declared: tuple[str, ...] = ()
) -> Any:
    """The result without numbers, by the rules of real calls."""
    require_half(half)
    types = types_named(how["out_dtype"], None, how["precision"])
    transposed = how["trans"], not how["trans"]
    of_epilogue = fake_tensors.outlined(epilogue)
    operation = Operation(*transposed, False, how["alpha"], how["beta"], types, epilogue=of_epilogue)
    of_a, of_b, of_c = outlines(("a", "a", "c"), a, a, c)
    return symmetric_result(a, bound_of(of_a, of_b, of_c, operation), declared, True)


def symmetric_result(a: Any, bound: Bound, declared: tuple[str, ...], of_itself: bool) -> Any:
    require_square(bound, declared)
    if bound.is_complex:
        require_hermitian(bound, of_itself)
    return a.new_empty(bound.result_shape, dtype=torch_dtype(bound.out_dtype))


def keep(ctx: Any, inputs: Any, output: Any) -> None:
    a, c, ctx.alpha, ctx.beta, ctx.trans, _, ctx.precision, ctx.triangle = inputs
    ctx.save_for_backward(a)
    ctx.save_for_forward(a)
    ctx.shape, ctx.out_dtype, ctx.result_shape = None if c is None else c.shape, output.dtype, output.shape


def back(ctx: Any, gradient: Any) -> tuple[Any, ...]:
    (a,), of_a, of_c = ctx.saved_tensors, None, None
    gradient = in_triangle(gradient, ctx.triangle)
    if ctx.needs_input_grad[0]:
        both = (gradient + gradient.mH).to(a.dtype)
        left, right = (a, both) if ctx.trans else (both, a)
        of_a = multiplied(left, right, ctx.alpha, False, False, ctx.precision)
    if ctx.needs_input_grad[1]:
        of_c = (gradient * ctx.beta).sum_to_size(ctx.shape)
    return of_a, of_c, None, None, None, None, None, None


def forth(ctx: Any, of_a: Any, of_c: Any, *_: None) -> Any:
    """One product: a tangent's other half is its mirror image."""
    (a,), both = ctx.saved_tensors, None
    if of_a is not None:
        left, right = (of_a.mH, a) if ctx.trans else (of_a, a.mH)
        half = operators.gemm(left, right, None, ctx.alpha, 0.0, False, False, ctx.out_dtype, ctx.precision)
        both = half + half.mH
    of_c = None if of_c is None or ctx.beta == 0 else ctx.beta * of_c
    return in_triangle(total(both, None, of_c, ctx.result_shape), ctx.triangle)


gram_op = Operator(
    f"gram(Tensor a, Tensor? c=None, float alpha=1.0, float beta=0.0, bool trans=False, {TYPES},"
    " str? triangle=None) -> Tensor",
    run,
    fake,
)
gram_op.transform(keep, back, forth, map_gram)


def matmul(
    a: Any, b: Any, symmetric: Any, triangle: Any, out_dtype: Any, precision: Any, epilogue: Any
) -> Any:
    """lapidist.torch.matmul where the caller knows that the result is symmetric."""
    declared = require_names(symmetric)
    require_known_symmetric(symmetric, triangle)
    a, b = in_autocast(a, b)
    if epilogue is None:
        require_declared(declared)
        return matmul_op(a, b, out_dtype, precision, triangle)
    bound = epilogue_checked(epilogue)
    assert bound is not None
    if not is_separate(bound, a, b):
        return run_matmul(a, b, out_dtype, precision, triangle, epilogue=bound, symmetric=declared)
    dtype = fake_matmul(a, b, out_dtype, precision, triangle, bound, declared).dtype
    sums = matmul_op(a, b, type_of_sums(a, b), precision, triangle)
    return ended(bound, sums, dtype, triangle)


def run_matmul(
    a: Any,
    b: Any,
    out_dtype: Any = None,
    precision: Any = IEEE,
    triangle: Any = None,
    *,
    epilogue: Any = None,
    symmetric: Any = True,
) -> Any:
    how: dict[str, Any] = {"out_dtype": out_dtype, "precision": precision, "epilogue": epilogue}
    return api.matmul(a.detach(), b.detach(), symmetric=symmetric, triangle=triangle, **how)


def fake_matmul(
    a: Any,
    b: Any,
    out_dtype: Any = None,
    precision: Any = IEEE,
    triangle: Any = None,
    epilogue: Any = None,
    declared: tuple[str, ...] = (),
) -> Any:
    require_half(triangle)
    types = types_named(out_dtype, None, precision)
    operation = Operation(vectors=True, types=types, epilogue=fake_tensors.outlined(epilogue))
    of_a, of_b, of_c = outlines(("a", "b", "c"), a, b, None)
    return symmetric_result(a, bound_of(of_a, of_b, of_c, operation), declared, False)


def keep_half(ctx: Any, inputs: Any, output: Any) -> None:
    *inputs, ctx.triangle = inputs
    keep_matmul(ctx, inputs, output)


def half_back(ctx: Any, gradient: Any) -> tuple[Any, ...]:
    return *matmul_back(ctx, in_triangle(gradient, ctx.triangle)), None


def half_forth(ctx: Any, of_a: Any, of_b: Any, *_: None) -> Any:
    return in_triangle(matmul_forth(ctx, of_a, of_b), ctx.triangle)


matmul_op = Operator(
    f"symmetric_matmul(Tensor a, Tensor b, {TYPES}, str? triangle=None) -> Tensor", run_matmul, fake_matmul
)
matmul_op.transform(keep_half, half_back, half_forth, map_symmetric_matmul)


@torch.no_grad()  # type: ignore[untyped-decorator]
def orthogonalised(gradient: Any, steps: int = 5) -> Any:
    """The step of the Muon optimiser: a gradient whose singular values are brought near 1, in bfloat16.

    Each of the Newton-Schulz steps takes three products, two of them symmetric and so at half the work. A
    batch (layers, rows, columns) of matrices of one shape goes through together; it may be captured in a CUDA
    graph.
    """
    if not isinstance(gradient, torch.Tensor) or not gradient.is_floating_point():
        got = gradient.dtype if isinstance(gradient, torch.Tensor) else type(gradient).__name__
        raise DTypeError(
            f"gradient: must be a torch.Tensor of floating-point numbers; got {got}. Other parameters take"
            " another optimiser"
        )
    require_dense(gradient, "gradient")
    if gradient.ndim < 2:
        raise ArgumentError(
            f"gradient: must be a matrix, or a batch of them; got {tuple(gradient.shape)}. Vectors and"
            " scalars take another optimiser"
        )
    if integer_from(1, steps) is None:
        raise ArgumentError(
            f"steps: must be a whole number from 1 on; got {shown(steps)}. Leave it out for 5"
        )
    of_x, of_cube, of_fifth = QUINTIC
    x = in_bfloat16(gradient)
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT.contiguous() if tall else x
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp_min(SMALLEST_NORM)
    for _ in range(steps):
        squared = symmetric_calls.gram(x)
        polynomial = symmetric_calls.gram(squared, squared, alpha=of_fifth, beta=of_cube)
        x = api.gemm(polynomial, x, x, beta=of_x)
    return x.mT if tall else x


def in_bfloat16(gradient: torch.Tensor) -> torch.Tensor:
    """A gradient in bfloat16, in units of a power of two that leaves no element above 1: squares of 1e30 in
    its norm would be infinite. Small gradients keep their unit, in which SMALLEST_NORM counts.
    """
    x = gradient if gradient.dtype in (torch.float32, torch.float64) else gradient.to(torch.bfloat16)
    if not x.numel():
        return x.to(torch.bfloat16)
    largest = torch.linalg.vector_norm(x, torch.inf, dim=(-2, -1), keepdim=True).double()
    unit = torch.exp2(-largest.log2().ceil().clamp_min(0)).to(x.dtype)
    return torch.mul(x, unit, out=torch.empty_like(x, dtype=torch.bfloat16))
