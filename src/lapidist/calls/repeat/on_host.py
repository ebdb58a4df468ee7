"""The launch of a repeated call on the host: NumPy on the memory of the call's arrays."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_char
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lapidist.backends.host_product import multiply
from lapidist.calls.repeat.start import Starting
from lapidist.dtypes import numpy_dtype
from lapidist.frameworks.arrays import Operand
from lapidist.launch import Operands, Scalars

if TYPE_CHECKING:
    from lapidist.calls.bound import Bound


class MemoryLayout(NamedTuple):
    """The layout of a matrix, without its address. `before`: bytes ahead of it, by negative strides.
    `conjugated`: its numbers mean their conjugates.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    memory: Any
    before: int
    strides: tuple[int, ...]
    conjugated: bool

    @classmethod
    def of(cls, operand: Operand) -> MemoryLayout:
        dtype, (first, last) = numpy_dtype(operand.dtype), operand.span
        steps = tuple(stride * dtype.itemsize for stride in operand.strides)
        before = operand.pointer - first
        return cls(operand.shape, dtype, c_char * (last - first), before, steps, operand.conjugated)

    def at(self, pointer: int) -> np.ndarray[Any, Any]:
        shape, dtype, memory, before, strides, conjugated = self
        array = np.ndarray(shape, dtype, memory.from_address(pointer - before), before, strides)
        return array.conj() if conjugated else array


def started_on_host(bound: Bound, operands: Sequence[int | None] = ()) -> Starting:
    """`operands`: for each of an epilogue, the index of its array in the call; None: it is a number."""
    of_a, of_b, of_d = map(MemoryLayout.of, (bound.a, bound.b, bound.output()))
    of_c = None if bound.c is None else MemoryLayout.of(bound.c)
    accumulator, precision, epilogue = bound.accumulator, bound.precision, bound.epilogue

    def start(at: Operands, scalars: Scalars, _stream: Any, finish: Any = None) -> None:
        a, b, c, d = at
        addend = None if of_c is None else of_c.at(c)
        out, types = of_d.at(d), (accumulator, precision)
        multiply(of_a.at(a), of_b.at(b), addend, out, *scalars, *types, finish=finish)

    if epilogue is None:
        return Starting(None, start, of_d=False)
    finish, layouts = epilogue.finish, iter([MemoryLayout.of(operand) for operand in epilogue.read])
    sources = [None if place is None else (next(layouts), place) for place in operands]
    further = [MemoryLayout.of(operand) for operand in epilogue.further.operands]

    def bring(at: Sequence[int], numbers: Sequence[float]) -> Any:
        constants, results = iter(numbers), at[len(at) - len(further) :]
        values = [next(constants) if source is None else source[0].at(at[source[1]]) for source in sources]
        return partial(finish, values, [layout.at(x) for layout, x in zip(further, results, strict=True)])

    return Starting(bring, start, of_d=False)
