"""What runs when XLA comes to a product: NumPy or the machine on the CPU, a prepared kernel on a GPU."""

from __future__ import annotations

import ctypes
import math
from functools import lru_cache
from typing import Any

import numpy as np

from lapidist import api
from lapidist.backends.gpu.driver import check, load_driver
from lapidist.calls.checks import WORKSPACE_ALIGNMENT
from lapidist.calls.choices import Choices
from lapidist.calls.prepared import Prepared
from lapidist.dtypes import numpy_dtype, size_of
from lapidist.frameworks.arrays import Operand
from lapidist.jax.frames import GRAPHS, Frame, register
from lapidist.jax.products import NAME, REMEMBERED, Outline, Product, operands_of, read
from lapidist.planning.plans import room_of
from lapidist.problems.modes import ExtraPointers
from lapidist.problems.problem import VECTOR_BYTES

# ---- the CPU ----


def on_host(frame: Frame) -> None:
    product, asked, outlines = call_on_host(frame.text())
    *given, out = (view(*each) for each in zip(frame.pointers(), outlines, strict=True))
    api.gemm(**product.named(given), out=out, **asked)


@lru_cache(REMEMBERED)
def call_on_host(text: bytes) -> tuple[Product, dict[str, Any], list[Outline]]:
    """The product, what gemm is given beside arrays, outlines of them and of the result."""
    product, outlines = read(text)
    arguments = product.arguments(operands_of(outlines, product.arrays))
    return product, product.asked, [*outlines, (arguments.result_shape, arguments.out_dtype)]


def view(pointer: int, outline: Outline) -> np.ndarray[Any, Any]:
    """XLA's memory as an array."""
    (shape, dtype), count = outline, math.prod(outline[0])
    if not count:
        return np.empty(shape, numpy_dtype(dtype))
    memory: Any = (ctypes.c_char * (count * size_of(dtype))).from_address(pointer)
    return np.frombuffer(memory, numpy_dtype(dtype)).reshape(shape)


# ---- a GPU ----


class Ready:
    """A product prepared for one GPU, and for addresses that leave `ends` over of 16 bytes."""

    def __init__(self, text: bytes, ordinal: int, ends: tuple[int, ...]) -> None:
        product, outlines = read(text)
        self._ordinal = ordinal
        self._arguments = product.arguments(operands_of(outlines, product.arrays, ordinal, ends))
        self.prepared = Prepared(self._arguments, ordinal)
        self.flags, room = room_of(part.plan.scratch_bytes for part in self.prepared.parts)
        self.room = self.flags + room  # bytes
        self._c = product.place("c")
        self._scales = product.place("scale_a"), product.place("scale_b")
        self._fused = [product.arrays.index(name) for name in product.of_epilogue]

    def start(self, pointers: tuple[int, ...], stream: int) -> None:
        """`pointers`: of the operands, of the result, of room for a graph's own workspace."""
        *operands, out, room = pointers
        prepared = self.prepared
        if room and self.room and is_captured(stream):
            # XLA captures again and again: a workspace of ours for each capture would never be freed.
            room += -room % WORKSPACE_ALIGNMENT
            check(load_driver().cuMemsetD8Async(room, 0, self.flags, stream), "cuMemsetD8Async")
            prepared = self._in(room)
        c = out if self._c is None else operands[self._c]
        of_a, of_b = (0 if place is None else operands[place] for place in self._scales)
        fused = tuple(operands[place] for place in self._fused)
        extra_pointers = ExtraPointers(scale_a=of_a, scale_b=of_b, fused=fused)
        prepared.start(operands[0], operands[1], c, out, self._arguments.alpha_beta, stream, extra_pointers)

    def _in(self, room: int) -> Prepared:
        """With the workspace at this address."""
        space = Operand("workspace", room, (self.room,), (1,), "uint8", self._ordinal, "xla", None)
        return Prepared(self._arguments, self._ordinal, Choices(workspace=space))


ready = lru_cache(REMEMBERED)(Ready)


def on_gpu(frame: Frame) -> None:
    pointers = frame.pointers()
    ends = tuple(pointer % VECTOR_BYTES for pointer in pointers[:-2])
    ready(frame.text(), current_ordinal(), ends).start(pointers, frame.stream())


def current_ordinal() -> int:
    """The GPU whose context XLA made current."""
    return int(check(load_driver().cuCtxGetDevice(), "cuCtxGetDevice"))


def is_captured(stream: int) -> bool:
    driver = load_driver()
    return bool(int(check(driver.cuStreamIsCapturing(driver.CUstream(stream)), "cuStreamIsCapturing")))


register(NAME, "cpu", on_host)
register(NAME, "CUDA", on_gpu, GRAPHS)
