"""What calls remember: what was prepared for a problem, and how the next call like it goes the short way."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from lapidist.backends.selection import backend_at
from lapidist.build.waiting import BACKGROUND, way_of
from lapidist.calls.arguments import Arguments
from lapidist.calls.call import Call
from lapidist.calls.choices import Choices
from lapidist.calls.prepared import Prepared, multiply_on_host, place_for, require_no_choice
from lapidist.calls.repeated import Again, Sketch, asked_of, fast_path
from lapidist.calls.subclasses import product
from lapidist.frameworks.streams import require_stream

if TYPE_CHECKING:
    from lapidist.calls.repeated_beside import AgainBeside
    from lapidist.calls.repeated_lists import AgainLists

PREPARED_LIMIT = 4096  # problems remembered; a program that meets more starts over
PREPARED: dict[Any, Prepared] = {}  # by the problem, where it runs, and by what
AGAIN: dict[Sketch, Again] = {}  # by what is known at once of a call: what served the last one like it
BESIDE: dict[Sketch, AgainBeside] = {}  # of calls with arrays beside a, b, c and out
LISTS: dict[Sketch, AgainLists] = {}  # of lists of matrices


# ---- loaded with the first call that needs it: a process without one starts sooner ----


@cache
def beside() -> Any:
    from lapidist.calls import repeated_beside

    return repeated_beside


@cache
def of_lists() -> Any:
    from lapidist.calls import repeated_lists

    return repeated_lists


@cache
def on_host() -> Any:
    from lapidist.calls import repeated_on_host

    return repeated_on_host


# ---- a call ----


def multiplied(call: Call) -> Any:
    """Something was chosen, or nothing like this call was multiplied before."""
    if not call.operation.is_plain:
        return multiplied_beside(call)
    key = call.key
    again = None if key is None else AGAIN.get(key)
    if again is not None:
        operation = call.operation
        scalars = operation.alpha, operation.beta
        result = again(call.a, call.b, call.c, call.out, scalars, call.stream)
        if result is not None:
            return result
    if call.is_numpys:
        call = call.as_arrays()
        if call.asks_operands:
            return product(call.a, call.b, call.out)
    return run(key, call.arguments(), call.choices, call.stream)


def multiplied_beside(call: Call) -> Any:
    """With factors, indices, numbers in memory or an epilogue."""
    key = beside().key_beside(call)
    again = None if key is None else BESIDE.get(key)
    if again is not None:
        values = beside().beside(call.operation)
        result = again(call.a, call.b, call.c, call.out, values, call.stream)
        if result is not None:
            return result
    arguments, choices = call.arguments(), call.choices
    require_stream(call.stream)
    place = place_for(arguments, choices)
    if key is None or backend_at(place).chip is None:
        return run(None, arguments, choices, call.stream)
    ready = prepared(arguments, place, choices, call.stream)
    again_met, ready.met = ready.met, True
    result = ready.run(arguments, call.stream)
    again = beside().fast_path_beside(ready, arguments, call, result) if again_met else None
    if again is not None:
        remember(BESIDE, key, beside().counted(ready, again))
    return result


def multiplied_lists(call: Call) -> Any:
    call = call.of_lists()
    if call.of_none:
        return []
    key = of_lists().key_of_lists(call)
    again = None if key is None else LISTS.get(key)
    result = None if again is None else again(call)
    if result is not None:
        return result
    from lapidist.calls.lists import ArrayGemm, Listed

    batch = call.batch()
    way = None if call.choices.workspace is not None else way_of(call.choices.compile)
    ready = ArrayGemm(batch, call.operation, call.choices, way)
    result = ready.run(batch, call.stream)
    if key is None or not isinstance(batch, Listed):
        return result
    again = of_lists().fast_path_of_lists(call, batch, ready.launched)
    if again is not None:
        remember(LISTS, key, again)
    return result


def run(key: Any, arguments: Arguments, choices: Choices, stream: Any) -> Any:
    """The long way, which finds out how the next call with this key may go the short way."""
    require_stream(stream)
    place = place_for(arguments, choices)
    if backend_at(place).chip is None:
        require_no_choice(choices)
        result = multiply_on_host(arguments)
        if is_repeatable(key, arguments) and isinstance(AGAIN.get(key), on_host().OnHost | None):
            again = on_host().fast_path_on_host(arguments)
            if again is not None:
                remember(AGAIN, key, again)
        return result
    ready = prepared(arguments, place, choices, stream)
    again_met, ready.met = ready.met, True
    result = ready.run(arguments, stream)
    if again_met and is_repeatable(key, arguments):
        again = fast_path(ready, arguments)
        if again is not None:
            remember(AGAIN, key, again)
    return result


def is_repeatable(key: Any, arguments: Arguments) -> bool:
    """What rounds to zero or one asks for another problem than it seems to, and the next number may not."""
    operation = arguments.operation
    return key is not None and asked_of(operation.alpha, operation.beta) == asked_of(*arguments.alpha_beta)


def prepared(arguments: Arguments, place: int | str, choices: Choices, stream: Any = None) -> Prepared:
    """The multiplication prepared for this problem. What holds addresses of a workspace serves one call.
    While a graph is captured nothing changes.
    """
    way = way_of(choices.compile)

    def captured() -> bool:
        return backend_at(place).is_captured(stream, arguments.a.framework)

    def made() -> Prepared:
        keeps = choices.workspace is not None or (way == BACKGROUND and captured())
        return Prepared(arguments, place, choices, None if keeps else way, problem)

    problem = arguments.problem()
    if choices.workspace is not None:
        return made()
    key = problem, place, choices, arguments.a.framework
    ready = PREPARED.get(key)
    if ready is None:
        ready = made()
        remember(PREPARED, key, ready)
    elif not ready.settled and not captured():
        ready.improve()
    return ready


def remember(known: dict[Any, Any], key: Any, value: Any) -> None:
    if len(known) >= PREPARED_LIMIT:
        known.clear()
    known[key] = value
