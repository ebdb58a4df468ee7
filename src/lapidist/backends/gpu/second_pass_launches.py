"""Second passes on a GPU: the workspace in which a product leaves values, and the kernels that follow it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from math import prod
from typing import NamedTuple

from lapidist.backends.backend import EpilogueArrays
from lapidist.backends.gpu.driver import current_device, gpu_count, load_driver, query_device
from lapidist.backends.gpu.launcher import GpuKernel, Start
from lapidist.backends.gpu.workspaces import Room, allocate, rooms_between, rounded, stream_key
from lapidist.dtypes import size_of
from lapidist.epilogues.passes import SLOTS
from lapidist.launch import AS_IT_IS, Operands
from lapidist.planning.in_kernel_reductions import InKernelWork
from lapidist.planning.plans import CACHED_PLANS
from lapidist.planning.second_passes import RESULT, VALUES, Pass, room_of, steps_of

ROUND = 256  # bytes; values begin on multiples


class PassWorkspace(NamedTuple):
    """The workspace for second passes: bytes of each of the product's values, number of slots, bytes between
    the passes' steps.
    """

    sizes: tuple[int, ...]
    slots: int
    room: int

    @classmethod
    def of(cls, epilogue: EpilogueArrays, before: InKernelWork) -> PassWorkspace:
        size, shapes = size_of(epilogue.dtype), epilogue.value_shapes(before)
        sizes = [-(-prod(shape) * size // ROUND) * ROUND for shape in shapes]
        room = max((room_of(second_pass) for second_pass, _, _ in epilogue.passes(before)), default=0)
        return cls(tuple(sizes), len(epilogue.slots), room)

    @property
    def is_none(self) -> bool:
        return not (self.slots or self.room or any(self.sizes))

    @property
    def nbytes(self) -> Room:
        """Bytes of slots, and of what follows them."""
        return 8 * SLOTS * self.slots, sum(self.sizes) + self.room

    def placed(self, at: Room) -> Placed:
        """The addresses in a workspace whose flags are the slots."""
        (zeros, first), of_slots = at, 8 * SLOTS
        slots = [zeros + of_slots * place for place in range(self.slots)]
        values = [first + sum(self.sizes[:place]) for place in range(len(self.sizes))]
        return Placed(values, slots, first + sum(self.sizes))


class Placed(NamedTuple):
    """The addresses of what a product leaves."""

    values: list[int]
    slots: list[int]
    room: int


class Rooms:
    """Workspaces on one GPU for all calls that need as many bytes."""

    def __init__(self, sizes: PassWorkspace, ordinal: int) -> None:
        self._driver, self._ordinal = load_driver(), ordinal
        of_slots, of_values = sizes.nbytes
        self._sizes = rounded(of_slots), rounded(of_values)
        self._stream_of = lru_cache(maxsize=64)(self._driver.CUstream)
        self.free: Callable[[int], list[Room]] = self._free if gpu_count() == 1 else self._anywhere

    def _free(self, stream: int) -> list[Room]:
        """The workspaces of a stream that no call is using."""
        key = stream_key(self._driver, self._stream_of(stream), stream)
        return rooms_between(self._ordinal, key, self._sizes)

    def _anywhere(self, stream: int) -> list[Room]:
        with current_device(self._ordinal):
            return self._free(stream)

    def another(self) -> Room:
        with current_device(self._ordinal):
            return allocate(self._driver, *self._sizes)


@contextmanager
def room_for(sizes: PassWorkspace, ordinal: int, stream: int) -> Iterator[Placed]:
    """A workspace for the launches of one call."""
    rooms = Rooms(sizes, ordinal)
    free = rooms.free(stream)
    try:
        room = free.pop()
    except IndexError:
        room = rooms.another()
    yield sizes.placed(room)
    free.append(room)


PassLaunch = tuple[Start, Operands]


def follow(epilogue: EpilogueArrays, before: InKernelWork, placed: Placed, ordinal: int, stream: int) -> None:
    """Launch all passes, after a product that left its values there."""
    for second_pass, values, results in epilogue.passes(before):
        at = [result.pointer for result in results]
        for launch, operands in launches_of(second_pass, values.pointer, at, placed.room, ordinal):
            launch(operands, AS_IT_IS, stream)


def launches_of(
    second_pass: Pass, values: int, results: Sequence[int], room: int, ordinal: int
) -> list[PassLaunch]:
    """`results`: addresses of the result, of its factors, and of the ends of groups, as far as there are."""
    addresses, (_, factors, ends, *_) = {VALUES: values, RESULT: results[0]}, (*results, 0, 0)
    return [
        (
            kernel.start,
            (addresses.get(reads, room + reads), factors, ends, addresses.get(writes, room + writes)),
        )
        for kernel, reads, writes in kernels_of(second_pass, ordinal)
    ]


@lru_cache(maxsize=CACHED_PLANS)
def kernels_of(second_pass: Pass, ordinal: int) -> tuple[tuple[GpuKernel, int, int], ...]:
    steps = steps_of(second_pass, query_device(ordinal).architecture)
    return tuple((GpuKernel(launch, ordinal), reads, writes) for launch, reads, writes in steps)
