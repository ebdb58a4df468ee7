"""The source text of a fast path with further arrays, generated for the arrays and numbers of one form of
call.

Picking them out in loops took a fifth of the call's time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

NAMES = (
    "alike, alike_by_parts, new, made_of, moved, start, recorded, stream_of, handle_of, count_write, refused,"
    " known"
)


class Layout(NamedTuple):
    """Which arrays and numbers a call has, by their indices in Beside."""

    beside: int  # length of the tuple
    arrays: tuple[int, ...]
    numbers: tuple[int, ...]
    has_c: bool
    own_c: bool  # C is read, and is not D
    in_place: bool  # C is D
    further: int  # results beside D


def text_of(layout: Layout) -> str:
    every = [f"x{place}" for place in range(layout.beside)]
    arrays, numbers = ([every[place] for place in wanted] for wanted in (layout.arrays, layout.numbers))
    nones = sorted(set(every) - {*arrays, *numbers})
    results = [f"r{number}" for number in range(layout.further)]
    tensors = ["a", "b", "d", *(["c"] if layout.own_c else []), *arrays, *results]
    given, addresses = ", ".join(tensors), ", ".join(f"{each}.data_ptr()" for each in tensors)
    changed = " or ".join(
        ["at != last[0]", *(f"{each} is not last[1][{number}]" for number, each in enumerate(numbers))]
    )
    if layout.further:
        outputs = f"d, {', '.join(results)} = results = made_of(out)"
        written, result = "tuple(x for x in out if x is not None)", "results"
    else:
        outputs, written, result = "d = new() if made else out", "(d,)", "d"
    return f"""
def written({NAMES}):
    def again(a, b, c, out, values, stream):
        nonlocal known
        try:
            {listed(every)} = values
            if c is {"" if layout.has_c else "not "}None{" or not (" + chain(nones) + ")" if nones else ""}:
                return None
            made = out is None
            {outputs}
            if {"c is not d or " if layout.in_place else ""}not (alike({given}) or alike_by_parts({given})):
                return None
            at = {addresses}
            last = known
            if {changed}:
                last = moved(at, {listed(numbers)}, values, last, made)
                if last is None:
                    return None
                known = last
        except refused:
            return None
        if recorded():
            return None
        start(last[2], last[3], stream_of() if stream is None else handle_of(stream), last[4])
        if not made:
            count_write({written})
        return {result}

    return again
"""


def listed(names: Sequence[str]) -> str:
    return f"({''.join(f'{each}, ' for each in names)})"


def chain(names: Sequence[str]) -> str:
    return " is ".join([*names, "None"])


@lru_cache(maxsize=256)
def written_out(layout: Layout) -> Callable[..., Any]:
    """A function that takes the values of NAMES, in their order, and returns the fast path."""
    space: dict[str, Any] = {}
    exec(compile(text_of(layout), f"<{layout}>", "exec"), space)
    return space["written"]  # type: ignore[no-any-return]
