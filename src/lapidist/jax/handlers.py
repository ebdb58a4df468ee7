"""XLA's handlers of a product: NumPy or the machine on the CPU, a prepared kernel on a GPU."""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from lapidist import api
from lapidist.backends.gpu.driver import check, load_driver
from lapidist.backends.gpu.second_pass_launches import PassWorkspace, Placed, follow, room_for
from lapidist.backends.selection import backend_at
from lapidist.calls.emulated import is_emulated
from lapidist.calls.grouped import grouped
from lapidist.calls.kernel_choice import OPEN, Choices
from lapidist.calls.prepared import Prepared
from lapidist.calls.symmetric import gram, is_symmetric_anyway
from lapidist.dtypes import numpy_dtype, size_of
from lapidist.errors import ArgumentError
from lapidist.frameworks.arrays import Operand
from lapidist.jax.frames import GRAPHS, Frame, register
from lapidist.jax.product import NAME, OFFSETS, REMEMBERED, Outline, Product, operands_of, read, results_of
from lapidist.jax.several_launches import InSteps, Mirrored, aligned, is_captured
from lapidist.planning.in_kernel_reductions import EVERY, in_kernel_work
from lapidist.planning.workspace import shared_workspace
from lapidist.problems.matrix import VECTOR_BYTES
from lapidist.problems.modes import ExtraPointers

if TYPE_CHECKING:
    from lapidist.calls.epilogue_operands import EpilogueOperands

# ---- the CPU ----


def on_host(frame: Frame) -> None:
    product, options, outlines = call_on_host(frame.text())
    pairs = zip(frame.pointers(), outlines, strict=True)
    arrays = [view(pointer, outline) for pointer, outline in pairs]
    operands, results = arrays[: len(product.arrays)], arrays[len(product.arrays) :]
    named, out = product.named(operands), tuple(results) if len(results) > 1 else results[0]
    if product.is_grouped:
        require_sizes(named[OFFSETS])
    if product.of_itself:
        del named["b"]
        gram(**named, out=out, **options)
        return
    if product.triangle:
        api.matmul(named.pop("a"), named.pop("b"), out, **named, **options)
        return
    multiply: Any = grouped if product.is_grouped else api.gemm
    multiply(**named, out=out, **options)


def require_sizes(ends: np.ndarray[Any, Any]) -> None:
    """Ends of groups are sums of the caller's sizes: they fall where a size is negative."""
    falls = np.flatnonzero(np.diff(ends, prepend=0) < 0)
    if falls.size:
        raise ArgumentError(
            f"group_sizes: must be from 0 on; got a negative one for group {falls[0]}. Pass 0 for a group"
            " without rows"
        )


@lru_cache(REMEMBERED)
def call_on_host(text: bytes) -> tuple[Product, dict[str, Any], list[Outline]]:
    """The product, options of gemm or grouped, and outlines of operands and results."""
    product, outlines = read(text)
    bound = product.bound(operands_of(outlines, product.arrays))
    options = product.symmetric_options if product.triangle else product.options
    return product, options, [*outlines, *results_of(bound)]


def view(pointer: int, outline: Outline) -> np.ndarray[Any, Any]:
    """XLA's memory as an array."""
    (shape, dtype), count = outline, math.prod(outline[0])
    if not count:
        return np.empty(shape, numpy_dtype(dtype))
    memory: Any = (ctypes.c_char * (count * size_of(dtype))).from_address(pointer)
    return np.frombuffer(memory, numpy_dtype(dtype)).reshape(shape)


# ---- a GPU ----


class Ready:
    """A product prepared for one GPU, and for addresses that are `ends` modulo 16 bytes."""

    def __init__(
        self, product: Product, outlines: Sequence[Outline], ordinal: int, ends: tuple[int, ...]
    ) -> None:
        self._ordinal = ordinal
        self._bound = product.bound(operands_of(outlines, product.arrays, ordinal, ends))
        self.prepared = Prepared(self._bound, ordinal)
        self._flags, room = shared_workspace(part.plan.scratch_bytes for part in self.prepared.parts)
        self._workspace_bytes = self._flags + room
        self._source_bytes = source_bytes(self._bound.epilogue)
        self._c = product.place("c")
        self._extras = [product.place(name) for name in ("scale_a", "scale_b", OFFSETS)]
        self._fused = [product.arrays.index(name) for name in product.of_epilogue]
        self._count = len(product.arrays)
        self._lock = threading.Lock()  # a call writes addresses into the bound operands

    @property
    def stores_both_halves(self) -> bool:
        return all(part.plan.stores_both_halves for part in self.prepared.parts)

    @property
    def room(self) -> int:
        """The bytes of a graph's workspace, and of the sources of second passes behind it."""
        return aligned(self._workspace_bytes) + self._source_bytes

    def start(self, pointers: tuple[int, ...], stream: int) -> None:
        """Launch the product. `pointers`: of the operands, of the results, of the room."""
        operands, results, room = pointers[: self._count], pointers[self._count : -1], pointers[-1]
        prepared, room = self.prepared, aligned(room)
        if room and self._workspace_bytes and is_captured(stream):
            # XLA captures again and again: a workspace of ours for each capture would never be freed.
            check(load_driver().cuMemsetD8Async(room, 0, self._flags, stream), "cuMemsetD8Async")
            prepared = self._in(room)
        fused = self._bound.epilogue
        if fused is None:
            self._launch(prepared, operands, results, stream)
            return
        with self._lock:
            fused.lie_at([operands[place] for place in self._fused], results)
            if not self._source_bytes:
                self._launch(prepared, operands, results, stream)
            else:
                behind = room and room + aligned(self._workspace_bytes)
                self._launch_with_passes(prepared, operands, results, stream, behind)

    def _launch(
        self, prepared: Prepared, operands: tuple[int, ...], results: tuple[int, ...], stream: int
    ) -> None:
        out, fused = results[0], self._bound.epilogue
        c = out if self._c is None else operands[self._c]
        of_a, of_b, of_groups = (0 if place is None else operands[place] for place in self._extras)
        pointers = ExtraPointers(scale_a=of_a, scale_b=of_b, ends=of_groups)
        pointers = pointers if fused is None else fused.with_pointers(pointers)
        prepared.start(operands[0], operands[1], c, out, self._bound.alpha_beta, stream, pointers)

    def _launch_with_passes(
        self, prepared: Prepared, operands: tuple[int, ...], results: tuple[int, ...], stream: int, room: int
    ) -> None:
        fused, before = self._bound.epilogue, in_kernel_work(part.plan for part in prepared.parts)
        assert fused is not None
        with self._workspace(PassWorkspace.of(fused, before), room, stream) as placed:
            fused.place(placed.values, placed.slots)
            self._launch(prepared, operands, results, stream)
            follow(fused, before, placed, self._ordinal, stream)

    @contextmanager
    def _workspace(self, workspace: PassWorkspace, room: int, stream: int) -> Iterator[Placed]:
        """The workspace of second passes: XLA's room, or one of ours for programs exported without a GPU."""
        if not room:
            with room_for(workspace, self._ordinal, stream) as placed:
                yield placed
            return
        slots, _ = workspace.nbytes
        if slots:
            check(load_driver().cuMemsetD8Async(room, 0, slots, stream), "cuMemsetD8Async")
        yield workspace.placed((room, room + aligned(slots)))

    def _in(self, room: int) -> Prepared:
        """The prepared product with its workspace at an address."""
        space = Operand(
            "workspace", room, (self._workspace_bytes,), (1,), "uint8", self._ordinal, "xla", None
        )
        return Prepared(self._bound, self._ordinal, Choices(workspace=space))


def source_bytes(fused: EpilogueOperands | None) -> int:
    """The most bytes that second passes read, whatever kernels reduce before them."""
    if fused is None or not (fused.sources or fused.slots):
        return 0
    sizes = (PassWorkspace.of(fused, before).nbytes for before in EVERY)
    return max(aligned(slots) + values for slots, values in sizes)


@lru_cache(REMEMBERED)
def ready(text: bytes, ordinal: int, ends: tuple[int, ...]) -> Ready | InSteps | Mirrored:
    product, outlines = read(text)
    bound = product.bound(operands_of(outlines, product.arrays, ordinal, ends))
    if product.of_itself:
        plain = product.whole
        every = plain.bound(operands_of(outlines, product.arrays, ordinal, ends))
        if is_symmetric_anyway(every, OPEN, None, backend_at(ordinal), product.precision):
            product = plain
    if product.is_emulated and is_emulated(bound):
        prepared: Ready | InSteps = InSteps(bound, product.precision, ordinal)
    else:
        prepared = Ready(product, outlines, ordinal, ends)
    is_whole = isinstance(prepared, Ready) and prepared.stores_both_halves
    is_mirrored = product.triangle and not (product.half or is_whole)
    return Mirrored(prepared, bound, ordinal) if is_mirrored else prepared


def on_gpu(frame: Frame) -> None:
    pointers = frame.pointers()
    ends = tuple(pointer % VECTOR_BYTES for pointer in pointers[: frame.operands.size])
    ready(frame.text(), current_ordinal(), ends).start(pointers, frame.stream())


def current_ordinal() -> int:
    """The GPU whose context XLA made current."""
    return int(check(load_driver().cuCtxGetDevice(), "cuCtxGetDevice"))


register(NAME, "cpu", on_host)
register(NAME, "CUDA", on_gpu, GRAPHS)
