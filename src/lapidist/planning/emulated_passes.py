"""Launches that cut float32 matrices into parts, and join the products of parts (cuda/emulated/parts.cuh)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from lapidist.build.compiler import compile_kernel
from lapidist.dtypes import ANY_RANGE, EMULATED
from lapidist.launch import Binary, Launch, ParameterBlock

VECTOR = 16  # a part has whole vectors of 8-bit integers, or of 16-bit floats
THREADS, LINES = 256, 32
THREADS_OF = {"slice_columns": 512}  # whose blocks are few
BLOCKS_OF_SM = 8  # that join results
# Errors of slices grow with how far the largest of a line is over its mean, in A and in B, and fall with the
# root of k. Up to this product of both spans, over the root of k, random numbers give elements within 2^-21
# of |A||B|, and no numbers give more than docs/numerics.md says.
MOST_SPAN = 2.0


class Parts(NamedTuple):
    """What float32 is cut into: the type and the `pieces` of each number, and the type of sums of products.
    `wider`: what takes their place where they do not hold all numbers.
    """

    dtype: str
    sum_dtype: str
    pieces: int
    macro: int
    wider: Parts | None = None

    @property
    def floats(self) -> bool:
        return self.sum_dtype == "float32"

    @property
    def every(self) -> tuple[Parts, ...]:
        return (self,) if self.wider is None else (self, *self.wider.every)

    def most_span(self, k: int) -> float:
        """The largest product of both operands' spans. Lines that floats can hold have a span of 1."""
        return 1.0 if self.floats else MOST_SPAN * k**0.5


SLICES, PIECES = Parts("int8", "int32", 3, 0), Parts("bfloat16", "float32", 3, 1)
HALVES = Parts("float16", "float32", 2, 2, PIECES)
PARTS_OF = {EMULATED: SLICES, ANY_RANGE: HALVES}
EVERY_PARTS = {parts.macro: parts for first in PARTS_OF.values() for parts in first.every}
PASSES = ("slice_rows", "slice_columns", "take_columns", "join")

SLICE = [(name, "pointer") for name in "ABCD"]  # A, what passes say of lines, a guard, A's parts
NUMBERS = ("rows", "columns", "k", "padded", "of_b", "guarded")
OF_LINES = (*((name, "i32") for name in NUMBERS), ("limit", "f32"))
ROWS = ParameterBlock([*SLICE, ("line_step", "i64"), *OF_LINES])
COLUMNS = ParameterBlock([*SLICE, ("k_step", "i64"), ("line_step", "i64"), *OF_LINES])
TAKE = ParameterBlock(
    [("A", "pointer"), ("B", "pointer"), ("rows", "i32"), ("columns", "i32"), ("limit", "f32")]
)
JOIN = ParameterBlock(
    [
        *((name, "pointer") for name in "ABCD"),
        *((name, "i32") for name in ("rows", "columns", "width")),
        *((name, "i64") for name in ("c_row", "c_col", "d_row", "d_col")),
        *((name, "f32") for name in ("alpha", "beta")),
    ]
)


class Lines(NamedTuple):
    """The lines along k of an operand of m x n x k: elements from one to the next, and along k."""

    m: int
    n: int
    k: int
    of_b: bool
    line_step: int
    k_step: int


def padded(k: int) -> int:
    return -(-k // VECTOR) * VECTOR


def words_of_lines(m: int, n: int) -> int:
    """Of what passes say of lines (of_lines.cuh)."""
    return 6 + 2 * (m + n) + m


@lru_cache(maxsize=256)
def slicing(
    lines: Lines, parts: Parts, architecture: str, assembled: bool = True, guarded: bool = False
) -> Launch:
    m, n, k, of_b, line_step, k_step = lines
    numbers = {
        "rows": m,
        "columns": n,
        "k": k,
        "padded": padded(k),
        "of_b": int(of_b),
        "guarded": int(guarded),
        "limit": parts.most_span(k),
        "line_step": line_step,
    }
    how, count = (parts.macro, architecture, assembled), n if of_b else m
    if k_step == 1:
        return launch_of("slice_rows", count, ROWS, numbers, *how)
    return launch_of("slice_columns", -(-count // LINES), COLUMNS, {**numbers, "k_step": k_step}, *how)


@lru_cache(maxsize=256)
def taking(m: int, n: int, k: int, parts: Parts, architecture: str, assembled: bool = True) -> Launch:
    """The launch that brings what an earlier pass said of B's lines to a product's."""
    blocks, numbers = -(-n // THREADS), {"rows": m, "columns": n, "limit": parts.most_span(k)}
    return launch_of("take_columns", blocks, TAKE, numbers, parts.macro, architecture, assembled)


@lru_cache(maxsize=256)
def joining(
    m: int,
    n: int,
    c: tuple[int, int],
    d: tuple[int, int],
    parts: Parts,
    sms: int,
    architecture: str,
    assembled: bool = True,
) -> Launch:
    steps = dict(zip(("c_row", "c_col", "d_row", "d_col"), (*c, *d), strict=True))
    width = min(THREADS, 1 << (n - 1).bit_length())
    blocks = min(-(-m * width // THREADS) * -(-n // width), BLOCKS_OF_SM * sms)
    numbers = {"rows": m, "columns": n, "width": width, **steps}
    return launch_of("join", blocks, JOIN, numbers, parts.macro, architecture, assembled)


def launch_of(
    name: str,
    blocks: int,
    parameters: ParameterBlock,
    numbers: Mapping[str, float],
    parts: int,
    architecture: str,
    assembled: bool,
) -> Launch:
    binary = binary_of(name, parts, architecture, assembled)
    threads, content = THREADS_OF.get(name, THREADS), bytes(parameters.pack(numbers))
    return Launch(
        binary, (blocks, 1, 1), (threads, 1, 1), content, parameters=parameters, patches=parameters.patches()
    )


def binary_of(name: str, parts: int, architecture: str, assembled: bool = True) -> Binary:
    defines = {"THREADS": THREADS_OF.get(name, THREADS), "FLOATS": parts}
    return compile_kernel(f"emulated/{name}.cu", name, defines, architecture, assembled=assembled)
