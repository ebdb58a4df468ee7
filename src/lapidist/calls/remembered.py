"""Fast paths and prepared multiplications of earlier calls, remembered for later ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from lapidist.backends.selection import backend_at
from lapidist.build.compile_policy import BACKGROUND, Compiling, way_of
from lapidist.calls.arguments import Arguments
from lapidist.calls.call import Call
from lapidist.calls.executable import Prepared, multiply_on_host, place_for, require_no_choice
from lapidist.calls.kernel_choice import OPEN, Choices
from lapidist.calls.numpy_protocols import product
from lapidist.calls.repeat.fast_path import Again, fast_path, fast_path_on_host
from lapidist.calls.repeat.new_rows import NewRows, new_rows
from lapidist.calls.repeat.scalars import asked_of
from lapidist.calls.repeat.shape import (
    Shape,
    beside,
    key_beside,
    key_of_lists,
    key_of_matrices,
    key_of_rows_of,
)
from lapidist.errors import explained
from lapidist.frameworks.streams import require_stream

if TYPE_CHECKING:
    from lapidist.calls.repeat.list_repeat import AgainLists
    from lapidist.calls.repeat.with_arrays import AgainBeside
    from lapidist.problems.problem import Problem

PREPARED_LIMIT = 4096  # entries of each dictionary; a program that exceeds it starts over
PREPARED: dict[Any, Prepared] = {}  # by problem, device, choices and framework
AGAIN: dict[Shape, Again] = {}  # fast paths of matrices alone
ROWS: dict[Shape, NewRows] = {}  # for products with new rows
BESIDE: dict[Shape, AgainBeside] = {}  # fast paths of calls with arrays apart from a, b, c and out
LISTS: dict[Shape, AgainLists] = {}  # fast paths of lists of matrices


# ---- modules imported by the first call that needs them, so that other processes start sooner ----


@cache
def with_arrays() -> Any:
    from lapidist.calls.repeat import with_arrays

    return with_arrays


@cache
def of_lists() -> Any:
    from lapidist.calls.repeat import list_repeat

    return list_repeat


# ---- a call ----


@explained
def multiplied(call: Call) -> Any:
    """The full path, after matmul or gemm found no fast path by the arrays alone."""
    if not call.operation.is_plain:
        return multiplied_beside(call)
    key = key_of_matrices(call)
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
    rows = key_of_rows_of(call)
    result = None if rows is None else of_new_rows(call.a, call.b, rows, key, call.stream)
    return run(key, call.arguments(), call.choices, call.stream, rows) if result is None else result


def of_new_rows(a: Any, b: Any, rows: Any, key: Any, stream: Any) -> Any:
    """Like an earlier product, but with other rows. From the second call on it has a fast path under its own
    `key`. None: the full path must check the call.
    """
    of_rows = ROWS.get(rows)
    found = None if of_rows is None else of_rows(a, b, stream, prepared_with_rows)
    if of_rows is None or found is None:
        return None
    result, ready = found
    if ready.met:
        remember(AGAIN, key, of_rows.again(ready, tuple(result.shape)))
    ready.met = True
    return result


def multiplied_beside(call: Call) -> Any:
    """A product with factors, indices, an epilogue, or alpha and beta in arrays."""
    key = key_beside(call)
    again = None if key is None else BESIDE.get(key)
    if again is not None:
        result = again(call.a, call.b, call.c, call.out, beside(call.operation), call.stream)
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
    again = with_arrays().fast_path_beside(ready, arguments, call, result) if again_met else None
    if again is not None:
        remember(BESIDE, key, again)
    return result


@explained
def multiplied_lists(call: Call) -> Any:
    call = call.of_lists()
    if call.of_none:
        return []
    key = key_of_lists(call)
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


def run(key: Any, arguments: Arguments, choices: Choices, stream: Any, rows: Any = None) -> Any:
    """Check nothing more, but plan and launch; then make the fast path that calls with this key take next.
    `rows`: the key of calls that differ in their rows alone.
    """
    require_stream(stream)
    place = place_for(arguments, choices)
    if backend_at(place).chip is None:
        require_no_choice(choices)
        result = multiply_on_host(arguments)
        if is_repeatable(key, arguments):
            again = fast_path_on_host(arguments)
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
    if rows is not None and not again_met and ready.direct and ready.like.framework == "torch":
        of_rows = new_rows(ready, arguments)
        if of_rows is not None:
            remember(ROWS, rows, of_rows)
    return result


def is_repeatable(key: Any, arguments: Arguments) -> bool:
    """Whether the key tells the problem. An alpha that rounds to 0 or 1 in the sums' type asks for another
    problem than the next alpha with the same key.
    """
    operation = arguments.operation
    return key is not None and asked_of(operation.alpha, operation.beta) == asked_of(*arguments.alpha_beta)


def prepared(arguments: Arguments, place: int | str, choices: Choices, stream: Any = None) -> Prepared:
    """The multiplication prepared for this problem. One that holds a caller's workspace is not remembered."""
    problem, framework = arguments.problem(), arguments.a.framework
    if choices.workspace is not None:
        return Prepared(arguments, place, choices, None, problem)

    def made(way: Compiling | None) -> Prepared:
        return Prepared(arguments, place, choices, way, problem)

    return known_or_made((problem, place, choices, framework), made, stream)


def prepared_with_rows(problem: Problem, other: Prepared, stream: Any) -> Prepared:
    """The same for a problem that differs from that of `other` in its rows alone."""

    def made(way: Compiling | None) -> Prepared:
        return Prepared.with_rows(other, problem, way)

    return known_or_made((problem, other.place, OPEN, other.like.framework), made, stream)


def known_or_made(key: Any, made: Callable[[Compiling | None], Prepared], stream: Any) -> Prepared:
    """The remembered multiplication, or a new one. A graph that is captured keeps the best kernels, so the
    call waits for them.
    """
    _, place, choices, framework = key
    ready, way = PREPARED.get(key), way_of(choices.compile)
    if ready is None:
        keeps = way == BACKGROUND and backend_at(place).is_captured(stream, framework)
        ready = made(None if keeps else way)
        remember(PREPARED, key, ready)
    elif not ready.settled:
        if way == BACKGROUND and ready.is_captured(stream):
            ready.settle()
        else:
            ready.improve()
    return ready


def remember(known: dict[Any, Any], key: Any, value: Any) -> None:
    if len(known) >= PREPARED_LIMIT:
        known.clear()
    known[key] = value
