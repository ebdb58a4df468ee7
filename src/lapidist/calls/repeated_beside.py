"""Repeated calls with arrays beside a, b, c and out, such as factors, indices and an epilogue's operands.

As in repeated.py, one look shows that only pointers changed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from lapidist.backends.gpu.passes import Left, room_for, start_pass
from lapidist.backends.gpu.workspaces import in_a_row
from lapidist.calls import checks
from lapidist.calls.fused import require_seed
from lapidist.calls.operation import Operation, is_array
from lapidist.calls.repeated import (
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
from lapidist.epilogues.steps import Function
from lapidist.errors import LapidistError
from lapidist.frameworks.arrays import HOST, Operand, operand_of
from lapidist.frameworks.streams import stream_handle
from lapidist.planning.before_passes import EVERY, Before, made_before
from lapidist.problems.modes import ExtraPointers

if TYPE_CHECKING:
    from lapidist.calls.arguments import Arguments
    from lapidist.calls.call import Call
    from lapidist.calls.fused import FusedOperands
    from lapidist.calls.prepared import Prepared


class Executed(NamedTuple):
    """What is looked at of a call, of a plan's: what is beside its matrices belongs to the plan."""

    a: Any
    b: Any
    c: Any
    out: Any
    operation: Operation
    stream: Any


AgainBeside = Callable[["Call | Executed"], Any]  # None: the long way must look
D, C = 2, 3  # among the tensors of a call; C is there where it is read and not D
ALPHA, BETA, FACTORS, OPERANDS = 3, 4, (5, 6), 7  # in `beside`; indices come first, operands from there on


# ---- what a call is known by ----


def beside(operation: Operation) -> tuple[Any, ...]:
    """Arrays and numbers beside the matrices, always in this order; None where there is none."""
    routing, given = operation.routing, operation.epilogue
    values = () if given is None else (given.values[each.name] for each in given.function.parameters)
    numbers = operation.alpha, operation.beta, *operation.factors
    return (routing.gather_a, routing.gather_b, routing.scatter_d, *numbers, *values)


def outputs_of_call(call: Call | Executed) -> tuple[Any, tuple[Any, ...]]:
    """D's array, and those of further results."""
    return (call.out[0], call.out[1:]) if isinstance(call.out, tuple) and call.out else (call.out, ())


def key_beside(call: Call) -> Sketch:
    """What the next call like it is found by. None: its arrays tell too little at once."""
    operation, choices, (out, further) = call.operation, call.choices, outputs_of_call(call)
    if operation.routing.check_indices is not False or choices.workspace is not None:
        return None
    seen = sketch(call.a, call.b, out)
    if seen is None:
        return None
    kinds, given = tuple(map(type, beside(operation))), operation.epilogue
    return (
        *(seen, call.c is None, call.c is out, tuple(map(type, further)), kinds),
        *(operation.trans_a, operation.trans_b, operation.vectors, operation.routing.permuted),
        *(operation.types, choices, None if given is None else id(given.function)),
    )


# ---- the call itself ----


class Launched:
    """What the long way launched, as far as it does not change from call to call."""

    def __init__(self, arguments: Arguments, call: Call | Executed) -> None:
        operation, fused, found = arguments.operation, arguments.fused, beside(call.operation)
        given = operation.epilogue
        # kept, so that its number in the key stays its own
        self.function: Function | None = None if given is None else given.function
        self.dtype = "" if fused is None else fused.dtype
        self.arrays = [place for place, x in enumerate(found) if is_array(x)]
        self.has_numbers = ALPHA not in self.arrays, BETA not in self.arrays
        self.factors = [(place, found[place]) for place in FACTORS if is_number(found[place])]
        self.alpha = math.prod(x for _, x in self.factors)
        self.asked, self.fit = asked_of(*arguments.alpha_beta), fit_for(arguments.accumulator)
        self.reads_own_c = arguments.c is not None and call.c is not outputs_of_call(call)[0]
        self.first = D + 1 + self.reads_own_c  # of the arrays beside, among all tensors
        self.at = {place: self.first + number for number, place in enumerate(self.arrays)}

    def tensors(self, call: Call | Executed, results: Sequence[Any], found: Sequence[Any]) -> list[Any]:
        """A, B, D, C where it is read and not D, the arrays beside, further results."""
        own_c = (call.c,) if self.reads_own_c else ()
        return [call.a, call.b, results[0], *own_c, *[found[place] for place in self.arrays], *results[1:]]

    def scalars(self, found: Sequence[Any]) -> tuple[float, float] | None:
        """With the factors that are numbers in alpha; None where another problem is asked for."""
        if any(found[place] != x for place, x in self.factors):
            return None
        of_alpha, of_beta = self.has_numbers
        scalars = (found[ALPHA] if of_alpha else 1.0) * self.alpha, found[BETA] if of_beta else 1.0
        return scalars if asked_of(*scalars) == self.asked and self.fit(scalars) else None

    def pointers(self, found: Sequence[Any], addresses: list[int], left: Sequence[int]) -> ExtraPointers:
        """`left`: where second passes find what they read."""
        at, function = self.at, self.function
        a_rows, b_cols, d_rows, *others = [addresses[at[x]] if x in at else 0 for x in range(OPERANDS)]
        fused = () if function is None else (*self._fused(function, found, addresses), *left)
        return ExtraPointers._make((a_rows, b_cols, d_rows, 0, *others, fused))

    def _fused(self, function: Function, found: Sequence[Any], addresses: list[int]) -> tuple[Any, ...]:
        """In the order of FusedOperands.pointers."""
        values: list[Any] = []
        for place, each in enumerate(function.parameters, OPERANDS):
            if place in self.at:
                values.append(addresses[self.at[place]])
            elif each.name in function.seeds:
                values.append(require_seed(each.name, found[place]))
            else:
                number = checks.require_scalar(each.name, found[place])
                values.append(checks.require_in_range(each.name, number, self.dtype))
        d, *further = function.results
        at_results = addresses[self.first + len(self.arrays) :]
        values += [0] * function.is_positioned + [addresses[D]] * (function.stores_d and not d.then)
        if function.grouped is not None:
            values += [addresses[D], at_results[0]]
        return (*values, *(at for at, each in zip(at_results, further, strict=True) if not each.then))


class Following:
    """Second passes of a call, as far as they do not change; results are known by their places."""

    def __init__(self, fused: FusedOperands, ordinal: int) -> None:
        self.left, self.ordinal = {before: Left.of(fused, before) for before in EVERY}, ordinal
        read = [*fused.sources, *fused.slots]
        self.passes = {
            before: [
                (
                    each,
                    place_of(values, read),
                    place_of(stored[0], fused.written),
                    place_of(stored[-1], fused.written),
                )
                for each, values, stored in fused.passes(before)
            ]
            for before in EVERY
        }
        self.known = [each.pointer for each in read]

    def start(
        self, launch: Callable[[Sequence[int]], None], results: Sequence[int], stream: int, before: Before
    ) -> None:
        """The product by `launch`, given where it leaves what they read; then all of them."""
        with in_a_row():
            placed = room_for(self.left[before], self.ordinal, stream)
            left = [*placed.values, *placed.slots]
            launch(left)
            for each, values, first, last in self.passes[before]:
                ends = results[first], results[last]
                start_pass(each, left[values], ends, placed.room, self.ordinal, stream)


def place_of(operand: Operand, among: Sequence[Operand]) -> int:
    return next(place for place, each in enumerate(among) if each is operand)


def is_number(value: Any) -> bool:
    return value is not None and not is_array(value)


def fast_path_beside(
    ready: Prepared, arguments: Arguments, call: Call | Executed, result: Any
) -> AgainBeside | None:
    """The call again, after the long way gave this result. None: each must go the long way."""
    if ready.like.device == HOST or ready.like.framework != "torch" or arguments.given is not None:
        return None
    import torch

    launched, found = Launched(arguments, call), beside(call.operation)
    results = result if isinstance(result, tuple) else (result,)
    everything = launched.tensors(call, results, found)
    if any(type(x) not in plain_tensors() or x.is_neg() for x in everything):
        return None
    sound = [x.data_ptr() for x in everything]
    fused, following = arguments.fused, None
    if fused is not None and fused.passes():
        following = Following(fused, ready.like.device)
    expected = arguments.extra_pointers, arguments.alpha_beta
    left = () if following is None else following.known
    if (launched.pointers(found, sound, left), launched.scalars(found)) != expected:
        return None  # the long way made something else of what it was given
    made, further = outputs_made(result), len(results) - 1
    bits, apart = [x & 15 for x in sound], forbidden(everything, further)
    alike, alike_by_parts = compared_at_once(*distinct(everything)), compared_by_parts(*everything)
    firsts = firsts_of(everything)
    watched, sound = any(x.requires_grad for x in everything), []
    tracing, gradients, forward = torch._C._is_tracing, torch.is_grad_enabled, torch.autograd.forward_ad
    current_stream, ordinal = torch._C._cuda_getCurrentRawStream, ready.like.device
    count_write, c_at = torch._C._increment_version, C if launched.reads_own_c else D

    def again(call: Call | Executed) -> Any:
        nonlocal sound
        try:
            results, found = made(call), beside(call.operation)
            everything = launched.tensors(call, results, found)
            same = firsts_of(everything) == firsts and alike(*distinct(everything))
            if not (same or alike_by_parts(*everything)):
                return None
            at, scalars = [x.data_ptr() for x in everything], launched.scalars(found)
            extra_pointers = launched.pointers(found, at, ())
        except (AttributeError, TypeError, ValueError, RuntimeError, LapidistError):
            return None  # no tensors, or numbers that the long way refuses in words
        if scalars is None or tracing() or forward._current_level >= 0:
            return None
        if at != sound:
            moved = any(not x or (x ^ low) & 15 for x, low in zip(at, bits, strict=True))
            if moved or any(low < at[out] - at[other] < high for out, other, low, high in apart):
                return None
            sound = at
        if watched and gradients():
            return None
        stream = current_stream(ordinal) if call.stream is None else stream_handle(call.stream)
        if following is None:
            ready.start(at[0], at[1], at[c_at], at[D], scalars, stream, extra_pointers)
        else:
            operands, parts = extra_pointers.fused, ready.parts

            def launch(left: Sequence[int]) -> None:
                more = extra_pointers._replace(fused=(*operands, *left))
                ready.start(at[0], at[1], at[c_at], at[D], scalars, stream, more, parts)

            before = made_before(part.plan for part in parts)
            following.start(launch, [at[D], *at[len(at) - further :]], stream, before)
        out, others = outputs_of_call(call)
        if given := [x for x in (out, *others) if x is not None]:
            count_write(tuple(given))  # autograd must not go back through what was there before
        return tuple(results) if len(results) > 1 else results[0]

    return again


def counted(ready: Prepared, again: AgainBeside) -> AgainBeside:
    """Until something better has come, or nothing is to come."""
    kernel, left = ready.kernel, calls_left(ready)
    if not left:
        return again

    def last(call: Call | Executed) -> Any:
        nonlocal left
        left = left - 1 or ready.look_again(kernel, call.stream)
        return again(call) if left else None

    return last


def fast_path_of_plan(
    ready: Prepared, arguments: Arguments, call: Executed, result: Any
) -> Callable[[Any, Any, Any, Any, Any], Any] | None:
    """The same of a plan, for (a, b, c, out, stream)."""
    again, operation = fast_path_beside(ready, arguments, call, result), call.operation
    if again is None:
        return None
    return lambda a, b, c, out, stream: again(Executed(a, b, c, out, operation, stream))


def distinct(tensors: list[Any]) -> list[Any]:
    """Each once: a factor of A may be that of B, and torch's guards refuse to see a tensor twice."""
    return list({id(x): x for x in tensors}.values())


def firsts_of(tensors: list[Any]) -> list[int] | None:
    """Where each comes first; None where all are different."""
    numbers = list(map(id, tensors))
    return None if len(set(numbers)) == len(numbers) else [numbers.index(x) for x in numbers]


def outputs_made(result: Any) -> Callable[[Call | Executed], list[Any]]:
    """The arrays that results go to: the caller's, or new ones of the same shapes and types."""
    results = result if isinstance(result, tuple) else (result,)
    new = [(x.shape, None if x.is_contiguous() else x.stride(), x.dtype) for x in results]

    def made(call: Call | Executed) -> list[Any]:
        out, given = outputs_of_call(call)
        pairs = zip((out, *(given or (None,) * (len(new) - 1))), new, strict=True)
        return [new_like(call.a, *how) if x is None else x for x, how in pairs]

    return made


def new_like(a: Any, shape: Any, strides: Any, dtype: Any) -> Any:
    """`strides`: of what does not lie row by row."""
    if strides is None:
        return a.new_empty(shape, dtype=dtype)
    return a.new_empty_strided(shape, strides, dtype=dtype)


def forbidden(everything: list[Any], further: int) -> list[tuple[int, int, int, int]]:
    """What is written, what must lie elsewhere, and the forbidden distances from that."""
    operands = [operand_of(each, "out") for each in everything]
    written = [D, *range(len(everything) - further, len(everything))]
    return [
        (out, other, *forbidden_distances(operands[out], operands[other]))
        for out in written
        for other in range(len(everything))
        if out != other
    ]
