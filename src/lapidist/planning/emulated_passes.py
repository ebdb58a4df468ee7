"""Launches that cut float32 matrices into parts, and join the products of parts (cuda/emulated/parts.cuh)."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from lapidist.build.compiler import compile_kernel
from lapidist.dtypes import ANY_RANGE, EMULATED
from lapidist.launch import Launch, ParameterBlock

PARTS, VECTOR = 3, 16  # a part has whole vectors of 8-bit integers, or of 16-bit floats
THREADS, LINES = 256, 32
BLOCKS_OF_SM = 8  # that join results
# Errors of slices grow with how far the largest of a line is over its mean, in A and in B, and fall with the
# root of k. Up to this product of both spans, over the root of k, random numbers give elements within 2^-21
# of |A||B|, and no numbers give more than docs/numerics.md says.
MOST_SPAN = 2.0


class Parts(NamedTuple):
    """The type of what float32 is cut into, and that of sums of products."""

    dtype: str
    sum_dtype: str

    @property
    def floats(self) -> bool:
        return self.sum_dtype == "float32"

    def most_span(self, k: int) -> float:
        """The largest product of both operands' spans. Lines that bfloat16 can hold have a span of 1."""
        return 1.0 if self.floats else MOST_SPAN * k**0.5


SLICES, PIECES = Parts("int8", "int32"), Parts("bfloat16", "float32")
PARTS_OF = {EMULATED: SLICES, ANY_RANGE: PIECES}

SLICE = [(name, "pointer") for name in "ABD"]  # A, what passes say of lines, A's parts
OF_LINES = ("rows", "columns", "k", "padded", "of_b")
ROWS = ParameterBlock([*SLICE, ("line_step", "i64"), *((name, "i32") for name in OF_LINES)])
COLUMNS = ParameterBlock(
    [*SLICE, *((name, "i64") for name in ("k_step", "line_step")), *((name, "i32") for name in OF_LINES)]
)
TAKE = ParameterBlock([("A", "pointer"), ("B", "pointer"), ("rows", "i32"), ("columns", "i32")])
JOIN = ParameterBlock(
    [
        *((name, "pointer") for name in "ABCD"),
        *((name, "i32") for name in ("rows", "columns")),
        *((name, "i64") for name in ("c_row", "c_col", "d_row", "d_col")),
        *((name, "f32") for name in ("limit", "alpha", "beta")),
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
    return 4 + 2 * (m + n) + m


@lru_cache(maxsize=256)
def slicing(lines: Lines, parts: Parts, architecture: str, assembled: bool = True) -> Launch:
    m, n, k, of_b, line_step, k_step = lines
    numbers = {
        "rows": m,
        "columns": n,
        "k": k,
        "padded": padded(k),
        "of_b": int(of_b),
        "line_step": line_step,
    }
    how, count = (parts.floats, architecture, assembled), n if of_b else m
    if k_step == 1:
        return launch_of("slice_rows", count, ROWS, numbers, *how)
    return launch_of("slice_columns", -(-count // LINES), COLUMNS, {**numbers, "k_step": k_step}, *how)


@lru_cache(maxsize=256)
def taking(m: int, n: int, parts: Parts, architecture: str, assembled: bool = True) -> Launch:
    """The launch that brings what an earlier pass said of B's lines to a product's."""
    blocks, numbers = -(-n // THREADS), {"rows": m, "columns": n}
    return launch_of("take_columns", blocks, TAKE, numbers, parts.floats, architecture, assembled)


@lru_cache(maxsize=256)
def joining(
    m: int,
    n: int,
    k: int,
    c: tuple[int, int],
    d: tuple[int, int],
    parts: Parts,
    sms: int,
    architecture: str,
    assembled: bool = True,
) -> Launch:
    steps = dict(zip(("c_row", "c_col", "d_row", "d_col"), (*c, *d), strict=True))
    numbers = {"rows": m, "columns": n, **steps, "limit": parts.most_span(k)}
    blocks = min(-(-m * n // THREADS), BLOCKS_OF_SM * sms)
    return launch_of("join", blocks, JOIN, numbers, parts.floats, architecture, assembled)


def launch_of(
    name: str,
    blocks: int,
    parameters: ParameterBlock,
    numbers: dict[str, int] | dict[str, float],
    floats: bool,
    architecture: str,
    assembled: bool,
) -> Launch:
    defines = {"THREADS": THREADS, "FLOATS": int(floats)}
    binary = compile_kernel(f"emulated/{name}.cu", name, defines, architecture, assembled=assembled)
    content = bytes(parameters.pack(numbers))
    return Launch(
        binary, (blocks, 1, 1), (THREADS, 1, 1), content, parameters=parameters, patches=parameters.patches()
    )
