"""What the output of a case must be: what the arrays held before, brought into the form that verify.py
compares.
"""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any

import numpy as np

from lapidist.dtypes import COMPLEX_HALVES, PART_OF, TYPES
from lapidist.verify.real_parts import parts_in_turn
from lapidist.verify.sum_bound import Expected, Verdict, expect
from lapidist_lab.fuzz.buffers import Arena
from lapidist_lab.fuzz.drawn_kinds import Kind, Op
from lapidist_lab.fuzz.memory_layouts import Array, numbers_in
from lapidist_lab.fuzz.random_calls import Call


def compared(expected: Expected, output: Array) -> Verdict:
    """The verdict. Infinity and NaN must be equal, and are left out of the comparison."""
    odd = ~np.isfinite(expected.reference)
    if odd.any():
        d = output.astype(np.float64)
        same = odd & ((d == expected.reference) | (np.isnan(d) & np.isnan(expected.reference)))
        reference = np.where(same, 0.0, expected.reference)
        bound = expected.bound if expected.bound is None else np.where(same, 1.0, expected.bound)
        expected, output = replace(expected, reference=reference, bound=bound), np.where(same, 0.0, d)
    with np.errstate(all="ignore"):
        return expected.judge(output)


def by_numpy(a: Array, b: Array, dtype: str) -> Expected:
    """NumPy's product: floats within the bound of their type; integers, which wrap, and bools equal."""
    a, b = a.astype(dtype), b.astype(dtype)
    with np.errstate(all="ignore"):
        if a.dtype.kind == "f":
            return expect(a, b, out_dtype=a.dtype)
        return Expected(np.matmul(a, b).astype(np.float64), None)


def expected_of(call: Call, arena: Arena, number: int, small_integers: bool) -> Expected:
    """The output that follows from what the arrays held before."""
    kind, k = call.kind, call.extents[2]
    before = {
        name: numbers_in(arena.array_in(arena.image, views[min(number, len(views) - 1)]))
        for name, views in call.views.items()
    }
    a = selected(matrix(before["a"], kind.vectors, "a", kind.trans_a), before.get("gather_a"), -2)
    b = selected(matrix(before["b"], kind.vectors, "b", kind.trans_b), before.get("gather_b"), -1)
    if call.changed in ("negated", "conjugated") and number == 0:
        a = -a if call.changed == "negated" else a.conj()
    if kind.by_numpy:
        return by_numpy(a, b, kind.out)
    alpha, beta = (
        before[name].item() if name in before else getattr(call, name) for name in ("alpha", "beta")
    )
    if kind.is_complex and kind.symmetric:  # a a^H, or a^H a
        a, b = (a.conj(), b) if kind.trans_a else (a, b.conj())
    if kind.alpha == "zero" or not k:
        a, b = np.zeros_like(a), np.zeros_like(b)
    c = selected(before["c"], before.get("scatter_d"), -2) if kind.beta != "zero" else None
    if c is not None and kind.is_complex:  # numbers that repeat do not repeat by their parts
        c = np.broadcast_to(c, (*c.shape[:-1], b.shape[-1]))
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
        addend = addend_of(kind, before)
        from_c = np.zeros_like(addend) if c is None else beta * c.astype(addend.dtype)
        c, beta = from_c + addend, 1.0
        rounded = abs(from_c) + abs(addend)
        if kind.is_complex:  # the parts of each factor of C meet
            c, rounded = (np.broadcast_to(x, (*x.shape[:-1], b.shape[-1])) for x in (c, 2 * rounded))
            rounded = parts_in_turn(rounded + 1j * rounded)
    if COMPLEX_HALVES in (kind.a, kind.b):
        a, b, c = map(as_halves, (a, b, c))
    with np.errstate(all="ignore"):
        expected = expect(a, b, c, alpha, beta, out_dtype=kind.out, exact=small_integers, **more)
    if COMPLEX_HALVES in (kind.a, kind.b):
        bound = None if expected.bound is None else np.asarray(expected.bound)
        expected = Expected(np.asarray(expected.reference), bound)
    if expected.bound is None:
        return expected
    part = PART_OF.get(kind.sums, kind.sums)
    roundoff = TYPES["float64" if part == "float64" else "float32"].roundoff
    return replace(expected, bound=expected.bound + 4 * roundoff * rounded)


def as_halves(array: Array | None) -> Any:
    """Operands as torch has them, whose numbers are halves; what is wider stays so."""
    if array is None:
        return None
    torch = importlib.import_module("torch")
    tensor = torch.from_numpy(np.array(array))
    return tensor.to(torch.complex32) if tensor.dtype is torch.complex64 else tensor


def addend_of(kind: Kind, before: dict[str, Array]) -> Array:
    """The addend as a matrix that broadcasts to the product; its rows are scattered like C's."""
    addend: Array = before["addend"].astype(np.complex128 if kind.is_complex else np.float64)
    if kind.addend == "row":
        return addend
    return selected(addend if kind.addend == "tile" else addend[:, None], before.get("scatter_d"), -2)


def promoted(call: Call) -> bool:
    return bool(call.kind.promote) or bool({"strips", "squares"} & {call.kind.scale_a, call.kind.scale_b})


def matrix(array: Array, vectors: str, name: str, transposed: Op) -> Array:
    if name in vectors:
        return array[:, None] if name == "b" else array[None, :]
    array = array.conj() if transposed == "C" else array
    return array.swapaxes(-1, -2) if transposed else array


def selected(array: Array, index: Array | None, axis: int) -> Array:
    """Rows or columns by the same indices for all matrices, or by those of each."""
    if index is None:
        return array
    if index.ndim == 1:
        return np.take(array, index, axis)
    broadcast = np.broadcast_to(array, (*index.shape[:-1], *array.shape[-2:]))
    return np.take_along_axis(broadcast, np.expand_dims(index, -3 - axis), axis)


def as_product(call: Call, arena: Arena, output: Array) -> Array:
    """The output as m x n: scattered rows gathered, permuted dimensions in order, dropped ones restored."""
    m, n, _ = call.extents
    if call.kind.scatter_d:
        return selected(output, arena.array_in(arena.image, call.view("scatter_d")), -2)
    return output if call.kind.many else output.reshape((*call.batch, m, n))
