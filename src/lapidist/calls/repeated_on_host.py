"""The fast path of torch tensors on the CPU: compare them with the last call's, then let NumPy work on their
memory.
"""

from __future__ import annotations

from ctypes import c_char
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lapidist.backends.host import multiply
from lapidist.calls.recording import recording_of
from lapidist.calls.repeated import (
    compared_at_once,
    compared_by_parts,
    distances,
    fit_for,
    plain_tensors,
    tensors_of,
)
from lapidist.dtypes import numpy_dtype
from lapidist.frameworks.arrays import torch_dtype

if TYPE_CHECKING:
    from lapidist.backends.gpu.launcher import Scalars
    from lapidist.calls.arguments import Arguments
    from lapidist.frameworks.arrays import Operand


class Layout(NamedTuple):
    """The layout of a matrix, without its address. Strides of tensors are never negative."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    memory: Any
    strides: tuple[int, ...]

    @classmethod
    def of(cls, operand: Operand) -> Layout:
        dtype, (first, last) = numpy_dtype(operand.dtype), operand.span
        steps = tuple(stride * dtype.itemsize for stride in operand.strides)
        return cls(operand.shape, dtype, c_char * (last - first), steps)


class OnHost:
    """The fast path for one geometry that passed every check. It keeps none of the caller's tensors."""

    def __init__(self, arguments: Arguments) -> None:
        import torch

        tensors, c = tensors_of(arguments), arguments.c
        self._shape, self._dtype = arguments.result_shape, torch_dtype(arguments.out_dtype)
        self._reads_c, self._in_place = c is not None, c is not None and len(tensors) == 3
        self._alike, self._alike_by_parts = compared_at_once(*tensors), compared_by_parts(*tensors)
        self._apart = distances(arguments)
        out = arguments.out or arguments.full(arguments.fresh())
        self._a, self._b, self._out = Layout.of(arguments.a), Layout.of(arguments.b), Layout.of(out)
        self._c = None if c is None else Layout.of(c)
        self._how = arguments.accumulator, arguments.precision
        self._fit, self._recorded = fit_for(arguments.accumulator), recording_of(tensors)
        self._count_write = torch._C._increment_version

    def __call__(self, a: Any, b: Any, c: Any, out: Any, scalars: Scalars, stream: Any) -> Any:
        """The result. None: the full path must check the call."""
        if stream is not None or not self._fit(scalars) or self._recorded():
            return None
        try:
            made = out is None
            if made:
                out = a.new_empty(self._shape, dtype=self._dtype)
            tensors = (a, b, out, c) if self._reads_c and not self._in_place else (a, b, out)
            if (self._in_place and c is not out) or not (
                self._alike(*tensors) or self._alike_by_parts(*tensors)
            ):
                return None
            pa, pb, pd = a.data_ptr(), b.data_ptr(), out.data_ptr()
            pc = pd if c is None else c.data_ptr()
        except (AttributeError, TypeError, RuntimeError):
            return None  # no tensors, or tensors without memory: the full path raises the error
        for (low, high), distance in zip(self._apart, (pd - pa, pd - pb, pd - pc), strict=True):
            if low < distance < high:
                return None
        if not (pa and pb and pd):
            return None
        of_c = None if self._c is None else seen(self._c, pc)
        multiply(seen(self._a, pa), seen(self._b, pb), of_c, seen(self._out, pd), *scalars, *self._how)
        if not made:
            self._count_write((out,))
        return out


def seen(layout: Layout, pointer: int) -> np.ndarray[Any, Any]:
    shape, dtype, memory, strides = layout
    return np.ndarray(shape, dtype, memory.from_address(pointer), 0, strides)


def fast_path_on_host(arguments: Arguments) -> OnHost | None:
    """None: there is no fast path for these arguments."""
    if arguments.a.framework != "torch" or arguments.no_kernel or arguments.given is not None:
        return None
    plain = plain_tensors()
    if any(type(each) not in plain or each.is_neg() for each in tensors_of(arguments)):
        return None
    return OnHost(arguments)
