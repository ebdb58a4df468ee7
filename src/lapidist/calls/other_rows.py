"""A product like an earlier one but for its rows: as a served model multiplies, whose requests have new
lengths, while its weights stay.

The earlier one passed every check. Where A and D are contiguous, another number of rows changes none of
them. So the new rows need a plan, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any

from lapidist.backends.gpu.launcher import AS_IT_IS
from lapidist.calls.choices import OPEN
from lapidist.calls.repeated import Again, Geometry, ShortWay, calls_left, plain_tensors, short_ways
from lapidist.frameworks.arrays import contiguous_strides, torch_dtype
from lapidist.frameworks.new_tensors import tensors_made
from lapidist.frameworks.streams import choose_stream

if TYPE_CHECKING:
    from lapidist.calls.arguments import Arguments
    from lapidist.calls.call import Call
    from lapidist.calls.operation import Types
    from lapidist.calls.prepared import Prepared
    from lapidist.problems.problem import Problem

LEAST = 2  # rows, and other extents: a single row has no step from row to row
APART = ((0, 0),) * 3  # a new D is apart from A and B
Prepare = Callable[["Problem", "Prepared", Any], "Prepared"]  # for a problem, as another one was, on a stream


def rows_key(a: Any, b: Any, trans_b: bool, types: Types) -> Any:
    """Equal for plain products by one matrix B that differ in nothing but their rows; None of others."""
    try:
        if b.dim() != 2 or a.dim() < 2 or not a.is_contiguous():
            return None
        return a.dim(), b.shape, a.dtype, b.is_contiguous(), trans_b, types
    except (AttributeError, RuntimeError):  # no tensors, or what torch calls sparse, nested, ...
        return None


def rows_key_of(call: Call) -> Any:
    """The same of a call; None, too, where more than A, B and a new D take part."""
    operation = call.operation
    alpha, beta, trans_b = operation.alpha, operation.beta, operation.trans_b
    numbers = type(alpha) is type(beta) is float and alpha == 1 and beta == 0
    flags = operation.trans_a is operation.routing.check_indices is False and type(trans_b) is bool
    if call.out is not None or call.c is not None or call.choices is not OPEN or not (numbers and flags):
        return None
    return rows_key(call.a, call.b, trans_b, operation.types)


class OtherRows:
    """Multiplies as an earlier product was, with other rows. It keeps nothing of a caller's."""

    __slots__ = ("cols", "first", "geometry", "made", "short_way")

    def __init__(self, first: Prepared, geometry: Geometry) -> None:
        self.first, self.geometry, self.cols = first, geometry, first.problem.n
        self.made = tensors_made(torch_dtype(first.out_dtype), geometry.device)
        self.short_way: ShortWay | None = None  # from the first one on that comes twice

    def __call__(self, a: Any, b: Any, stream: Any, prepare: Prepare) -> tuple[Any, Prepared] | None:
        """The product, and what was prepared for it; None: the long way must look."""
        import torch

        first, geometry = self.first, self.geometry
        shape = (*a.shape[:-1], self.cols)
        rows, out = prod(shape[:-1]), self.made(shape, contiguous_strides(shape))()
        if rows < LEAST or not (a.is_contiguous() and geometry.alike(a, b, out)):
            return None
        pa, pb, pd, (a_bits, b_bits, _, d_bits) = a.data_ptr(), b.data_ptr(), out.data_ptr(), geometry.bits
        if (pa ^ a_bits | pb ^ b_bits | pd ^ d_bits) & 15 or not (pa and pb and pd):
            return None
        gradients = geometry.watched and torch.is_grad_enabled()
        if gradients or torch._C._is_tracing() or torch.autograd.forward_ad._current_level >= 0:
            return None
        ready = prepare(first.problem.with_rows(rows), first, stream)
        if not ready.direct:
            return None
        handle = choose_stream(stream, "torch", first.like.device)
        ready.start(pa, pb, pd, pd, AS_IT_IS, handle)
        return out, ready

    def again(self, ready: Prepared, shape: tuple[int, ...]) -> Again:
        """The short way of products with its rows, and results of this shape."""
        if self.short_way is None:
            first = self.first
            known = self.geometry, first.like.device, first.out_dtype, first.problem.accumulator
            self.short_way = short_ways(*known)
        return self.short_way(ready, AS_IT_IS, shape, calls_left(ready))


def other_rows(ready: Prepared, arguments: Arguments) -> OtherRows | None:
    """The way of products like these `arguments`, for which `ready` was prepared."""
    problem = ready.problem
    m, n, k = problem.m, problem.n, problem.k
    shape = arguments.result_shape
    *lead, cols = shape or (0,)
    of_one = not problem.transposed and problem.batch == () and (prod(lead), cols) == (m, n)
    if not of_one or min(m, n, k) < LEAST or not ready.direct or ready.like.framework != "torch":
        return None
    import torch

    a, b = arguments.a.owner, arguments.b.owner
    if any(type(each) not in plain_tensors() or each.is_neg() for each in (a, b)):
        return None
    d = torch.empty(shape, dtype=torch_dtype(ready.out_dtype), device=a.device)
    alike = compared_but_rows(a, b, d)
    if alike is None:
        return None
    a_bits, b_bits, d_bits = (each.data_ptr() & 15 for each in (a, b, d))
    bits, watched = (a_bits, b_bits, d_bits, d_bits), a.requires_grad or b.requires_grad
    return OtherRows(ready, Geometry(alike, lambda *_: False, bits, APART, a.device, watched))


def compared_but_rows(a: Any, b: Any, d: Any) -> Callable[..., bool] | None:
    """torch's own guard, as in `compared_at_once`, with any number of rows of A and D. It does not tell
    whether A is contiguous. None where this torch has no such guard."""
    try:
        from torch._C._dynamo.guards import TensorGuards

        rows: list[int | None] = [None] * (a.dim() - 1)
        sizes = [[*rows, a.shape[-1]], list(b.shape), [*rows, d.shape[-1]]]
        strides = [[*rows, None], list(b.stride()), [*rows, None]]
        alike: Callable[..., bool] = TensorGuards(
            a, b, d, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides
        ).check
        return alike if alike(a, b, d) else None
    except Exception:
        return None
