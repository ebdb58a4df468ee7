"""The launch of a repeated call on the host: NumPy on the memory of torch tensors."""

from __future__ import annotations

from ctypes import c_char
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lapidist.backends.gpu.launcher import Operands, Scalars
from lapidist.backends.host_backend import multiply
from lapidist.calls.repeat.start import Starting
from lapidist.dtypes import numpy_dtype

if TYPE_CHECKING:
    from lapidist.calls.arguments import Arguments
    from lapidist.frameworks.arrays import Operand


class MemoryLayout(NamedTuple):
    """The layout of a matrix, without its address. Strides of tensors are never negative."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    memory: Any
    strides: tuple[int, ...]

    @classmethod
    def of(cls, operand: Operand) -> MemoryLayout:
        dtype, (first, last) = numpy_dtype(operand.dtype), operand.span
        steps = tuple(stride * dtype.itemsize for stride in operand.strides)
        return cls(operand.shape, dtype, c_char * (last - first), steps)

    def at(self, pointer: int) -> np.ndarray[Any, Any]:
        return np.ndarray(self.shape, self.dtype, self.memory.from_address(pointer), 0, self.strides)


def started_on_host(arguments: Arguments) -> Starting:
    out = arguments.out or arguments.full(arguments.fresh())
    of_a, of_b, of_d = map(MemoryLayout.of, (arguments.a, arguments.b, out))
    of_c = None if arguments.c is None else MemoryLayout.of(arguments.c)
    accumulator, precision = arguments.accumulator, arguments.precision

    def start(operands: Operands, scalars: Scalars, _stream: Any) -> None:
        a, b, c, d = operands
        addend = None if of_c is None else of_c.at(c)
        multiply(of_a.at(a), of_b.at(b), addend, of_d.at(d), *scalars, accumulator, precision)

    return Starting(None, start, of_d=False)
