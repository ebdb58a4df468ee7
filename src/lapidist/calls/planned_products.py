"""Products where kernels are planned: prepared once for each problem, and their fast paths made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lapidist.backends.selection import backend_at
from lapidist.build.compile_policy import BACKGROUND, Compiling, way_of
from lapidist.calls import repeat
from lapidist.calls.bound import Bound
from lapidist.calls.call import Call
from lapidist.calls.destination import place_for
from lapidist.calls.kernel_choice import OPEN, Choices
from lapidist.calls.prepared import Prepared
from lapidist.calls.repeat import ARRAY_PATHS, MATRIX_PATHS, ROWS, remember
from lapidist.calls.repeat.fast_path import fast_path
from lapidist.calls.repeat.new_rows import new_rows
from lapidist.calls.repeat.scalars import is_repeatable
from lapidist.problems.problem import Problem


def run(key: Any, bound: Bound, choices: Choices, stream: Any, rows: Any = None) -> Any:
    """Plan and launch; the second call with this key makes a fast path. `rows`: the key of calls that differ
    in their rows alone.
    """
    ready = prepared(bound, choices, stream)
    was_called, ready.was_called = ready.was_called, True
    result = ready.run(bound, stream)
    if was_called and is_repeatable(key, bound):
        replay = fast_path(ready, bound)
        if replay is not None:
            remember(MATRIX_PATHS, key, replay)
    if rows is not None and not was_called and ready.direct and ready.like.framework == "torch":
        of_rows = new_rows(ready, bound)
        if of_rows is not None:
            remember(ROWS, rows, of_rows)
    return result


def run_with_arrays(key: Any, bound: Bound, call: Call) -> Any:
    """Plan and launch a product with arrays beside its matrices; its second call makes the fast path."""
    ready = prepared(bound, call.choices, call.stream)
    was_called, ready.was_called = ready.was_called, True
    result = ready.run(bound, call.stream)
    if not was_called:
        return result
    from lapidist.calls.repeat.with_arrays import fast_path_with_arrays

    replay = fast_path_with_arrays(ready, bound, call, result)
    if replay is not None:
        remember(ARRAY_PATHS, key, replay)
    return result


def of_new_rows(a: Any, b: Any, rows: Any, key: Any, stream: Any) -> Any:
    """Like an earlier product, but with other rows. From the second call on it has a fast path under its own
    `key`. None: the full path must check the call, or `rows` is None.
    """
    try:
        of_rows = ROWS.get(rows)
    except TypeError:  # a compiler's symbols for sizes have no hash
        return None
    result_and_ready = None if of_rows is None else of_rows(a, b, stream, prepared_with_rows)
    if of_rows is None or result_and_ready is None:
        return None
    result, ready = result_and_ready
    if ready.was_called:
        remember(MATRIX_PATHS, key, of_rows.replay(ready, tuple(result.shape)))
    ready.was_called = True
    return result


def prepared(bound: Bound, choices: Choices, stream: Any = None) -> Prepared:
    """The multiplication prepared for this problem. One that holds a caller's workspace is not remembered."""
    place, problem, framework = place_for(bound, choices), bound.problem(), bound.a.framework
    if choices.workspace is not None:
        return Prepared(bound, place, choices, None, problem)

    def new(way: Compiling | None) -> Prepared:
        return Prepared(bound, place, choices, way, problem)

    return cached_or_new((problem, place, choices, framework), new, stream)


def prepared_with_rows(problem: Problem, other: Prepared, stream: Any) -> Prepared:
    """The same for a problem that differs from that of `other` in its rows alone."""

    def new(way: Compiling | None) -> Prepared:
        return Prepared.with_rows(other, problem, way)

    return cached_or_new((problem, other.place, OPEN, other.like.framework), new, stream)


def cached_or_new(key: Any, new: Callable[[Compiling | None], Prepared], stream: Any) -> Prepared:
    """The remembered multiplication, or a new one. A graph that is captured keeps the best kernels, so the
    call waits for them.
    """
    _, place, choices, framework = key
    ready, policy = repeat.PREPARED.get(key), way_of(choices.compile)
    if ready is None:
        keeps = policy == BACKGROUND and backend_at(place).is_captured(stream, framework)
        ready = new(None if keeps else policy)
        remember(repeat.PREPARED, key, ready)
    elif not ready.settled:
        if policy == BACKGROUND and ready.is_captured(stream):
            ready.settle()
        else:
            ready.improve()
    return ready
