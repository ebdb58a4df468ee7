"""torch.ops.lapidist.gram: alpha a a^T + beta c at half the work; and the Newton-Schulz steps of Muon."""

from __future__ import annotations

from typing import Any, NoReturn

import torch

from lapidist import api
from lapidist.calls import symmetric
from lapidist.calls.keywords import unexpected
from lapidist.calls.operation import Operation, types_named
from lapidist.dtypes import IEEE, Precision
from lapidist.errors import ArgumentError, DTypeError
from lapidist.torch import operators
from lapidist.torch.autocast import in_autocast
from lapidist.torch.fake_tensors import of_product
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
    **unknown: NoReturn,
) -> Any:
    """alpha a a^T + beta c, or with `trans` alpha a^T a + beta c, as `lapidist.gram` computes it; c is
    symmetric."""
    if unknown:
        raise unexpected(gram, unknown)
    if not isinstance(a, torch.Tensor):
        raise DTypeError(
            f"a: must be a torch.Tensor; got {type(a).__name__}. Pass it through torch.as_tensor"
        )
    precision = with_invariance(precision, invariant)
    return gram_op(*in_autocast(a, c), alpha, beta, trans, out_dtype, precision)


def run(
    a: Any,
    c: Any = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    trans: bool = False,
    out_dtype: Any = None,
    precision: Any = IEEE,
    *,
    out: Any = None,
) -> Any:
    c = None if c is None else c.detach()
    how: dict[str, Any] = {"alpha": alpha, "beta": beta, "out_dtype": out_dtype, "precision": precision}
    return symmetric.gram(a.detach(), c, trans=trans, out=out, **how)


def fake(
    a: Any,
    c: Any = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    trans: bool = False,
    out_dtype: Any = None,
    precision: Any = IEEE,
) -> Any:
    operation = Operation(trans, not trans, False, alpha, beta, types_named(out_dtype, None, precision))
    return of_product(a, a, c, operation, ("a", "a", "c"))


def keep(ctx: Any, inputs: Any, output: Any) -> None:
    a, c, ctx.alpha, ctx.beta, ctx.trans, _, ctx.precision = inputs
    ctx.save_for_backward(a)
    ctx.shape = None if c is None else c.shape


def back(ctx: Any, gradient: Any) -> tuple[Any, ...]:
    (a,), of_a, of_c = ctx.saved_tensors, None, None
    if ctx.needs_input_grad[0]:
        both = (gradient + gradient.mH).to(a.dtype)
        left, right = (a, both) if ctx.trans else (both, a)
        of_a = operators.gemm(left, right, None, ctx.alpha, 0.0, False, False, None, ctx.precision)
    if ctx.needs_input_grad[1]:
        of_c = (gradient * ctx.beta).sum_to_size(ctx.shape)
    return of_a, of_c, None, None, None, None, None


gram_op = Operator(
    f"gram(Tensor a, Tensor? c=None, float alpha=1.0, float beta=0.0, bool trans=False, {TYPES}) -> Tensor",
    run,
    fake,
)
gram_op.record(keep, back)
gram_op.cast()


@torch.no_grad()  # type: ignore[untyped-decorator]
def orthogonalised(gradient: Any, steps: int = 5) -> Any:
    """The step of the Muon optimiser: a gradient whose singular values are brought near 1, in bfloat16.

    Each of the Newton-Schulz steps takes three products, two of them symmetric and so at half the work. A
    batch (layers, rows, columns) of matrices of one shape goes through together; it may be captured in a CUDA
    graph.
    """
    if gradient.ndim < 2:
        raise ArgumentError(
            f"gradient: must be a matrix, or a batch of them; got {tuple(gradient.shape)}. Vectors and"
            " scalars take another optimiser"
        )
    of_x, of_cube, of_fifth = QUINTIC
    x = gradient.to(torch.bfloat16)
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT.contiguous() if tall else x
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp_min(SMALLEST_NORM)
    for _ in range(steps):
        squared = symmetric.gram(x)
        polynomial = symmetric.gram(squared, squared, alpha=of_fifth, beta=of_cube)
        x = api.gemm(polynomial, x, x, beta=of_x)
    return x.mT if tall else x
