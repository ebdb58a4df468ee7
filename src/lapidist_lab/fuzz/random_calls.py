"""A call: a kind with shapes, views and numbers; how it is made, and how it reads."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import lapidist
from lapidist import Column, Row, Tile, epilogue
from lapidist.problems.epilogue_layout import READS
from lapidist.problems.scaling import K_BLOCK
from lapidist_lab.fuzz.buffers import Arena
from lapidist_lab.fuzz.doses import Dose, batch_extents, extents
from lapidist_lab.fuzz.drawn_kinds import Generator, Kind, one_of
from lapidist_lab.fuzz.memory_layouts import PLAIN, Layout, View, lay, transposed

Shape = tuple[int, ...]
MATRICES = ("a", "b", "c", "out")
SCALAR_TYPES = {
    "float16": "float32",
    "complex32": "complex64",
}  # alpha and beta in arrays, where sums have another type


@epilogue
def with_row(acc: Any, addend: Row) -> Any:
    return acc + addend


@epilogue
def with_column(acc: Any, addend: Column) -> Any:
    return acc + addend


@epilogue
def with_tile(acc: Any, addend: Tile) -> Any:
    return acc + addend


ADDED = {"row": with_row, "column": with_column, "tile": with_tile}

OF_TORCH: dict[str, Callable[[Any], Any]] = {
    "gradient": lambda tensor: tensor.detach().requires_grad_(),
    "negated": lambda tensor: importlib.import_module("torch")._neg_view(tensor),
    "conjugated": lambda tensor: tensor.conj(),
    "elsewhere": lambda tensor: tensor.cpu(),
}


@dataclass(frozen=True)
class Call:
    """`views`: arrays by argument, several for lists. `options`: other arguments. `limits`: bounds of
    indices, which one of those in `beyond` exceeds. `changed`: what no view shows. `expected`: "right",
    "refused" or "either"; `words`: what is wrong."""

    kind: Kind
    extents: tuple[int, int, int]
    batch: Shape
    views: dict[str, list[View]]
    options: dict[str, Any]
    limits: dict[str, int] = field(default_factory=dict)
    beyond: str = ""
    changed: str = ""
    expected: str = "right"
    words: str = ""

    def view(self, name: str) -> View:
        return self.views[name][0]

    @property
    def all_views(self) -> list[View]:
        return [view for views in self.views.values() for view in views]

    @property
    def alpha(self) -> Any:
        return self.options.get("alpha", 1.0)

    @property
    def beta(self) -> Any:
        return self.options.get("beta", 0.0)

    def __str__(self) -> str:
        count = max(len(views) for views in self.views.values())
        arrays = [
            f"{name}={views[0]}{f' x {count}' if count > 1 else ''}{other_shapes(views)}"
            for name, views in self.views.items()
        ]
        kind, options = self.kind, [f"{name}={value!r}" for name, value in self.options.items()]
        same = ["c is out"] if kind.c == "out" else []
        return (
            f"{self.words + ': ' if self.words else ''}{kind.framework}"
            f" {kind.function}({', '.join([*arrays, *same, *options])})"
        )


def other_shapes(views: Sequence[View]) -> str:
    """In words, where a list has several."""
    shapes = [list(view.shape) for view in views]
    return "" if all(shape == shapes[0] for shape in shapes) else f" (then {str(shapes[1:])[1:-1]})"


def draw_call(rng: Generator, kind: Kind, dose: Dose, place: str) -> Call:
    m, n, k = extents(rng, dose, kind.tidy)
    if kind.vectors:
        m, n = 1 if "a" in kind.vectors else m, 1 if "b" in kind.vectors else n
    return draw_call_of(rng, kind, (m, n, k), dose, place)


def draw_call_of(rng: Generator, kind: Kind, size: tuple[int, int, int], dose: Dose, place: str) -> Call:
    """A call of these m, n and k."""
    m, n, k = size
    if kind.symmetric:
        n = m
    batch = batch_extents(rng, dose, kind.dimensions, m * n * k)
    call = Call(kind, (m, n, k), batch, {}, options_of(rng, kind, place))
    call = with_operands(rng, call)
    call = with_output(rng, call)
    return with_extras(rng, listed(rng, call, dose) if kind.many else call)


def options_of(rng: Generator, kind: Kind, place: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if place == "machine" or (place == "gpu" and kind.framework == "numpy"):
        options["device"] = place
    types = {
        "acc_dtype": kind.accumulator,
        "promote": kind.promote,
        "out_dtype": kind.out if kind.names_out_dtype else None,
    }
    options |= {name: value for name, value in types.items() if value is not None}
    if kind.precision != "ieee":
        options["precision"] = kind.precision
    for name, how in (("scale_a", kind.scale_a), ("scale_b", kind.scale_b)):
        if how == "number":
            options[name] = float(2.0 ** rng.integers(-2, 3))
    if kind.function == "matmul":
        declared = ("addend",) if kind.addend else True
        half = {} if kind.triangle is None else {"triangle": kind.triangle}
        return {**options, **({"symmetric": declared, **half} if kind.symmetric else {})}
    for name, how in (("alpha", kind.alpha), ("beta", kind.beta)):
        if how != "array":
            options[name] = number(rng, how, kind)
    flags: dict[str, Any] = {"trans_a": kind.trans_a, "trans_b": kind.trans_b, "permuted": kind.permuted}
    if kind.function == "gram":
        flags = {"trans": kind.trans_a, "triangle": kind.triangle}
        flags["symmetric"] = ("addend",) if kind.addend else ()
    return {**options, **{name: op for name, op in flags.items() if op}, **kind.choices}


def number(rng: Generator, how: str, kind: Kind) -> complex:
    """The value of alpha or beta; an integer for integers."""
    fixed = {"one": 1.0, "minus": -1.0, "zero": 0.0}
    if how in fixed:
        return fixed[how]
    if kind.sums == "int32":
        return int(rng.integers(2, 5)) * one_of(rng, (1, -1))
    size = float(rng.uniform(0.3, 3.0)) * one_of(rng, (1, -1))
    if kind.is_complex and not kind.symmetric and rng.random() < 0.5:
        return complex(size, float(rng.uniform(-2.0, 2.0)))
    return size


# ---- views ----


def with_operands(rng: Generator, call: Call) -> Call:
    kind, (m, n, k) = call.kind, call.extents
    rows = m if not kind.gather_a else int(rng.integers(1, m + 5))
    cols = n if not kind.gather_b else int(rng.integers(1, n + 5))
    of_a, of_b = operand_batches(rng, call.batch) if not kind.symmetric else (call.batch, call.batch)
    a = (k,) if "a" in kind.vectors else (*of_a, *((k, rows) if kind.trans_a else (rows, k)))
    b = (k,) if "b" in kind.vectors else (*of_b, *((cols, k) if kind.trans_b else (k, cols)))
    batch = np.broadcast_shapes(a[:-2], b[:-2])
    views = {"a": [laid(call, "a", kind.a, a)], "b": [laid(call, "b", kind.b, b)]}
    if kind.symmetric:
        views["b"] = [view if kind.trans_a else transposed(view) for view in views["a"]]
    return replace(call, views=views, batch=tuple(batch), limits={"gather_a": rows, "gather_b": cols})


def operand_batches(rng: Generator, batch: Shape) -> tuple[Shape, Shape]:
    """The batches of a and b, which broadcast to the batch."""
    lone = [one_of(rng, ("neither",) * 5 + ("a", "b")) for _ in batch]
    shapes = []
    for name in "ab":
        shape = tuple(
            1 if lone_operand == name else extent for lone_operand, extent in zip(lone, batch, strict=True)
        )
        while shape[:1] == (1,) and rng.random() < 0.5:
            shape = shape[1:]
        shapes.append(shape)
    return shapes[0], shapes[1]


def laid(call: Call, name: str, dtype: str, shape: Shape) -> View:
    return lay(name, dtype, shape, call.kind.layouts.get(name, PLAIN))


def with_output(rng: Generator, call: Call) -> Call:
    kind, (m, n, _), views, limits = call.kind, call.extents, dict(call.views), dict(call.limits)
    rows = m + int(rng.integers(0, 5)) if kind.scatter_d else m
    product = (*call.batch, *(() if "a" in kind.vectors else (rows,)), *(() if "b" in kind.vectors else (n,)))
    layout = kind.layouts.get("out", PLAIN)
    if kind.with_out and kind.permuted:
        views["out"] = [permuted(rng, call, layout)]
    elif kind.with_out:
        views["out"] = [lay("out", kind.out, product, layout if not kind.vectors else PLAIN)]
    if kind.c == "out":
        views["c"] = views["out"]
    elif kind.c != "none":
        shapes = {"row": (1, n), "column": (*call.batch, m, 1), "vector": (n,), "one": (1, 1)}
        views["c"] = [laid(call, "c", kind.out, shapes.get(kind.c, product))]
    return replace(call, views=views, limits={**limits, "scatter_d": rows})


def permuted(rng: Generator, call: Call, layout: Layout) -> View:
    """A view of out with its dimensions in any order, behind those of the batch."""
    m, n, _ = call.extents
    m0, n0 = (
        one_of(rng, [part for part in (1, 2, 3, 4, 8, extent) if part and extent % part == 0] or [1])
        for extent in (m, n)
    )
    shape = (*call.batch, m // m0, m0, n // n0, n0)
    order = [int(axis) for axis in rng.permutation(len(shape))]
    plain = lay("out", call.kind.out, tuple(shape[axis] for axis in order), layout._replace(repeated=False))
    strides = [0] * len(shape)
    for axis, stride in zip(order, plain.strides, strict=True):
        strides[axis] = stride
    return plain._replace(shape=shape, strides=tuple(strides))


def listed(rng: Generator, call: Call, dose: Dose) -> Call:
    """The call with lists of matrices that lie alike, or of parts of such matrices. Lists longer than a
    launch takes are rare."""
    m, n, k = call.extents
    most = max(1, min(dose.batch, dose.products // max(1, m * n * k)))
    count = int(rng.integers(1, min(most, 5) + 1)) if rng.random() < 0.95 or most < 40 else 70
    alike = call.kind.function == "pointers"
    views = {name: members(rng, views[0], count, alike) for name, views in call.views.items()}
    if call.kind.function == "lists" and not call.kind.addend and rng.random() < 0.5:
        sizes = [call.extents, *(smaller(rng, call.extents) for _ in range(count - 1))]
        views = {name: parts_of(call, name, views[name], sizes) for name in views}
    return replace(call, views={**views, "c": views["out"]} if call.kind.c == "out" else views)


def smaller(rng: Generator, extents: Sequence[int]) -> tuple[int, ...]:
    """The extents, about half of which are at most 3. Zero is rare."""
    least = 0 if rng.random() < 0.1 else 1
    return tuple(
        extent if rng.random() < 0.5 else min(extent, int(rng.integers(least, 4))) for extent in extents
    )


def parts_of(call: Call, name: str, views: list[View], sizes: Sequence[Sequence[int]]) -> list[View]:
    """The first rows and columns of each matrix of a list, as many as its product has."""
    kind, parts = call.kind, []
    for view, (m, n, k) in zip(views, sizes, strict=True):
        rows, cols = {"a": (m, k), "b": (k, n)}.get(name, (m, n))
        transposed = (kind.trans_a and name == "a") or (kind.trans_b and name == "b")
        parts.append(view._replace(shape=(cols, rows) if transposed else (rows, cols)))
    return parts


def members(rng: Generator, view: View, count: int, alike: bool) -> list[View]:
    """The views of a list; where they start off 16 bytes, each may start elsewhere."""
    backwards = view.start - min(view.start, 7) if any(stride < 0 for stride in view.strides) else 0
    starts = [
        view.start if alike or backwards or not view.start else int(rng.integers(0, 8)) for _ in range(count)
    ]
    return [view._replace(region=f"{view.region}[{i}]", start=start) for i, start in enumerate(starts)]


def with_extras(rng: Generator, call: Call) -> Call:
    """The call with indices, factors, alpha and beta in arrays, and addresses."""
    kind, views, (m, n, k) = call.kind, dict(call.views), call.extents
    for name, how, count in (
        ("gather_a", kind.gather_a, m),
        ("gather_b", kind.gather_b, n),
        ("scatter_d", kind.scatter_d, m),
    ):
        if how:
            views[name] = [lay(name, kind.index, (*(call.batch if how == 2 else ()), count))]
    for name, number in (("alpha", kind.alpha), ("beta", kind.beta)):
        if number == "array":
            views[name] = [lay(name, SCALAR_TYPES.get(kind.sums, kind.sums), one_of(rng, ((), (1,), (1, 1))))]
    for name, factor_kind, lines in (("scale_a", kind.scale_a, m), ("scale_b", kind.scale_b, n)):
        if factor_kind not in ("none", "number"):
            views[name] = [factors(rng, name, factor_kind, lines, k)]
    if kind.addend:
        rows = call.limits["scatter_d"]  # those of out
        shape = {"row": (n,), "column": (rows,), "tile": (rows, n)}[kind.addend]
        dtype = kind.out if kind.out in READS or kind.is_complex else "float32"
        views["addend"] = [laid(call, "addend", dtype, shape)]
    if kind.function == "pointers":
        views |= {
            f"addresses of {name}": [lay(f"addresses of {name}", "int64", (len(call.views["a"]),))]
            for name in call.views
        }
    return replace(call, views=views)


def factors(rng: Generator, name: str, how: str, lines: int, k: int) -> View:
    blocks, squares = -(-k // K_BLOCK), -(-lines // K_BLOCK)
    shapes = {
        "lines": one_of(rng, ((lines,), (lines, 1))),
        "strips": (lines, blocks),
        "squares": (squares, blocks),
    }
    view = lay(
        name,
        "float32",
        shapes.get(how, one_of(rng, ((), (1,), (1, 1)))),
        PLAIN._replace(inner=one_of(rng, ("cols", "rows"))),
    )
    return transposed(view) if name == "scale_b" and len(view.shape) == 2 else view


# ---- the call itself ----


def arguments(call: Call, arena: Arena) -> dict[str, Any]:
    """The arguments by name."""
    passed: dict[str, Any] = {}
    for name, views in call.views.items():
        if name == "c" and call.kind.c == "out" and "out" in passed:
            passed[name] = passed["out"]
        elif name.startswith("addresses"):
            continue
        elif call.kind.function == "pointers" and name in MATRICES:
            passed[name] = pointers(call, arena, name)
        elif call.kind.many and name in MATRICES:
            passed[name] = [arena.array(view) for view in views]
        else:
            passed[name] = arena.array(views[0])
    if call.kind.c == "out" and "c" in passed:
        passed["c"] = passed.get("out", passed["c"])
    if call.kind.addend:
        passed["epilogue"] = ADDED[call.kind.addend](addend=passed.pop("addend"))
    return changed(call, {**passed, **call.options}) if call.changed else {**passed, **call.options}


def changed(call: Call, passed: dict[str, Any]) -> dict[str, Any]:
    """The arguments with the change that no view shows; in lists of the first array."""
    name = {"read-only out": "out", "elsewhere": "b"}.get(call.changed, "a")
    first = passed[name][0] if call.kind.many else passed[name]
    if call.changed == "read-only out":
        first = first.view()
        first.flags.writeable = False
    else:
        first = OF_TORCH[call.changed](first)
    replaced = {**passed, name: [first, *passed[name][1:]] if call.kind.many else first}
    return {**replaced, "c": replaced["out"]} if call.kind.c == "out" else replaced


def pointers(call: Call, arena: Arena, name: str) -> lapidist.Pointers:
    view = call.view(name)
    addresses = arena.array(call.view(f"addresses of {name}"))
    alignment = 16 if not view.start else 0
    return lapidist.Pointers(
        addresses, (view.shape[0], view.shape[1]), view.dtype, (view.strides[0], view.strides[1]), alignment
    )


def perform(call: Call, passed: dict[str, Any], plans: dict[str, Any]) -> Any:
    """The result. `plans` keeps the plan for cases that share the call."""
    a, b, more = (
        passed["a"],
        passed["b"],
        {name: value for name, value in passed.items() if name not in ("a", "b")},
    )
    if call.kind.function == "matmul":
        return lapidist.matmul(a, b, **more)
    if call.kind.function == "gram":
        return lapidist.gram(a, **more)
    if call.kind.function != "plan":
        return lapidist.gemm(a, b, **more)
    ready = plans.get("plan") or lapidist.plan(a, b, **more)
    plans.setdefault("plan", ready)
    return ready.execute(a, b, more.get("c"), more.get("out"))
