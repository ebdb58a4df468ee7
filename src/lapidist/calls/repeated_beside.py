"""Fast paths of torch calls with further arrays, such as factors, indices and an epilogue's operands. The
code calls what a call has apart from a, b, c and out *beside*.

As in repeated.py, the fast path checks that only pointers changed, and is written out flat. All that is
beside comes as one tuple, with a fixed order.

Finding a call by its key takes a third of its time. So the call that followed the last one before is tried
first; torch's guard tells whether it is the same again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import repeat
from operator import and_, is_, itemgetter, xor
from typing import TYPE_CHECKING, Any, NamedTuple

from lapidist.calls.checks import require_in_range
from lapidist.calls.choices import OPEN
from lapidist.calls.fused import number_given
from lapidist.calls.operation import Flags, Operation, Types, is_array
from lapidist.calls.recording import recording_of
from lapidist.calls.repeated import (
    NUMBERS,
    Alike,
    Sketch,
    asked_of,
    calls_left,
    compared_at_once,
    compared_by_parts,
    fit_for,
    forbidden_distances,
    plain_tensors,
    sketch,
)
from lapidist.calls.starting import D, Sources, filled, started_through
from lapidist.calls.written_out import Layout, written_out
from lapidist.epilogues.steps import Function
from lapidist.epilogues.tracing import Given
from lapidist.errors import LapidistError
from lapidist.frameworks.arrays import HOST, operand_of
from lapidist.frameworks.new_tensors import tensors_made
from lapidist.frameworks.streams import stream_handle
from lapidist.problems.modes import ExtraPointers

if TYPE_CHECKING:
    from lapidist.calls.arguments import Arguments
    from lapidist.calls.call import Call
    from lapidist.calls.prepared import Prepared

Beside = tuple[Any, ...]  # indices, alpha, beta, factors, an epilogue's operands; None where one is missing
# (a, b, c, out, what is beside, stream) -> results, or None: the full path must check the call
FastPath = Callable[[Any, Any, Any, Any, Beside, Any], Any]
C = 3  # C's index among the tensors of a call, if it is read and is not D
ALPHA, BETA, FACTORS, OPERANDS = 3, 4, (5, 6), 7  # indices in Beside; operands start at the last


class Executed(NamedTuple):
    """The parts of a Call that matter, for the execution of a plan, which owns what is beside the
    matrices.
    """

    a: Any
    b: Any
    c: Any
    out: Any
    operation: Operation


# ---- the key under which a call's fast path is found ----


def beside(operation: Operation) -> Beside:
    routing, given = operation.routing, operation.epilogue
    values = () if given is None else (given.values[each.name] for each in given.function.parameters)
    numbers = operation.alpha, operation.beta, *operation.factors
    return (routing.gather_a, routing.gather_b, routing.scatter_d, *numbers, *values)


def key_of(
    a: Any, b: Any, c: Any, out: Any, values: Beside, flags: Flags, types: Types, function: Function | None
) -> Sketch:
    """The key of such a call. None: no fast path can serve its arrays."""
    outputs = None
    if out.__class__ is tuple and out:
        outputs = tuple(map(type, out))
        out = out[0]
    seen = sketch(a, b, out)
    if seen is None:
        return None
    # One array may be both factors; torch's guards take each tensor only once.
    twice = values[5] is values[6]
    alpha, beta = values[ALPHA], values[BETA]
    numbers = asked_of(alpha, beta) if alpha.__class__ in NUMBERS and beta.__class__ in NUMBERS else None
    asked = flags, types, numbers, None if function is None else id(function)
    return seen, tuple(map(type, values)), twice, c is None, c is out, outputs, asked


def key_beside(call: Call) -> Sketch:
    """The key under which the fast path of such calls is remembered."""
    operation, choices = call.operation, call.choices
    if operation.routing.check_indices is not False or choices.workspace is not None:
        return None
    key = key_of(call.a, call.b, call.c, call.out, beside(operation), *asked_beside(operation))
    return key if key is None or choices == OPEN else (key, choices)


def asked_beside(operation: Operation) -> tuple[Flags, Types, Function | None]:
    flags = operation.trans_a, operation.trans_b, operation.vectors, operation.routing.permuted
    return flags, operation.types, None if operation.epilogue is None else operation.epilogue.function


class AgainBeside:
    """A fast path, and the parts of its key that do not come from arrays."""

    __slots__ = ("again", "flags", "following", "function", "types")

    def __init__(self, again: FastPath, flags: Flags, types: Types, function: Function | None) -> None:
        self.again, self.flags, self.types, self.function = again, flags, types, function
        self.following: AgainBeside | None = None  # the call that came after it; None: itself again

    def __call__(self, a: Any, b: Any, c: Any, out: Any, values: Beside, stream: Any) -> Any:
        return self.again(a, b, c, out, values, stream)


LAST = "last"  # the key under which the last call is found


def again_beside(
    known: dict[Sketch, AgainBeside],
    a: Any,
    b: Any,
    c: Any,
    out: Any,
    values: Beside,
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
        if epilogue.__class__ is not Given:
            return None
        function = epilogue.function
        values = *values, *epilogue.values.values()
    last, likely = known.get(LAST), None
    if last is not None:
        likely = last.following or last
        if likely.function is function and likely.types is types and likely.flags == flags:
            result = likely.again(a, b, c, out, values, stream)
            if result is not None:
                if likely is not last:
                    known[LAST] = likely
                return result
    found = known.get(key_of(a, b, c, out, values, flags, types, function))
    if found is None or found is likely:
        return None
    if last is not None:
        last.following = found
    known[LAST] = found
    return found.again(a, b, c, out, values, stream)


# ---- the call itself ----


class Launched:
    """The constant parts of what the full path launched."""

    def __init__(self, arguments: Arguments, call: Call | Executed, found: Beside) -> None:
        fused, given = arguments.fused, call.operation.epilogue
        # The key holds its id(), so it must not be freed.
        self.function: Function | None = None if given is None else given.function
        self.dtype = "" if fused is None else fused.dtype
        self.arrays = [place for place, x in enumerate(found) if is_array(x)]
        self.numbers = [place for place, x in enumerate(found) if is_number(x)]
        self.factors = [(place, found[place]) for place in FACTORS if is_number(found[place])]
        self.alpha = math.prod(x for _, x in self.factors)
        self.asked, self.fit = asked_of(*arguments.alpha_beta), fit_for(arguments.accumulator)
        own_c = arguments.c is not None and call.c is not output_of(call)
        self.reads_own_c, self.in_place = own_c, arguments.c is not None and not own_c
        self.first = D + 1 + own_c  # index of the first array beside, among all tensors

    def tensors(self, call: Call | Executed, results: Sequence[Any], found: Beside) -> list[Any]:
        """A, B, D, C if it is read and is not D, the arrays beside, further results."""
        own_c = (call.c,) if self.reads_own_c else ()
        return [call.a, call.b, results[0], *own_c, *[found[place] for place in self.arrays], *results[1:]]

    def scalars(self, found: Beside) -> tuple[float, float] | None:
        """alpha, times the factors that are numbers, and beta. None: they ask for another problem."""
        if any(found[place] != x for place, x in self.factors):
            return None
        of_alpha, of_beta = (found[place] if place in self.numbers else 1.0 for place in (ALPHA, BETA))
        scalars = of_alpha * self.alpha, of_beta
        return scalars if asked_of(*scalars) == self.asked and self.fit(scalars) else None

    def sources(self) -> Sources:
        at = {place: self.first + number for number, place in enumerate(self.arrays)}
        a_rows, b_cols, d_rows, *others = [at.get(place, 0) for place in range(OPERANDS)]
        function, fused, further = self.function, [], 0
        if function is not None:  # in the order of FusedOperands.pointers
            first = self.first + len(self.arrays)
            fused = [at.get(place) for place, _ in enumerate(function.parameters, OPERANDS)]
            fused += [0] * function.is_positioned + [D] * (function.stores_d and not function.results[0].then)
            if function.grouped is not None:
                fused += [D, first]
            fused += [place for place, each in enumerate(function.results[1:], first) if not each.then]
            further = len(function.results) - 1
        return Sources(ExtraPointers._make((a_rows, b_cols, d_rows, 0, *others, ())), tuple(fused), further)

    def fused_numbers(self, found: Beside) -> list[float]:
        """Operands of an epilogue that are numbers."""
        function = self.function
        if function is None:
            return []
        pairs = enumerate(function.parameters, OPERANDS)
        return [
            number_given(function, each.name, found[place], self.dtype)
            for place, each in pairs
            if place in self.numbers
        ]


def output_of(call: Call | Executed) -> Any:
    """D's array."""
    return call.out[0] if isinstance(call.out, tuple) and call.out else call.out


def is_number(value: Any) -> bool:
    return value is not None and not is_array(value)


def fast_path_beside(
    ready: Prepared, arguments: Arguments, call: Call | Executed, result: Any
) -> AgainBeside | None:
    """The fast path of calls like this one, for which the full path gave `result`. None: there is none."""
    if ready.like.device == HOST or ready.like.framework != "torch" or arguments.given is not None:
        return None
    import torch

    found = beside(call.operation)
    launched = Launched(arguments, call, found)
    results = result if isinstance(result, tuple) else (result,)
    everything, further = launched.tensors(call, results, found), len(results) - 1
    if any(type(x) not in plain_tensors() or x.is_neg() for x in everything):
        return None
    moves = moved_from(ready, arguments, launched, everything, further, found)
    if moves is None:
        return None
    known, moved, start = moves
    of_beside = tuple(launched.arrays), tuple(launched.numbers)
    of_c = call.c is not None, launched.reads_own_c, launched.in_place
    again = written_out(Layout(len(found), *of_beside, *of_c, further))(
        compared_as_they_repeat(everything),
        compared_by_parts(*everything),
        output_made(results[0]),
        outputs_made(results) if further else None,
        moved,
        start,
        recording_of(everything),
        partial(torch._C._cuda_getCurrentRawStream, ready.like.device),
        stream_handle,
        torch._C._increment_version,  # else autograd would not notice that `out` was overwritten
        REFUSED,
        known,
    )
    return AgainBeside(again, *asked_beside(call.operation))


# Raised by what is no tensor, or by a number out of range: the full path then names the argument.
REFUSED = AttributeError, TypeError, ValueError, RuntimeError, LapidistError
# addresses of all tensors, numbers beside, addresses of A, B, C and D, alpha and beta, what `bring` made,
# numbers of the epilogue
Known = tuple[tuple[int, ...], Beside, tuple[int, int, int, int], tuple[float, float], Any, list[float]]


def moved_from(
    ready: Prepared,
    arguments: Arguments,
    launched: Launched,
    everything: list[Any],
    further: int,
    found: Beside,
) -> tuple[Known, Callable[..., Known | None], Callable[..., None]] | None:
    """What was launched, a function that checks other addresses and numbers against it, and one that
    launches. None: the full path converted what it was given.
    """
    sources, at = launched.sources(), tuple(x.data_ptr() for x in everything)
    starting = started_through(ready, arguments.fused, sources, arguments.extra_pointers, len(at))
    fused, bring, start = launched.fused_numbers(found), starting.bring, starting.start
    left = () if arguments.fused is None else arguments.extra_pointers.fused[len(sources.fused) :]
    scalars = launched.scalars(found)
    if scalars is None or filled(sources, at, fused, left) != arguments.extra_pointers:
        return None
    if tuple(require_in_range("", x, arguments.accumulator) for x in scalars) != arguments.alpha_beta:
        return None
    bits, apart, alignment = [x & 15 for x in at], forbidden(everything, further), repeat(15)
    c_at, first = C if launched.reads_own_c else D, D if starting.of_d else D + 1
    numbers = tuple(found[place] for place in launched.numbers)
    kinds = tuple(map(type, numbers))

    def moved(at: tuple[int, ...], numbers: Beside, values: Beside, last: Known, made: bool) -> Known | None:
        """`made`: the results are new arrays, which overlap nothing."""
        before, known_numbers, operands, scalars, brought, fused = last
        if at != before:
            if 0 in at or any(map(and_, map(xor, at, bits), alignment)):
                return None
            if not made:
                for out, other, low, high in apart:
                    if low < at[out] - at[other] < high:
                        return None
            operands = at[0], at[1], at[c_at], at[D]
        if all(map(is_, numbers, known_numbers)):
            same = at[first:] == before[first:] and brought is not None
        else:
            if tuple(map(type, numbers)) != kinds:
                return None
            asked, fused, same = launched.scalars(values), launched.fused_numbers(values), False
            if asked is None:
                return None
            scalars = asked
        return at, numbers, operands, scalars, brought if same else bring(at, fused), fused

    operands = at[0], at[1], at[c_at], at[D]
    # Without addresses: those of the next call are then checked here, by the rules of the fast path.
    none = ((), numbers, operands, arguments.alpha_beta, None, fused)
    return none, moved, start


def counted(ready: Prepared, found: AgainBeside) -> AgainBeside:
    """The same fast path, until a look for a better plan finds one. Then it returns None for good, and the
    full path makes another one.
    """
    kernel, left, again = ready.kernel, calls_left(ready), found.again
    if not left:
        return found

    def last(a: Any, b: Any, c: Any, out: Any, values: Beside, stream: Any) -> Any:
        nonlocal left
        if left > 0:
            left = left - 1 or ready.look_again(kernel, stream)
        return again(a, b, c, out, values, stream) if left > 0 else None

    return AgainBeside(last, found.flags, found.types, found.function)


def fast_path_of_plan(
    ready: Prepared, arguments: Arguments, call: Call | Executed, result: Any
) -> Callable[[Any, Any, Any, Any, Any], Any] | None:
    """The fast path of a plan, for (a, b, c, out, stream); what is beside the matrices belongs to
    the plan.
    """
    found, values = fast_path_beside(ready, arguments, call, result), beside(call.operation)
    if found is None:
        return None
    again = found.again
    return lambda a, b, c, out, stream: again(a, b, c, out, values, stream)


def picker(wanted: Sequence[int]) -> Callable[[Beside], Beside]:
    """A function that takes these items of a tuple, as a tuple."""
    if len(wanted) > 1:
        return itemgetter(*wanted)
    first = wanted[0] if wanted else 0
    return itemgetter(slice(first, first + len(wanted)))


def compared_as_they_repeat(tensors: list[Any]) -> Alike:
    """A comparison of tensors among which one may occur twice, as a factor of A and of B. torch's guards take
    a tensor only once.
    """
    numbers = list(map(id, tensors))
    firsts = [numbers.index(each) for each in numbers]
    wanted = sorted(set(firsts))
    if len(wanted) == len(tensors):
        return compared_at_once(*tensors)
    pick, twice = picker(wanted), [(x, y) for x, y in zip(firsts, range(len(firsts)), strict=True) if x != y]
    at_once = compared_at_once(*pick(tuple(tensors)))

    def alike(*others: Any) -> bool:
        return all(others[x] is others[y] for x, y in twice) and at_once(*pick(others))

    return alike


def output_made(result: Any) -> Callable[[], Any]:
    """A maker of new tensors of the same shape, strides and type."""
    return tensors_made(result.dtype, result.device)(tuple(result.shape), result.stride())


def outputs_made(results: Sequence[Any]) -> Callable[[Any], tuple[Any, ...]]:
    """A maker of the tuple of results: the caller's arrays, or new ones."""
    makes = list(map(output_made, results))

    def made(out: Any) -> tuple[Any, ...]:
        if out is None:
            return tuple(make() for make in makes)
        if out.__class__ is not tuple:
            raise TypeError
        return tuple(make() if x is None else x for x, make in zip(out, makes, strict=True))

    return made


def forbidden(everything: list[Any], further: int) -> list[tuple[int, int, int, int]]:
    """For each tensor that is written and each other one: their indices, and the interval of distances at
    which they overlap.
    """
    operands = [operand_of(each, "out") for each in everything]
    written = [D, *range(len(everything) - further, len(everything))]
    return [
        (out, other, *forbidden_distances(operands[out], operands[other]))
        for out in written
        for other in range(len(everything))
        if out != other
    ]
