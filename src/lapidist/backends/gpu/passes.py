"""Second passes on a GPU: the room that a product leaves its values in, and the kernels behind it."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from lapidist.backends.gpu.driver import current_device, load_driver, query_device
from lapidist.backends.gpu.launcher import AS_IT_IS, GpuKernel
from lapidist.backends.gpu.workspaces import owned, stream_key
from lapidist.dtypes import size_of
from lapidist.epilogues.passes import SLOTS
from lapidist.planning.before_passes import Before
from lapidist.planning.plans import KEPT
from lapidist.planning.second_passes import RESULT, VALUES, Pass, room_of, steps_of

if TYPE_CHECKING:
    from lapidist.calls.fused import FusedOperands

ROUND = 256  # bytes on which values begin


class Left(NamedTuple):
    """What a product leaves to second passes: bytes of each of its values, slots, and of the room that the
    passes need between their steps."""

    sizes: tuple[int, ...]
    slots: int
    room: int

    @classmethod
    def of(cls, fused: FusedOperands, before: Before) -> Left:
        size, shapes = size_of(fused.dtype), fused.shapes_left(before)
        sizes = [-(-prod(shape) * size // ROUND) * ROUND for shape in shapes]
        room = max((room_of(each) for each, _, _ in fused.passes(before)), default=0)
        return cls(tuple(sizes), len(fused.slots), room)


class Placed(NamedTuple):
    """Where that is."""

    values: list[int]
    slots: list[int]
    room: int


def room_for(left: Left, ordinal: int, stream: int) -> Placed:
    """In a workspace of the stream; slots are flags."""
    driver, of_slots = load_driver(), 8 * SLOTS
    with current_device(ordinal):
        key = "values", stream_key(driver, driver.CUstream(stream), stream)
        zeros, first = owned(driver, ordinal, key, of_slots * left.slots, sum(left.sizes) + left.room)
    slots = [zeros + of_slots * place for place in range(left.slots)]
    values = [first + sum(left.sizes[:place]) for place in range(len(left.sizes))]
    return Placed(values, slots, first + sum(left.sizes))


def start_pass(
    each: Pass, values: int, results: tuple[int, int], room: int, ordinal: int, stream: int
) -> None:
    """`results`: the first one, and the last one, which is the factors' where there are two."""
    known = {VALUES: values, RESULT: results[0]}
    for kernel, reads, writes in kernels_of(each, ordinal):
        read, written = (known.get(place, room + place) for place in (reads, writes))
        kernel.start((read, results[1], 0, written), AS_IT_IS, stream)


@lru_cache(maxsize=KEPT)
def kernels_of(each: Pass, ordinal: int) -> tuple[tuple[GpuKernel, int, int], ...]:
    steps = steps_of(each, query_device(ordinal).architecture)
    return tuple((GpuKernel(launch, ordinal), reads, writes) for launch, reads, writes in steps)
