"""What the output of a case must be: what the arrays held before, brought into the form that verify.py
compares.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from lapidist.dtypes import TYPES, numpy_dtype
from lapidist_lab.fuzz.buffers import Arena
from lapidist_lab.fuzz.drawn_kinds import Kind
from lapidist_lab.fuzz.memory_layouts import Array
from lapidist_lab.fuzz.random_calls import Call
from lapidist_lab.verify import Expected, Verdict, expect


def compared(expected: Expected, found: Array) -> Verdict:
    """Infinity and NaN must be the same; where they are, nothing is left to compare."""
    odd = ~np.isfinite(expected.reference)
    if odd.any():
        d = found.astype(np.float64)
        same = odd & ((d == expected.reference) | (np.isnan(d) & np.isnan(expected.reference)))
        reference = np.where(same, 0.0, expected.reference)
        bound = expected.bound if expected.bound is None else np.where(same, 1.0, expected.bound)
        expected, found = replace(expected, reference=reference, bound=bound), np.where(same, 0.0, d)
    with np.errstate(all="ignore"):
        return expected.judge(found)


def by_numpy(a: Array, b: Array, dtype: str) -> Expected:
    """Floats within the bound of their type; integers, wrapped as NumPy wraps them, and truth values are
    equal.
    """
    a, b = a.astype(dtype), b.astype(dtype)
    with np.errstate(all="ignore"):
        if a.dtype.kind == "f":
            return expect(a, b, out_dtype=a.dtype)
        return Expected(np.matmul(a, b).astype(np.float64), None)


def expected_of(call: Call, arena: Arena, number: int, whole: bool) -> Expected:
    """Of what lay in the arrays before."""
    kind, k = call.kind, call.extents[2]
    before = {
        name: arena.seen(arena.image, views[min(number, len(views) - 1)])
        for name, views in call.views.items()
    }
    a = taken(matrix(before["a"], kind.vectors, "a", kind.trans_a), before.get("gather_a"), -2)
    b = taken(matrix(before["b"], kind.vectors, "b", kind.trans_b), before.get("gather_b"), -1)
    if call.changed == "negated" and number == 0:
        a = -a
    if kind.by_numpy:
        return by_numpy(a, b, kind.out)
    alpha, beta = (
        before[name].item() if name in before else getattr(call, name) for name in ("alpha", "beta")
    )
    if kind.alpha == "zero" or not k:
        a, b = np.zeros_like(a), np.zeros_like(b)
    c = taken(before["c"], before.get("scatter_d"), -2) if kind.beta != "zero" else None
    scales = {name: before.get(name, call.options.get(name)) for name in ("scale_a", "scale_b")}
    more: dict[str, Any] = {
        "accumulator": kind.accumulator,
        "precision": kind.precision,
        "promoted": promoted(call),
        **scales,
    }
    rounded: Any = 0.0
    if (
        kind.addend
    ):  # counts as part of C; where the two cancel, the sum of one of them was rounded all the same
        own, addend = 0.0 if c is None else beta * c.astype(np.float64), addend_of(kind, before)
        c, beta, rounded = own + addend, 1.0, abs(own) + abs(addend)
    with np.errstate(all="ignore"):
        found = expect(a, b, c, alpha, beta, out_dtype=numpy_dtype(kind.out), exact=whole, **more)
    if found.bound is None:
        return found
    roundoff = TYPES["float64" if kind.sums == "float64" else "float32"].roundoff
    return replace(found, bound=found.bound + 4 * roundoff * rounded)


def addend_of(kind: Kind, before: dict[str, Array]) -> Array:
    """As a matrix that broadcasts to the product. Its rows are scattered as those of C are."""
    found: Array = before["addend"].astype(np.float64)
    if kind.addend == "row":
        return found
    return taken(found if kind.addend == "tile" else found[:, None], before.get("scatter_d"), -2)


def promoted(call: Call) -> bool:
    return bool(call.kind.promote) or bool({"strips", "squares"} & {call.kind.scale_a, call.kind.scale_b})


def matrix(array: Array, vectors: str, name: str, transposed: bool) -> Array:
    if name in vectors:
        return array[:, None] if name == "b" else array[None, :]
    return array.swapaxes(-1, -2) if transposed else array


def taken(array: Array, index: Array | None, axis: int) -> Array:
    """Rows or columns by the same indices for all matrices, or by each one's own."""
    if index is None:
        return array
    if index.ndim == 1:
        return np.take(array, index, axis)
    whole = np.broadcast_to(array, (*index.shape[:-1], *array.shape[-2:]))
    return np.take_along_axis(whole, np.expand_dims(index, -3 - axis), axis)


def as_product(call: Call, arena: Arena, found: Array) -> Array:
    """The output's elements as m x n: scattered rows where they belong, permuted ones in order, without
    dropped dimensions.
    """
    m, n, _ = call.extents
    if call.kind.scatter_d:
        return taken(found, arena.seen(arena.image, call.view("scatter_d")), -2)
    return found.reshape((*call.batch, m, n))
