"""Whether a case ended as it must: right within the bound of verify.py, or refused in words; and nothing else
was touched.
"""

from __future__ import annotations

import re
from inspect import signature
from typing import Any

import numpy as np

from lapidist import api
from lapidist.errors import (
    ArgumentError,
    DeviceError,
    DTypeError,
    LapidistError,
    RefusalError,
    ShapeError,
    StrideError,
)
from lapidist_lab.fuzz.buffers import Arena, fetched
from lapidist_lab.fuzz.memory_layouts import Array
from lapidist_lab.fuzz.random_calls import Call
from lapidist_lab.fuzz.references import as_product, compared, expected_of

RIGHT, REFUSED, EITHER, WRONG = "right", "refused", "either", "WRONG"
REFUSALS = (ShapeError, StrideError, DTypeError, ArgumentError, DeviceError, RefusalError)
NAMES = {*signature(api.gemm).parameters, "addend", "alignment", "shape", "strides"}


def judge_error(call: Call, error: BaseException, untouched: bool) -> tuple[str, str]:
    text = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    if not isinstance(error, REFUSALS):
        return WRONG, f"raised {text}"
    if not untouched:
        return WRONG, f"arrays have changed, and it was refused: {text}"
    if call.expected == RIGHT and not may_refuse(call):
        return WRONG, f"refused: {text}"
    if not names_an_argument(error):
        return WRONG, f"names no argument: {text}"
    return REFUSED, text


def may_refuse(call: Call) -> bool:
    """A kernel or a schedule by hand; and indices of each matrix are for batches that one launch takes."""
    each = 2 in (call.kind.gather_a, call.kind.gather_b, call.kind.scatter_d)
    return bool(call.kind.choices) or (each and len(call.batch) > 2)


def names_an_argument(error: LapidistError) -> bool:
    """In front of its rule. Of a problem that no kernel takes, each kernel's reason is given instead."""
    found = re.match(r"([\w, ]+):", str(error))
    return isinstance(error, RefusalError) or bool(found and set(re.split(r", | and ", found[1])) & NAMES)


def judge_result(
    call: Call, arena: Arena, given: dict[str, Any], result: Any, after: Array, whole: bool
) -> tuple[str, str]:
    if call.expected == REFUSED:
        return WRONG, "was not refused"
    wrong = (
        wrong_object(call, given, result)
        or wrong_numbers(call, arena, result, after, whole)
        or touched(call, arena, after)
    )
    return (WRONG, wrong) if wrong else (RIGHT, "")


def wrong_object(call: Call, given: dict[str, Any], result: Any) -> str:
    """`out` itself, or new arrays of a's framework, of the shape and the type that were asked for."""
    if "out" in given:
        same = result is given["out"] or (
            call.kind.many and all(x is y for x, y in zip(result, given["out"], strict=True))
        )
        return "" if same else "the result is not out"
    of_a = given["a"]
    if call.kind.many and (not isinstance(result, list) or len(result) != len(of_a)):
        return f"the result is no list of {len(of_a)}"
    first, like = (result[0], of_a[0]) if call.kind.many else (result, of_a)
    number = isinstance(first, np.generic) and isinstance(like, np.ndarray)  # as numpy.matmul returns one
    if not number and type(first) is not type(like):
        return f"the result is a {type(first).__name__}"
    found, wanted = (
        (tuple(first.shape), str(first.dtype).rpartition(".")[2]),
        (product_shape(call), call.kind.out),
    )
    return "" if found == wanted else f"the result is {found}, not {wanted}"


def product_shape(call: Call) -> tuple[int, ...]:
    """As the caller sees it."""
    m, n, _ = call.extents
    vectors = call.kind.vectors
    return (*call.batch, *(() if "a" in vectors else (m,)), *(() if "b" in vectors else (n,)))


def wrong_numbers(call: Call, arena: Arena, result: Any, after: Array, whole: bool) -> str:
    for i in range(len(call.views["a"])):
        if "out" in call.views:
            found = arena.seen(after, call.views["out"][i])
        else:
            found = fetched(result[i] if call.kind.many else result, call.kind.out)
        verdict = compared(expected_of(call, arena, i, whole), as_product(call, arena, found))
        if not verdict.ok:
            of = f" of number {i}" if call.kind.many else ""
            return f"element {list(verdict.where)}{of} is off by {verdict.worst:.3g} times its bound"
    return ""


def touched(call: Call, arena: Arena, after: Array) -> str:
    """Everything but the output's elements must be as it was, bit for bit."""
    wanted = arena.image.copy()
    for view in call.views.get("out", ()):
        place, written = as_bytes(arena.seen(wanted, view)), as_bytes(arena.seen(after, view))
        if call.kind.scatter_d:
            copy_rows(place, written, arena.seen(arena.image, call.view("scatter_d")))
        else:
            place[...] = written
    if np.array_equal(wanted, after):
        return ""
    at = int(np.flatnonzero(wanted != after)[0])
    region = max(
        (start, name) for name, start in arena.at.items() if start <= max(at, min(arena.at.values()))
    )
    return f"byte {at - region[0]} of the memory of {region[1]} has changed"


def as_bytes(array: Array) -> Array:
    """Integers of the same size: a copy of a float may change the bits of a NaN."""
    return array.view(f"u{array.dtype.itemsize}")


def copy_rows(place: Array, written: Array, index: Array) -> None:
    index = np.broadcast_to(index, (*place.shape[:-2], index.shape[-1]))
    np.put_along_axis(place, index[..., None], np.take_along_axis(written, index[..., None], -2), -2)
