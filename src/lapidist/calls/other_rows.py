"""The fast path of a product that differs from an earlier one in its number of rows: a served model's
requests vary in length, its weights stay.

The earlier product passed every check. If A and D are contiguous, all of them hold for any number of rows. So
only a plan is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any

from lapidist.backends.gpu.launcher import AS_IT_IS
from lapidist.calls.choices import OPEN
from lapidist.calls.recording import recording_of
from lapidist.calls.repeated import (
    Again,
    Alike,
    Extents,
    Geometry,
    PathMaker,
    calls_left,
    path_maker,
    plain_tensors,
    torch_guard,
)
from lapidist.frameworks.arrays import contiguous_strides, torch_dtype
from lapidist.frameworks.new_tensors import tensors_made
from lapidist.frameworks.streams import choose_stream

if TYPE_CHECKING:
    from lapidist.calls.arguments import Arguments
    from lapidist.calls.call import Call
    from lapidist.calls.operation import Types
    from lapidist.calls.prepared import Prepared
    from lapidist.problems.problem import Problem

LEAST = 2  # rows, columns and k: along an extent of 1 a stride may be anything
APART = ((0, 0),) * 3  # no distance is forbidden: a new D overlaps neither A nor B
Prepare = Callable[["Problem", "Prepared", Any], "Prepared"]  # (problem, an earlier one like it, stream)


def rows_key(a: Any, b: Any, trans_b: bool, types: Types) -> Any:
    """A key that plain products share if they differ in their rows alone. None: this fast path cannot serve
    them.
    """
    try:
        if b.dim() != 2 or a.dim() < 2 or not a.is_contiguous():
            return None
        return a.dim(), b.shape, a.dtype, b.is_contiguous(), trans_b, types
    except (AttributeError, RuntimeError):  # no tensors, or sparse, nested and such tensors
        return None


def rows_key_of(call: Call) -> Any:
    """The same for a Call. None also if more than A, B and a new D take part."""
    operation = call.operation
    alpha, beta, trans_b = operation.alpha, operation.beta, operation.trans_b
    numbers = type(alpha) is type(beta) is float and alpha == 1 and beta == 0
    flags = operation.trans_a is operation.routing.check_indices is False and type(trans_b) is bool
    if call.out is not None or call.c is not None or call.choices is not OPEN or not (numbers and flags):
        return None
    return rows_key(call.a, call.b, trans_b, operation.types)


class OtherRows:
    """Multiplies like an earlier product, with other rows. It keeps none of the caller's arrays."""

    __slots__ = ("cols", "first", "geometry", "made", "make_path")

    def __init__(self, first: Prepared, geometry: Geometry) -> None:
        self.first, self.geometry, self.cols = first, geometry, first.problem.n
        self.made = tensors_made(torch_dtype(first.out_dtype), geometry.device)
        self.make_path: PathMaker | None = None  # made when a number of rows first comes twice

    def __call__(self, a: Any, b: Any, stream: Any, prepare: Prepare) -> tuple[Any, Prepared] | None:
        """The product, and what was prepared for it. None: the full path must check the call."""
        first, geometry = self.first, self.geometry
        shape = (*a.shape[:-1], self.cols)
        rows, out = prod(shape[:-1]), self.made(shape, contiguous_strides(shape))()
        if rows < LEAST or not (a.is_contiguous() and geometry.alike(a, b, out)):
            return None
        pa, pb, pd, (a_bits, b_bits, _, d_bits) = a.data_ptr(), b.data_ptr(), out.data_ptr(), geometry.bits
        if (pa ^ a_bits | pb ^ b_bits | pd ^ d_bits) & 15 or not (pa and pb and pd):
            return None
        if geometry.recorded():
            return None
        ready = prepare(first.problem.with_rows(rows), first, stream)
        if not ready.direct:
            return None
        handle = choose_stream(stream, "torch", first.like.device)
        ready.start(pa, pb, pd, pd, AS_IT_IS, handle)
        return out, ready

    def again(self, ready: Prepared, shape: tuple[int, ...]) -> Again:
        """The fast path of products with its number of rows, and results of this shape."""
        if self.make_path is None:
            first = self.first
            known = self.geometry, first.like.device, first.out_dtype, first.problem.accumulator
            self.make_path = path_maker(*known)
        return self.make_path(ready, AS_IT_IS, shape, calls_left(ready))


def other_rows(ready: Prepared, arguments: Arguments) -> OtherRows | None:
    """The fast path of products like these `arguments`, for which `ready` was prepared. None: there is
    none.
    """
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
    bits = a_bits, b_bits, d_bits, d_bits
    return OtherRows(ready, Geometry(alike, lambda *_: False, bits, APART, a.device, recording_of((a, b))))


def compared_but_rows(a: Any, b: Any, d: Any) -> Alike | None:
    """A guard like that of `compared_at_once`, for any number of rows of A and D. It does not check that A is
    contiguous. None: this torch has no such guard.
    """
    rows: Extents = [None] * (a.dim() - 1)
    sizes: list[Extents] = [[*rows, a.shape[-1]], list(b.shape), [*rows, d.shape[-1]]]
    alike = torch_guard((a, b, d), sizes, [[*rows, None], list(b.stride()), [*rows, None]])
    return alike if alike is not None and alike(a, b, d) else None
