"""Products on a GPU that take several launches: emulated float32, and what is mirrored afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import NamedTuple, Protocol

import numpy as np

from lapidist.backends.gpu.driver import check, load_driver
from lapidist.backends.gpu.launched_products import kernel_alone
from lapidist.backends.gpu.workspaces import allocate, rooms_between
from lapidist.backends.selection import backend_at
from lapidist.calls.argument_rules import WORKSPACE_ALIGNMENT
from lapidist.calls.bound import Bound
from lapidist.calls.emulated import parts_for
from lapidist.calls.emulated_launches import Alone, Emulated, Multiplied, Room
from lapidist.calls.emulation_rules import require_tensor_cores
from lapidist.calls.kernel_choice import OPEN
from lapidist.calls.operation import Operation
from lapidist.calls.prepared import Prepared
from lapidist.calls.repeat.start_in_steps import Place
from lapidist.dtypes import size_of
from lapidist.frameworks.arrays import Operand
from lapidist.frameworks.new_arrays import fresh
from lapidist.launch import AS_IT_IS, Launch
from lapidist.planning.mirror_pass import Lies, mirroring
from lapidist.problems.matrix import VECTOR_BYTES
from lapidist.problems.modes import NO_POINTERS

AT_D, AT_ROOM = 1 << 44, 1 << 46  # where D and the room would lie, apart from operands without memory


class StandIns(Room):
    """A room without memory: the offsets of its arrays are what counts."""

    def array(self, shape: tuple[int, ...], dtype: str) -> Operand:
        return replace(fresh(dtype, shape, self.like, dtype), pointer=AT_ROOM + self.nbytes)


class ReadyProduct(NamedTuple):
    """One of the products between launches."""

    step: Multiplied
    prepared: Prepared

    @property
    def workspace_bytes(self) -> int:
        return self.prepared.workspace_bytes


class Steps(NamedTuple):
    """What a product of two matrices launches, and the bytes that its launches leave for each other."""

    launches: tuple[Alone | ReadyProduct, ...]
    nbytes: int
    workspace_bytes: int


class InSteps:
    """An emulated product prepared for one GPU. Matrices of a batch follow each other."""

    def __init__(self, bound: Bound, precision: str, ordinal: int) -> None:
        self._bound, self._precision, self._ordinal = bound, precision, ordinal
        require_tensor_cores(backend_at(ordinal).chip, precision)
        self._d = replace(fresh("out", bound.shape, bound.like, bound.d_dtype), pointer=AT_D)
        self._steps = lru_cache(maxsize=None)(self._steps_of)
        every = [self._steps(ends) for _, ends in self._matrices()]
        self._nbytes = max(aligned(steps.nbytes) for steps in every)
        self._workspace_bytes = max(steps.workspace_bytes for steps in every)
        self.room = self._nbytes + self._workspace_bytes

    def _matrices(self) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Bytes from the start of A, B, C and D to those of each product, and addresses modulo 16 bytes."""
        for index in np.ndindex(*self._bound.shape[:-2]):
            skipped = tuple(skipped_to(operand, index) for operand in self._operands)
            pairs = zip(skipped, self._operands, strict=True)
            yield skipped, tuple((operand.pointer + skip) % VECTOR_BYTES for skip, operand in pairs)

    @property
    def _operands(self) -> tuple[Operand, ...]:
        bound = self._bound
        return bound.a, bound.b, bound.c or self._d, self._d

    def _steps_of(self, ends: tuple[int, ...]) -> Steps:
        """The launches of matrices that start there."""
        a, b, c, d = (
            replace(
                operand,
                pointer=operand.pointer // VECTOR_BYTES * VECTOR_BYTES + end,
                shape=operand.shape[-2:],
                strides=operand.strides[-2:],
            )
            for operand, end in zip(self._operands, ends, strict=True)
        )
        whole = self._bound
        operation = Operation(alpha=whole.alpha, beta=whole.beta, types=whole.operation.types)
        bound = Bound(a, b, c if whole.c is not None else None, d, operation)
        room, backend = StandIns(bound.like), backend_at(self._ordinal)
        steps = Emulated(bound, d, backend, OPEN, parts_for(self._precision, a.shape[-1]), room).launches()
        launches = tuple(
            step
            if isinstance(step, Alone)
            else ReadyProduct(step, Prepared(step.bound, self._ordinal, step.choices))
            for step in steps
        )
        products = (launch for launch in launches if isinstance(launch, ReadyProduct))
        return Steps(launches, room.nbytes, max(each.workspace_bytes for each in products))

    def start(self, pointers: tuple[int, ...], stream: int) -> None:
        """`pointers`: of A, B, perhaps C, then D and the room, which programs exported without a GPU have
        none of.
        """
        a, b, *c, d, room = pointers
        if room:
            self._start((a, b, c[0] if c else d, d), aligned(room), stream)
            return
        rooms = rooms_between(self._ordinal, stream, (WORKSPACE_ALIGNMENT, self.room))
        own = rooms.pop() if rooms else allocate(load_driver(), WORKSPACE_ALIGNMENT, self.room)
        self._start((a, b, c[0] if c else d, d), own[1], stream)
        rooms.append(own)

    def _start(self, at: tuple[int, ...], room: int, stream: int) -> None:
        captured = self._workspace_bytes > 0 and is_captured(stream)
        for skipped, ends in self._matrices():
            of_matrix = [pointer + skip for pointer, skip in zip(at, skipped, strict=True)]
            self._start_matrix((*of_matrix, room, 0), self._steps(ends), stream, captured)

    def _start_matrix(self, at: Sequence[int], steps: Steps, stream: int, captured: bool) -> None:
        def address(place: Place) -> int:
            return at[place.array] + place.offset

        for launch in steps.launches:
            if isinstance(launch, Alone):
                kernel = kernel_alone(launch.launch, self._ordinal)
                first, second, third, fourth = map(address, launch.sources)
                kernel.start_with({}, stream, self._bound.alpha_beta, (first, second, third, fourth))
                continue
            step, prepared = launch
            if captured and launch.workspace_bytes:
                prepared = self._in(at[-2] + self._nbytes, launch, stream)
            a, b, c, d = map(address, step.sources)
            scalars, pointers = step.bound.alpha_beta, NO_POINTERS._replace(alpha=address(step.guard))
            prepared.start(a, b, c, d, scalars, stream, pointers)

    def _in(self, address: int, product: ReadyProduct, stream: int) -> Prepared:
        """The product with its workspace at an address: graphs must not keep one of ours."""
        nbytes, bound = product.workspace_bytes, product.step.bound
        check(load_driver().cuMemsetD8Async(address, 0, nbytes, stream), "cuMemsetD8Async")
        space = Operand("workspace", address, (nbytes,), (1,), "uint8", self._ordinal, "xla", None)
        return Prepared(bound, self._ordinal, product.step.choices._replace(workspace=space))


class Started(Protocol):
    """What is prepared for one GPU."""

    @property
    def room(self) -> int: ...
    def start(self, pointers: tuple[int, ...], stream: int) -> None: ...


class Mirrored:
    """A product whose lower triangle is copied to the other one."""

    def __init__(self, product: Started, bound: Bound, ordinal: int) -> None:
        self._product, self._ordinal, self.room = product, ordinal, product.room
        self._launch: Launch | None = None
        *batch, n, _ = bound.shape
        if n and prod(batch):
            lies, chip = Lies(n, 1, n * n, True), backend_at(ordinal).chip
            size = size_of(bound.d_dtype)
            self._launch = mirroring(
                n,
                prod(batch),
                size,
                lies,
                lies,
                upper=False,
                mirrored=True,
                hermitian=False,
                architecture=chip.architecture,
            )

    def start(self, pointers: tuple[int, ...], stream: int) -> None:
        self._product.start(pointers, stream)
        if self._launch is not None:
            d = pointers[-2]
            kernel_alone(self._launch, self._ordinal).start_with({}, stream, AS_IT_IS, (d, 0, 0, d))


def skipped_to(operand: Operand, index: tuple[int, ...]) -> int:
    """Bytes to the matrix of an operand that broadcasts to a batch, at this place of the batch."""
    extents, strides = operand.shape[:-2], operand.strides[:-2]
    own = index[len(index) - len(extents) :]
    triples = zip(own, extents, strides, strict=True)
    return size_of(operand.dtype) * sum(at * stride for at, extent, stride in triples if extent > 1)


def is_captured(stream: int) -> bool:
    driver = load_driver()
    return bool(int(check(driver.cuStreamIsCapturing(driver.CUstream(stream)), "cuStreamIsCapturing")))


def aligned(nbytes: int) -> int:
    return nbytes + -nbytes % WORKSPACE_ALIGNMENT
