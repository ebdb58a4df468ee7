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
from lapidist_lab.fuzz.memory_layouts import Array, numbers_in
from lapidist_lab.fuzz.random_calls import Call
from lapidist_lab.fuzz.references import as_product, compared, expected_of

RIGHT, REFUSED, EITHER, WRONG = "right", "refused", "either", "WRONG"
REFUSALS = (ShapeError, StrideError, DTypeError, ArgumentError, DeviceError, RefusalError)
NAMES = {*signature(api.gemm).parameters, "addend", "alignment", "shape", "strides", "symmetric"}


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
    """Whether a refusal is right: of a kernel or schedule by name, or of indices for a batch in several
    dimensions."""
    by_matrix = 2 in (call.kind.gather_a, call.kind.gather_b, call.kind.scatter_d)
    return bool(call.kind.choices) or (by_matrix and len(call.batch) > 2)


def names_an_argument(error: LapidistError) -> bool:
    """Whether the message begins with arguments, or gives the reasons of all kernels."""
    match = re.match(r"([\w, ]+):", re.sub(r"\[\d+\]", "", str(error)))
    return isinstance(error, RefusalError) or bool(match and set(re.split(r", | and ", match[1])) & NAMES)


def judge_result(
    call: Call, arena: Arena, passed: dict[str, Any], result: Any, after: Array, small_integers: bool
) -> tuple[str, str]:
    if call.expected == REFUSED:
        return WRONG, "was not refused"
    wrong = (
        wrong_object(call, passed, result)
        or wrong_numbers(call, arena, result, after, small_integers)
        or touched(call, arena, after)
    )
    return (WRONG, wrong) if wrong else (RIGHT, "")


def wrong_object(call: Call, passed: dict[str, Any], result: Any) -> str:
    """What is wrong with the result as an object: it is `out`, or new, of a's framework and the product's
    shape."""
    if "out" in passed:
        same = result is passed["out"] or (
            call.kind.many and all(x is y for x, y in zip(result, passed["out"], strict=True))
        )
        return "" if same else "the result is not out"
    of_a = passed["a"]
    if call.kind.many and (not isinstance(result, list) or len(result) != len(of_a)):
        return f"the result is no list of {len(of_a)}"
    first, like = (result[0], of_a[0]) if call.kind.many else (result, of_a)
    number = isinstance(first, np.generic) and isinstance(like, np.ndarray)  # as numpy.matmul returns one
    if not number and type(first) is not type(like):
        return f"the result is a {type(first).__name__}"
    result_facts, expected_facts = (
        (tuple(first.shape), str(first.dtype).rpartition(".")[2]),
        (product_shape(call), call.kind.out),
    )
    return "" if result_facts == expected_facts else f"the result is {result_facts}, not {expected_facts}"


def product_shape(call: Call) -> tuple[int, ...]:
    """The shape of the product for the caller."""
    m, n, _ = call.extents
    vectors = call.kind.vectors
    return (*call.batch, *(() if "a" in vectors else (m,)), *(() if "b" in vectors else (n,)))


def wrong_numbers(call: Call, arena: Arena, result: Any, after: Array, small_integers: bool) -> str:
    for i in range(len(call.views["a"])):
        if "out" in call.views:
            output = numbers_in(arena.array_in(after, call.views["out"][i]))
        else:
            output = numbers_in(fetched(result[i] if call.kind.many else result, call.kind.out))
        expected, product = expected_of(call, arena, i, small_integers), as_product(call, arena, output)
        of = f" of number {i}" if call.kind.many else ""
        shape = list(expected.reference.shape)
        shape[-1] //= 2 if call.kind.is_complex else 1  # the reference has their parts in turn
        if product.shape != tuple(shape):
            return f"the result{of} is {product.shape}, not {tuple(shape)}"
        if call.kind.triangle:
            if not is_other_half_unchanged(call, arena, output):
                return "the other half is not what it was"
            product = lower_half_twice(product, call.kind.triangle)
        mirrored = product.swapaxes(-1, -2).conj()
        if call.kind.symmetric and not np.array_equal(product, mirrored, equal_nan=True):
            return "the result is not symmetric"
        verdict = compared(expected, product)
        if not verdict.ok:
            return f"element {list(verdict.where)}{of} is off by {verdict.worst:.3g} times its bound"
    return ""


def is_other_half_unchanged(call: Call, arena: Arena, output: Array) -> bool:
    """Of `out` as it was, of a new array zero."""
    place = np.tri(output.shape[-1], k=-1, dtype=bool)
    other = place.T if call.kind.triangle == "lower" else place
    if "out" not in call.views:
        return not output[..., other].any()
    before = numbers_in(arena.array_in(arena.image, call.view("out")))
    return np.array_equal(as_bytes(before[..., other]), as_bytes(output[..., other]))


def lower_half_twice(product: Array, half: str) -> Array:
    """The half that was written, and its mirror image."""
    result = np.array(product)
    for row in range(product.shape[-1]):
        above, below = (..., row, slice(row + 1, None)), (..., slice(row + 1, None), row)
        to, of = (above, below) if half == "lower" else (below, above)
        result[to] = np.conj(result[of])
    return result


def touched(call: Call, arena: Arena, after: Array) -> str:
    """What has changed beside the output's elements; empty if nothing has."""
    expected = arena.image.copy()
    for view in call.views.get("out", ()):
        place, written = as_bytes(arena.array_in(expected, view)), as_bytes(arena.array_in(after, view))
        if call.kind.scatter_d:
            copy_rows(place, written, arena.array_in(arena.image, call.view("scatter_d")))
        else:
            place[...] = written
    if np.array_equal(expected, after):
        return ""
    at = int(np.flatnonzero(expected != after)[0])
    region = max(
        (start, name) for name, start in arena.at.items() if start <= max(at, min(arena.at.values()))
    )
    return f"byte {at - region[0]} of the memory of {region[1]} has changed"


def as_bytes(array: Array) -> Array:
    """The array as its bytes: a copy of floats may change the bits of a NaN."""
    return array.view(f"V{array.dtype.itemsize}")


def copy_rows(place: Array, written: Array, index: Array) -> None:
    index = np.broadcast_to(index, (*place.shape[:-2], index.shape[-1]))
    np.put_along_axis(place, index[..., None], np.take_along_axis(written, index[..., None], -2), -2)
