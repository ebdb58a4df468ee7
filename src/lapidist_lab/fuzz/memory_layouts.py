"""Where the elements of an array lie in a region of memory, with steps of any size and sign, and what lies
between them.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np

from lapidist.dtypes import COMPLEX_HALVES, TYPES, numpy_dtype, size_of

Array = np.ndarray[Any, Any]
ALIGNED = 16  # bytes


class Layout(NamedTuple):
    """`inner`: what is contiguous: "cols", "rows", "batch" or "between" (the batch between columns and rows).
    `steps`: strides within the two inner dimensions. `pitch`: lines are "tight", "aligned" to 16 bytes, or an
    "odd" number of elements long, and `padding` longer. `repeated`: one matrix is the batch, with strides of
    zero. `broadcast`: strides of zero for "rows", "cols" or "both"."""

    inner: str = "cols"
    steps: tuple[int, int] = (1, 1)
    flipped: tuple[bool, bool] = (False, False)
    pitch: str = "tight"
    shift: int = 0
    repeated: bool = False
    padding: int = 0
    broadcast: str = ""


PLAIN = Layout()


class View(NamedTuple):
    """Strides, start and room count elements; a region starts on 256 bytes."""

    region: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    start: int
    room: int

    def of(self, memory: Array, at: int) -> Array:
        """The array in bytes in which the region starts at `at`."""
        size = size_of(self.dtype)
        steps = tuple(stride * size for stride in self.strides)
        return np.ndarray(self.shape, element(self.dtype), memory, at + self.start * size, steps)

    def __str__(self) -> str:
        lies = "" if self.strides == contiguous(self.shape) else f" steps {list(self.strides)}"
        return f"{self.dtype} {list(self.shape)}{lies}{f' from {self.start}' if self.start else ''}"


def element(name: str) -> np.dtype[Any]:
    """NumPy's dtype of a name, whether it is multiplied or not; two halves for those of a complex number."""
    if name == COMPLEX_HALVES:
        return np.dtype([("re", "f2"), ("im", "f2")])
    return numpy_dtype(name) if name in TYPES else np.dtype(name)


def numbers_in(array: Array) -> Array:
    """The numbers, in a type that NumPy computes with."""
    if array.dtype.names is None:
        return array
    numbers: Array = array["re"].astype(np.float32) + np.complex64(1j) * array["im"].astype(np.float32)
    return numbers


def put(place: Array, numbers: Any) -> None:
    if place.dtype.names is None:
        place[...] = numbers
    else:
        place["re"], place["im"] = np.real(numbers), np.imag(numbers)


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


def order_of(inner: str, dimensions: int) -> list[int]:
    """The axes, from the innermost."""
    if dimensions < 2:
        return list(range(dimensions))
    rows, cols, batch = dimensions - 2, dimensions - 1, list(range(dimensions - 2))[::-1]
    orders = {"cols": [cols, rows, *batch], "rows": [rows, cols, *batch], "batch": [*batch, cols, rows]}
    return orders.get(inner, [cols, *batch, rows])


def lay(region: str, dtype: str, shape: tuple[int, ...], layout: Layout = PLAIN) -> View:
    strides, covered = [0] * len(shape), 1
    for depth, axis in enumerate(order_of(layout.inner, len(shape))):
        if layout.repeated and axis < len(shape) - 2:
            continue
        covered *= layout.steps[depth] if depth < 2 else 1
        strides[axis] = covered
        covered *= max(1, shape[axis])
        covered = pitched(covered + layout.padding, layout.pitch, dtype) if depth == 0 else covered
    strides = broadcast(strides, layout.broadcast)
    return flipped(
        View(region, dtype, shape, tuple(strides), layout.shift, covered + layout.shift + ALIGNED),
        layout.flipped,
    )


def broadcast(strides: list[int], which: str) -> list[int]:
    still = {"": (), "rows": (-2,), "cols": (-1,), "both": (-2, -1)}[which]
    is_matrix = len(strides) >= 2
    return [
        0 if is_matrix and axis - len(strides) in still else stride for axis, stride in enumerate(strides)
    ]


def pitched(covered: int, pitch: str, dtype: str) -> int:
    if pitch == "aligned":
        step = ALIGNED // size_of(dtype)
        return -(-covered // step) * step
    return covered | 1 if pitch == "odd" else covered


def flipped(view: View, which: tuple[bool, bool]) -> View:
    """The view with rows, columns or both in reverse."""
    strides, start = list(view.strides), view.start
    for axis, reverse in zip((-2, -1), which, strict=True):
        if reverse and len(strides) >= -axis:
            start += strides[axis] * max(0, view.shape[axis] - 1)
            strides[axis] = -strides[axis]
    return view._replace(strides=tuple(strides), start=start)


def transposed(view: View) -> View:
    shape, strides = view.shape, view.strides
    return view._replace(shape=(*shape[:-2], *shape[:-3:-1]), strides=(*strides[:-2], *strides[:-3:-1]))
