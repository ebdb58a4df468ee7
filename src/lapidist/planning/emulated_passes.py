"""Launches that cut float32 matrices into parts, judge them, and join the products of parts
(cuda/emulated/parts.cuh).
"""

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

SLICE = [(name, "pointer") for name in "ABCD"]  # A, its scales and spans, its parts
ROWS = ParameterBlock([*SLICE, ("line_step", "i64"), ("k", "i32"), ("padded", "i32"), ("reversed", "i32")])
COLUMNS = ParameterBlock(
    [
        *SLICE,
        *((name, "i64") for name in ("k_step", "line_step")),
        *((name, "i32") for name in ("lines", "k", "padded", "reversed")),
    ]
)
JUDGE = ParameterBlock(
    [
        *((name, "pointer") for name in "ABD"),
        ("rows", "i32"),
        ("columns", "i32"),
        *((name, "f32") for name in ("limit", "alpha", "beta")),
    ]
)
JOIN = ParameterBlock(
    [
        *((name, "pointer") for name in "ABCD"),
        *((name, "i64") for name in ("rows", "columns", "c_row", "c_col", "d_row", "d_col")),
        ("alpha", "f32"),
        ("beta", "f32"),
    ]
)


class Lines(NamedTuple):
    """An operand as lines along k: elements from one to the next, and along k."""

    lines: int
    k: int
    line_step: int
    k_step: int

    @property
    def padded(self) -> int:
        return padded(self.k)


def padded(k: int) -> int:
    return -(-k // VECTOR) * VECTOR


@lru_cache(maxsize=256)
def slicing(lines: Lines, of_b: bool, parts: Parts, architecture: str, assembled: bool = True) -> Launch:
    how = parts.floats, architecture, assembled
    numbers = {"line_step": lines.line_step, "k": lines.k, "padded": lines.padded, "reversed": int(of_b)}
    if lines.k_step == 1 or lines.lines == 1:
        return launch_of("slice_rows", lines.lines, ROWS, numbers, *how)
    numbers |= {"k_step": lines.k_step, "lines": lines.lines}
    return launch_of("slice_columns", -(-lines.lines // LINES), COLUMNS, numbers, *how)


@lru_cache(maxsize=256)
def judging(rows: int, columns: int, limit: float, architecture: str, assembled: bool = True) -> Launch:
    numbers = {"rows": rows, "columns": columns, "limit": limit}
    return launch_of("judge", 1, JUDGE, numbers, None, architecture, assembled)


@lru_cache(maxsize=256)
def joining(
    rows: int,
    columns: int,
    c: tuple[int, int],
    d: tuple[int, int],
    parts: Parts,
    sms: int,
    architecture: str,
    assembled: bool = True,
) -> Launch:
    numbers = dict(
        zip(("rows", "columns", "c_row", "c_col", "d_row", "d_col"), (rows, columns, *c, *d), strict=True)
    )
    blocks = min(-(-rows * columns // THREADS), BLOCKS_OF_SM * sms)
    return launch_of("join", blocks, JOIN, numbers, parts.floats, architecture, assembled)


def launch_of(
    name: str,
    blocks: int,
    parameters: ParameterBlock,
    numbers: dict[str, int] | dict[str, float],
    floats: bool | None,
    architecture: str,
    assembled: bool,
) -> Launch:
    defines = {"THREADS": THREADS} | ({} if floats is None else {"FLOATS": int(floats)})
    binary = compile_kernel(f"emulated/{name}.cu", name, defines, architecture, assembled=assembled)
    content = bytes(parameters.pack(numbers))
    return Launch(
        binary, (blocks, 1, 1), (THREADS, 1, 1), content, parameters=parameters, patches=parameters.patches()
    )
