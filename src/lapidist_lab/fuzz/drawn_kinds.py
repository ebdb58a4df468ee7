"""The kinds of calls: all that a kernel is compiled for, drawn once, so that a run meets a bounded number of
binaries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

import numpy as np

from lapidist.dtypes import (
    COMPLEX_HALVES,
    COMPLEX_OF_NUMPY,
    FP8,
    MIXED,
    OPERANDS,
    PART_OF,
    TF32,
    THREE_PRODUCTS,
    TYPES,
    complex_product,
    math_of,
    outputs_of,
)
from lapidist.kernels.registry import KERNELS
from lapidist_lab.fuzz.memory_layouts import PLAIN, Layout

T = TypeVar("T")
Generator = np.random.Generator
NUMPY_MULTIPLIED = ("float16", "float32", "float64", "int8", "uint8")  # of NumPy itself, and of CuPy
NUMPY_TYPES = ("bool", "int16", "int32", "int64", "uint16", "uint32", "uint64", *NUMPY_MULTIPLIED)
FUNCTIONS = {"matmul": 5, "gemm": 8, "plan": 5, "lists": 2, "pointers": 1}


COMPLEX_SHARE, SYMMETRIC_SHARE = 0.12, 0.12  # of the kinds that may be
Op = bool | Literal["C"]


@dataclass(frozen=True)
class Kind:
    framework: str
    function: str
    a: str
    b: str
    out: str
    accumulator: str | None = None
    precision: str = "ieee"
    promote: bool | None = None
    scale_a: str = "none"  # none, number, one, lines, strips, squares
    scale_b: str = "none"
    layouts: Mapping[str, Layout] = field(default_factory=dict)
    trans_a: Op = False
    trans_b: Op = False
    symmetric: bool = False  # b is the transpose of a, and c symmetric
    triangle: str | None = None  # the half that is written
    vectors: str = ""  # which of a and b are vectors
    dimensions: int = 0  # of the batch
    with_out: bool = False  # out
    names_out_dtype: bool = True  # for the output's type, by out_dtype
    c: str = "none"  # none, unread, out, or by its shape: whole, row, column, vector, one
    alpha: str = "one"  # one, minus, zero, any, array
    beta: str = "zero"
    gather_a: int = 0  # 1: indices for all matrices; 2: of each
    gather_b: int = 0
    scatter_d: int = 0
    permuted: bool = False
    index: str = "int32"
    addend: str = ""  # what an epilogue adds: row, column, tile
    choices: Mapping[str, Any] = field(default_factory=dict)  # kernel and schedule
    tidy: bool = False  # extents are multiples of 16

    @property
    def scaled(self) -> bool:
        return self.scale_a != "none" or self.scale_b != "none"

    @property
    def routed(self) -> bool:
        return bool(self.gather_a or self.gather_b or self.scatter_d or self.permuted)

    @property
    def by_numpy(self) -> bool:
        """Whether NumPy multiplies the types and no kernel does."""
        if self.is_complex:
            return False
        return self.a not in OPERANDS or (self.a != self.b and {self.a, self.b} not in MIXED)

    @property
    def is_complex(self) -> bool:
        return bool(complex_product(self.a, self.b))

    @property
    def many(self) -> bool:
        return self.function in ("lists", "pointers")

    @property
    def sums(self) -> str:
        return self.accumulator or (TYPES[self.a].accumulators[0] if self.a in OPERANDS else self.out)


def pick(rng: Generator, weights: Mapping[T, float]) -> T:
    names, shares = list(weights), np.cumsum(list(weights.values()))
    return names[int(np.searchsorted(shares, rng.random() * shares[-1], side="right"))]


def one_of(rng: Generator, values: Sequence[T]) -> T:
    return values[int(rng.integers(len(values)))]


def draw_kind(rng: Generator, place: str, framework: str) -> Kind:
    if place == "host" and framework == "numpy" and rng.random() < 0.06:
        return draw_numpy_types(rng)
    kind = draw_types(rng, framework, pick(rng, FUNCTIONS))
    if framework == "jax" and kind.many:
        kind = replace(kind, function="gemm")
    copied = place == "gpu" and framework == "numpy"
    if copied and kind.many:
        kind = replace(kind, function="matmul")
    if kind.a in FP8 and not kind.many and not copied and rng.random() < 0.35:
        kind = draw_factors(rng, kind)
    kind = draw_batch(rng, kind)
    if kind.function != "matmul":
        kind = replace(
            draw_scalars(rng, kind, copied),
            trans_a=bool(rng.random() < 0.2),
            trans_b=bool(rng.random() < 0.2),
        )
    routes = kind.function in ("gemm", "plan") and not kind.scaled and not copied
    if routes and rng.random() < 0.3:
        kind = draw_routes(rng, kind)
    kind = draw_output(rng, kind)
    kind = replace(kind, layouts=draw_layouts(rng, kind), tidy=bool(rng.random() < 0.35))
    fixed = kind.routed or kind.scaled or "array" in (kind.alpha, kind.beta)
    if framework == "jax" and kind.function == "plan" and fixed:
        kind = replace(kind, function="gemm")  # a plan reads them again, and nobody writes to JAX's arrays
    if place != "host" and kind.function != "matmul":
        kind = replace(kind, choices=draw_choices(rng, kind))
    # drawn last, so that other kinds of a seed stay as they are
    halved = kind.function in ("matmul", "gemm") and framework != "jax" and not copied
    if rng.random() < SYMMETRIC_SHARE and halved:
        kind = draw_symmetric(rng, kind)
    complex_fits = place != "gpu" or framework in ("torch", "cupy")
    kind = draw_complex(rng, kind) if rng.random() < COMPLEX_SHARE and complex_fits else kind
    return draw_epilogue_and_half(rng, kind, place)


def draw_epilogue_and_half(rng: Generator, kind: Kind, place: str) -> Kind:
    """The kind with c, a half and an epilogue, where it is symmetric; with one, where it is complex."""
    if kind.symmetric and kind.function == "gram":
        beta = pick(rng, {"zero": 2, "any": 2, "one": 1})
        out = kind.with_out and beta != "zero" and rng.random() < 0.5
        kind = replace(kind, beta=beta, c="none" if beta == "zero" else "out" if out else "whole")
    if kind.symmetric:
        kind = replace(kind, triangle=one_of(rng, (None, None, "lower", "upper")))
    follows = kind.symmetric or (kind.is_complex and kind.function in ("gemm", "plan", "lists"))
    if kind.framework == "jax" or not follows or kind.sums == "int32" or rng.random() < 0.6:
        return kind
    return replace(kind, addend="tile" if kind.symmetric else one_of(rng, ("row", "column", "tile")))


def draw_symmetric(rng: Generator, kind: Kind) -> Kind:
    """The kind as a product with its own transpose, by gram or by what matmul is told."""
    kind = without_arrays(kind)
    plain = replace(kind, b=kind.a, trans_a=False, trans_b=False, vectors="", symmetric=True, choices={})
    outputs = [name for name in outputs_of(kind.a, kind.a) if fits(kind.framework, name)]
    out = kind.out if kind.out in outputs else outputs[0]
    plain = replace(plain, out=out, accumulator=None, promote=None)
    if kind.function == "matmul":
        return plain
    return replace(plain, function="gram", trans_a=bool(rng.random() < 0.5), c="none", beta="zero")


def draw_complex(rng: Generator, kind: Kind) -> Kind:
    """The kind with complex numbers in place of its own; one operand may be real."""
    dtype = one_of(rng, [name for name in COMPLEX_OF_NUMPY if kind.framework != "jax" or name == "complex64"])
    if kind.framework == "torch" and rng.random() < 0.25:
        dtype = COMPLEX_HALVES
    real = "" if kind.symmetric else pick(rng, {"": 6, "a": 1, "b": 1})
    a, b = (PART_OF[dtype] if name == real else dtype for name in "ab")
    ops: dict[str, Any] = {}
    for name in ("trans_a", "trans_b"):
        conjugates = getattr(kind, name) and kind.function in ("gemm", "plan", "lists") and rng.random() < 0.6
        ops[name] = "C" if conjugates else getattr(kind, name)
    numbers = kind.alpha, kind.beta
    kind = replace(without_arrays(kind), a=a, b=b, out=dtype, accumulator=None, promote=None, **ops)
    kind = replace(kind, precision=TF32 if kind.precision == TF32 and dtype == "complex64" else "ieee")
    kind = draw_factors_of_complex(rng, kind, numbers)
    if kind.function == "matmul" and kind.symmetric:  # which gram alone takes of complex numbers
        kind = replace(kind, function="gram")
    if kind.choices:
        kind = replace(kind, choices=draw_choices(rng, replace(kind, a=PART_OF[dtype])))
    if dtype == COMPLEX_HALVES and kind.function == "plan":  # which is for kernels, and real numbers
        kind = replace(kind, function="gemm")
    to_arrays = dtype == COMPLEX_HALVES or kind.precision == THREE_PRODUCTS  # which Pointers do not take
    return replace(kind, function="lists") if kind.function == "pointers" and to_arrays else kind


def draw_factors_of_complex(rng: Generator, kind: Kind, numbers: tuple[str, str]) -> Kind:
    """The kind with alpha and beta in arrays where they were, and sometimes by three products."""
    if kind.framework == "jax" or kind.symmetric:
        return kind
    if kind.function in ("gemm", "plan"):
        kind = replace(kind, alpha=numbers[0], beta=numbers[1])
    return replace(kind, precision=THREE_PRODUCTS) if rng.random() < 0.2 else kind


def without_arrays(kind: Kind) -> Kind:
    """The kind without factors and indices, and with numbers as alpha and beta."""
    alpha, beta = ("any" if how == "array" else how for how in (kind.alpha, kind.beta))
    kind = replace(kind, scale_a="none", scale_b="none", gather_a=0, gather_b=0, scatter_d=0, permuted=False)
    layouts = {name: layout for name, layout in kind.layouts.items() if name != "out" or not kind.permuted}
    return replace(kind, alpha=alpha, beta=beta, layouts=layouts)


def draw_types(rng: Generator, framework: str, function: str) -> Kind:
    names = [name for name in OPERANDS if framework != "cupy" or name in NUMPY_MULTIPLIED]
    a = one_of(rng, [name for name in names if framework != "jax" or name != "float64"])
    b = a
    if rng.random() < 0.2:
        b = next((one for pair in MIXED if a in pair for one in pair if one != a), a)
    out = pick(
        rng,
        {
            name: 4 if place == 0 else 1
            for place, name in enumerate(outputs_of(a, b))
            if fits(framework, name)
        },
    )
    accumulator = one_of(rng, [None, *TYPES[a].accumulators])
    precision = TF32 if a == "float32" and rng.random() < 0.35 else "ieee"
    promote = True if a in FP8 and rng.random() < 0.25 else None
    return Kind(framework, function, a, b, out, accumulator, precision, promote)


def draw_numpy_types(rng: Generator) -> Kind:
    a, b = one_of(rng, NUMPY_TYPES), one_of(rng, NUMPY_TYPES)
    out = str(np.result_type(a, b))
    kind = Kind("numpy", "matmul", a, b, out, with_out=bool(rng.random() < 0.5), names_out_dtype=False)
    if not kind.by_numpy or out in ("int8", "uint8"):  # results of 8 bits are the project's own
        return draw_numpy_types(rng)
    kind = draw_batch(rng, kind)
    return replace(kind, layouts=draw_layouts(rng, kind))


def fits(framework: str, name: str) -> bool:
    return framework != "cupy" or name in (*NUMPY_MULTIPLIED, "int32")


def draw_factors(rng: Generator, kind: Kind) -> Kind:
    weights = {"none": 2.0, "number": 1, "one": 1, "lines": 2, "strips": 2, "squares": 1}
    return replace(kind, scale_a=pick(rng, weights), scale_b=pick(rng, weights))


def draw_batch(rng: Generator, kind: Kind) -> Kind:
    along = {"lines", "strips", "squares"} & {kind.scale_a, kind.scale_b}
    dimensions = 0 if kind.many or along else pick(rng, {0: 6, 1: 3, 2: 1.5, 3: 0.7, 4: 0.3})
    vectors = (
        pick(rng, {"": 8, "a": 1, "b": 1, "ab": 1}) if kind.function == "matmul" and not kind.scaled else ""
    )
    return replace(kind, dimensions=0 if vectors == "ab" else dimensions, vectors=vectors)


def draw_scalars(rng: Generator, kind: Kind, copied: bool) -> Kind:
    arrays = 0 if kind.many or kind.scaled or copied else 0.7
    alpha = pick(rng, {"one": 4, "any": 3, "minus": 1, "zero": 0.5, "array": arrays})
    beta = pick(rng, {"zero": 5, "any": 2, "one": 1, "minus": 1, "array": arrays})
    if beta == "zero":
        return replace(kind, alpha=alpha, c=pick(rng, {"none": 4, "unread": 1}))
    shapes = {"whole": 4, "out": 4, **({} if kind.many else {"row": 1, "column": 1, "vector": 1, "one": 1})}
    return replace(kind, alpha=alpha, beta=beta, c=pick(rng, shapes))


def draw_routes(rng: Generator, kind: Kind) -> Kind:
    weights = {0: 3.0, 1: 3, 2: 2 if 1 <= kind.dimensions <= 2 else 0}
    gather_a, gather_b, scatter_d = (pick(rng, weights) for _ in range(3))
    permuted = bool(rng.random() < 0.3)
    scatter_d = 0 if permuted or kind.framework == "jax" else scatter_d
    c = "whole" if scatter_d and kind.c in ("row", "column", "vector", "one") else kind.c
    c = "whole" if permuted and c == "out" else c
    index = one_of(rng, ("int32",) if kind.framework == "jax" else ("int32", "int64"))
    routed = replace(kind, gather_a=gather_a, gather_b=gather_b, scatter_d=scatter_d, c=c, index=index)
    return replace(routed, permuted=permuted and kind.framework != "jax")


def draw_output(rng: Generator, kind: Kind) -> Kind:
    needed = kind.scatter_d or kind.permuted or kind.c == "out" or kind.function == "pointers"
    if kind.framework == "jax":  # its arrays cannot be written to
        return replace(kind, with_out=False, c="whole" if kind.c == "out" else kind.c)
    with_out = bool(needed or rng.random() < 0.6)
    return replace(kind, with_out=with_out, names_out_dtype=bool(not with_out or rng.random() < 0.3))


def draw_layouts(rng: Generator, kind: Kind) -> dict[str, Layout]:
    if kind.framework == "jax":
        return {}
    return {name: draw_layout(rng, kind, name) for name in ("a", "b", "c", "out")}


def draw_layout(rng: Generator, kind: Kind, name: str) -> Layout:
    """A layout; outputs are contiguous along rows or columns, unless they are permuted."""
    free = name != "out" or kind.permuted
    batched = kind.dimensions > 0
    inner = pick(
        rng, {"cols": 5, "rows": 4, "batch": 1 if batched and free else 0, "between": 1 if batched else 0}
    )
    steps = (
        1 if not free or rng.random() < 0.85 else int(rng.integers(2, 4)),
        1 if rng.random() < 0.8 else 2,
    )
    backwards = kind.framework in ("numpy", "cupy") and kind.function != "pointers" and rng.random() < 0.12
    turns = one_of(rng, ((True, False), (False, True), (True, True))) if backwards else (False, False)
    if not free:
        turns = (turns[0] and inner != "rows", turns[1] and inner == "rows")
    repeated = (
        batched and name in ("a", "b", "c") and inner not in ("batch", "between") and rng.random() < 0.1
    )
    return PLAIN._replace(
        inner=inner,
        steps=steps,
        flipped=turns,
        pitch=pick(rng, {"tight": 3, "aligned": 3, "odd": 1}),
        shift=int(rng.integers(1, 8)) if rng.random() < 0.2 else 0,
        repeated=bool(repeated),
    )


def draw_choices(rng: Generator, kind: Kind) -> dict[str, Any]:
    """Kernels by name, and schedules; some refuse."""
    math = math_of(kind.a, kind.precision)
    choices: dict[str, Any] = {}
    if rng.random() < 0.25:
        choices["kernel"] = pick(
            rng,
            {row.name: 6 if row.kind == "production" else 1 for row in KERNELS if math in row.types.maths},
        )
    return choices | draw_sharing(rng) if rng.random() < 0.15 else choices


def draw_sharing(rng: Generator) -> dict[str, Any]:
    """A way in which blocks share tiles."""
    splits = int(rng.integers(1, 6))
    return one_of(
        rng,
        (
            {"split_k": splits},
            {"split_k": splits, "reduction": one_of(rng, ("turnstile", "separate", "cluster"))},
            {"split_k": splits, "reduction": "atomic", "deterministic": False},
            {"schedule": "stream_k"},
            {"schedule": "stream_k", "avail_sms": splits},
            {"schedule": "data_parallel"},
        ),
    )
