"""The fast path of a call that takes several launches, which leave arrays for each other.

One room holds these arrays. A launch has its addresses from there, or from the call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from lapidist.backends.gpu.launched_products import kernel_alone
from lapidist.calls.repeat.fast_path import (
    FastPath,
    geometry_of,
    layout_of,
    repeat_of,
    result_maker,
    stream_of_torch,
    tensors_of,
)
from lapidist.calls.repeat.guard import are_plain
from lapidist.calls.repeat.numbers_of import NumbersOf
from lapidist.calls.repeat.start import Starting, plainly_started
from lapidist.calls.repeat.start_with_arrays import Sources, straight
from lapidist.calls.repeat.upgrade import FINAL
from lapidist.frameworks.new_arrays import torch_dtype
from lapidist.problems.modes import ExtraPointers

if TYPE_CHECKING:
    from lapidist.calls.bound import Bound
    from lapidist.calls.prepared import Prepared
    from lapidist.launch import Launch, Operands, Scalars


class Place(NamedTuple):
    """Of an array: A, B, C, D or the room, and bytes behind its start. FIXED: the offset is an address."""

    array: int
    offset: int = 0


A, B, C, D = map(Place, range(4))
ROOM, FIXED = 4, 5
AT_GUARD = 3  # among the addresses that a launch brings
OF_GUARD = Sources(ExtraPointers(alpha=AT_GUARD), (), 0)


class Step(NamedTuple):
    """A launch. `scalars`: None takes those of the call. `bring` makes its last argument, of addresses with
    that of the number that guards it.
    """

    start: Callable[..., None]
    operands: tuple[Place, ...]
    scalars: Scalars | None = None
    bring: Callable[[Sequence[int], Sequence[float]], Any] | None = None
    guard: Place | None = None


def alone(launch: Launch, ordinal: int, operands: tuple[Place, ...]) -> Step:
    return Step(kernel_alone(launch, ordinal).repeated_start(), operands)


def product(
    ready: Prepared, bound: Bound, operands: Sequence[Place], guard: Place | None = None
) -> Step | None:
    """None: the product takes several launches, or a better kernel may come."""
    if not ready.settled or ready.kernel is None:
        return None
    if guard is None:
        starting = plainly_started(ready)
    else:
        starting = straight(ready.parts[0], OF_GUARD, bound.extra_pointers)
    a, b, c, d = operands
    in_its_order = (b, a, c, d) if starting.exchanged else (a, b, c, d)
    return Step(starting.start, in_its_order, bound.alpha_beta, starting.bring, guard)


def fast_path(bound: Bound, steps: Sequence[Step | None], nbytes: int) -> FastPath | None:
    """The fast path of calls like this one on torch's current stream. `nbytes`: of the room. None: there is
    none.
    """
    ready = [step for step in steps if step is not None]
    if len(ready) < len(steps) or bound.like.framework != "torch" or bound.copied_to is not None:
        return None
    tensors = tensors_of(bound)
    if not are_plain(tensors):
        return None
    geometry = geometry_of(tensors)
    new = result_maker(bound.result_shape, torch_dtype(bound.out_dtype), geometry.device)
    starting = started_in_steps(ready, result_maker((nbytes,), torch_dtype("uint8"), geometry.device))
    numbers = NumbersOf(bound, bound.alpha_beta)
    now = stream_of_torch(bound.like.device)
    replay = repeat_of(layout_of(bound, tensors), geometry, (new, None), numbers, starting, FINAL, now)

    def on_current_stream(a: Any, b: Any, c: Any, out: Any, values: Any, stream: Any) -> Any:
        return None if stream is not None else replay(a, b, c, out, values, None)

    return on_current_stream


def brought(bring: Callable[[Sequence[int], Sequence[float]], Any], guard: int) -> tuple[Any, ...]:
    return (bring((*[0] * AT_GUARD, guard), ()),)


def started_in_steps(steps: Sequence[Step], new_room: Callable[[], Any]) -> Starting:
    """The framework takes the room back when the call returns, and gives it to others in the order of its
    stream.
    """
    # Addresses of the call and of the room, and what launches take for them. Mostly both are those of the
    # call before, and a launch is fastest with the same objects as before.
    last: tuple[Any, int, list[tuple[Any, ...]]] = None, 0, []

    def placed(addresses: tuple[int, ...]) -> list[tuple[Any, ...]]:
        def at(place: Place) -> int:
            return addresses[place.array] + place.offset

        return [
            (
                step.start,
                tuple(map(at, step.operands)),
                step.scalars,
                () if step.bring is None or step.guard is None else brought(step.bring, at(step.guard)),
            )
            for step in steps
        ]

    def start(operands: Operands, scalars: Scalars, stream: int) -> None:
        nonlocal last
        room = new_room()
        begin = room.data_ptr()
        of_call, of_room, launches = last
        if of_call != operands or of_room != begin:
            launches = placed((*operands, begin, 0))
            last = operands, begin, launches
        for launch, at, numbers, brought in launches:
            launch(at, scalars if numbers is None else numbers, stream, *brought)

    return Starting(None, start, of_d=False)
