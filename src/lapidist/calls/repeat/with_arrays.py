"""Fast paths of torch calls with arrays beside their matrices: indices, factors, an epilogue's operands.

Finding a call by its key takes a third of its time. So the call that followed the last one before is tried
first; torch's guard tells whether it is the same again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lapidist.calls.number_rules import require_in_range
from lapidist.calls.operation import Flags, Operation, Types, is_array
from lapidist.calls.repeat.addresses import D
from lapidist.calls.repeat.fast_path import FastPath, geometry_of, repeat_of, stream_of_torch
from lapidist.calls.repeat.guard import are_plain
from lapidist.calls.repeat.numbers_of import NumbersOf
from lapidist.calls.repeat.on_host import started_on_host
from lapidist.calls.repeat.shape import (
    AT_OPERANDS,
    ExtraValues,
    Shape,
    extra_values,
    flags_types_function,
    key_of,
)
from lapidist.calls.repeat.start_with_arrays import Sources, filled, started_through
from lapidist.calls.repeat.upgrade import FINAL, upgrade_of
from lapidist.calls.repeat.write import CallLayout
from lapidist.epilogues.steps import Function
from lapidist.epilogues.tracing import BoundEpilogue
from lapidist.frameworks.arrays import HOST, operand_of
from lapidist.frameworks.new_tensors import tensor_maker
from lapidist.problems.modes import ExtraPointers

if TYPE_CHECKING:
    from lapidist.calls.bound import Bound
    from lapidist.calls.call import Call
    from lapidist.calls.prepared import Prepared


class Executed(NamedTuple):
    """The parts of a Call that matter, for the execution of a plan, which owns what is beside the
    matrices.
    """

    a: Any
    b: Any
    c: Any
    out: Any
    operation: Operation


class ArrayPath:
    """A fast path, and the parts of its key that do not come from arrays."""

    __slots__ = ("flags", "following", "function", "replay", "types")

    def __init__(self, replay: FastPath, flags: Flags, types: Types, function: Function | None) -> None:
        # The key holds the function's id(), so it must not be freed.
        self.replay, self.flags, self.types, self.function = replay, flags, types, function
        self.following: ArrayPath | None = None  # the call that came after it; None: itself again

    def __call__(self, a: Any, b: Any, c: Any, out: Any, values: ExtraValues, stream: Any) -> Any:
        return self.replay(a, b, c, out, values, stream)


LAST = "last"  # the key under which the last call is found


def repeated_with_arrays(
    paths: dict[Shape, ArrayPath],
    a: Any,
    b: Any,
    c: Any,
    out: Any,
    values: ExtraValues,
    epilogue: Any,
    flags: Flags,
    types: Types,
    stream: Any,
) -> Any:
    """The fast path of a call that chose no kernel, device or schedule. None: the full path must check the
    call.
    """
    function = None
    if epilogue is not None:
        if epilogue.__class__ is not BoundEpilogue:
            return None
        function = epilogue.function
        values = *values, *epilogue.values.values()
    last, likely = paths.get(LAST), None
    if last is not None:
        likely = last.following or last
        if likely.function is function and likely.types is types and likely.flags == flags:
            result = likely.replay(a, b, c, out, values, stream)
            if result is not None:
                if likely is not last:
                    paths[LAST] = likely
                return result
    try:
        path = paths.get(key_of(a, b, c, out, values, flags, types, function))
    except TypeError:  # a compiler's symbols for sizes have no hash
        return None
    if path is None or path is likely:
        return None
    if last is not None:
        last.following = path
    paths[LAST] = path
    return path.replay(a, b, c, out, values, stream)


def fast_path_with_arrays(
    ready: Prepared | None, bound: Bound, call: Call | Executed, result: Any, keeps: bool = False
) -> ArrayPath | None:
    """The fast path of calls like this one, for which the full path gave `result`. None: there is none.
    `ready`: None on the host.
    """
    if bound.copied_to is not None or not (serves_host(bound) if ready is None else serves(ready)):
        return None
    flags, types, function = flags_types_function(call.operation)
    values = extra_values(call.operation)
    results = result if isinstance(result, tuple) else (result,)
    arrays = tuple(place for place, x in enumerate(values) if is_array(x))
    separate_c = bound.c is not None and call.c is not first_output(call)
    of_c = [call.c] if separate_c else []
    tensors = [call.a, call.b, results[0], *of_c, *[values[place] for place in arrays], *results[1:]]
    if not are_plain(tensors):
        return None
    numbers = NumbersOf(bound, values, function)
    at = {place: D + 1 + separate_c + number for number, place in enumerate(arrays)}
    sources = sources_of(function, at, len(tensors))
    if not is_as_launched(bound, numbers, values, sources, tensors):
        return None
    if ready is None:
        operands = sources.fused[: len(values) - AT_OPERANDS]
        started: tuple[Any, ...] = started_on_host(bound, operands), FINAL, None
    else:
        starting = started_through(ready, bound.epilogue, sources, bound.extra_pointers, len(tensors))
        upgrade = FINAL if keeps else upgrade_of(ready)
        started = starting, upgrade, stream_of_torch(ready.like.device)
    layout = CallLayout(
        len(values),
        arrays,
        tuple(numbers.indices),
        call.c is not None,
        separate_c,
        bound.c is not None and not separate_c,
        len(results) - 1,
        framework=bound.like.framework,
        on_host=ready is None,
    )
    geometry = geometry_of(tensors, layout.further)
    makes = new_like(results[0]), outputs_maker(results) if layout.further else None
    replay = repeat_of(layout, geometry, makes, numbers, *started)
    return ArrayPath(replay, flags, types, function)


def serves(ready: Prepared) -> bool:
    return ready.like.device != HOST and ready.like.framework == "torch"


def serves_host(bound: Bound) -> bool:
    """Indices in host memory are looked at in each call, so they have no fast path."""
    return bound.parts == (bound.epilogue,) and bound.like.framework in ("torch", "numpy")


def is_as_launched(
    bound: Bound, numbers: NumbersOf, values: ExtraValues, sources: Sources, tensors: Sequence[Any]
) -> bool:
    """Whether the full path launched these arrays and numbers, and converted none of them."""
    scalars, at = numbers.scalars(values), [operand_of(tensor, "").pointer for tensor in tensors]
    sums = () if bound.epilogue is None else bound.extra_pointers.fused[len(sources.fused) :]
    if scalars is None or filled(sources, at, numbers.first_fused, sums) != bound.extra_pointers:
        return False
    return tuple(require_in_range("", x, bound.accumulator) for x in scalars) == bound.alpha_beta


def sources_of(function: Function | None, at: dict[int, int], count: int) -> Sources:
    """`at`: the index among all tensors, of which there are `count`, by the place in the values."""
    a_rows, b_cols, d_rows, *scalings = [at.get(place, 0) for place in range(AT_OPERANDS)]
    fused, further = [], 0
    if function is not None:  # in the order of EpilogueOperands.with_pointers
        further = len(function.results) - 1
        first = count - further
        fused = [at.get(place) for place, _ in enumerate(function.parameters, AT_OPERANDS)]
        fused += [0] * function.is_positioned + [D] * (function.stores_d and not function.results[0].then)
        if function.grouped is not None:
            fused += [D, first]
        fused += [place for place, result in enumerate(function.results[1:], first) if not result.then]
    return Sources(ExtraPointers._make((a_rows, b_cols, d_rows, 0, *scalings, ())), tuple(fused), further)


def fast_path_of_plan(
    ready: Prepared | None, bound: Bound, call: Executed, result: Any
) -> Callable[[Any, Any, Any, Any, Any], Any] | None:
    """The fast path of a plan, for (a, b, c, out, stream). What is beside the matrices belongs to the
    plan.
    """
    path, values = fast_path_with_arrays(ready, bound, call, result, keeps=True), extra_values(call.operation)
    if path is None:
        return None
    replay = path.replay
    return lambda a, b, c, out, stream: replay(a, b, c, out, values, stream)


def first_output(call: Call | Executed) -> Any:
    """D's array."""
    return call.out[0] if isinstance(call.out, tuple) and call.out else call.out


def new_like(result: Any) -> Callable[[], Any]:
    """A maker of new tensors of the same geometry; scales of groups are no rows one after another."""
    if isinstance(result, np.ndarray):
        return partial(np.empty, result.shape, result.dtype, "C" if result.flags.c_contiguous else "F")
    return tensor_maker(result.dtype, result.device)(tuple(result.shape), result.stride())


def outputs_maker(results: Sequence[Any]) -> Callable[[Any], tuple[Any, ...]]:
    """A maker of the tuple of results: the caller's arrays, or new ones."""
    makes = list(map(new_like, results))

    def written(out: Any) -> tuple[Any, ...]:
        if out is None:
            return tuple(make() for make in makes)
        if out.__class__ is not tuple:
            raise TypeError
        return tuple(make() if x is None else x for x, make in zip(out, makes, strict=True))

    return written
