"""Products where kernels are planned: prepared once for each problem, and their fast paths made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lapidist.backends.selection import backend_at
from lapidist.build.compile_policy import BACKGROUND, Compiling, way_of
from lapidist.calls import remembered
from lapidist.calls.bound import Bound
from lapidist.calls.call import Call
from lapidist.calls.destination import place_for
from lapidist.calls.kernel_choice import OPEN, Choices
from lapidist.calls.prepared import Prepared
from lapidist.calls.remembered import AGAIN, BESIDE, ROWS, remember, with_arrays
from lapidist.calls.repeat.fast_path import fast_path
from lapidist.calls.repeat.new_rows import new_rows
from lapidist.calls.repeat.scalars import is_repeatable
from lapidist.problems.problem import Problem


def run(key: Any, bound: Bound, choices: Choices, stream: Any, rows: Any = None) -> Any:
    """Plan and launch; the second call with this key makes a fast path. `rows`: the key of calls that differ
    in their rows alone.
    """
    ready = prepared(bound, choices, stream)
    again_met, ready.met = ready.met, True
    result = ready.run(bound, stream)
    if again_met and is_repeatable(key, bound):
        again = fast_path(ready, bound)
        if again is not None:
            remember(AGAIN, key, again)
    if rows is not None and not again_met and ready.direct and ready.like.framework == "torch":
        of_rows = new_rows(ready, bound)
        if of_rows is not None:
            remember(ROWS, rows, of_rows)
    return result


def run_beside(key: Any, bound: Bound, call: Call) -> Any:
    """Plan and launch a product with arrays beside its matrices; its second call makes the fast path."""
    ready = prepared(bound, call.choices, call.stream)
    again_met, ready.met = ready.met, True
    result = ready.run(bound, call.stream)
    again = with_arrays().fast_path_beside(ready, bound, call, result) if again_met else None
    if again is not None:
        remember(BESIDE, key, again)
    return result


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


def prepared(bound: Bound, choices: Choices, stream: Any = None) -> Prepared:
    """The multiplication prepared for this problem. One that holds a caller's workspace is not remembered."""
    place, problem, framework = place_for(bound, choices), bound.problem(), bound.a.framework
    if choices.workspace is not None:
        return Prepared(bound, place, choices, None, problem)

    def made(way: Compiling | None) -> Prepared:
        return Prepared(bound, place, choices, way, problem)

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
    ready, way = remembered.PREPARED.get(key), way_of(choices.compile)
    if ready is None:
        keeps = way == BACKGROUND and backend_at(place).is_captured(stream, framework)
        ready = made(None if keeps else way)
        remember(remembered.PREPARED, key, ready)
    elif not ready.settled:
        if way == BACKGROUND and ready.is_captured(stream):
            ready.settle()
        else:
            ready.improve()
    return ready
