"""The fast path of a product that differs from an earlier one in its number of rows: a served model's
requests vary in length, its weights stay.

The earlier product passed every check. If A and D are contiguous, all of them hold for any number of rows. So
only a plan is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any

from lapidist.calls.repeat.addresses import pairs_written
from lapidist.calls.repeat.fast_path import FastPath, Geometry, repeat_of, result_maker, stream_of_torch
from lapidist.calls.repeat.guard import Alike, Extents, are_plain, recording_of, torch_guard
from lapidist.calls.repeat.numbers_of import NumbersOf
from lapidist.calls.repeat.start import plainly_started
from lapidist.calls.repeat.upgrade import upgrade_of
from lapidist.calls.repeat.write import CallLayout
from lapidist.frameworks.arrays import contiguous_strides
from lapidist.frameworks.new_arrays import torch_dtype
from lapidist.frameworks.new_tensors import tensor_maker
from lapidist.frameworks.streams import choose_stream
from lapidist.launch import AS_IT_IS

if TYPE_CHECKING:
    from lapidist.calls.bound import Bound
    from lapidist.calls.prepared import Prepared
    from lapidist.problems.problem import Problem

LEAST = 2  # rows, columns and k: along an extent of 1 a stride may be anything
PLAIN_LAYOUT = CallLayout(2, (), (0, 1))
NO_OVERLAPS = ((0, 0),) * len(
    pairs_written(3, 0)
)  # no distance is forbidden: a new D overlaps neither A nor B
Prepare = Callable[["Problem", "Prepared", Any], "Prepared"]  # (problem, an earlier one like it, stream)


class NewRows:
    """Multiplies like an earlier product, with other rows. It keeps none of the caller's arrays."""

    __slots__ = ("cols", "first", "geometry", "maker", "numbers")

    def __init__(self, first: Prepared, geometry: Geometry, numbers: NumbersOf) -> None:
        self.first, self.geometry, self.cols, self.numbers = first, geometry, first.problem.n, numbers
        self.maker = tensor_maker(torch_dtype(first.out_dtype), geometry.device)

    def __call__(self, a: Any, b: Any, stream: Any, prepare: Prepare) -> tuple[Any, Prepared] | None:
        """The product, and what was prepared for it. None: the full path must check the call."""
        first, geometry = self.first, self.geometry
        shape = (*a.shape[:-1], self.cols)
        rows, out = prod(shape[:-1]), self.maker(shape, contiguous_strides(shape))()
        if rows < LEAST or not (a.is_contiguous() and geometry.alike(a, b, out)):
            return None
        pa, pb, pd, (a_bits, b_bits, d_bits) = a.data_ptr(), b.data_ptr(), out.data_ptr(), geometry.bits
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

    def replay(self, ready: Prepared, shape: tuple[int, ...]) -> FastPath:
        """The fast path of products with its number of rows, and results of this shape."""
        new = result_maker(shape, torch_dtype(ready.out_dtype), self.geometry.device)
        started = plainly_started(ready), upgrade_of(ready), stream_of_torch(self.first.like.device)
        return repeat_of(PLAIN_LAYOUT, self.geometry, (new, None), self.numbers, *started)


def new_rows(ready: Prepared, bound: Bound) -> NewRows | None:
    """The fast path of products like this one, for which `ready` was prepared. None: there is
    none.
    """
    problem = ready.problem
    m, n, k = problem.m, problem.n, problem.k
    shape = bound.result_shape
    *lead, cols = shape or (0,)
    of_one = not problem.transposed and problem.batch == () and (prod(lead), cols) == (m, n)
    if not of_one or min(m, n, k) < LEAST or not ready.direct or ready.like.framework != "torch":
        return None
    import torch

    a, b = bound.a.owner, bound.b.owner
    if not are_plain((a, b)):
        return None
    d = torch.empty(shape, dtype=torch_dtype(ready.out_dtype), device=a.device)
    alike = compared_but_rows(a, b, d)
    if alike is None:
        return None
    bits = tuple(tensor.data_ptr() & 15 for tensor in (a, b, d))
    geometry = Geometry(alike, lambda *_: False, bits, NO_OVERLAPS, recording_of((a, b)), a.device)
    return NewRows(ready, geometry, NumbersOf(bound, AS_IT_IS))


def compared_but_rows(a: Any, b: Any, d: Any) -> Alike | None:
    """A guard like that of `compared_at_once`, for any number of rows of A and D. It does not check that A is
    contiguous. None: this torch has no such guard.
    """
    rows: Extents = [None] * (a.dim() - 1)
    sizes: list[Extents] = [[*rows, a.shape[-1]], list(b.shape), [*rows, d.shape[-1]]]
    alike = torch_guard((a, b, d), sizes, [[*rows, None], list(b.stride()), [*rows, None]])
    return alike if alike is not None and alike(a, b, d) else None
